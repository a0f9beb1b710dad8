"""Events to a Parquet file. pyarrow is imported when one is opened."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type, Value

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

#: Rows are held back up to these limits and then written as a row group.
_GROUP_ROWS: Final = 65_536
_GROUP_BYTES: Final = 32 * 1024 * 1024


class ParquetWriter:
    """Writes the columns stream, id, time and the attributes of all streams, each of one type in all that have it."""

    def __init__(self, output: BinaryIO, streams: Iterable[Stream]) -> None:
        import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: F401

        self._output = output
        self._streams = {stream.name: stream for stream in streams}
        self._types = _column_types(self._streams.values())
        self._id_kind = next((stream.id_kind for stream in self._streams.values() if stream.id_kind), None)
        self._writer: Any = None
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Event] = []
        self._bytes = 0

    def write(self, event: Event) -> None:
        if event.stream not in self._streams:
            raise ValueError(f"the writer was given no stream '{event.stream}'")
        id_kind = "int" if isinstance(event.id, int) else "string"
        self._id_kind = self._id_kind or id_kind  # type: ignore[assignment]
        if id_kind != self._id_kind:
            raise ValueError(f"id {event.id!r} is {id_kind}, others are {self._id_kind}; a Parquet column has one type")
        self._rows.append(event)
        self._bytes += sum(len(value) for value in event.attributes.values() if isinstance(value, str | bytes | tuple))
        if len(self._rows) >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._write_group()

    def finish(self) -> None:
        """Write the rows that are held back."""
        self._write_group()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _write_group(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = self._schema()
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._output, schema)
        columns: list[list[Value]] = [[event.stream for event in self._rows], [event.id for event in self._rows]]
        columns.append([event.time for event in self._rows])
        columns += [[event.attributes.get(name) for event in self._rows] for name in self._types]
        arrays = [_array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=schema))
        self._clear()

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        arrow = {
            Type.BOOL: pa.bool_(),
            Type.INT: pa.int64(),
            Type.FLOAT: pa.float64(),
            Type.STRING: pa.string(),
            Type.TIMESTAMP: pa.timestamp("us", "UTC"),
            Type.BYTES: pa.binary(),
            Type.UINT8_ARRAY: pa.list_(pa.uint8()),
            Type.FLOAT_ARRAY: pa.list_(pa.float64()),
        }
        id_type = pa.string() if self._id_kind == "string" else pa.int64()
        implied = [("stream", pa.string()), ("id", id_type), ("time", arrow[Type.TIMESTAMP])]
        return pa.schema(implied + [(name, arrow[kind]) for name, kind in self._types.items()])


def _array(values: list[Value], arrow: pa.DataType) -> pa.Array[Any]:
    import pyarrow as pa

    if arrow != pa.list_(pa.uint8()):
        return pa.array(values, arrow)
    # By hand: pa.array would look at each byte. A null is told by a null border.
    parts = [value if isinstance(value, bytes) else b"" for value in values]
    ends = list(itertools.accumulate(map(len, parts), initial=0))
    borders = [None if value is None else start for value, start in zip(values, ends, strict=False)] + ends[-1:]
    content = pa.Array.from_buffers(pa.uint8(), ends[-1], [None, pa.py_buffer(b"".join(parts))])
    return pa.ListArray.from_arrays(pa.array(borders, pa.int32()), content)


def _column_types(streams: Iterable[Stream]) -> dict[str, Type]:
    types: dict[str, tuple[Type, str]] = {}
    for stream in streams:
        for name, kind in stream.attributes.items():
            known, other = types.setdefault(name, (kind, stream.name))
            if known is not kind:
                raise ValueError(
                    f"attribute '{name}' is {known.value} in stream '{other}' and {kind.value} in '{stream.name}'; a "
                    "Parquet column has one type, so write the streams to files of their own"
                )
    return {name: kind for name, (kind, _) in types.items()}
