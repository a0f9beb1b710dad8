"""A cluster of a master and two workers: matches are made in the executors, and one that is killed loses nothing."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from spark.cluster import cluster

from cepheid.app import load
from cepheid.history.asked import asked
from cepheid.language.checker import Checked, check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.matcher import Matcher
from cepheid.service.log import log_committed
from cepheid.service.supplier import Supplier
from tests.conftest import JAVA_FOR_TESTS
from tests.history.test_log_source import TOKEN, push
from tests.service.intakes import air, starting
from tests.spark.on_cluster import LEVELS
from tests.spark.suite import ON_CLUSTER, by_name
from tests.spark.test_matching import QUERIES, expected
from tests.spark.test_streaming import NOW, arrivals, delta_rows, finished, write

pytestmark = pytest.mark.spark

AIR = Stream("air", {"sensor": Type.STRING, "flow": Type.FLOAT}, id_kind="int")
APP = """
name: plant
streams:
  air: {{attributes: {{sensor: string, flow: float}}, key: sensor, lateness: 10us}}
archive: {{path: "{folder}/archive"}}
service: {{listen: "{address}", log: {{path: {log}}}}}
queries:
  near:
    text: |
      SELECT ?p.flow FROM (?p, air), (?q, air) WITHIN [1970-01-01, )
      SEQ (?p, ?q) WINDOW (?p, ?q, 10us) JOIN (?p.sensor = ?q.sensor)
"""
PAST = "SELECT ?q.id FROM (?p, air), (?q, air) SEQ (?p, ?q) WINDOW (?p, ?q, 20us) JOIN (?p.sensor = ?q.sensor)"


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    with cluster(tmp_path) as address:
        yield address


def written(folder: Path) -> list[Event]:
    """Events, and the files of them that a stream reads one by one."""
    r = random.Random(3)
    events = [Event("air", i, i * 10, {"sensor": f"D{r.randrange(9)}", "flow": r.uniform(0, 9)}) for i in range(400)]
    folder.mkdir()
    for start in range(0, 400, 100):
        path = folder / f"{start:03}.json"
        rows = ({"id": e.id, "time": e.time, **e.attributes} for e in events[start : start + 100])
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (1e9 + start, 1e9 + start))
    return events


def checked_air(text: str) -> Checked:
    checked, problems = check(parse(text), Catalogue({"air": AIR}, "air"))
    assert checked is not None, problems
    return checked


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "CEPHEID_TOKEN": TOKEN}
    command, output = [sys.executable, "-m", module, *arguments], subprocess.PIPE
    return subprocess.run(
        command, env={**os.environ, **own}, stdout=output, stderr=subprocess.STDOUT, text=True, check=False
    )


def matched(checked: Checked, events: list[Event], watermark: int | None) -> list[str]:
    """The matches of a query up to a watermark; None is the end."""
    matcher = Matcher(checked, 0)
    matcher.push(events)
    return sorted(match.id for match in matcher.advance(watermark))


@pytest.mark.timeout(900)
def test_matches_are_made_in_the_executors(master: str, tmp_path: Path) -> None:
    """The suite as a batch; and as a stream, in the middle of which an executor is killed."""
    cuts = [0, 130, 131, 270, 400]
    write(tmp_path / "in", arrivals(), cuts)
    events = [air(i, i * 10) for i in range(120)]
    with starting(tmp_path) as begin:
        intake = begin(listen=["tcp:127.0.0.1:0"], token=TOKEN)
        push(intake, events[:100])
        with Supplier(intake.address, token=TOKEN) as supplier:
            supplier.push_json([b'{"stream": "air", "id": 100, "time": 1, "flow": "much"}'])
            supplier.flush()
        program = run("tests.spark.on_cluster", master, str(tmp_path), intake.address)
        for name, log in ("away.yaml", "nowhere"), ("here.yaml", "log"):
            (tmp_path / name).write_text(APP.format(folder=tmp_path, address=intake.address, log=log))
        own = ["spark.driver.host=127.0.0.1", "spark.executor.memory=512m", "spark.sql.shuffle.partitions=2"]
        own.append(f"spark.executor.extraJavaOptions={JAVA_FOR_TESTS}")
        options = ["--master", master, *(text for one in own for text in ("--conf", one))]
        # Its log is in another folder than it says: whoever reads it there finds nothing.
        pipeline = run("cepheid.cli.main", "pipeline", str(tmp_path / "away.yaml"), "--once", *options)
        push(intake, events[100:])
        # Who asks has to know how far the log goes, and its executors read it over TCP all the same. Beside each
        # other, with an executor each.
        options += ["--conf", "spark.cores.max=1"]
        here = str(tmp_path / "here.yaml")
        commands = (["archive", "stats", here], ["query", here, "-q", PAST])
        with ThreadPoolExecutor() as both:
            stats, past = both.map(lambda words: run("cepheid.cli.main", *words, *options), commands)
    for done in program, pipeline, stats, past:
        assert done.returncode == 0, done.stdout
    scheduler, batch, log, stream = (json.loads(line) for line in program.stdout.splitlines() if line.startswith("{"))
    # Spark has read the file of pools: a level has eight times the share of the next lower.
    assert scheduler == {"scheduling": "FAIR", "pools": dict(zip(LEVELS, ([64, 1], [8, 1], [1, 0]), strict=True))}
    for name, text in QUERIES.items():
        assert batch["batch"][name] == sorted(m.id for m in expected(text, NOW)), name
    assert len(batch["executors"]) == 2
    assert 0 not in batch["executors"], "a match was made elsewhere than in an executor"

    assert sorted(log["log"]) == list(range(100))
    assert log["readers"] == batch["executors"]

    assert stream["killed while it ran"]
    found = by_name(delta_rows(tmp_path / "matches", "name", "id"))
    for name in ON_CLUSTER:
        assert found[name] == sorted(finished(name)), name
    # Matches were open when it was killed: some have events on both sides of each cut.
    place = {event.id: number for number, event in enumerate(arrivals())}
    ids = [[ref[1] for ref in m.events.values() if isinstance(ref, tuple)] for m in expected(QUERIES["pair"], NOW)]
    for cut in cuts[1:-1]:
        assert any(min(place[i] for i in pair) < cut <= max(place[i] for i in pair) for pair in ids)

    # The application has all of the log, though nothing could read it by its folder.
    archive = tmp_path / "archive"
    assert sorted(delta_rows(archive / "air", "id", "log_offset")) == [(i, i) for i in range(100)]
    assert [reason for (reason,) in delta_rows(archive / "_dead_letters", "code")] == ["wrong-type"]
    app = load(here)
    near = matched(app.plan().queries["near"], events[:100], 990 - 10)
    assert len(near) == 97  # up to the watermark
    assert sorted(delta_rows(archive / "_matches" / "near", "id")) == [(found,) for found in near]
    assert log_committed(tmp_path / "log", "archive") == 100
    tables = {words[0]: words[1:3] for words in map(str.split, stats.stdout.splitlines()) if words}
    assert tables["air"] == ["100", "0"]
    assert tables["_dead_letters"] == ["1", "0"]
    # In the archive, in the log, and across.
    told = [json.loads(line)["id"] for line in past.stdout.splitlines() if line.startswith("{")]
    assert sorted(told) == matched(asked(app, PAST, 0).checked, events, None)
