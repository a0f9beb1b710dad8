"""Suppliers: blocking and asyncio, rows of numpy, and what they say when something is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.service import schemas
from cepheid.service.arrays import RecordLayout, row_bytes, rows_of
from cepheid.service.supplier import AsyncSupplier, Supplier, SupplierError
from cepheid.service.wire import parse_address
from tests.model.strategies import streams_and_events
from tests.service.intakes import STREAMS, Start, air, logged, starting


@given(streams_and_events())
@settings(max_examples=50, deadline=None)
def test_records_hold_every_value(case: tuple[Stream, list[Event]]) -> None:
    """What is encoded here is decoded here; the intake's side is in the other tests."""
    stream, events = case
    codec = schemas.codec([stream])
    for event in events:
        record = codec.encode(0, event.id, event.time, tuple(event.attributes.values()))
        assert len(record) % 8 == 0
        assert int.from_bytes(record[:4], "little") == len(record)


def test_an_event_that_does_not_fit_is_refused_at_once(intake: Start) -> None:
    with Supplier(intake().address) as supplier:
        for event, message in [
            (Event("water", 1, 0), "no stream 'water'; it has air, vibration"),
            (Event("air", 1, 0, {"flaw": 1.0}), "stream 'air' has no attribute 'flaw'"),
            (Event("air", 1, 0, {"flow": "high"}), "attribute 1 has another type"),
            (Event("air", 1, 0, {"flow": float("nan")}), "attribute 1 is NaN or infinite"),
            (Event("air", 1, 2**62, {}), "'time' is out of range"),
        ]:
            with pytest.raises(ValueError, match=message):
                supplier.push(event)


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(SupplierError, match=r"could not be reached for 0\.2 s"):
        Supplier(f"unix:{tmp_path / 'nothing'}", patience=0.2)
    with pytest.raises(ValueError, match="write unix:path or tcp:host:port"):
        Supplier("localhost:99")
    assert parse_address("tcp:[::1]:99") == ("::1", 99)


def test_asyncio(intake: Start, tmp_path: Path) -> None:
    process = intake()

    async def supply() -> None:
        async with AsyncSupplier(process.address, STREAMS) as one, AsyncSupplier(process.address) as other:
            for n in range(100):
                await one.push(air(n))
                await other.push(Event("vibration", n, 0, {"axis": n}))
            await one.push_many(air(n) for n in range(100, 200))
            await one.flush()
            assert one.acknowledged == 200

    asyncio.run(supply())
    found = [each.event for each in logged(tmp_path)]
    assert [event.id for event in found if event.stream == "air"] == list(range(200))
    assert [event.id for event in found if event.stream == "vibration"] == list(range(100))


def test_asyncio_connects_again(intake: Start, tmp_path: Path) -> None:
    async def supply() -> None:
        process = intake()
        async with AsyncSupplier(process.address) as supplier:
            for n in range(300):
                if n % 100 == 50:
                    process.kill()
                    process = await asyncio.to_thread(intake)
                await supplier.push(air(n))

    asyncio.run(supply())
    assert [(each.event.id, each.duplicate) for each in logged(tmp_path)] == [(n, False) for n in range(300)]


def test_asyncio_says_what_is_wrong(intake: Start) -> None:
    process = intake()

    async def supply() -> None:
        async with AsyncSupplier(process.address, [Stream("air", {})]):
            raise AssertionError("not reached")

    with pytest.raises(SupplierError, match="other attributes or types"):
        asyncio.run(supply())


def test_rows_of_numpy_are_sent_as_they_lie(intake: Start, tmp_path: Path) -> None:
    with Supplier(intake().address) as supplier:
        layout = supplier.layout("vibration", {"samples": 3})
        rows = layout.empty(5)
        rows["id"], rows["time"], rows["axis"] = range(5), range(5), range(5)
        rows["samples"] = np.arange(15).reshape(5, 3)
        layout.set_null(rows, "axis", rows["axis"] > 3)
        assert np.shares_memory(np.frombuffer(row_bytes(rows), np.uint8), rows)
        supplier.push_rows(rows)
        supplier.push_rows(rows[::2])  # not one behind another: copied
        supplier.push_rows(rows.copy())
        supplier.flush()
        assert supplier.refusals == []
    expected = [
        Event("vibration", n, n, {"samples": bytes(range(3 * n, 3 * n + 3)), "axis": n if n < 4 else None})
        for n in range(5)
    ]
    assert [each.event for each in logged(tmp_path)] == [*expected, *expected[::2], *expected]


def test_columns_of_every_type(tmp_path: Path) -> None:
    every = Stream("every", {kind.name.lower(): kind for kind in Type})
    with starting(tmp_path) as begin, Supplier(begin(streams=[every]).address) as supplier:
        supplier.push_columns(
            "every",
            id=np.array([5, 6]),
            time=np.array(["1970-01-01T00:00:01", "1970-01-01T00:00:02"], "datetime64[s]"),
            bool=np.array([True, False]),
            int=np.array([-1, 2], np.int32),
            float=np.array([0.5, 1.5], np.float32),
            string=np.array(["", "Grüße"]),
            timestamp=np.array([3, 4]),
            bytes=np.array([b"ab", b""]),
            uint8_array=np.array([[1], [2]], np.uint8),
            float_array=np.array([[1.0, 2.0], [3.0, 4.0]]),
        )
        supplier.push_columns("every", id=[7], time=5)
        supplier.flush()
        values = [tuple(each.event.attributes.values()) for each in logged(tmp_path)]
    assert values == [
        (True, -1, 0.5, "", 3, b"ab", b"\x01", (1.0, 2.0)),
        (False, 2, 1.5, "Grüße", 4, b"", b"\x02", (3.0, 4.0)),
        (None,) * 8,
    ]


def test_every_byte_of_a_row_is_in_a_column() -> None:
    """Or a copy of rows would hold there what was in memory before."""
    every = Stream("every", {kind.name.lower(): kind for kind in Type})
    widths = {"string": 5, "bytes": 8, "uint8_array": 3, "float_array": 2}
    dtype = RecordLayout(0, every, widths).dtype
    assert dtype.fields is not None
    covered = sum(column.itemsize for column, _ in (found[:2] for found in dtype.fields.values()))
    assert covered == dtype.itemsize


def test_rows_that_can_not_be() -> None:
    every = Stream("every", {kind.name.lower(): kind for kind in Type})
    with pytest.raises(ValueError, match="attribute 'string' is string: its width is needed"):
        RecordLayout(0, every, {})
    with pytest.raises(ValueError, match="no attribute 'strong'"):
        rows_of(0, every, [1], 0, {"strong": 1})
    layout = RecordLayout(0, Stream("s", {"a": Type.STRING}), {"a": 2})
    with pytest.raises(ValueError, match="more than its width"):
        layout.set_text(layout.empty(1), "a", ["abc"])


def test_more_than_64_attributes_and_more_rows_than_a_frame(tmp_path: Path) -> None:
    wide = Stream("wide", {f"a{n}": Type.INT for n in range(130)})
    with starting(tmp_path) as begin, Supplier(begin(streams=[wide]).address) as supplier:
        layout = supplier.layout("wide")
        rows = layout.empty(10_000)  # 10 MB
        rows["id"] = np.arange(10_000)
        rows["a129"] = np.arange(10_000)
        for name in ("a63", "a64", "a128"):
            layout.set_null(rows, name)
        supplier.push_rows(rows)
        supplier.flush()
        found = logged(tmp_path)
    assert len(found) == 10_000
    last = found[-1].event.attributes
    assert (last["a129"], last["a0"], last["a63"], last["a64"], last["a128"]) == (9999, 0, None, None, None)


def test_the_window_is_bounded(intake: Start) -> None:
    with Supplier(intake(durability="interval 10ms").address, window=10_000) as supplier:
        for start in range(0, 5000, 50):
            supplier.push_many(air(n) for n in range(start, start + 50))
            assert supplier._session.held <= 10_000 + 50 * 100


def test_records_of_json_are_judged_by_the_intake(intake: Start, tmp_path: Path) -> None:
    """As bridges send them: once each, through a kill, those that don't fit among the dead letters."""
    process = intake()
    with Supplier(process.address, default_stream="air") as supplier:
        supplier.push_json([b'{"id": 1, "time": 0, "airflow": 2}', b"", b'{"id": 2}', b'{"id": "x", "time": 0}'])
        supplier.flush()
        assert (supplier.acknowledged, supplier._session.dead_letters) == (4, 3)
        assert [(refusal.code, refusal.number) for refusal in supplier.refusals] == [
            ("not-json", 1),
            ("missing-time", 2),
            ("wrong-type", 3),
        ]
        process.kill()
        intake()
        supplier.push_json([b'{"stream": "vibration", "id": 1, "time": 0}', b'{"id": 5, "time": 0}'] * 2)
        supplier.flush()
        with pytest.raises(ValueError, match="line end"):
            supplier.push_json([b"{\n}"])
    found = [(each.event.stream, each.event.id, each.duplicate) for each in logged(tmp_path)]
    first, second = ("vibration", 1), ("air", 5)
    assert found == [("air", 1, False), (*first, False), (*second, False), (*first, True), (*second, True)]
    with pytest.raises(SupplierError, match="no stream 'water' here"):
        Supplier(process.address, default_stream="water")
