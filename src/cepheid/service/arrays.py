"""Rows of numpy that are records: filled by column, sent as they lie in memory.

A row is a record of native/src/record.rs: a head, a word an attribute, and behind them the parts of attributes that
vary in length, for each of which a row has the same room (its width).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from cepheid.model.streams import Stream
from cepheid.model.types import Type

_WORDS: Final = {Type.BOOL: "<u8", Type.INT: "<i8", Type.FLOAT: "<f8", Type.TIMESTAMP: "<i8"}
_HEAD: Final = 24
#: Attributes can't have such names, so that these are free for what lies behind them.
_AT, _SIZE, _PADDING = "{}:at", "{}:size", "{}:padding"


class RecordLayout:
    """How rows of a stream lie in memory.

    `widths` gives, for each attribute of type string or bytes, the most bytes, and for array<uint8> and array<float>
    the number of elements, which all rows then have. `dtype` has a column `id` (int), `time`, and one an attribute;
    text and bytes are set with `set_text`, as their lengths differ from row to row.
    """

    def __init__(self, number: int, stream: Stream, widths: Mapping[str, int]) -> None:
        self.stream = stream
        self._number = number
        self._nulls = -(-len(stream.attributes) // 64)
        words_at = _HEAD + 8 * self._nulls
        at = words_at + 8 * len(stream.attributes)
        fields: dict[str, tuple[Any, int]] = {
            ":length": ("<u4", 0),
            ":stream": ("<u2", 4),
            ":flags": ("<u2", 6),
            "time": ("<i8", 8),
            "id": ("<i8", 16),
        }
        if self._nulls:
            fields[":nulls"] = (("<u8", (self._nulls,)), _HEAD)
        self._parts: dict[str, tuple[int, int]] = {}
        for slot, (name, kind) in enumerate(stream.attributes.items()):
            word = words_at + 8 * slot
            if kind in _WORDS:
                fields[name] = (_WORDS[kind], word)
                continue
            if name not in widths:
                raise ValueError(f"attribute '{name}' is {kind.value}: its width is needed")
            width = widths[name]
            size = 8 * width if kind is Type.FLOAT_ARRAY else width
            fields[_AT.format(name)], fields[_SIZE.format(name)] = ("<u4", word), ("<u4", word + 4)
            if size:
                element = "<f8" if kind is Type.FLOAT_ARRAY else "u1"
                fields[name] = (f"S{size}" if kind in (Type.STRING, Type.BYTES) else (element, (width,)), at)
            self._parts[name] = (at, size)
            padding = -size % 8
            if padding:
                # A column too: numpy copies columns only, and copies of rows would hold anything here.
                fields[_PADDING.format(name)] = (("u1", (padding,)), at + size)
            at += size + padding
        self.dtype = np.dtype(
            {
                "names": list(fields),
                "formats": [kind for kind, _ in fields.values()],
                "offsets": [offset for _, offset in fields.values()],
                "itemsize": at,
            }
        )

    def empty(self, count: int) -> np.ndarray[Any, Any]:
        """So many rows, zero but for what every record of this layout has; nothing in them is null."""
        rows = np.zeros(count, self.dtype)
        rows[":length"], rows[":stream"] = self.dtype.itemsize, self._number
        for name, (at, size) in self._parts.items():
            rows[_AT.format(name)], rows[_SIZE.format(name)] = at, size
        return rows

    def set_text(self, rows: np.ndarray[Any, Any], name: str, values: object) -> None:
        """Sets a column of type string or bytes, which copies it. Bytes can't end with 0, which numpy cuts."""
        column = np.asarray(values)
        if column.dtype.kind == "U":
            column = np.char.encode(column, "utf-8")
        if column.dtype.kind != "S":
            raise ValueError(f"attribute '{name}': expected text, found {column.dtype}")
        if column.dtype.itemsize > self._parts[name][1]:
            raise ValueError(f"attribute '{name}': {column.dtype.itemsize} bytes are more than its width")
        if self._parts[name][1]:
            rows[name] = column
        rows[_SIZE.format(name)] = np.char.str_len(column)

    def set_null(self, rows: np.ndarray[Any, Any], name: str, where: object = True) -> None:
        """Makes an attribute null, in all rows or where a mask says so."""
        slot = list(self.stream.attributes).index(name)
        bit = np.uint64(1 << (slot % 64))
        words = rows[":nulls"][:, slot // 64]
        rows[":nulls"][:, slot // 64] = np.where(np.asarray(where), words | bit, words & ~bit)


def rows_of(
    number: int, stream: Stream, id: object, time: object, columns: Mapping[str, object]
) -> np.ndarray[Any, Any]:
    """Rows of columns; attributes without one are null. Times are integers (microseconds) or datetime64."""
    unknown = columns.keys() - stream.attributes.keys()
    if unknown:
        raise ValueError(f"stream '{stream.name}' has no attribute '{min(unknown)}'")
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    widths: dict[str, int] = {}
    for name, kind in stream.attributes.items():
        if name not in columns:
            widths[name] = 0
            continue
        column = np.asarray(columns[name])
        if column.dtype.kind == "U":
            column = np.char.encode(column, "utf-8")
        arrays[name] = column
        widths[name] = column.shape[-1] if kind.is_array else column.dtype.itemsize
    layout = RecordLayout(number, stream, widths)
    ids = np.asarray(id)
    rows = layout.empty(len(ids))
    rows["id"] = ids
    rows["time"] = _instants(time)
    for name, kind in stream.attributes.items():
        if name not in arrays:
            layout.set_null(rows, name)
        elif kind in (Type.STRING, Type.BYTES):
            layout.set_text(rows, name, arrays[name])
        else:
            rows[name] = _instants(arrays[name]) if kind is Type.TIMESTAMP else arrays[name]
    return rows


def _instants(column: object) -> np.ndarray[Any, Any]:
    found = np.asarray(column)
    return found.astype("datetime64[us]").astype("<i8") if found.dtype.kind == "M" else found


def row_bytes(rows: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of rows; a copy only if the rows do not lie one behind another."""
    return np.ascontiguousarray(rows).view(np.uint8).data.cast("B")
