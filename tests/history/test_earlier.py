"""Live queries whose WITHIN begins before the log does: past, boundary and live as one answer, each match once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from cepheid.app import Application, load
from cepheid.cli.engines import find_matches
from cepheid.history import log_source
from cepheid.history.answer import query
from cepheid.history.archiving import Tally, archive_log, commit_archived
from cepheid.history.asked import asked
from cepheid.history.log_place import LogPlace
from cepheid.history.pipeline import Pipeline, matches_table
from cepheid.history.restore import restore, wanted
from cepheid.model.events import Event
from cepheid.model.time import parse_instant
from cepheid.model.types import Value
from cepheid.service.client import ConsumerClient
from cepheid.service.intake import config_of, start
from cepheid.service.log import LogReader, extent
from cepheid.service.received import Received
from cepheid.service.supplier import Supplier
from cepheid.spark.application import archive_of
from tests.history.campaigns import in_time
from tests.history.going import go_through
from tests.service.intakes import tail_of
from tests.service.test_service import children

BEGIN: Final = parse_instant("2012-05-07T09:00")
SECOND: Final = 1_000_000
APP: Final = """
name: plant
streams:
  air: {attributes: {sensor: string, flow: float, raw: bytes}, key: sensor, lateness: 2s}
  door: {attributes: {open: bool}, lateness: 2s}
  lamp: {attributes: {on: bool}}
archive: {path: archive}
service: {listen: "unix:in.sock", deliver: "unix:out.sock", log: {path: log, durability: none}}
"""
#: From the hundredth second on: not all of the archive.
WITHIN: Final = "WITHIN [2012-05-07T09:01:40, )"
RISING: Final = f"""
      SELECT ?p.sensor FROM (?p, air), (?q, air) {WITHIN}
      JOIN (?p.sensor = ?q.sensor AND ?q.flow > ?p.flow + 4) SEQ (?p, ?q) WINDOW (?p, ?q, 8s)
"""
TAKEN: Final = f"""
      SELECT ?p.sensor FROM (?p, air), (?d, door) {WITHIN} FILTER (?p.flow > 4) FILTER (?d.open)
      SEQ (?p, ?d) WINDOW (?p, ?d, 30s) AFTER MATCH CONSUME
"""


def event(number: int) -> Event:
    """One a second; some come late and don't count, others by less than the lateness."""
    moment = BEGIN + (number - (9 if number % 23 == 9 else 1 if number % 5 == 2 else 0)) * SECOND
    if number % 7 == 3:
        return Event("door", number, moment, {"open": number % 2 == 0})
    values: dict[str, Value] = {"sensor": f"s{number % 3}", "flow": float(number * 7 % 11), "raw": b"x" * 3000}
    return Event("air", number, moment, values)


def application(folder: Path, **queries: str) -> Application:
    lines = [f"  {name}:\n    {text}" for name, text in queries.items()]
    (folder / "app.yaml").write_text(APP + ("queries:\n" + "".join(lines) if lines else ""))
    return load(folder / "app.yaml")


def on(engine: str, text: str) -> str:
    return f"engine: {engine}\n    text: |{text}"


def reference(app: Application, name: str, events: list[Event]) -> list[str]:
    """The ids of the matches that the reference finds among what is not late."""
    text = app.graph.queries[name].text
    assert text is not None
    return sorted(m.id for m in find_matches("reference", asked(app, text, 0).question, events, 0))


def archive_all(spark: SparkSession, app: Application) -> None:
    log_source.register(spark)
    archive, streams = archive_of(app), list(app.graph.streams.values())
    writer = archive_log(spark, LogPlace(app.folder / "log"), streams, archive, archive.checkpoint("log"), Tally())
    batches = writer.trigger(availableNow=True).start()
    batches.awaitTermination()
    commit_archived(batches, LogPlace(app.folder / "log"))


def sound(log: Path) -> list[Event]:
    return [one.event for one in LogReader(log) if not one.late and not one.duplicate]


@contextmanager
def forgetful(spark: SparkSession, folder: Path) -> Iterator[tuple[Supplier, list[Event]]]:
    """An intake whose log has forgotten the first of what came, which is archived; and what came that counts."""
    app = application(folder)
    config = replace(config_of(app), segment_bytes=1 << 16, retain_bytes=1 << 16)
    with start(config), Supplier(f"unix:{folder}/in.sock") as supplier:
        supplier.push_many([event(number) for number in range(300)])
        supplier.push(event(17))  # a duplicate, which leaves a hole
        supplier.push_many([event(number) for number in range(300, 400)])
        supplier.flush()
        events = sound(folder / "log")
        assert len(events) < 400
        archive_all(spark, app)
        assert in_time(lambda: extent(folder / "log").first > 300, 30)
        supplier.push_many([event(number) for number in range(400, 410)])
        supplier.flush()
        yield supplier, [*events, *counting(400, 410)]
    for log in (folder / "log", folder / "log" / "dead"):
        tail_of(log).unlink(missing_ok=True)


def counting(first: int, last: int) -> list[Event]:
    return [event(number) for number in range(first, last) if number % 23 != 9]


def more(supplier: Supplier, first: int, last: int) -> list[Event]:
    """What counts of further events, and ends, that make all of them final."""
    events = [event(number) for number in range(first, last)]
    moment = events[-1].time + 60 * SECOND
    ends = [
        Event("air", 9000, moment, {"sensor": "s9", "flow": 0.0, "raw": b""}),
        Event("door", 9001, moment, {"open": False}),
    ]
    supplier.push_many([*events, *ends])
    supplier.flush()
    return [*counting(first, last), *ends]


def test_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    with forgetful(spark, tmp_path) as (supplier, events):
        app = application(tmp_path, rising=on("spark", RISING), taken=on("spark", TAKEN))
        kill_when_it_is_under_way(tmp_path, app)
        said: list[str] = []
        with Pipeline(spark, app, say=said.append) as pipeline:
            go_through(pipeline)
            events += more(supplier, 410, 450)
            go_through(pipeline)
            pipeline.tend()
            assert not (tmp_path / "log" / "restored").exists()
            assert not [text for text in said if "is started again" not in text]  # a worker may be too slow to start
    assert query(app, RISING, spark=spark).missing is None
    for name in ("rising", "taken"):
        rows = spark.read.format("delta").load(matches_table(archive_of(app), name)).collect()
        assert sorted(row["id"] for row in rows) == reference(app, name, events)
        first = min(min(row["events"].asDict().values()) for row in rows)
        assert 100 <= first < 120
        assert any(row["recovered"] for row in rows)


def test_a_query_that_is_removed_while_it_recovers_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The other one is whole, and nothing stays in the log for the one that is gone; that goes on if it comes back."""
    with forgetful(spark, tmp_path) as (supplier, events):
        both = {"rising": on("spark", RISING), "taken": on("spark", TAKEN)}
        app = application(tmp_path, **both)
        kill_when_it_is_under_way(tmp_path, app)
        with Pipeline(spark, app, say=lambda _: None) as pipeline:
            changes = pipeline.apply(application(tmp_path, taken=both["taken"]))
            assert changes == {"added": [], "removed": ["rising"], "changed": []}
            events += more(supplier, 410, 450)
            go_through(pipeline)
            pipeline.tend()
            assert not (tmp_path / "log" / "restored").exists()
            taken = spark.read.format("delta").load(matches_table(archive_of(app), "taken"))
            assert sorted(row["id"] for row in taken.collect()) == reference(app, "taken", events)
            pipeline.apply(application(tmp_path, **both))
            go_through(pipeline)
        rising = spark.read.format("delta").load(matches_table(archive_of(app), "rising"))
        assert sorted(row["id"] for row in rising.collect()) == reference(app, "rising", events)


def kill_when_it_is_under_way(folder: Path, app: Application) -> None:
    """A pipeline of its own begins with what was brought back, and is killed in the middle of that."""
    command = [sys.executable, "-m", "cepheid.cli.main", "pipeline", "app.yaml"]
    places = [f"query-{name}-*" for name in app.graph.queries]
    checkpoints = Path(archive_of(app).checkpoint(""))
    with (folder / "said.txt").open("w") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=file, start_new_session=True)
    try:
        assert in_time(lambda: all(any(checkpoints.glob(f"{place}/offsets/0")) for place in places), 120), (
            folder / "said.txt"
        ).read_text()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    said = (folder / "said.txt").read_text()
    assert "rising: WITHIN begins before the log does. What came before offset" in said
    assert "were brought back into the log from the archive" in said


def test_in_the_service(spark: SparkSession, tmp_path: Path) -> None:
    with forgetful(spark, tmp_path) as (_, events):
        first = extent(tmp_path / "log").first
    lit = "SELECT ?l.on FROM (?l, lamp)"
    app = application(
        tmp_path, rising=on("service", RISING), taken=on("service", TAKEN), lit=f'{{engine: service, text: "{lit}"}}'
    )
    log, streams, names = tmp_path / "log", list(app.graph.streams.values()), ("rising", "taken")
    with (
        serving(tmp_path) as process,
        receiving(tmp_path, *names, "lit") as found,
        Supplier(f"unix:{tmp_path}/in.sock") as supplier,
    ):
        # Who wants the far past waits, and holds up nobody; also the engine after the one that is killed.
        supplier.push(Event("lamp", 1, time.time_ns() // 1000, {"on": True}))
        supplier.flush()
        assert in_time(lambda: len(found["lit"]) == 1, 60)
        assert in_time(lambda: len(wanted(log)) == 2, 60)
        kill_engine(process)
        assert in_time(lambda: (tmp_path / "service.txt").read_text().count("rising: WITHIN begins before") == 2, 60)
        assert in_time(lambda: len(wanted(log)) >= 2, 60)
        assert not found["rising"]
        assert not found["taken"]
        said = restore(spark, log, archive_of(app), streams)
        assert said is not None
        assert f"to {first - 1} were brought back into the log from the archive" in said
        assert all(text.startswith("since") or int(text) >= 100 for text in wanted(log).values())
        # Killed before anything is written down of what was read.
        assert in_time(lambda: bool(found["rising"]), 60)
        kill_engine(process)
        assert in_time(lambda: restore_what_is_wanted(spark, app), 60)
        events += more(supplier, 410, 450)
        wanted_ids = {name: reference(app, name, events) for name in names}
        for name in names:
            assert in_time(lambda name=name: len(found[name]) >= len(wanted_ids[name]), 60)  # type: ignore[misc]
    for name in names:
        assert sorted(one.id for one in found[name]) == wanted_ids[name]
        assert {"recovered" in one.marks for one in found[name]} == {True, False}
    said = (tmp_path / "service.txt").read_text()
    assert f"rising: WITHIN begins before the log does. What came before offset {first} is awaited from the" in said
    lanes = json.loads((log / "lanes.json").read_text())
    assert len({lane for key, lane in lanes.items() if key != "version"}) == 3


def restore_what_is_wanted(spark: SparkSession, app: Application) -> bool:
    """Whether it is there."""
    log = app.folder / "log"
    if wanted(log):
        restore(spark, log, archive_of(app), list(app.graph.streams.values()))
    return all(float(name) >= extent(log).first for name in map(offset_read, [app.folder] * 2, ("rising", "taken")))


def offset_read(folder: Path, name: str) -> int:
    """How far a query was read, as its lane has written down."""
    log = folder / "log"
    lanes = json.loads((log / "lanes.json").read_text())
    key = next(key for key in lanes if key.startswith(f"{name} "))
    with suppress(OSError, ValueError, KeyError):
        return int(json.loads((log / f"{lanes[key]}.read").read_text())[key]["offset"])
    return 0


@contextmanager
def serving(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "cepheid.cli.main", "service", "app.yaml"]
    with (folder / "service.txt").open("a") as said:
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True
        )
    try:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)][1], (folder / "service.txt").read_text()
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        for log in (folder / "log", folder / "log" / "dead"):
            tail_of(log).unlink(missing_ok=True)


def kill_engine(process: subprocess.Popen[str]) -> None:
    name = "cepheid.service.process"
    pid = children(process)[name]
    os.kill(pid, signal.SIGKILL)
    assert in_time(lambda: children(process).get(name) not in (None, pid), 60)


@contextmanager
def receiving(folder: Path, *names: str) -> Iterator[dict[str, list[Received]]]:
    """What a client of each query is given."""
    found: dict[str, list[Received]] = {name: [] for name in names}
    clients = [ConsumerClient(f"unix:{folder}/out.sock", name) for name in names]
    threads = [client.call(found[name].append) for client, name in zip(clients, names, strict=True)]
    try:
        yield found
    finally:
        for client, thread in zip(clients, threads, strict=True):
            client.close()
            thread.join(30)


def test_what_is_neither_in_the_archive_nor_in_the_log_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with forgetful(spark, tmp_path):
        first = extent(tmp_path / "log").first
    # An archive that is begun now lacks what the log has forgotten.
    (tmp_path / "log" / "consumers" / "archive").unlink()
    text = (tmp_path / "app.yaml").read_text().replace("archive: {path: archive}", "archive: {path: younger}")
    (tmp_path / "app.yaml").write_text(text + f"queries:\n  rising:\n    {on('spark', RISING)}")
    app = load(tmp_path / "app.yaml")
    said: list[str] = []
    with Pipeline(spark, app, say=said.append) as pipeline:
        go_through(pipeline)
    assert said[0].startswith("rising: WITHIN begins before the log does")
    lacks = f"the archive was begun with offset {first} of the log, at "
    assert said[1].startswith(f"rising: {lacks}")
    for _ in range(2):  # also of an archive that does not say so itself
        answer = query(app, RISING, spark=spark)
        assert answer.missing is not None
        assert answer.missing.startswith(lacks)
        (tmp_path / "younger" / "_checkpoints" / "log.begun").unlink()
    later = query(app, RISING.replace("2012-05-07T09:01:40", "now - 1us"), spark=spark)
    assert later.missing is None
