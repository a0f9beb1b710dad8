"""Columns in and out of the matcher: the same matches as row by row, and what is no event is refused."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cepheid.language.checker import check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.matcher import Matcher
from tests.plan.query_strategies import SECOND, Case, cases
from tests.plan.stream_strategies import ATTRIBUTES

NOW = 2 * SECOND
EXAMPLES = int(os.environ.get("CEPHEID_EXAMPLES", "200"))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ARROW: dict[Type, pa.DataType] = {
    Type.BOOL: pa.bool_(),
    Type.INT: pa.int64(),
    Type.FLOAT: pa.float64(),
    Type.STRING: pa.string(),
    Type.TIMESTAMP: pa.timestamp("us"),
    Type.BYTES: pa.binary(),
    Type.UINT8_ARRAY: pa.binary(),
    Type.FLOAT_ARRAY: pa.list_(pa.float64()),
}


def batch_of(stream: Stream, events: list[Event], large: bool = False) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {
        "id": pa.array([e.id for e in events], pa.string() if stream.id_kind == "string" else pa.int64()),
        "time": pa.array([e.time for e in events], pa.int64()),
    }
    for name, kind in stream.attributes.items():
        values = [e.attributes.get(name) for e in events]
        array = pa.array([list(v) if isinstance(v, tuple) else v for v in values], ARROW[kind])
        if large and kind is Type.STRING:
            array = array.cast(pa.large_string())
        columns[name] = array
    return pa.record_batch(columns)


def stream_of(events: list[Event]) -> Stream:
    """The stream of these events, as they show it."""
    kinds = dict(ATTRIBUTES)
    if any(isinstance(e.attributes.get("v"), float) for e in events):
        kinds["v"] = Type.FLOAT
    return Stream(events[0].stream, kinds, id_kind="string" if isinstance(events[0].id, str) else "int")


def rows(batches: list[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in pa.record_batch(batch).to_pylist()]


def shown(value: object) -> object:
    if isinstance(value, datetime):
        micros = (value.replace(tzinfo=UTC) - EPOCH) / (datetime.resolution)
        return round(micros)
    return [shown(v) for v in value] if isinstance(value, list | tuple) else value


def in_columns(match: Match, several: set[str]) -> dict[str, Any]:
    """A match as its row is to be."""

    def bound(variable: str, ref: Any) -> Any:
        if isinstance(ref, list):
            return [bound(variable, r) for r in ref]
        return ref if ref is None else f"{ref[0]}/{ref[1]}" if variable in several else ref[1]

    row: dict[str, Any] = {"id": match.id, "time": match.time}
    if match.events:
        row["events"] = {v: bound(v, ref) for v, ref in match.events.items()}
    row["select"] = {name: shown(value) for name, value in match.select.items()}
    if match.window is not None:
        row["window"] = {"start": match.window.start, "end": match.window.end}
        if match.group:
            row["group"] = {name: shown(value) for name, value in match.group.items()}
    return row


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {k: {n: shown(v) for n, v in x.items()} if isinstance(x, dict) else shown(x) for k, x in row.items()}


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False)
@given(cases(), st.data())
def test_columns_are_rows(case: Case, data: st.DataObject) -> None:
    by_row = Matcher(case.checked, NOW).matches(case.events)
    several = {r.variable for r in case.checked.query.ranges if len(r.streams) > 1}
    matcher = Matcher(case.checked, NOW)
    for name in dict.fromkeys(e.stream for e in case.events):
        events = [e for e in case.events if e.stream == name]
        whole = batch_of(stream_of(events), events, large=data.draw(st.booleans()))
        cut = data.draw(st.integers(0, len(events)))
        # Slices share their buffers: what begins in the middle of one is where readers of columns go wrong.
        for part in (whole.slice(0, cut), whole.slice(cut)):
            matcher.push_batch(part, name)
    found = [plain(row) for row in rows(matcher.advance_batches(None))]
    assert found == [in_columns(m, several) for m in by_row]


def matcher_of(text: str) -> Matcher:
    stream = Stream("s", {"k": Type.STRING, "v": Type.FLOAT, "n": Type.INT}, id_kind="int")
    checked, problems = check(parse(text), Catalogue({"s": stream}, "s"))
    assert checked is not None, problems
    return Matcher(checked)


HOT = "SELECT ?e.k, ?e.v FILTER (?e.v > 1)"


def test_types_of_columns() -> None:
    given = {
        "id": pa.array([1, 2, 3], pa.int32()),
        "time": pa.array([1, 2, 3], pa.timestamp("ms", "UTC")),
        "k": pa.array(["a", None, "c"]).dictionary_encode(),
        "v": pa.array([5.0, 6.0, None], pa.float32()),
    }
    matcher = matcher_of(HOT)
    matcher.push_batch(pa.record_batch(given))
    found = rows(matcher.advance_batches(None))
    assert [(r["events"], r["select"], shown(r["time"])) for r in found] == [
        ({"e": 1}, {"k": "a", "v": 5.0}, 1000),
        ({"e": 2}, {"k": None, "v": 6.0}, 2000),
    ]


def test_a_column_that_is_not_there_is_null() -> None:
    matcher = matcher_of("SELECT ?e.k, ?e.v FILTER (?e.v > 1) FILTER (?e.n IS NULL)")
    matcher.push_batch(pa.record_batch({"id": [1], "time": [1], "v": [5.0]}))
    assert rows(matcher.advance_batches(None))[0]["select"] == {"k": None, "v": 5.0}


def test_streams_by_a_column() -> None:
    matcher = matcher_of(HOT)
    given = {"stream": ["other", "s", "other"], "id": [1, 2, 3], "time": [1, 2, 3], "v": [5.0, 5.0, 5.0]}
    matcher.push_batch(pa.record_batch(given))
    assert [r["events"] for r in rows(matcher.advance_batches(None))] == [{"e": 2}]
    assert matcher.counters["events"] == 1


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"time": [1], "v": [1.0]}, "no column 'id'"),
        ({"id": [1], "v": [1.0]}, "no column 'time'"),
        ({"id": [1, None], "time": [1, 2], "v": [5.0, 5.0]}, "row 1 has no id"),
        ({"id": [1, 2], "time": [1, None], "v": [5.0, 5.0]}, "row 1 has no time"),
        ({"id": [1, 2], "time": [1, 2], "v": [5.0, float("nan")]}, "row 1: 'v' has NaN or infinity"),
        ({"id": [1], "time": [1], "v": [float("inf")]}, "row 0: 'v' has NaN or infinity"),
        ({"id": [1], "time": [1], "v": [[1, 2]]}, "column 'v' is a list of something else"),
        ({"id": [1], "time": [1], "v": pa.array([1], pa.decimal128(5))}, "column 'v' has the Arrow type 'd:5,0'"),
    ],
)
def test_what_is_no_event_is_refused(columns: dict[str, Any], reason: str) -> None:
    matcher = matcher_of(HOT)
    with pytest.raises(ValueError, match=reason):
        matcher.push_batch(pa.record_batch(columns))
    matcher.push_batch(pa.record_batch({"id": [9], "time": [9], "v": [5.0]}))
    assert rows(matcher.advance_batches(None))[-1]["events"] == {"e": 9}


def test_a_batch_is_taken_once() -> None:
    matcher = matcher_of(HOT)
    with pytest.raises(TypeError, match="expected a record batch"):
        matcher.push_batch([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a record batch"):
        matcher.push_batch(pa.array([1, 2]))
    matcher.push_batch(pa.record_batch({"id": [9], "time": [9], "v": [5.0]}))
    (batch,) = matcher.advance_batches(None)
    assert len(batch) == 1
    assert pa.record_batch(batch).num_rows == 1
    with pytest.raises(ValueError, match="taken already"):
        pa.record_batch(batch)


def test_many_matches_are_several_batches() -> None:
    matcher = matcher_of(HOT)
    count = 40_000
    matcher.push_batch(pa.record_batch({"id": list(range(count)), "time": list(range(count)), "v": [2.0] * count}))
    batches = matcher.advance_batches(None)
    assert [len(batch) for batch in batches] == [16_384, 16_384, 40_000 - 2 * 16_384]
    assert [r["events"]["e"] for r in rows(batches)] == list(range(count))


def test_batches_are_given_back() -> None:
    """What pyarrow lends is released: nothing of it is left when the matcher has read it."""
    before = pa.total_allocated_bytes()
    for _ in range(3):
        matcher = matcher_of(HOT)
        matcher.push_batch(pa.record_batch({"id": range(50_000), "time": range(50_000), "v": [2.0] * 50_000}))
        for batch in matcher.advance_batches(None):
            pa.record_batch(batch)
    assert pa.total_allocated_bytes() == before
