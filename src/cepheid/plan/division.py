"""How the events of a query are divided among Spark's tasks: what can be in one match has to be seen by one of them.

JOIN (?a.sensor = ?b.sensor)                      by key: sensor
JOIN on ?room of PATH {?a :in ?room ...}          by what is known: ?room
SEQ (?a, ?b) WINDOW (?a, ?b, 5min), no key        by time, in slices that overlap by 5 min
the same with MATCH NEXT                          not at all

A stream, whose state has a place, is divided by key only: into buckets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cepheid.knowledge.tables import TERM, VALUE, Lookup
from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.model.time import format_duration


def division(checked: Checked) -> str:
    """How a batch of a query's events is divided, and why so, for people."""
    if is_alone(checked):
        return "in any way: each event is a match by itself"
    if keys := key_attributes(checked):
        return f"by key: {', '.join(keys)}"
    if Meaning.of(checked) is not None:
        return "by what is known of its events: a PATH variable that all of them share"
    back = reach(checked)
    if isinstance(back, int):
        return (
            "by time, because its variables share no key: slices that read "
            f"{format_duration(back)} of the events before them"
        )
    return f"not at all, one task matches everything in order: its variables share no key, and {back}"


def live_division(checked: Checked) -> str:
    """How the events of a query that runs live are divided, for people."""
    if is_alone(checked) or key_attributes(checked):
        return division(checked)
    return (
        "not at all, one task at a time matches all events, in one bucket: its variables share no key, by JOIN or "
        "GROUP BY"
    )


def is_alone(checked: Checked) -> bool:
    """Whether each event is a match by itself."""
    return len(checked.query.ranges) == 1 and not is_moving(checked) and not checked.query.seq


def is_moving(checked: Checked) -> bool:
    """Whether a WINDOW moves along with events."""
    return any(isinstance(w, syntax.EventWindow) for w in checked.query.windows)


def key_attributes(checked: Checked) -> list[str]:
    """The attributes that events of one match have in common, whichever variable they are bound to."""
    query = checked.query
    if is_moving(checked):
        names = [_names(checked, a.variable, a.name) for a in query.group_by]
        return [next(iter(n)) for n in names if len(n) == 1] if all(len(n) == 1 for n in names) else []
    keys = []
    for klass in checked.partition.classes:
        if set(klass) != {r.variable for r in query.ranges}:
            continue  # a NOT variable that is not joined sees the events of every key
        names_of_class = set().union(*(_names(checked, v, name) for v, names in klass.items() for name in names))
        if len(names_of_class) == 1 and not next(iter(names_of_class)).startswith("?"):
            keys.append(names_of_class.pop())
    return list(dict.fromkeys(keys))


def _names(checked: Checked, variable: str, name: str) -> set[str]:
    return set(checked.attributes[variable, name].names.values()) - {"id", "time"}


def reach(checked: Checked) -> int | str:
    """How long before a match's time lies what it depends on, in microseconds; or why there is no bound to it."""
    query = checked.query
    if query.match != "ANY":
        return f"MATCH {query.match} depends on all events before"
    if query.after != "KEEP":
        return f"AFTER MATCH {query.after} depends on all matches before"
    spans = [window for window in query.windows if isinstance(window, syntax.SpanWindow)]
    for window in query.windows:
        if isinstance(window, syntax.EventWindow):
            endless = window.kind in ("session", "length")
            return f"WINDOW {window.kind} depends on all events before" if endless else window.size
    many = {v for step in query.seq if isinstance(step, syntax.Many) for v in syntax.step_variables(step)}
    absent = {v for step in query.seq if isinstance(step, syntax.Absent) for v in syntax.step_variables(step)}
    anchors = always_bound(query) - many
    tied = _tied(anchors, spans)
    if tied != anchors or not anchors:
        return "not all of its variables are tied together by WINDOWs"
    steps = [set(syntax.step_variables(step)) for step in query.seq]
    held = [i for i, names in enumerate(steps) if names & anchors]
    inside = set().union(*(steps[i] for i in range(held[0], held[-1]))) if held else set()
    others = {r.variable for r in query.ranges} - anchors - absent
    loose = [
        v for v in sorted(others - inside) if not any(v in w.variables and anchors & {*w.variables} for w in spans)
    ]
    if loose:
        return f"no WINDOW ties ?{loose[0]} to what is always bound"
    whole = [w.width for w in spans if anchors <= {*w.variables}]
    base = 0 if len(anchors) == 1 else min([*whole, sum(w.width for w in spans)])
    # What may be unbound, is many or absent lies within a window of those, and so may a deadline.
    return base + (4 * max((w.width for w in spans), default=0) if others or absent else 0)


def always_bound(query: syntax.Query) -> set[str]:
    """The variables that are bound in every match."""
    loose: set[str] = set()
    for step in query.seq:
        if isinstance(step, syntax.Maybe | syntax.Absent | syntax.AnyOf) or (
            isinstance(step, syntax.Many) and step.least == 0
        ):
            loose.update(syntax.step_variables(step))
    return {r.variable for r in query.ranges} - loose


def _tied(anchors: set[str], windows: Iterable[syntax.SpanWindow]) -> set[str]:
    """Those of some variables that windows tie to one of them, directly or through others of them."""
    tied = {min(anchors)} if anchors else set()
    groups = [anchors & {*window.variables} for window in windows]
    while more := [group for group in groups if group & tied and not group <= tied]:
        tied = tied.union(*more)
    return tied


@dataclass(frozen=True)
class Meaning:
    """What all variables share: the column of each lookup that has it, by the lookup's place in the query."""

    columns: dict[int, int]
    #: Whether two events that share several values are one match, and not one for each.
    is_hidden: bool

    @classmethod
    def of(cls, checked: Checked) -> Meaning | None:
        """What divides a query's events, if something does: a PATH variable that every variable of the query has."""
        query = checked.query
        if query.match != "ANY" or query.after != "KEEP":
            return None
        wanted = {(r.variable, stream) for r in query.ranges for stream in r.streams}
        for klass in checked.partition.classes:
            names = {variable: [n for n in own if n[0] in (TERM, VALUE)] for variable, own in klass.items()}
            if set(names) != {r.variable for r in query.ranges} or not all(names.values()):
                continue
            found, reached = {}, set()
            for place, lookup in enumerate(checked.lookups):
                if not isinstance(lookup, Lookup) or len(lookup.key) != 1:
                    continue
                own = [name for name in names[lookup.variable] if name in lookup.columns]
                if own:
                    found[place] = lookup.columns.index(own[0])
                    reached.add((lookup.variable, lookup.stream))
            if reached == wanted:
                return cls(found, any(own[0][1:] not in checked.used for own in names.values()))
        return None
