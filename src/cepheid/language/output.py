"""Matches as JSON and as rows, as every command prints them (rules O1 and O3)."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.functions import ValueType
from cepheid.model.matches import Bound, EventRef, Match
from cepheid.model.time import format_instant
from cepheid.model.types import Json, Value


def named_events(checked: Checked) -> list[tuple[syntax.Range, bool]]:
    """The variables whose events a match names, each with whether it names a list; none if it is of a window."""
    if is_of_window(checked):
        return []
    many = {s.variable for s in checked.query.seq if isinstance(s, syntax.Many)}
    absent = {s.variable for s in checked.query.seq if isinstance(s, syntax.Absent)}
    return [(r, r.variable in many) for r in checked.query.ranges if r.variable not in absent]


def is_of_window(checked: Checked) -> bool:
    """Whether a match is a row of a batch or session window, and not of events."""
    kinds = {w.kind for w in checked.query.windows if isinstance(w, syntax.EventWindow)}
    return bool(kinds & {"batch", "session"})


class MatchPrinter:
    """Prints the matches of one query."""

    def __init__(self, checked: Checked) -> None:
        self._types = {output.name: output.type for output in checked.outputs}
        self._group_types = {
            name: checked.attributes[a.variable, a.name].type
            for name, a in zip(checked.groups, checked.query.group_by, strict=True)
        }
        #: Variables over several streams: their events are named with the stream.
        self._several = {r.variable for r in checked.query.ranges if len(r.streams) > 1}

    def as_json(self, match: Match) -> dict[str, Json]:
        """The object of a line of `match --format jsonl`."""
        found: dict[str, Json] = {
            "id": match.id,
            "time": format_instant(match.time),
            "events": {variable: self._bound(variable, bound) for variable, bound in match.events.items()},
            "select": _values(match.select, self._types),
        }
        if match.window is not None:
            start, end = format_instant(match.window.start), format_instant(match.window.end)
            found["window"] = {"start": start, "end": end}
        if match.group is not None:
            found["group"] = _values(match.group, self._group_types)
        if match.knowledge is not None:
            found["knowledge"] = match.knowledge
        return found

    def as_row(self, match: Match) -> dict[str, str]:
        """The cells of a row for people: when, what was selected, and which events."""
        return as_row(self.as_json(match))

    def _bound(self, variable: str, bound: Bound) -> Json:
        if bound is None:
            return None
        if isinstance(bound, list):
            return [self._reference(variable, ref) for ref in bound]
        return self._reference(variable, bound)

    def _reference(self, variable: str, ref: EventRef) -> Json:
        stream, event_id = ref
        return f"{stream}/{event_id}" if variable in self._several else event_id


def as_row(printed: Mapping[str, Json]) -> dict[str, str]:
    """The cells of a match that was printed as JSON."""
    row = {"time": str(printed["time"])}
    for part in ("group", "select"):
        values = printed.get(part)
        if isinstance(values, dict):
            row |= {name: "" if value is None else str(value) for name, value in values.items()}
    events = printed["events"]
    assert isinstance(events, dict)
    return row | {f"?{variable}": _shown(bound) for variable, bound in events.items()}


def _shown(bound: Json) -> str:
    if bound is None:
        return ""
    return " ".join(map(str, bound)) if isinstance(bound, list) else str(bound)


def _values(values: Mapping[str, Value], types: Mapping[str, ValueType]) -> dict[str, Json]:
    return {name: _value(value, types[name]) for name, value in values.items()}


def _value(value: Value, kind: ValueType) -> Json:
    """Timestamps in ISO 8601, bytes as base64, durations as microseconds."""
    if value is None:
        return None
    if kind is ValueType.TIMESTAMP:
        assert isinstance(value, int)
        return format_instant(value)
    if isinstance(value, bytes):
        return list(value) if kind is ValueType.UINT8_ARRAY else base64.b64encode(value).decode()
    if isinstance(value, tuple):
        return list(value)
    if kind is ValueType.FLOAT and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
