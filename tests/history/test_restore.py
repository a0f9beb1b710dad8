"""An engine that was away for longer than the log keeps events: what it needs comes back from the archive."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cepheid._native import log_restore
from cepheid.app import Application, load
from cepheid.history import log_source
from cepheid.history.answer import query
from cepheid.history.archiving import Tally, archive_log, commit_archived
from cepheid.history.asked import asked
from cepheid.history.follow import follow
from cepheid.history.live_events import lost
from cepheid.history.log_place import LogPlace
from cepheid.history.past import ArchiveDiffers
from cepheid.history.reached import ArchiveAbsent, ArchiveBehind, check_begun
from cepheid.history.registered import seen_live
from cepheid.history.restore import restore, wanted
from cepheid.history.tail import Hole, Tail, check_same_log
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.time import parse_instant
from cepheid.model.types import Type, Value
from cepheid.plan.matcher import Matcher
from cepheid.service import schemas
from cepheid.service.engine import Engine
from cepheid.service.intake import config_of, start
from cepheid.service.log import LogReader, OffsetGone, extent
from cepheid.service.supplier import Supplier
from cepheid.spark.application import archive_of
from cepheid.spark.archive import TableLost, check_writable
from tests.history.campaigns import in_time
from tests.service.intakes import tail_of

AIR = Stream("air", {"flow": Type.FLOAT}, id_kind="int")
APP = """
name: plant
streams:
  air: {attributes: {sensor: string, flow: float, at: timestamp, raw: bytes, wave: "array<float>"}, key: sensor}
  door: {attributes: {open: bool}, id: string}
archive: {path: archive}
service: {listen: "unix:in.sock", log: {path: log, durability: none}}
queries:
  rising:
    engine: service
    text: |
      SELECT ?p.sensor, ?q.at FROM (?p, air), (?q, air) WITHIN [2012-05-07T09:00, )
      JOIN (?p.sensor = ?q.sensor AND ?q.flow > ?p.flow)
      SEQ (?p, ?q) WINDOW (?p, ?q, 3s)
  taken:
    engine: service
    text: |
      SELECT ?p.sensor FROM (?p, air), (?d, door) WITHIN [2012-05-07T09:00, ) FILTER (?d.open) SEQ (?p, ?d)
      WINDOW (?p, ?d, 4s) AFTER MATCH CONSUME
"""
BEGIN = parse_instant("2012-05-07T09:00")
CAME_STALE = Event("door", "stale", BEGIN + 44_000_000, {"open": False})


def event(number: int) -> Event:
    time = BEGIN + number * 400_000
    if number % 7 == 3:
        return Event("door", f"d{number}", time, {"open": number % 2 == 0})
    values: dict[str, Value] = {"sensor": f"s{number % 3}", "flow": float(number * 7 % 11), "at": time}
    values |= {"raw": b"x" * 200, "wave": (0.5,)}
    return Event("air", number, time, values)


def archive_all(spark: SparkSession, app: Application) -> None:
    log_source.register(spark)
    archive, streams = archive_of(app), list(app.graph.streams.values())
    writer = archive_log(spark, LogPlace(app.folder / "log"), streams, archive, archive.checkpoint("log"), Tally())
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    commit_archived(query, LogPlace(app.folder / "log"))


def read_matches(engine: Engine, found: dict[str, set[str]]) -> None:
    for name, ids in found.items():
        while (one := engine.matches(name).get(timeout=0.5)) is not None:
            ids.add(one.match.id)


def read_rows(log: Path, start: int, end: int) -> list[tuple[Any, ...]]:
    with LogReader(log, start) as reader:
        found: list[tuple[Any, ...]] = []
        while reader.offset < end:
            rows, streams = reader.rows()
            found += [(*row[:2], streams[row[2]].name, *row[3:]) for row in rows if row[0] < end]
    return found


def check_what_is_gone(spark: SparkSession, app: Application) -> None:
    """Without an archive or one of its tables, with an older one or one of another schema: no partial answer, and
    nothing is brought back. All is as it was afterwards."""
    log, archive, streams = app.folder / "log", archive_of(app), list(app.graph.streams.values())
    folder, told = Path(archive.path), (log / "consumers" / "archive").read_text()
    text, since = "SELECT ?d.open FROM (?d, door)", int(told) - 1

    def check(error: type[Exception], message: str, *, of_query: bool = True) -> None:
        with pytest.raises(error, match=message):
            restore(spark, log, archive, streams)
        assert not list(log.glob("restored/*"))
        with pytest.raises(error, match=message) if of_query else nullcontext():
            list(query(app, text, spark=spark))
        with pytest.raises(error, match=message) if of_query else nullcontext():
            follow(query(app, text, spark=spark), print, stopped=lambda: True)

    folder.rename(folder.with_name("away"))
    gone = f"no archive at '{folder}', and the log {log} was told that the events up to offset {since} are in it"
    check(ArchiveAbsent, gone)
    check_writable(archive, streams)  # as who begins it anew
    check(ArchiveAbsent, gone)
    with pytest.raises(ArchiveAbsent, match="an answer would be partial"):
        check_begun(spark, archive, log, streams)
    shutil.rmtree(folder)
    folder.with_name("away").rename(folder)
    check_begun(spark, archive, log, streams)

    (folder / "door").rename(folder / "gone")
    check(TableLost, f"had a table of 'door', and there is none at '{folder / 'door'}' any more")
    (folder / "gone").rename(folder / "door")

    (log / "consumers" / "archive").write_text(f"{since + 11}\n")
    check(ArchiveBehind, f"up to offset {since} of the log {log}, which was told that it has them up to {since + 10}")
    (log / "consumers" / "archive").write_text("100\n")
    with pytest.raises(Hole, match=f"offsets 100 to {extent(log).first - 1} are neither archived nor in the log {log}"):
        query(app, text, spark=spark)
    (log / "consumers" / "archive").write_text(told)

    air, door = streams
    streams = [replace(air, attributes={**air.attributes, "flow": Type.STRING}), door]
    check(ArchiveDiffers, "'flow' is double there, and string in the application", of_query=False)


def test_the_archive_of_another_log(spark: SparkSession) -> None:
    archived = spark.createDataFrame([(3,), (12,)], "log_offset long")
    with pytest.raises(Hole, match="'air' has events up to offset 12, and the log /log ends at 10: it is not the log"):
        check_same_log(archived, Tail(LogPlace(Path("/log")), 0, 10, committed=False), "air")
    check_same_log(archived, Tail(LogPlace(Path("/log")), 0, 13, committed=False), "air")


def test_what_the_log_has_forgotten_comes_from_the_archive(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.yaml").write_text(APP)
    app = load(tmp_path / "app.yaml")
    log, events = tmp_path / "log", [event(number) for number in range(1200)]
    found: dict[str, set[str]] = {"rising": set(), "taken": set()}
    config = replace(config_of(app), segment_bytes=1 << 16, retain_bytes=1 << 16)
    with start(config), Supplier(f"unix:{tmp_path}/in.sock") as supplier:
        supplier.push_many(events[:100])
        supplier.flush()
        with Engine(app) as engine:
            engine.follow(log)
            read_matches(engine, found)
            assert found["rising"]
        before = {name: set(ids) for name, ids in found.items()}
        # Nobody is there for long: what comes is archived, and the log forgets it.
        supplier.push_many(events[100:110])
        supplier.push(CAME_STALE, valid_until=CAME_STALE.time + 1, marks=["stale"])
        supplier.push_many(events[110:1100])
        supplier.push(events[150])  # a duplicate leaves a hole between the offsets that are archived
        supplier.push_many(events[1100:1150])
        supplier.flush()
        logged = read_rows(log, 100, 500)
        archive_all(spark, app)
        # The log waits for its engine for a week.
        long_ago = time.time() - 8 * 86_400
        os.utime(log / "consumers" / "engine", (long_ago, long_ago))
        assert in_time(lambda: extent(log).first > 500, 30)
        with pytest.raises(OffsetGone):
            LogReader(log, 100)
        (tmp_path / "unarchived.yaml").write_text(APP.replace("archive: {path: archive}\n", "").replace("3s", "5s"))
        lacking = query(load(tmp_path / "unarchived.yaml"), "SELECT ?d.open FROM (?d, door)", spark=spark).missing
        assert lacking is not None
        assert (
            f"has forgotten the events before offset {extent(log).first} (retain), and there is no archive" in lacking
        )
        # A query on Spark that is new to the log says it as one of the service does.
        new = asked(app, "SELECT ?d.open FROM (?d, door) WITHIN [2012-05-07, )", 0).checked
        said = lost("opened", new, LogPlace(log), 0)
        assert said is not None
        assert said.startswith("opened: WITHIN begins before the log does. Live it finds nothing of what came before")
        assert f"offset {extent(log).first}; `cepheid query --follow` asks the archive, too" in said
        later = asked(app, "SELECT ?d.open FROM (?d, door)", 0).checked
        assert lost("opened", seen_live(later, time.time_ns() // 1000), LogPlace(log), 0) is None
        assert lost("opened", new, LogPlace(tmp_path / "none"), 0) is None
        with Engine(app) as engine:
            engine.follow(log)
            assert in_time(lambda: bool(wanted(log)), 30)
            # It fails again while it waits, and the next one asks again.
        with Engine(app) as engine:
            engine.follow(log)
            assert in_time(lambda: bool(wanted(log)), 30)
            assert engine.matches("rising").get(timeout=0.3) is None  # nothing that would be incomplete
            check_what_is_gone(spark, app)
            assert engine.matches("rising").get(timeout=0.1) is None
            said = restore(spark, log, archive_of(app), list(app.graph.streams.values()))
            assert said is not None
            assert "brought back" in said
            # As it was: with when it came, how long it is valid, and its marks.
            assert read_rows(log, 100, 500) == logged
            (stale,) = [row for row in logged if row[3] == CAME_STALE.id]
            assert stale[-2:] == (CAME_STALE.time + 1, 1)
            supplier.push_many(events[1150:])
            supplier.flush()
            read_matches(engine, found)
            assert not wanted(log)
            assert restore(spark, log, archive_of(app), list(app.graph.streams.values())) is None
            assert not (log / "restored").exists()
        end = Event("air", 5000, events[-1].time + 60_000_000, {"sensor": "s9", "flow": 0.0})
        supplier.push_many([end, Event("door", "end", end.time, {"open": False})])
        supplier.flush()
        with Engine(app) as engine:
            engine.follow(log)
            read_matches(engine, found)
        with Engine(load(tmp_path / "unarchived.yaml")) as engine:
            engine.follow(log)
        assert "rising: WITHIN begins before the log does" in capfd.readouterr().err
    for name, ids in found.items():
        expected = {match.id for match in Matcher(app.plan().queries[name]).matches(events)}
        assert ids == expected, name
        assert before[name] < expected
    for each in (log, log / "dead"):
        tail_of(each).unlink(missing_ok=True)


def test_what_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    def rows() -> Iterator[tuple[int, int, bytes]]:
        yield 3, 0, schemas.codec([AIR]).encode(0, 1, 3, (1.0,))
        raise OSError("the archive is damaged")

    with pytest.raises(OSError, match="damaged"):
        log_restore(tmp_path, 3, 9, json.dumps([schemas.describe(AIR)]), rows())
    assert list((tmp_path / "restored").iterdir()) == []
