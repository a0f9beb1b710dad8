"""`cepheid query --follow`: past, present and future in one stream, however past and live are joined."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cepheid.app import Application, load
from cepheid.cli.engines import find_matches
from cepheid.cli.query import command
from cepheid.history.answer import query
from cepheid.history.asked import asked
from cepheid.history.boundary import Boundary, NotLazy, check_lazy, seeds
from cepheid.history.damage import ArchiveDamaged
from cepheid.history.explain import explained
from cepheid.history.follow import Marks, follow
from cepheid.language.parser import parse
from cepheid.model.events import Event
from cepheid.model.time import UNITS, parse_instant
from cepheid.service.intake import config_of, start
from cepheid.service.supplier import Supplier
from tests.history.test_restore import archive_all
from tests.service.intakes import tail_of

pytestmark = pytest.mark.spark

APP = """
name: plant
default_stream: air
prefixes: {p: "http://p/"}
streams:
  air:
    attributes: {sensor: string, flow: float}
    lateness: 2s
    semantics: {sensor: {property: "p:from", entity: "p:{value}"}}
  door: {attributes: {room: string}, idle: 300ms}
knowledge: {sources: [plant.ttl]}
archive: {path: archive}
service: {listen: "unix:in.sock", log: {path: log, durability: each}}
"""
KNOWLEDGE = "@prefix p: <http://p/> . p:s0 p:in p:hall . p:s1 p:in p:hall ."
WITHIN = "WITHIN [2012-05-07T09:00, 2012-05-07T10:00)"
BEGIN = parse_instant("2012-05-07T09:00")
PAIR = f"SELECT ?q.flow {WITHIN} JOIN (?p.sensor = ?q.sensor AND ?q.flow > ?p.flow) SEQ (?p, ?q) WINDOW (?p, ?q, 6s)"


def air(number: int) -> Event:
    # All is silent for a while in the middle of the first hundred.
    moment = BEGIN + (number + (60 if number > 50 else 0)) * 500_000
    return Event("air", number, moment, {"sensor": f"s{number % 3}", "flow": float(number * 7 % 11)})


@contextmanager
def plant(folder: Path) -> Iterator[tuple[Application, Supplier]]:
    (folder / "app.yaml").write_text(APP)
    (folder / "plant.ttl").write_text(KNOWLEDGE)
    app = load(folder / "app.yaml")
    with start(config_of(app)), Supplier(f"unix:{folder}/in.sock") as supplier:
        yield app, supplier
    for each in (folder / "log", folder / "log" / "dead"):
        tail_of(each).unlink(missing_ok=True)


QUERIES: list[tuple[str, Boundary]] = [
    (f"{PAIR} AFTER MATCH CONSUME", "seeded"),
    (f"{PAIR} AFTER MATCH SKIP PAST LAST", "seeded"),
    (f"SELECT SUM(?e.flow) AS s {WITHIN} WINDOW (?e, session, 2s) GROUP BY ?e.sensor", "seeded"),
    (f"SELECT SUM(?e.flow) AS s {WITHIN} FILTER (?e.flow > 1) WINDOW (?e, length, 4) GROUP BY ?e.sensor", "seeded"),
    (f"{PAIR} PATH {{ ?p p:from ?s . ?s p:in p:hall }}", "lazy"),
]


def test_one_stream_in_order_with_each_match_once(spark: SparkSession, tmp_path: Path) -> None:
    """Of 100 events 60 are archived and 30 in the log; the others come, and the archive after them."""
    events = [air(number) for number in range(120)]
    with plant(tmp_path) as (app, supplier):
        supplier.push_many(events[:60])
        supplier.flush()
        archive_all(spark, app)
        supplier.push_many(events[60:90])
        supplier.flush()
        came: list[list[str]] = [[] for _ in QUERIES]
        marks: list[list[int]] = [[] for _ in QUERIES]
        threads = []
        for place, (text, boundary) in enumerate(QUERIES):
            answer = query(app, text, spark=spark, strategy="hybrid", now=BEGIN)
            options = {"boundary": boundary, "gap": 100_000, "on_mark": marks[place].append}
            threads.append(threading.Thread(target=follow, args=(answer, came[place].append), kwargs=options))
            threads[-1].start()
        while not all(marks):
            assert any(thread.is_alive() for thread in threads)
            time.sleep(0.05)
        # What a live matcher is told of the past is a part of it: since all was silent, or the last few.
        assert 0 < len(seeds(query(app, QUERIES[0][0], spark=spark), events[89].time)) < 60
        assert 0 < len(seeds(query(app, QUERIES[3][0], spark=spark), events[89].time)) < 20
        past = [len(each) for each in came]
        supplier.push_many([*events[90:], Event("air", 5000, BEGIN + 3_700_000_000, {"sensor": "s9", "flow": 0.0})])
        supplier.flush()
        archive_all(spark, app)
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        for place, (text, _) in enumerate(QUERIES):
            wanted = find_matches("native", asked(app, text, BEGIN).question, events, BEGIN)
            found = [json.loads(line) for line in came[place]]
            assert [one["time"] for one in found] == sorted(one["time"] for one in found)
            assert sorted(one["id"] for one in found) == sorted(one.id for one in wanted), text
            assert 0 < past[place] < len(wanted)
            assert marks[place] == sorted(set(marks[place]))
        # For a program that reads it, the marks are lines between the matches.
        printed = CliRunner().invoke(command, [str(tmp_path / "app.yaml"), "-q", PAIR, "--follow", "--marks"])
        assert printed.exit_code == 0, printed.output
        *found, mark = map(json.loads, printed.stdout.splitlines())
        assert mark == {"complete": "2012-05-07T10:01:38.000000Z"}
        wanted = find_matches("native", asked(app, PAIR, BEGIN).question, events, BEGIN)
        assert [one["id"] for one in found] == [one.id for one in wanted]


def test_what_is_live_is_judged_by_what_is_known_then(spark: SparkSession, tmp_path: Path) -> None:
    """A sensor comes into the hall while the question goes on; what it sent before was judged before."""
    text = f"SELECT ?e.flow {WITHIN} FILTER (?e.sensor = 's2') PATH {{ ?e p:from ?s . ?s p:in p:hall }}"
    with plant(tmp_path) as (app, supplier):
        supplier.push_many([air(2), air(3), air(20)])
        supplier.flush()
        answer = query(app, text, spark=spark, now=BEGIN)
        (live,) = (line for line in explained(answer) if line.startswith("live "))
        assert live == "live       with --follow, in the process that asks, over the log from offset 3 on"
        came: list[str] = []
        marked, over = threading.Event(), threading.Event()
        options = {"on_mark": lambda mark: marked.set(), "stopped": over.is_set}
        thread = threading.Thread(target=follow, args=(answer, came.append), kwargs=options)
        thread.start()
        assert marked.wait(120)
        known = answer.asked.question.known
        assert known is not None
        before = known.knowledge.version
        (tmp_path / "plant.ttl").write_text(f"{KNOWLEDGE} p:s2 p:in p:hall .")
        deadline = time.monotonic() + 30
        while known.knowledge.version == before and time.monotonic() < deadline:
            time.sleep(0.02)
        supplier.push_many([air(23), air(24), air(50)])
        supplier.flush()
        while not came and time.monotonic() < deadline:
            time.sleep(0.02)
        over.set()
        thread.join(30)
    assert [json.loads(line)["events"] for line in came] == [{"e": 23}]


def test_a_clock_that_was_ahead_makes_the_others_late_in_every_answer(spark: SparkSession, tmp_path: Path) -> None:
    """From the log, archived, and followed, which ends at once: nothing of the range can come any more (rule E4)."""
    ahead = Event("air", 900, BEGIN + 365 * UNITS["d"], {"sensor": "s0", "flow": 10.0})
    with plant(tmp_path) as (app, supplier):
        supplier.push_many([*map(air, range(30)), ahead, *map(air, range(30, 60))])
        supplier.flush()
        wanted = find_matches("native", asked(app, PAIR, BEGIN).question, list(map(air, range(30))), BEGIN)
        assert len(wanted) > 5
        for is_archived in (False, True):
            if is_archived:
                archive_all(spark, app)
            answer = query(app, PAIR, spark=spark, now=BEGIN)
            assert [one["id"] for one in answer] == [one.id for one in wanted]
            came: list[str] = []
            follow(answer, came.append)
            assert [json.loads(line)["id"] for line in came] == [one.id for one in wanted]


def test_an_idle_stream_lets_time_pass(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing follows, and that is known when the clock says so: what was archived, and what comes.

    Of the archive only what is asked is read, and its last day: what is damaged elsewhere does not matter.
    """
    text = "SELECT ?p.room FROM (?p, door), (?n, door) WITHIN [now - 1h, ) SEQ (?p, NOT ?n) WINDOW (?p, ?n, 100ms)"
    with plant(tmp_path) as (app, supplier):
        began = time.time_ns() // 1000
        supplier.push(Event("door", 0, began - 10 * UNITS["d"], {"room": "damaged"}))
        supplier.push(Event("door", 1, began - 10_000_000, {"room": "old"}))
        supplier.flush()
        archive_all(spark, app)
        first, *others = sorted((tmp_path / "archive" / "door").glob("day=*/*.parquet"))
        first.write_bytes(b"damaged")
        came: list[str] = []
        marked = threading.Event()
        over = threading.Event()
        options = {"on_mark": lambda mark: marked.set(), "stopped": over.is_set}
        thread = threading.Thread(target=follow, args=(query(app, text, spark=spark), came.append), kwargs=options)
        thread.start()
        assert marked.wait(60)
        supplier.push(Event("door", 2, time.time_ns() // 1000, {"room": "new"}))
        supplier.flush()
        deadline = time.monotonic() + 20
        while len(came) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        over.set()
        thread.join(20)
        for file in others:
            file.write_bytes(b"damaged")
        with pytest.raises(ArchiveDamaged, match=others[-1].name):
            follow(query(app, text, spark=spark), came.append)
    assert [json.loads(line)["select"]["room"] for line in came] == ["old", "new"]


def test_e5_marks_follow_the_clock_at_the_distance_of_idle_and_lateness() -> None:
    marks = Marks({"air": 5}, {"air": 10})
    assert marks.watermark(100) is None
    assert marks.watermark(110) == 95
    marks.note("air", 200, 120)
    assert marks.watermark(129) == 195
    assert marks.watermark(300) == 285


def test_what_is_not_lazy_is_refused(tmp_path: Path) -> None:
    check_lazy(parse("SELECT ?a.v SEQ (?a, NOT ?b) WINDOW (?a, ?b, 1s)"))
    for text, what in (
        ("SELECT ?a.v SEQ (?a, ?b) WINDOW (?a, ?b, 1s) AFTER MATCH CONSUME", "CONSUME"),
        ("SELECT SUM(?a.v) AS s WINDOW (?a, length, 3)", "length window"),
        ("SELECT ?b.v SEQ (NOT ?a, ?b) WINDOW (?a, ?b, 1s)", "looks back"),
    ):
        with pytest.raises(NotLazy, match=what):
            check_lazy(parse(text))
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "plant.ttl").write_text(KNOWLEDGE)
    arguments = [str(tmp_path / "app.yaml"), "-q", "SELECT ?e.flow"]
    for options in (
        ["--boundary", "lazy"],
        ["--follow", "--gap", "1s"],
        ["--follow", "--boundary", "lazy", "--gap", "x"],
        ["--marks"],
    ):
        assert CliRunner().invoke(command, [*arguments, *options]).exit_code == 2
