"""`cepheid.spark.match` finds what the native matcher finds, in any partitions, and leaves filters to Catalyst."""

from __future__ import annotations

import random
import re
import warnings
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import cepheid.spark
from cepheid.app.known import Known
from cepheid.app.question import Question, ask
from cepheid.knowledge.annotation import Annotation, Annotations
from cepheid.language.build import Q, event
from cepheid.language.checker import check
from cepheid.language.errors import Rejected
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.model.streams import Stream
from cepheid.model.time import EPOCH
from cepheid.model.types import Type
from cepheid.plan.matcher import Matcher
from cepheid.spark.columns import UnsuitableColumns
from cepheid.spark.matching import NoKey
from tests.plan.path_strategies import NS, PREFIXES, knowledge

pytestmark = pytest.mark.spark

ATTRIBUTES = {"room": Type.STRING, "x": Type.FLOAT, "n": Type.INT, "ok": Type.BOOL, "since": Type.TIMESTAMP}
STREAMS = {name: Stream(name, ATTRIBUTES, id_kind="int") for name in ("a", "b")}
START = 1_336_381_200_000_000
PAIR = "FROM (?p, a), (?q, b) SEQ (?p, ?q) WINDOW (?p, ?q, 5s) JOIN (?p.room = ?q.room)"


def make_events(count: int = 400, seed: int = 7) -> list[Event]:
    """Events of two streams with ties, nulls and few rooms."""
    r = random.Random(seed)
    events = []
    for i in range(count):
        attributes: dict[str, Any] = {
            "room": r.choice(["r1", "r2", "r3", None]),
            "x": r.choice([None, r.uniform(0, 10), float(r.randrange(10))]),
            "n": r.choice([None, r.randrange(-3, 4)]),
            "ok": r.choice([True, False, None]),
            "since": START - r.randrange(10_000_000) if r.random() < 0.8 else None,
        }
        events.append(Event(r.choice(["a", "b"]), i, START + r.randrange(60) * 500_000, attributes))
    return events


EVENTS = make_events()


def frame_of(spark: SparkSession, events: list[Event]) -> DataFrame:
    def moment(microseconds: Any) -> datetime | None:
        return None if microseconds is None else EPOCH + timedelta(microseconds=microseconds)

    rows = []
    for e in events:
        values = {**e.attributes, "since": moment(e.attributes["since"])}
        rows.append((e.stream, e.id, moment(e.time), *(values[name] for name in ATTRIBUTES)))
    schema = "stream string, id bigint, time timestamp, room string, x double, n int, ok boolean, since timestamp"
    return spark.createDataFrame(rows, schema)


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return frame_of(spark, EVENTS).repartition(3).persist()


def expected(text: str, now: int = 0, events: list[Event] = EVENTS) -> list[Match]:
    return Matcher(question(text).checked, now).matches(events)


def found(frame: DataFrame, text: str, now: int = 0) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoKey)
        asked = cepheid.spark.match(text, knowledge=known(), stream="stream", now=now)
        return frame.transform(asked).orderBy("time", "id").collect()


QUERIES = {
    "filter": "SELECT ?p.x, ?p.since FROM (?p, a) FILTER (?p.x > 3 AND ?p.ok IS NOT NULL) FILTER (NOT ?p.n IN (1, 2))",
    "expressions": """SELECT ?p.x / ?p.n AS y, ROUND(?p.x) AS z, HOUR(?p.time, "Asia/Kathmandu") AS hour FROM (?p, a)
        FILTER (?p.x * 2 > ?p.n % 2 OR ?p.time - ?p.since < 3s)""",
    "pair": f"SELECT ?p.room, ?q.x - ?p.x AS rise {PAIR} FILTER (?p.x BETWEEN 2 AND 9) JOIN (?q.x > ?p.x)",
    "next": f"SELECT ?p.id {PAIR} MATCH NEXT",
    "strict": f"SELECT ?p.id {PAIR} FILTER (?p.x > 1) MATCH STRICT",
    "consume": f"SELECT ?p.id {PAIR} AFTER MATCH CONSUME",
    "skip": f"SELECT ?p.id {PAIR} AFTER MATCH SKIP PAST LAST",
    "many": """SELECT COUNT(?m) AS n, AVG(?m.x) AS mean FROM (?p, a), (?m, b), (?q, a) SEQ (?p, ?m+, ?q)
        WINDOW (?p, ?q, 3s) JOIN (?p.room = ?m.room) JOIN (?p.room = ?q.room) HAVING (COUNT(?m) > 1)""",
    "absent": """SELECT ?p.id FROM (?p, a), (?n, b) SEQ (?p, NOT ?n) WINDOW (?p, ?n, 2s) JOIN (?p.room = ?n.room)
        FILTER (?n.ok)""",
    "maybe": """SELECT ?p.id, ?o.x FROM (?p, a), (?o, b), (?q, a) SEQ (?p, ?o?, ?q) WINDOW (?p, ?q, 1s)
        JOIN (?p.room = ?q.room) JOIN (?p.room = ?o.room) FILTER (?p.ok) FILTER (?o.x > 4)""",
    "several": "SELECT ?p.id FROM (?p, a | b), (?q, b) WINDOW (?p, ?q, 1s) JOIN (?p.room = ?q.room AND ?p.n = ?q.n)",
    "no_key": "SELECT ?p.id FROM (?p, a), (?q, b) SEQ (?p, ?q) WINDOW (?p, ?q, 500ms) FILTER (?p.x > 8)",
    "sliding": "SELECT AVG(?p.x) > 4 AS mean, ?p.room FROM (?p, a) WINDOW (?p, sliding, 3s) GROUP BY ?p.room",
    "batch": """SELECT SUM(?p.x) AS total, STDDEV(?p.x) AS spread FROM (?p, a) WINDOW (?p, batch, 4s)
        GROUP BY ?p.room, ?p.ok""",
    "counted": """SELECT COUNT(?p) >= 1 AS n, COUNT(?p.x) AS x, SUM(?p.n) AS total, AVG(?p.n) AS mean,
        MIN(?p.n) AS low, MAX(?p.time) AS latest, ?p.ok FROM (?p, a | b) WINDOW (?p, batch, 7s)
        FILTER (?p.x IS NULL OR ?p.x > 1) GROUP BY ?p.ok, ?p.since
        HAVING (MIN(?p.time) < MAX(?p.time) OR NOT ?p.ok OR SUM(?p.n) IS NULL)""",
    "all_counted": "SELECT COUNT(?p) AS n, MAX(?p.id) AS last FROM (?p, a) WINDOW (?p, batch, 4s)",
    "session": "SELECT COUNT(?p) AS n FROM (?p, a) WINDOW (?p, session, 1500ms) GROUP BY ?p.room",
    "length": "SELECT MAX(?p.since) AS latest FROM (?p, a) WINDOW (?p, length, 5)",
    "within": f"SELECT ?p.id {PAIR} WITHIN [2012-05-07T09:00:05, now)",
    "all": """SELECT ?r.id FROM (?p, a), (?q, b), (?r, a) SEQ (ALL(?p, ?q), ?r) WINDOW (?p, ?r, 1s) WINDOW (?q, ?r, 1s)
        JOIN (?p.room = ?q.room) JOIN (?p.room = ?r.room) FILTER (?p.x > 2) FILTER (?q.ok) FILTER (?r.x > 2)""",
    "any": """SELECT ?p.id FROM (?p, a), (?q, b), (?r, a) SEQ (?p, ANY(?q, ?r)) WINDOW (?p, ?q, 1s) WINDOW (?p, ?r, 1s)
        JOIN (?p.room = ?q.room) JOIN (?p.room = ?r.room) FILTER (?r.x > 4)""",
    "path": """SELECT ?p.id FROM (?p, a), (?q, b) SEQ (?p, ?q) WINDOW (?p, ?q, 500ms) FILTER (?p.x > 4)
        PATH {?p :src/:in ?wing . ?q :src/:in ?wing . ?wing a :Warm}""",
}
_MEANING = {"room": Annotation(f"{NS}src", "template", Type.STRING, template=NS + "{value}")}


@cache
def known() -> Known:
    """In which wings of the building the rooms are: one is in two."""
    turtle = f"@prefix : <{NS}> . :r1 :in :north, :east . :r2 :in :north . :r3 :in :east . :north a :Warm ."
    return Known(knowledge(turtle), Annotations(dict.fromkeys(STREAMS, _MEANING)), prefixes=PREFIXES)


def question(text: str) -> Question:
    query = parse(text)
    only = query.ranges[0].streams[0] if query.ranges else None
    checked, problems = check(query, Catalogue(STREAMS, only or "a", PREFIXES))
    assert checked is not None, problems
    return ask(checked, known())


@pytest.mark.parametrize("name", QUERIES)
def test_spark_finds_what_the_native_matcher_finds(frame: DataFrame, name: str) -> None:
    now = START + 12_000_000
    wanted = sorted(expected(QUERIES[name], now), key=lambda m: (m.time, m.id))
    rows = found(frame, QUERIES[name], now)
    assert len(wanted) > 3, "a case that finds next to nothing shows nothing"
    assert [row["id"] for row in rows] == [m.id for m in wanted]
    for row, m in zip(rows, wanted, strict=True):
        assert row["time"].astimezone(UTC) == EPOCH + timedelta(microseconds=m.time)
        selected = {k: _micros(v) for k, v in row["select"].asDict().items()}
        assert selected == dict(m.select)
        if m.window is not None:
            assert _micros(row["window"]["start"]) == m.window.start
            group = {k: _micros(v) for k, v in row["group"].asDict().items()} if "group" in row else {}
            assert group == dict(m.group or {})


def _micros(value: Any) -> Any:
    return (value.astimezone(UTC) - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value


def test_events_are_named(frame: DataFrame) -> None:
    row = found(frame, QUERIES["several"])[0]
    assert str(row["events"]["p"]).split("/")[0] in ("a", "b")
    assert isinstance(row["events"]["q"], int)
    assert isinstance(found(frame, QUERIES["many"])[0]["events"]["m"], list)


def test_filters_and_columns_are_left_to_catalyst(frame: DataFrame) -> None:
    matches = frame.transform(cepheid.spark.match(QUERIES["pair"], stream="stream"))
    plan = matches._jdf.queryExecution().optimizedPlan().toString()
    below = plan[plan.index("MapInArrow") :]
    assert ">= 2.0" in below
    assert "Repartition" in below
    assert "attribute_2" not in below, "only room and x are read"


def test_batch_windows_are_left_to_catalyst_where_totals_are_exact(frame: DataFrame) -> None:
    def plan(select: str, more: str = "") -> str:
        text = f"SELECT {select} FROM (?p, a) WINDOW (?p, batch, 4s) GROUP BY ?p.room {more}"
        matches = frame.transform(cepheid.spark.match(text, stream="stream"))
        return str(matches._jdf.queryExecution().optimizedPlan().toString())

    for select, more in (("COUNT(?p) AS n", ""), ("?p.room", "HAVING (AVG(?p.n) > 1)"), ("SUM(?p.n) > 2 AS n", "")):
        assert "MapInArrow" not in plan(select, more)
        assert "Aggregate" in plan(select, more)
    others = ["SUM(?p.x) AS x", "MIN(?p.x) AS x", "COUNT(?p) + 1 AS n", "SUM(?p.n * 2) AS n", "FIRST(?p.n) AS n"]
    for select, more in [*((select, "") for select in others), ("COUNT(?p) AS n", "FILTER (?p.n % 2 = 0)")]:
        assert "MapInArrow" in plan(select, more)


def test_whole_numbers_are_summed_exactly(spark: SparkSession) -> None:
    """Beyond integers on the way, and at the end (rule E6); before 1970, too."""
    most, least = 2**63 - 1, -(2**63)
    groups: dict[str, list[int | None]] = {
        "a": [most, 5, -7],
        "b": [most, 1],
        "c": [least, least, -3],
        "d": [-1, -(2**32), 2**32 + 5, None],
        "e": [None],
    }
    values = [(room, n) for room, numbers in groups.items() for n in numbers]
    rows = [(number, -1 - number, room, n) for number, (room, n) in enumerate(values)]
    events = spark.createDataFrame(rows, "id bigint, time bigint, room string, n bigint").repartition(4)
    text = "SELECT ?p.room, SUM(?p.n) AS total, AVG(?p.n) AS mean WINDOW (?p, batch, 1s) GROUP BY ?p.room"
    found = events.transform(cepheid.spark.match(text)).collect()
    stream = Stream("events", {"room": Type.STRING, "n": Type.INT}, id_kind="int")
    checked, problems = check(parse(text), Catalogue({"events": stream}, "events"))
    assert checked is not None, problems
    wanted = Matcher(checked, 0).matches([Event("events", i, t, {"room": room, "n": n}) for i, t, room, n in rows])
    assert {(row.id, *row.select) for row in found} == {(m.id, *m.select.values()) for m in wanted}
    totals = {row.select.room: row.select.total for row in found}
    assert totals == {"a": most - 2, "b": None, "c": None, "d": 4, "e": None}


def test_a_query_without_a_key_says_so(frame: DataFrame) -> None:
    with pytest.warns(NoKey, match="all events are matched in one task: MATCH NEXT depends on all events before"):
        frame.transform(cepheid.spark.match(QUERIES["no_key"] + " MATCH NEXT", stream="stream"))


def test_a_query_in_python_over_a_frame_of_ones_own(spark: SparkSession) -> None:
    a, b = event("a"), event("b")
    query = Q.select(a.room, (b.x - a.x).as_("rise")).seq(a, b).window(a, b, "10s").join(a.room == b.room, b.x > a.x)
    rows = [
        ("u1", 1_000_000, "r1", 1.0),
        ("u2", 3_000_000, "r1", 4.0),
        ("u3", 2_000_000, "r2", 0.0),
        (None, 1, "r1", 9.0),
    ]
    frame = spark.createDataFrame(rows, "uid string, micros bigint, room string, x double")
    (row,) = frame.transform(cepheid.spark.match(query, id="uid", time="micros")).collect()
    assert row["select"].asDict() == {"room": "r1", "rise": 3.0}
    assert row["events"].asDict() == {"a": "u1", "b": "u2"}


def test_nan_and_infinity_are_no_events(spark: SparkSession) -> None:
    rows = [(1, 1, 5.0), (2, 2, float("nan")), (3, 3, float("inf")), (4, None, 5.0)]
    frame = spark.createDataFrame(rows, "id int, time bigint, x double")
    assert [
        r["events"]["e"] for r in frame.transform(cepheid.spark.match("SELECT ?e.x FILTER (?e.x > 1)")).collect()
    ] == [1]


def test_columns_that_do_not_fit(spark: SparkSession, frame: DataFrame) -> None:
    with pytest.raises(UnsuitableColumns, match=r"no column 'tme' for the time of events.*did you mean 'time'\?"):
        frame.transform(cepheid.spark.match("SELECT ?e.x", time="tme"))
    with pytest.raises(
        UnsuitableColumns,
        match=r"column 'room', the time of events: expected timestamp or bigint, found string; cast it: .*timestamp",
    ):
        frame.transform(cepheid.spark.match("SELECT ?e.x", time="room"))
    without_zone = frame.withColumn("time", frame["time"].cast("timestamp_ntz"))  # as pandas writes to Parquet
    with pytest.raises(UnsuitableColumns, match="found timestamp_ntz") as refused:
        without_zone.transform(cepheid.spark.match("SELECT ?e.x"))
    (hint,) = re.findall(r"cast it: (frame\..*\)\)), or name another", str(refused.value))
    mended = eval(hint, {"frame": without_zone})
    assert mended.transform(cepheid.spark.match("SELECT ?e.x")).count() == len(EVENTS)
    with pytest.raises(UnsuitableColumns, match=r"say which column tells them apart: match\(query, stream=...\)"):
        frame.transform(cepheid.spark.match(QUERIES["pair"]))
    with pytest.raises(Rejected, match=r"'events' has no attribute 'rom'\n(.*\n)*.*did you mean 'room'"):
        frame.transform(cepheid.spark.match("SELECT ?e.rom"))
    priced = frame.selectExpr("id", "time", "CAST(x AS DECIMAL(10, 2)) AS price")
    with pytest.raises(
        UnsuitableColumns, match=r"column 'price', which the query reads: expected .*, found decimal\(10,2\); cast it"
    ):
        priced.transform(cepheid.spark.match("SELECT ?e.price"))
    with pytest.raises(Rejected, match="begins no clause"):
        cepheid.spark.match("SELCT ?e.x")
    stream = spark.readStream.format("rate").load().selectExpr("value AS id", "timestamp AS time")
    with pytest.raises(UnsuitableColumns, match="has no watermark"):
        stream.transform(cepheid.spark.match("SELECT ?e.id"))
