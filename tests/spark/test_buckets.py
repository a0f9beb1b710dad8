"""The buckets of a stream find what the reference finds among events that are not late, at any cut, without a Spark.

Spark's own tester stands in for its state; test_streaming.py runs the same in Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.streaming.tws_tester import TwsTester

from cepheid.cli.engines import find_matches
from cepheid.language.checker import Checked, check
from cepheid.language.functions import ValueType
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream as ModelStream
from cepheid.model.types import Type
from cepheid.plan.division import key_attributes
from cepheid.spark import buckets
from cepheid.spark.buckets import Bucket, Progress, StateUnusable, Work, unpack
from cepheid.spark.clocks import Live
from cepheid.spark.columns import SPARK_TYPES, UnsuitableColumns
from cepheid.spark.local import _cells, _column_types
from cepheid.spark.matching import _schema, places
from cepheid.spark.recovered import MARKS
from cepheid.spark.streaming import late_type, packing
from tests.plan.query_strategies import NOW, SECOND, Case, cases
from tests.spark.test_matching_random import is_beyond_a_frame

BUCKETS: Final = 3


class Stream:
    """A query over a stream, batch by batch."""

    def __init__(
        self,
        checked: Checked,
        lateness: int = 0,
        idle: int | None = None,
        *,
        late: bool = False,
        run: str = "run",
        missed: int | None = None,
    ) -> None:
        self.checked, self.types = checked, _column_types(checked)
        text = "string" in checked.id_kinds.values()
        self.id_type = pa.string() if text else pa.int64()
        schema = _schema(checked, spark_types.StringType() if text else spark_types.LongType())
        if late:
            schema.add("late", late_type(spark_types.LongType()))
        for mark in () if missed is None else MARKS:
            schema.add(mark)
        self.pack = packing(checked, Live(BUCKETS))
        work = Work(
            checked,
            NOW,
            to_arrow_schema(schema, timezone="UTC"),
            dict.fromkeys(checked.streams, lateness),
            {} if idle is None else dict.fromkeys(checked.streams, idle),
            BUCKETS,
            late,
            flagged=False,
            run=run,
            missed=missed,
        )
        self.tester = TwsTester(Bucket(work), timeMode="None" if idle is None else "ProcessingTime")

    def feed(self, *parts: Sequence[Event], offset: int | None = None) -> list[dict[str, Any]]:
        """What comes out when a batch has these parts, each a task's; of the log, up to an offset."""
        by_bucket: dict[int, list[Row]] = {}
        for part in parts:
            for packed in self.pack(iter(self.columns(part))):
                for row in packed.to_pylist():
                    row |= {} if offset is None else {"offset": offset, "came": 0, "clock": 0}
                    by_bucket.setdefault(row["bucket"], []).append(Row(**row))
        return rows_of(row for bucket, rows in by_bucket.items() for row in self.tester.test(bucket, rows))

    def at(self, milliseconds: int) -> list[dict[str, Any]]:
        """What comes out as the clock of the batches says so."""
        return rows_of(self.tester.setProcessingTime(milliseconds))

    def columns(self, events: Sequence[Event]) -> list[pa.RecordBatch]:
        """The events as Catalyst would leave them, in batches of two."""
        events = [e for e in events if e.stream in self.checked.streams]
        readers = {
            n: {s for (_, m), r in self.checked.attributes.items() if m == n for s in r.names} for n in self.types
        }
        cells = [dict(zip(self.types, _cells(e, self.types, readers), strict=True)) for e in events]
        schema = pa.schema(
            [*([("stream", pa.string())] if len(self.checked.streams) > 1 else []), ("id", self.id_type)]
            + [("time", pa.int64())]
            + [(place, arrow_type(self.types[name])) for name, place in places(self.checked).items()]
            + [("bucket", pa.int32())]
        )
        keys = key_attributes(self.checked)
        rows = [
            {
                "stream": e.stream,
                "id": e.id,
                "time": e.time,
                **{place: c[name] for name, place in places(self.checked).items()},
                # -0.0 is 0.0, as Spark's hash has it.
                "bucket": sum(map(ord, repr([c[k] or None for k in keys]))) % BUCKETS,
            }
            for e, c in zip(events, cells, strict=True)
        ]
        batches: list[pa.RecordBatch] = pa.Table.from_pylist(rows, schema=schema).to_batches(max_chunksize=2)
        return batches


def arrow_type(kind: ValueType) -> pa.DataType:
    if kind is ValueType.TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    return to_arrow_type(SPARK_TYPES[kind])


def rows_of(packed: Iterable[Any]) -> list[dict[str, Any]]:
    return [row for each in packed for row in unpack(each.packed).to_pylist()]


def judged(arrival: Sequence[Event], streams: Iterable[str], lateness: int) -> tuple[list[Event], int | None]:
    """Rules E4 and E5 one event at a time: those that are not late, and the watermark at the end."""
    greatest: dict[str, int] = {}
    timely = []
    for event in arrival:
        if event.time >= greatest.get(event.stream, event.time) - lateness:
            timely.append(event)
        greatest[event.stream] = max(event.time, greatest.get(event.stream, event.time))
    ends = [greatest.get(stream) for stream in streams]
    return timely, None if None in ends else min(end for end in ends if end is not None) - lateness


def expected(case: Case, lateness: int) -> list[str]:
    timely, watermark = judged(case.events, case.checked.streams, lateness)
    if watermark is None:
        return []
    return sorted(m.id for m in find_matches("reference", case.checked, timely, NOW) if m.time < watermark)


@settings(deadline=None)
@given(case=cases(), data=st.data(), lateness=st.sampled_from([0, SECOND, 3 * SECOND, 50 * SECOND]))
def test_cuts_and_restarts_change_nothing(case: Case, data: st.DataObject, lateness: int) -> None:
    assume(not is_beyond_a_frame(case) and len(set(case.checked.id_kinds.values())) < 2)
    # A last event of each stream, far away, completes what came before.
    far = max((e.time for e in case.events), default=0) + 100 * SECOND
    for stream in case.checked.streams:
        event_id = 10**6 if case.catalogue.streams[stream].id_kind == "int" else "last"
        case = Case(case.text, case.checked, (*case.events, Event(stream, event_id, far, {})), case.catalogue)
    try:
        running = Stream(case.checked, lateness)
    except UnsuitableColumns:
        assume(False)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(case.events)))) | {0, len(case.events)})
    found = []
    for start, end in pairwise(cuts):
        if data.draw(st.booleans()):
            buckets._live.clear()  # another worker goes on
        found += running.feed(case.events[start:end])
    assert sorted(row["id"] for row in found) == expected(case, lateness)


PAIR: Final = "SELECT ?p.id FROM (?p, a), (?q, a) SEQ (?p, ?q) WINDOW (?p, ?q, 5s) JOIN (?p.room = ?q.room)"
ALARM: Final = "SELECT ?p.id FROM (?p, a), (?n, a) SEQ (?p, NOT ?n) WINDOW (?p, ?n, 2s) JOIN (?p.room = ?n.room)"


def checked(text: str, *streams: str) -> Checked:
    names = streams or ("a",)
    kinds = {name: ModelStream(name, {"room": Type.STRING}, id_kind="int") for name in names}
    found, problems = check(parse(text), Catalogue(kinds, "a"))
    assert found is not None, problems
    return found


def event(number: int, seconds: float, room: str = "r", stream: str = "a") -> Event:
    return Event(stream, number, int(seconds * SECOND), {"room": room})


def test_a_bucket_without_rows_learns_of_the_watermark() -> None:
    stream = Stream(checked(ALARM))
    assert stream.feed([event(1, 0, "r"), event(2, 1, "s"), event(3, 2, "t")]) == []
    found = stream.feed([event(4, 9, "elsewhere")])
    assert {row["events"]["p"] for row in found} == {1, 2, 3}


def test_what_came_too_late_is_given_and_matches_nothing() -> None:
    stream = Stream(checked(PAIR), lateness=SECOND, late=True)
    # 3 is late in its own batch, 4 on the border, 6 because of the batch before, in whatever bucket that was seen.
    found = stream.feed([event(1, 10), event(2, 12, "s"), event(3, 10.9), event(4, 11)])
    found += stream.feed([event(5, 14, "t")])
    found += stream.feed([event(6, 12, "t"), event(7, 60)])
    assert sorted(row["late"]["id"] for row in found if row["late"] is not None) == [3, 6]
    assert [(row["events"]["p"], row["events"]["q"]) for row in found if row["late"] is None] == [(1, 4)]


def test_parts_of_a_batch_came_side_by_side() -> None:
    """No event is late because of another task's, but all tasks' count for the batches to come."""
    stream = Stream(checked(PAIR), late=True)
    ahead, behind = [event(i, 100 + i) for i in range(3)], [event(10 + i, i) for i in range(3)]
    assert all(row["late"] is None for row in stream.feed(ahead, behind))
    late = [row["late"]["id"] for row in stream.feed([event(20, 50)]) if row["late"] is not None]
    assert late == [20]


def test_a_column_of_arrivals_orders_what_tasks_read() -> None:
    query = checked(PAIR)
    schema = pa.schema([("id", pa.int64()), ("time", pa.int64()), ("attribute_0", pa.string())])
    columns: dict[str, list[Any]] = {
        "id": [1, 2, 3, 4],
        "time": [30, 10, 20, 15],
        "attribute_0": ["r"] * 4,
        "arrival": [2, 0, 1, 2],
        "bucket": [0, None, 0, 0],
    }
    kinds = [*schema, pa.field("arrival", pa.int64()), pa.field("bucket", pa.int32())]
    batches = pa.table(columns, schema=pa.schema(kinds)).to_batches(max_chunksize=1)
    (packed,) = packing(query, Live(1, arrival="at"))(iter(batches))
    rows = unpack(packed.column("packed")[0].as_py()).to_pylist()
    assert [(row["id"], row["\0seen"]) for row in rows] == [(3, 20), (1, 30), (4, 20)]  # the last two side by side


def test_an_idle_stream_follows_the_clock() -> None:
    stream = Stream(checked(ALARM), idle=5 * SECOND)
    stream.at(1_000_000)
    assert stream.feed([event(1, 999.0)]) == []
    assert stream.at(1_003_000) == []  # not idle yet
    assert [row["events"]["p"] for row in stream.at(1_007_000)] == [1]
    for bucket in range(BUCKETS):  # nothing waits any more, so nobody asks to be called again
        held = stream.tester.peekValueState("progress", bucket)
        assert held is not None
        assert Progress(**json.loads(held[0])).timer == 0


def test_a_stream_that_never_spoke_holds_matches_back_until_it_is_idle() -> None:
    text = "SELECT ?p.id FROM (?p, a), (?n, b) SEQ (?p, NOT ?n) WINDOW (?p, ?n, 2s) JOIN (?p.room = ?n.room)"
    stream = Stream(checked(text, "a", "b"), idle=5 * SECOND)
    stream.at(1_000_000)
    assert stream.feed([event(1, 990.0), event(2, 999.0)]) == []
    assert {row["events"]["p"] for row in stream.at(1_007_000)} == {1, 2}


def test_what_was_missed_is_read_before_a_stream_is_silent() -> None:
    text = "SELECT ?p.id FROM (?p, a), (?q, b) SEQ (?p, ?q) WINDOW (?p, ?q, 2s) JOIN (?p.room = ?q.room)"
    stream = Stream(checked(text, "a", "b"), idle=5 * SECOND, missed=4)
    for offset, (clock, seconds) in enumerate([(1_000_000, 10), (1_004_000, 11), (1_008_000, 30)]):
        assert stream.at(clock) == []
        assert stream.feed([event(offset, seconds)], offset=offset) == []
    found = stream.feed([event(8, 11.5, stream="b"), event(9, 31, stream="b")], offset=3)
    assert sorted((row["events"]["p"], row["events"]["q"]) for row in found) == [(0, 8), (1, 8)]
    assert all(row["recovered"] for row in found)


@pytest.mark.parametrize("window", ["batch, 2s", "session, 2s", "sliding, 2s"])
def test_windows_of_an_idle_stream_end_too(window: str) -> None:
    stream = Stream(
        checked(f"SELECT COUNT(?p) AS n FROM (?p, a) WINDOW (?p, {window}) GROUP BY ?p.room"), idle=5 * SECOND
    )
    stream.at(1_000_000)
    assert stream.feed([event(1, 999.0)]) == []
    assert [row["select"]["n"] for row in stream.at(1_007_000)] == [1]


def test_of_three_streams_two_may_be_silent() -> None:
    text = "SELECT ?p.id FROM (?p, c), (?n, a | b) SEQ (?p, NOT ?n) WINDOW (?p, ?n, 2s) JOIN (?p.room = ?n.room)"
    stream = Stream(checked(text, "a", "b", "c"), idle=5 * SECOND)
    stream.at(1_000_000)
    assert stream.feed([event(1, 999.0, stream="c")]) == []
    assert [row["events"]["p"] for row in stream.at(1_007_000)] == [1]


def test_a_batch_that_is_done_again_gives_the_same() -> None:
    """The matcher in memory has gone on when a task failed behind it; the state has not, and counts."""
    stream = Stream(checked(PAIR))
    stream.feed([event(i, i) for i in range(8)])
    tester = stream.tester
    states = [(tester.peekValueState("progress", b), dict(tester.peekMapState("chunks", b))) for b in range(BUCKETS)]
    batch = [event(10 + i, 8 + i) for i in range(8)]
    first = stream.feed(batch)
    for bucket, (progress, chunks) in enumerate(states):
        assert progress is not None
        tester.updateValueState("progress", bucket, progress)
        tester.updateMapState("chunks", bucket, chunks)
    assert first
    assert stream.feed(batch) == first


def test_a_state_that_does_not_fit_is_refused() -> None:
    stream = Stream(checked(PAIR))
    stream.feed([event(1, 1)])
    tester = stream.tester
    held = tester.peekValueState("progress", 0)
    assert held is not None
    tester.updateValueState("progress", 0, (held[0].replace('"buckets": 3', '"buckets": 5'), held[1]))
    with pytest.raises(StateUnusable, match="begun with 5 buckets"):
        stream.feed([event(2, 2)])
    buckets._live.clear()
    tester.updateValueState("progress", 0, (held[0], held[1][:-1]))
    with pytest.raises(StateUnusable, match=r"bucket 0 of the checkpoint can't go on: .* checkpointLocation"):
        stream.feed([event(2, 2)])


def test_a_state_of_another_query_is_refused() -> None:
    stream, other = Stream(checked(PAIR)), Stream(checked(ALARM), run="another")
    stream.feed([event(1, 1)])
    held = stream.tester.peekValueState("progress", 0)
    assert held is not None
    other.tester.updateValueState("progress", 0, held)
    other.tester.updateMapState("chunks", 0, stream.tester.peekMapState("chunks", 0))
    with pytest.raises(StateUnusable, match="A checkpoint belongs to one query"):
        other.feed([event(2, 2)])
