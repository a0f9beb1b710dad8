"""The order of matches as bytes, as the native core gives it (native/src/found_order.rs)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TypeAlias

from cepheid.model.types import Value

#: An event: its time, the place of its stream among the query's in the order of their names, and its id.
Place: TypeAlias = tuple[int, int, int | str]


def order_of(time: int, bound: Iterable[Iterable[Place]]) -> bytes:
    """Bytes that compare as rule O2 says: by time, then by the bound events, variable by variable."""
    parts = [_int(time)]
    for events in bound:
        for moment, stream, event_id in events:
            parts += [b"\x01", _int(moment), struct.pack(">H", stream)]
            parts.append(_int(event_id) if isinstance(event_id, int) else _bytes(event_id.encode()))
        parts.append(b"\x00")
    return b"".join(parts)


def order_of_group(time: int, group: Iterable[Value], start: int) -> bytes:
    """The same for rows of batch and session windows: by time, then by group values, null first."""
    return b"".join([_int(time), *map(_value, group), _int(start)])


def _value(value: Value) -> bytes:
    match value:
        case None:
            return b"\x00"
        case bool():
            return b"\x01" + bytes([value])
        case int():
            return b"\x02" + _int(value)
        case float():
            return b"\x03" + _float(value)
        case str():
            return b"\x04" + _bytes(value.encode())
        case bytes():
            return b"\x05" + _bytes(value)
        case _:
            return b"\x06" + b"".join(b"\x01" + _float(item) for item in value) + b"\x00"


def _int(value: int) -> bytes:
    return struct.pack(">Q", (value + (1 << 63)) & ((1 << 64) - 1))


def _float(value: float) -> bytes:
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
    return struct.pack(">Q", bits ^ ((1 << 64) - 1) if bits >> 63 else bits | (1 << 63))


def _bytes(value: bytes) -> bytes:
    return value.replace(b"\x00", b"\x00\x01") + b"\x00\x00"
