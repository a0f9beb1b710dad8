"""A match, and the id that is the same wherever and whenever it is found (rule Q6)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cepheid.model.events import EventId
from cepheid.model.types import Value

#: The (stream, id) of an event.
EventRef: TypeAlias = tuple[str, EventId]
#: What a variable is bound to: an event, several (`+`, `{n,m}`), or nothing.
Bound: TypeAlias = EventRef | list[EventRef] | None


@dataclass(frozen=True, slots=True)
class Window:
    """The span [start, end) of a batch or session window."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Match:
    """What a query found: the bound events by variable, the time it was complete, and the selected values."""

    id: str
    time: int
    events: Mapping[str, Bound]
    select: Mapping[str, Value]
    window: Window | None = None
    group: Mapping[str, Value] | None = field(default=None)
    #: The version of the knowledge in force when it was found, where that changes while a query stands.
    knowledge: int | None = None


class MatchIds:
    """Makes the ids of one query's matches.

    An id is the 128-bit BLAKE2b, in hex, personalised with `cepheid-match-1`, of: the query's normal form, then

    - for bound events: `e`; the number of variables; each in the order of its UTF-8: its name, then `n` if unbound, `1`
      and an event, or `m`, a number and that many events; the number of PATH bindings; each by name: name and value;
    - for a window: `w`; the number of group values; each; the window's start.

    Numbers of things are 4 bytes, little-endian; integers 8. Text is its UTF-8 after the number of its bytes. An event
    is its stream and its id: `i` and an integer, or `s` and text. So no two different matches give the same bytes.
    """

    def __init__(self, normal_form: str) -> None:
        self._query = hashlib.blake2b(_text(normal_form), digest_size=16, person=b"cepheid-match-1")

    def of_events(self, events: Mapping[str, Bound], bindings: Mapping[str, Value] | None = None) -> str:
        """The id of a match by its bound events, and by the PATH bindings that are used outside the PATH."""
        digest = self._query.copy()
        digest.update(b"e" + _count(len(events)))
        for variable in sorted(events):
            digest.update(_text(variable) + _bound(events[variable]))
        used = bindings or {}
        digest.update(_count(len(used)))
        for name in sorted(used):
            digest.update(_text(name) + _binding(used[name]))
        return digest.hexdigest()

    def of_window(self, group: Sequence[Value], start: int) -> str:
        """The id of a batch or session window's row: its group values, in the order of GROUP BY, and its start."""
        return next(self.of_windows([(*group, start)]))

    def of_windows(self, rows: Iterable[Sequence[Any]]) -> Iterator[str]:
        """The ids of many: each row has the group values, and then the window's start. Most are of few groups."""
        known: dict[tuple[Value, ...], bytes] = {}
        for *values, start in rows:
            group = tuple(values)
            told = known.get(group)
            if told is None:
                told = known[group] = b"w" + _count(len(group)) + b"".join(map(_value, group))
            digest = self._query.copy()
            digest.update(told + _integer(start))
            yield digest.hexdigest()


def prefix_of(normal_form: str, variable: str, stream: str) -> bytes:
    """What is hashed before the integer id of the event, for a match of that one; then come four bytes of zero."""
    return _text(normal_form) + b"e" + _count(1) + _text(variable) + b"1" + _text(stream) + b"i"


def _count(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _integer(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _count(len(encoded)) + encoded


def _binding(value: Value) -> bytes:
    """Text as it is; another value after a number of bytes that no text has."""
    return _text(value) if isinstance(value, str) else b"\xff" * 4 + _value(value)


def _bound(bound: Bound) -> bytes:
    if bound is None:
        return b"n"
    if isinstance(bound, list):
        return b"m" + _count(len(bound)) + b"".join(_event(ref) for ref in bound)
    return b"1" + _event(bound)


def _event(ref: EventRef) -> bytes:
    stream, event_id = ref
    return _text(stream) + (b"i" + _integer(event_id) if isinstance(event_id, int) else b"s" + _text(event_id))


def _value(value: Value) -> bytes:
    match value:
        case None:
            return b"n"
        case bool():
            return b"t" if value else b"f"
        case int():
            return b"i" + _integer(value)
        case str():
            return b"s" + _text(value)
        case bytes():
            return b"x" + _count(len(value)) + value
        case float():
            return b"d" + _float(value)
        case _:
            return b"a" + _count(len(value)) + b"".join(_float(item) for item in value)


def _float(value: float) -> bytes:
    return struct.pack("<d", value + 0.0)  # -0.0 and 0.0 are one group
