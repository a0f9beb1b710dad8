"""Queries on streams in Spark: the matches of the batch through restarts and kills; test_suite.py has the cuts."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import DataFrame, SparkSession

import cepheid.spark
from cepheid.language.checker import check
from cepheid.language.errors import Rejected
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher
from cepheid.service.log import LogReader
from cepheid.spark.clocks import Live
from cepheid.spark.columns import UnsuitableColumns
from cepheid.spark.matching import NoKey
from cepheid.spark.streaming import NoWatermark
from tests.history.test_log_source import push
from tests.service.intakes import AIR, air, starting
from tests.spark.killed_stream import QUERY
from tests.spark.test_buckets import judged
from tests.spark.test_matching import EVENTS, QUERIES, START, expected

pytestmark = pytest.mark.spark

NOW: Final = START + 12_000_000
LATENESS: Final = 2_000_000
SCHEMA: Final = "stream string, id bigint, time timestamp, room string, x double, n int, ok boolean, since timestamp"


def arrivals() -> list[Event]:
    """The events about in the order of time, some of them late."""
    r = random.Random(5)
    return sorted(EVENTS, key=lambda e: e.time + r.choice([0, 0, 1_000_000, 1_500_000, 4_000_000]))


def write(folder: Path, events: Sequence[Event], cuts: Sequence[int]) -> None:
    """The events as files, which Spark reads in the order of their times."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (start, end) in enumerate(pairwise(cuts)):
        path = folder / f"{start:04}.json"
        lines = []
        for e in events[start:end]:
            moments = {n: t and _moment(t) for n, t in (("time", e.time), ("since", e.attributes["since"]))}
            lines.append(json.dumps({**e.attributes, **moments, "stream": e.stream, "id": e.id}))
        path.write_text("\n".join(lines))
        os.utime(path, (START / 1e6 + start, START / 1e6 + start + number))


def _moment(microseconds: Any) -> str:
    from cepheid.model.time import format_instant

    return format_instant(microseconds)


def read(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def run(matches: DataFrame, folder: Path) -> list[Any]:
    """What a query gives until its input ends, with what earlier runs with the same folder gave."""
    writer = matches.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.format("delta").start(str(folder / "out")).awaitTermination()
    return matches.sparkSession.read.format("delta").load(str(folder / "out")).orderBy("time", "id").collect()


def finished(name: str) -> list[str]:
    """The matches that the batch finds in what is not late, as far as the watermark completes them."""
    timely, watermark = judged(arrivals(), ("a", "b") if " b)" in QUERIES[name] else ("a",), LATENESS)
    assert watermark is not None
    assert len(timely) < len(EVENTS)
    wanted = expected(QUERIES[name], NOW, timely)
    return [m.id for m in sorted(wanted, key=lambda m: (m.time, m.id)) if m.time < watermark]


def test_a_restart_goes_on_with_another_number_of_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Partial matches are open when it stops. The state moves: what is hashed into buckets stays there."""
    query = cepheid.spark.match(QUERIES["pair"], stream="stream", now=NOW)
    write(tmp_path / "in", arrivals(), [0, 200])
    stream = read(spark, tmp_path / "in").withWatermark("time", "2 seconds")
    first = run(stream.transform(query), tmp_path)
    spark._streamingCheckpointManager.repartition(str(tmp_path / "checkpoint"), 3)
    write(tmp_path / "in", arrivals(), [200, 400])
    # Another call, as in another program: `now` is still that of the first start.
    again = cepheid.spark.match(QUERIES["pair"], stream="stream", now=NOW + 1)
    found = [row["id"] for row in run(stream.transform(again), tmp_path)]
    assert 0 < len(first) < len(found)
    assert found == finished("pair")


def test_what_came_too_late_is_in_the_result_if_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", arrivals(), [0, 120, 400])
    stream = read(spark, tmp_path / "in").withWatermark("time", "2 seconds")
    found = run(stream.transform(cepheid.spark.match(QUERIES["pair"], stream="stream", live=Live(late=True))), tmp_path)
    assert [row["id"] for row in found if row["late"] is None] == finished("pair")
    timely, _ = judged(arrivals(), ("a", "b"), LATENESS)
    late = {e.id for e in EVENTS} - {e.id for e in timely}
    told = {row["late"]["id"] for row in found if row["late"] is not None}
    assert told
    assert told <= late  # those that no filter keeps from the query


def test_what_a_stream_needs_is_said(spark: SparkSession, tmp_path: Path) -> None:
    stream = read(spark, tmp_path)
    with pytest.raises(NoWatermark, match=r'Write frame.withWatermark\("time", "10 seconds"\)'):
        stream.transform(cepheid.spark.match(QUERIES["pair"], stream="stream"))
    timed = stream.withWatermark("time", "2 seconds")
    with pytest.raises(Rejected, match="WINDOW"):
        timed.transform(cepheid.spark.match("SELECT ?p.id FROM (?p, a), (?q, b) SEQ (?p, ?q)", stream="stream"))
    with pytest.warns(NoKey, match="matched in one bucket, by one task at a time"):
        timed.transform(cepheid.spark.match(QUERIES["no_key"], stream="stream"))
    with pytest.raises(UnsuitableColumns, match="no column 'offset' for the arrival of events"):
        timed.transform(cepheid.spark.match(QUERIES["pair"], stream="stream", live=Live(arrival="offset")))
    with pytest.raises(ValueError, match="buckets: expected 1 to 4096, found 0"):
        Live(buckets=0)


def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    """SIGKILL of all Python workers in mid-batch, then of the driver, with partial matches open; then it goes on."""
    r = random.Random(11)
    events = [
        air(i, i * 10 - r.choice([0, 0, 10, 40]), r.choice(["D1", "D2", "D3", None]), r.uniform(0, 9))
        for i in range(500)
    ]
    commits = tmp_path / "checkpoint" / "commits"

    def program(partitions: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.spark.killed_stream", str(tmp_path / "log"), str(tmp_path)]
        return subprocess.Popen(
            [*command, str(partitions)],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    with starting(tmp_path) as begin:
        intake = begin()
        push(intake, events[:400])
        first = program(1)
        while not (commits / "1").exists():
            assert first.poll() is None, first.communicate()[0]
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGKILL)
        said, _ = first.communicate()
        assert "and tasks failed" in said, said
        push(intake, events[400:])
        again = program(3)
        said, _ = again.communicate()
        assert again.returncode == 0, said
        assert "and tasks failed" in said, said  # others did them again, with the state as it was before the batch
        wanted = in_log(tmp_path / "log")
    assert len(wanted) > 50
    assert sorted(delta_ids(tmp_path / "matches")) == sorted(wanted)


def in_log(log: Path) -> list[str]:
    """What the matcher finds in what the log did not flag, up to the watermark."""
    sound = [each.event for each in LogReader(log) if not each.late and not each.duplicate]
    checked, problems = check(parse(QUERY), Catalogue({"air": replace(AIR, id_kind="int")}, "air"))
    assert checked is not None, problems
    matcher = Matcher(checked, 0)
    matcher.push(sound)
    return [match.id for match in matcher.advance(max(e.time for e in sound) - AIR.lateness)]


def delta_ids(table: Path) -> list[str]:
    """The ids in a Delta table."""
    return [found for (found,) in delta_rows(table, "id")]


def delta_rows(table: Path, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a Delta table, read by its own log."""
    live: set[str] = set()
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            live |= {action["add"]["path"]} if "add" in action else set()
            live -= {action["remove"]["path"]} if "remove" in action else set()
    tables = (pq.read_table(table / path, columns=list(columns)) for path in live)
    return [row for t in tables for row in zip(*(t.column(name).to_pylist() for name in columns), strict=True)]
