"""For tests of your own queries: events in a few words, a clock that you set, and an assertion that shows what differs.

from cepheid.testing import Clock, EventsOf, assert_matches

def test_rising() -> None:
    flow = EventsOf("airflow")
    flow.at("09:00", sensorID="D105", flowrate=510.0)
    flow.at("09:01", sensorID="D105", flowrate=580.0)
    assert_matches(RISING, flow, [{"e1": 1, "e2": 2}])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from cepheid.language import syntax
from cepheid.language.build import Q
from cepheid.language.checker import Checked, check
from cepheid.language.errors import Rejected, Source
from cepheid.language.output import MatchPrinter
from cepheid.language.parser import examine
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event, EventId
from cepheid.model.matches import Match
from cepheid.model.streams import Stream
from cepheid.model.time import format_instant, parse_duration, parse_instant
from cepheid.model.types import Type, Value
from cepheid.plan.matcher import Matcher

#: The day of times without one.
DAY = "2012-05-07"

Query: TypeAlias = str | Q | syntax.Query


class Clock:
    """A clock that stands still until it is set or moved on."""

    def __init__(self, start: str | int = f"{DAY}T00:00") -> None:
        self.now = start if isinstance(start, int) else parse_instant(_with_day(start))

    def __call__(self) -> int:
        """The time in microseconds, as a clock gives it."""
        return self.now

    def set(self, moment: str | int) -> None:
        """Set the clock: `clock.set("09:05")`; it can be set back, as real clocks are."""
        self.now = moment if isinstance(moment, int) else parse_instant(_with_day(moment))

    def advance(self, duration: str) -> None:
        """Move on: `clock.advance("5min")`."""
        self.now += parse_duration(duration)

    def __str__(self) -> str:
        return format_instant(self.now)


class EventsOf(Iterable[Event]):
    """The events of a stream, given one by one. Ids count from 1 unless they are given.

    Types are what the values show: bool, int, float, str, bytes, or a sequence of floats; `types` says otherwise.
    """

    def __init__(self, stream: str, types: Mapping[str, str] | None = None) -> None:
        self.name = stream
        self._types = {name: Type.parse(kind) for name, kind in (types or {}).items()}
        self._events: list[Event] = []

    def at(self, time: str | int, *, id: EventId | None = None, **attributes: Value | Sequence[float]) -> Event:
        """An event at a time: `09:00`, `09:00:00.5`, ISO 8601 with a day, or microseconds."""
        moment = time if isinstance(time, int) else parse_instant(_with_day(time))
        values = {name: _value(value) for name, value in attributes.items()}
        event = Event(self.name, len(self._events) + 1 if id is None else id, moment, values)
        self._events.append(event)
        return event

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    @property
    def stream(self) -> Stream:
        """The stream that the events show."""
        types = dict(self._types)
        for event in self._events:
            for name, value in event.attributes.items():
                if value is not None and name not in self._types:
                    types[name] = _wider(types.get(name), _type_of(value), name)
        for event in self._events:
            for name in event.attributes:
                types.setdefault(name, Type.STRING)  # always null
        text = any(isinstance(event.id, str) for event in self._events)
        return Stream(self.name, types, id_kind="string" if text else "int")


def matches_of(query: Query, *streams: EventsOf, now: str | int = 0) -> list[Match]:
    """What a query finds in these streams, which are complete. Raises Rejected, with every fault, if it is wrong."""
    checked = _checked(query, streams)
    moment = now if isinstance(now, int) else parse_instant(_with_day(now))
    return Matcher(checked, moment).matches(_filled(streams))


def assert_matches(
    query: Query, streams: EventsOf | Sequence[EventsOf], expected: Iterable[Mapping[str, Any]], now: str | int = 0
) -> None:
    """The query finds exactly these matches, in this order.

    Each is a mapping of what matters of it: variables to ids (lists for many), and selected values by name:
    `{"e1": 1, "e2": [2, 3], "rise": 70.0}`. The error shows both, line by line.
    """
    given = [streams] if isinstance(streams, EventsOf) else list(streams)
    checked = _checked(query, given)
    printer = MatchPrinter(checked)
    found = [_flat(printer.as_json(m)) for m in matches_of(query, *given, now=now)]
    wanted = [dict(match) for match in expected]
    unknown = {name for match in wanted for name in match} - _names(checked)
    if unknown:
        raise AssertionError(f"the query has no variable or selected value called {', '.join(sorted(unknown))}")
    shown = [{name: match.get(name) for name in want} for match, want in zip(found, wanted, strict=False)]
    if len(found) == len(wanted) and shown == wanted:
        return
    lines = ["the query does not find what is expected", "expected:", *(f"  {want}" for want in wanted)]
    lines += ["found:", *(f"  {match}" for match in found)]
    raise AssertionError("\n".join(lines))


def _checked(query: Query, streams: Sequence[EventsOf]) -> Checked:
    declared = {s.name: s.stream for s in streams}
    if isinstance(query, Q):
        query = query.tree
    if isinstance(query, str):
        tree, problems = examine(Source("query", query))
        if tree is None:
            raise Rejected(problems)
        query = tree
    checked, problems = check(query, Catalogue(declared, next(iter(declared)) if len(declared) == 1 else None))
    if checked is None:
        raise Rejected(problems)
    return checked


def _filled(streams: Sequence[EventsOf]) -> list[Event]:
    """The events with every attribute of their stream, numbers of float attributes as floats."""
    events = []
    for given in streams:
        types = given.stream.attributes
        for event in given:
            values = {name: _as(event.attributes.get(name), kind) for name, kind in types.items()}
            events.append(Event(event.stream, event.id, event.time, values))
    return events


def _as(value: Value, kind: Type) -> Value:
    return float(value) if kind is Type.FLOAT and isinstance(value, int) else value


def _flat(match: Mapping[str, Any]) -> dict[str, Any]:
    return {**match["events"], **(match.get("group") or {}), **match["select"]}


def _names(checked: Checked) -> set[str]:
    return {*checked.event_variables, *(o.name for o in checked.outputs), *checked.groups}


def _with_day(text: str) -> str:
    return f"{DAY}T{text}" if ":" in text and "-" not in text else text


def _value(value: Value | Sequence[float]) -> Value:
    return tuple(map(float, value)) if isinstance(value, list | tuple) else value  # type: ignore[return-value]


def _type_of(value: Value) -> Type:
    for kind, found in (
        (bool, Type.BOOL),
        (int, Type.INT),
        (float, Type.FLOAT),
        (str, Type.STRING),
        (bytes, Type.BYTES),
    ):
        if isinstance(value, kind):
            return found
    return Type.FLOAT_ARRAY


def _wider(known: Type | None, found: Type, name: str) -> Type:
    if known in (None, found):
        return found
    assert known is not None
    if known.is_number and found.is_number:
        return Type.FLOAT
    raise TypeError(f"attribute '{name}' is {known.value} in one event and {found.value} in another")
