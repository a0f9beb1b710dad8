"""Events, what variables are bound to, and matches (rules E1, E2, Q6 and O1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str | bytes | tuple[float, ...] | None


class Refused(Exception):
    """The query means nothing. Nearly all such queries are the checker's to find; here are those met on the way."""


@dataclass(frozen=True)
class Event:
    """An event; `time` is in microseconds. Stream and id say which one it is, so attributes don't count in `==`."""

    stream: str
    id: int | str
    time: int
    attributes: Mapping[str, Value] = field(default_factory=dict, compare=False)

    @property
    def order(self) -> tuple[int, str, int | str]:
        """The key of the total order (rule E2). Python compares text by code point, as UTF-8 compares bytewise."""
        return (self.time, self.stream, self.id)

    def value(self, name: str) -> Value:
        """An attribute, or `id` or `time`. A missing attribute is null (rule E3)."""
        if name == "id":
            return self.id
        if name == "time":
            return self.time
        return self.attributes.get(name)


#: What a variable is bound to: one event; all that qualify (`+`, `{n,m}`); or nothing.
Bound: TypeAlias = Event | tuple[Event, ...] | None
#: What each variable is bound to. A variable that is not there is not bound (yet); NOT variables never are.
Binding: TypeAlias = dict[str, Bound]

Reference: TypeAlias = tuple[str, int | str]


@dataclass(frozen=True)
class Match:
    """A match as it is shown: an event is its (stream, id). `window` and `group` are those of batch and session."""

    time: int
    events: dict[str, Reference | list[Reference] | None]
    select: dict[str, Value]
    window: tuple[int, int] | None = None
    group: dict[str, Value] | None = None
    bindings: dict[str, Value] = field(default_factory=dict)


def bound_events(binding: Mapping[str, Bound], variables: Iterable[str] | None = None) -> list[Event]:
    """All events that are bound, or those bound to these variables."""
    found: list[Event] = []
    for variable in binding if variables is None else variables:
        bound = binding.get(variable)
        if isinstance(bound, Event):
            found.append(bound)
        elif bound is not None:
            found += bound
    return found


def single_events(binding: Mapping[str, Bound], variables: Iterable[str]) -> list[Event]:
    """The events bound to those of these variables that are bound to one event."""
    return [bound for bound in map(binding.get, variables) if isinstance(bound, Event)]
