"""The pipeline of an application on Spark: the log into the archive, and queries into their sinks, while it goes on."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from cepheid.app import Application, load
from cepheid.history import pipeline as pipeline_module
from cepheid.history import upkeep
from cepheid.history.answer import query
from cepheid.history.pipeline import Pipeline, matches_table
from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher
from cepheid.service.derived import derived_streams
from cepheid.service.intake import IntakeProcess, config_of, start
from cepheid.service.log import LogReader, extent
from cepheid.service.metrics import page
from cepheid.service.supervisor import PIPELINE
from cepheid.service.supplier import Supplier
from cepheid.spark.application import archive_of
from cepheid.spark.archive import read, read_dead_letters
from tests.spark.killed_stream import planners

APP = """
    name: plant
    streams:
      air: {attributes: {sensor: string, flow: float}, key: sensor, lateness: 10us}
      fan: {attributes: {sensor: int, speed: float}}
    archive: {path: archive}
    service: {listen: "unix:intake.sock", log: {path: log, durability: each}}
    queries:
"""
RISING = """
    rising:
      level: high
      text: |
        SELECT ?p.sensor, ?q.flow - ?p.flow AS rise FROM (?p, air), (?q, air) WITHIN [1970-01-01, )
        SEQ (?p, ?q) WINDOW (?p, ?q, 50us) JOIN (?p.sensor = ?q.sensor AND ?q.flow > ?p.flow + 2)
"""
STEEP = """
    steep:
      sink: {kind: console}
      text: SELECT ?r.sensor, ?r.rise FROM (?r, rising) WITHIN [1970-01-01, ) FILTER (?r.rise > 5)
"""
HIGH = """
    high:
      sink: {kind: console}
      text: SELECT ?e.flow FROM (?e, air) WITHIN [1970-01-01, ) FILTER (?e.flow > 5)
"""


def application(folder: Path, *queries: str) -> Application:
    text = dedent(APP) + "".join(indent(dedent(query), "  ") for query in queries)
    (folder / "app.yaml").write_text(text)
    return load(folder / "app.yaml")


def air(number: int, time: int, flow: float) -> Event:
    return Event("air", number, time, {"sensor": f"D{number % 3}", "flow": flow})


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[IntakeProcess]:
    with start(config_of(application(tmp_path, RISING, STEEP))) as process:
        yield process


def push(folder: Path, events: list[Event], *lines: bytes) -> None:
    with Supplier(f"unix:{folder / 'intake.sock'}") as supplier:
        supplier.push_many(events)
        if lines:
            supplier.push_json(list(lines))
        supplier.flush()


def wanted(folder: Path, app: Application, query: str) -> list[str]:
    """The matches among what the log did not flag, up to its watermark."""
    sound = [each.event for each in LogReader(folder / "log") if not each.late and not each.duplicate]
    own = [event for event in sound if event.stream == "air"]
    matcher = Matcher(app.plan().queries[query], 0)
    matcher.push(own)
    return sorted(match.id for match in matcher.advance(max(e.time for e in own) - 10))


def found(spark: SparkSession, app: Application, query: str) -> list[str]:
    table = spark.read.format("delta").load(matches_table(archive_of(app), query))
    return sorted(row["id"] for row in table.collect())


def pool_of(store: Any, stage: int) -> str | None:
    """The scheduler pool that a stage ran in; None for one that has not begun or not ended."""
    try:
        found = store.lastStageAttempt(stage)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "NoSuchElementException":
            raise
        return None
    return found.schedulingPool() if found.status().toString() == "COMPLETE" else None


def pools_of(spark: SparkSession, pipeline: Pipeline) -> dict[str, set[str]]:
    """The scheduler pools that the tasks of each part ran in."""
    tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()
    found: dict[str, set[str]] = {}
    for part in pipeline._parts.values():
        assert part.query is not None
        jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(str(part.query.runId)))
        pools = (pool_of(store, stage) for job in jobs if job is not None for stage in job.stageIds)
        found[part.name] = {pool for pool in pools if pool is not None}
    return found


@pytest.mark.usefixtures("intake")
def test_the_log_goes_into_the_archive_and_through_the_queries(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    consumers = tmp_path / "log" / "consumers"
    first = [air(i, i * 10, float(i * i % 11)) for i in range(60)]
    late, again = air(900, 5, 1.0), air(3, 30, 1.0)
    fan = Event("fan", 1, 600, {"sensor": 4, "speed": 1.5})
    push(tmp_path, [*first, late, again, fan], b'{"stream": "air", "id": 77, "time": 1, "flow": "much"}')
    with Pipeline(spark, application(tmp_path, RISING), say=said.append) as pipeline:
        pipeline.process_all()
        assert dict(pipeline.tally.archived) == {"air": 61, "fan": 1}
        assert pipeline.tally.duplicates == 1
        assert sum(pipeline.tally.dead_letters.values()) == 1

        app = application(tmp_path, RISING, STEEP)
        # What is found is a stream of the log now, which goes into the archive like any other.
        assert pipeline.apply(app) == {"added": ["rising to log", "steep"], "removed": [], "changed": ["archive"]}
        push(tmp_path, [air(i, i * 10, float(i * i % 11)) for i in range(60, 90)])
        pipeline.process_all()  # up to the matches in the log
        pipeline.process_all()  # and what reads them
        status = {s.name: (s.state, s.lag) for s in pipeline.status()}
        assert status == dict.fromkeys(("archive", "dead letters", "rising", "steep"), ("running", 0)) | {
            "rising to log": ("running", None)
        }
        assert not pipeline.down
        high = ("rising", "rising to log")
        assert pools_of(spark, pipeline) == {
            name: {"high" if name in high else "background"} for name in pipeline._parts
        }
        pipeline.tend()
        told = json.loads((tmp_path / "log" / PIPELINE).read_text())["parts"]
        assert 'cepheid_pipeline_lag{part="rising",level="high"} 0\n' in page({"pipeline": told})
        assert 'cepheid_pipeline_running{part="steep",level="background"} 1\n' in page({"pipeline": told})
        # The log waits for each query, as long as there is such a one.
        waited = {file.name.split("-")[1]: int(file.read_text()) for file in consumers.glob("query-*")}
        assert waited == dict.fromkeys(("rising", "steep"), extent(tmp_path / "log").end)
        # What can't be brought back from the archive is said, and ends nothing.
        monkeypatch.setattr(pipeline_module, "restore", lambda *_: spark.sql("SELECT * FROM damaged"))
        pipeline.tend()
        assert said.pop().startswith("what the service needs of the archive can't be brought back yet: [TABLE_OR_VIEW")
        pipeline.apply(application(tmp_path, RISING))
        assert [file.name.split("-")[1] for file in consumers.glob("query-*")] == ["rising"]
    archive, air_stream = archive_of(app), app.graph.streams["air"]
    assert sorted(row["id"] for row in read(spark, archive, air_stream).collect()) == list(range(90))
    (kept,) = read(spark, archive, air_stream, late=True).where("log_late").collect()
    assert (kept["id"], kept["log_offset"]) == (900, 60)
    (letter,) = read_dead_letters(spark, archive).collect()
    assert letter["stream"] == "air"
    assert b"much" in bytes(letter["raw"])
    ids = wanted(tmp_path, app, "rising")
    assert len(ids) > 20
    assert found(spark, app, "rising") == ids
    # What others read is archived too (rule G7), so that the past can be asked about it.
    derived = derived_streams(app.plan())["rising"]
    assert sorted(row["id"] for row in read(spark, archive, derived).collect()) == ids
    asked = query(app, "SELECT ?r.rise FROM (?r, rising) FILTER (?r.rise > 5)", spark=spark, now=10_000)
    assert len(list(asked)) > 3
    # What the console was given are the steep ones among them.
    table = spark.read.format("delta").load(matches_table(archive, "rising"))
    steep = {row["id"] for row in table.where("select.rise > 5").collect()}
    told = [json.loads(line) for line in said]
    assert len(told) > 3
    assert {line["events"]["r"] for line in told} <= steep
    assert all(line["select"]["rise"] > 5 for line in told)
    check_recovered(spark, tmp_path)


def check_recovered(spark: SparkSession, folder: Path) -> None:
    """What came while no pipeline ran is marked, with its delay, by a query with state and one without."""
    more = [air(i, i * 10, float(i * i % 11)) for i in range(90, 150)]
    push(folder, more[:30])
    pushed, said = time.time_ns() // 1000, list[str]()
    app = application(folder, RISING, HIGH)
    with Pipeline(spark, app, say=said.append) as pipeline:
        pipeline.process_all()
        push(folder, more[30:])
        pipeline.process_all()
        ended, lines = time.time_ns() // 1000, {line["events"]["e"]: line for line in map(json.loads, said)}
        rows = spark.read.format("delta").load(matches_table(archive_of(app), "rising")).collect()
        check_planners_killed(spark, folder, pipeline, said)
    # The first sixty were there before the first pipeline; what the last two of a batch end waits for the next.
    by_last = {row["events"]["q"]: (row["recovered"], row["delay"]) for row in rows}
    assert {q for q, (recovered, _) in by_last.items() if recovered} >= {q for q in by_last if q < 58 or 89 < q < 118}
    assert not any(by_last[q][0] for q in by_last if 59 < q < 88 or q > 119)
    assert all((delay is not None and delay > 0) == recovered for recovered, delay in by_last.values())
    assert lines.keys() == {e for e in range(150) if e * e % 11 > 5}
    assert all(("delay" in line) == line.get("recovered", False) == (e < 120) for e, line in lines.items())
    # Each by its own event: the first ones came long before those that were pushed last.
    assert 0 < lines[max(e for e in lines if e < 120)]["delay"] < lines[min(lines)]["delay"]
    came = {each.event.id: each.arrival for each in LogReader(folder / "log") if each.event.stream == "air"}
    assert all(pushed <= came[e] + line["delay"] <= ended for e, line in lines.items() if e < 120)


def check_planners_killed(spark: SparkSession, folder: Path, pipeline: Pipeline, said: list[str]) -> None:
    """SIGKILL, in the middle of a batch, of all processes that plan what streams read of the log.

    Each of the streams ends of it, also an idle one, and is started again. Nothing is missing then, and nothing twice.
    """
    parts = [part for part in pipeline._parts.values() if part.log is not None]
    assert [part.name for part in parts] == ["archive", "dead letters", "rising", "high"]
    killed, offsets = planners(), Path(parts[2].checkpoint) / "offsets"
    before = set(offsets.iterdir())
    push(folder, [air(i, i * 10, float(i * i % 11)) for i in range(150, 180)])
    while set(offsets.iterdir()) <= before:
        time.sleep(0.001)
    for pid in killed:
        with suppress(ProcessLookupError):  # one of a stream of before, that was ending
            os.kill(pid, signal.SIGKILL)
    while any(part.query is not None and part.query.isActive for part in parts):
        time.sleep(0.01)
    pipeline.tend()
    assert pipeline.down == [part.name for part in parts]
    ends = [line for line in said if "the Python process that plans what it reads has ended" in line]
    assert [line.split(" has failed")[0] for line in ends] == pipeline.down
    while not all(status.state == "running" and status.lag == 0 for status in pipeline.status()):
        pipeline.tend()  # more than once where the machine is too busy for Spark to await new processes
        time.sleep(0.01)
    app = pipeline._setting.app
    assert found(spark, app, "rising") == wanted(folder, app, "rising")
    ids = [row["id"] for row in read(spark, archive_of(app), app.graph.streams["air"]).collect()]
    assert sorted(ids) == list(range(180))


def test_a_stream_that_gains_an_attribute(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive gains a column; what came before has null there, until it is older than the archive keeps."""
    text, today = dedent(APP).removesuffix("queries:\n"), time.time_ns() // 1000
    (tmp_path / "app.yaml").write_text(text)
    app = load(tmp_path / "app.yaml")
    with start(config_of(app)):
        push(tmp_path, [air(1, 10, 1.0)])
    with Pipeline(spark, app) as pipeline:
        pipeline.process_all()
    text = text.replace("flow: float", "flow: float, unit: string")
    (tmp_path / "app.yaml").write_text(text)
    app = load(tmp_path / "app.yaml")

    def kept() -> list[tuple[Any, ...]]:
        rows = read(spark, archive_of(app), app.graph.streams["air"]).orderBy("id").select("id", "flow", "unit")
        return [tuple(row) for row in rows.collect()]

    said: list[str] = []
    with start(config_of(app)), Pipeline(spark, app, say=said.append) as pipeline:
        push(tmp_path, [Event("air", 2, today, {"sensor": "D2", "flow": 2.0, "unit": "cfm"})])
        pipeline.process_all()
        assert not pipeline.down
        assert kept() == [(1, 1.0, None), (2, 2.0, "cfm")]
        (tmp_path / "app.yaml").write_text(text.replace("{path: archive}", "{path: archive, retain: 30d}"))
        assert not any(pipeline.apply(load(tmp_path / "app.yaml")).values())
        pipeline._upkeep._aged -= 3500
        pipeline.tidy()
        assert len(kept()) == 2  # it looks once an hour
        pipeline._upkeep._aged -= 3600
        pipeline.tidy()
        # What is archived meanwhile goes into the same table.
        push(tmp_path, [Event("air", 3, today + 1, {"sensor": "D3", "flow": 3.0, "unit": "cfm"})])
        pipeline.process_all()
        assert kept() == [(2, 2.0, "cfm"), (3, 3.0, "cfm")]
        assert not said
        # What can't be removed is said, and ends nothing.
        monkeypatch.setattr(upkeep, "remove_before", lambda *_: spark.sql("SELECT * FROM damaged"))
        pipeline._upkeep._aged -= 3600
        pipeline.tidy()
        (line,) = said
        assert line.startswith("what the archive is not to keep any more can't be removed yet: [TABLE_OR_VIEW")
