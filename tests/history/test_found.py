"""What a task of the hybrid strategy does with its batches."""

from __future__ import annotations

import json

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from cepheid.history.found import matching
from cepheid.history.frames import Layout
from cepheid.language.checker import check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.streams import Stream
from cepheid.model.types import Type


@pytest.mark.parametrize("at_once", [1, 100])
def test_a_match_in_two_slices_is_given_once(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """By the slice in which its time lies; both read the events of it, and one batch has both slices."""
    monkeypatch.setattr("cepheid.history.found._EVENTS", at_once)
    streams = {"air": Stream("air", {"flow": Type.FLOAT}, id_kind="int")}
    checked, _ = check(parse("SELECT ?p.flow SEQ (?p, ?q) WINDOW (?p, ?q, 1us)"), Catalogue(streams, "air"))
    assert checked is not None
    layout = Layout(checked, streams)
    rows = [(time, since, until) for since, until in [(None, 3), (3, None)] for time in range(6)]
    rows = [row for row in rows if row[0] < 3 or row[1] is not None]
    columns = [pa.array([0] * len(rows)), *[pa.array([row[0] for row in rows])] * 2, pa.array([2.0] * len(rows))]
    columns += [pa.array([row[place] for row in rows], pa.int64()) for place in (1, 2)]
    names = ["stream", "time", "number", layout.column("air", "flow"), "since", "until"]
    whole = pa.RecordBatch.from_arrays(columns, names)
    for cut in (1, len(rows) // 2, len(rows)):
        parts = [whole.slice(0, cut), whole.slice(cut)]
        found = pa.Table.from_batches(matching(layout, 0, by_slices=True)(parts)).to_pylist()
        events = [tuple(json.loads(row["line"])["events"].values()) for row in found]
        assert events == [(n, n + 1) for n in range(5)]


@pytest.mark.parametrize("at_once", [1, 100])
def test_single_events_come_in_no_order(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """A batch may be earlier than the one before it: events that match by themselves are not sorted."""
    monkeypatch.setattr("cepheid.history.found._EVENTS", at_once)
    streams = {"air": Stream("air", {"flow": Type.FLOAT}, id_kind="int")}
    checked, _ = check(parse("SELECT ?e.flow FILTER (?e.flow > 1)"), Catalogue(streams, "air"))
    assert checked is not None
    layout = Layout(checked, streams)

    def batch(first: int) -> pa.RecordBatch:
        ids = range(first, first + 3)
        columns = [pa.array([0] * 3), pa.array(ids), pa.array(ids), pa.array([2.0] * 3)]
        return pa.RecordBatch.from_arrays(columns, ["stream", "time", "number", layout.column("air", "flow")])

    found = pa.Table.from_batches(matching(layout, 0)([batch(10), batch(0)])).to_pylist()
    assert sorted(json.loads(row["line"])["events"]["e"] for row in found) == [0, 1, 2, 10, 11, 12]
    assert sorted(row["order"] for row in found) == [
        row["order"] for row in sorted(found, key=lambda row: json.loads(row["line"])["time"])
    ]
