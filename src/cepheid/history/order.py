"""The order of matches as bytes, as the native core gives it (native/src/found_order.rs)."""

from __future__ import annotations

import struct
from collections.abc import Iterable

#: An event: its time, the place of its stream among the query's in the order of their names, and its id.
Place = tuple[int, int, int | str]


def order_of(time: int, bound: Iterable[Iterable[Place]]) -> bytes:
    """Bytes that compare as rule O2 says: by time, then by the bound events, variable by variable."""
    parts = [_int(time)]
    for events in bound:
        for moment, stream, event_id in events:
            parts += [b"\x01", _int(moment), struct.pack(">H", stream)]
            parts.append(_int(event_id) if isinstance(event_id, int) else _text(event_id))
        parts.append(b"\x00")
    return b"".join(parts)


def _int(value: int) -> bytes:
    return struct.pack(">Q", (value + (1 << 63)) & ((1 << 64) - 1))


def _text(value: str) -> bytes:
    return value.encode().replace(b"\x00", b"\x00\x01") + b"\x00\x00"
