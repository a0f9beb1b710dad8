"""All matches of a query, straight from the rules of docs/semantics.md, with no thought of speed.

Rules are named where they are applied. Where a rule can be read in two ways a comment says which one is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cepheid.language import syntax
from cepheid.language.syntax import Query
from tests.reference import following, partition, windows
from tests.reference.events import Binding, Bound, Event, Match, Reference, Refused, Value
from tests.reference.order import match_key
from tests.reference.pattern import Pattern
from tests.reference.values import evaluate, is_true

__all__ = ["Event", "Match", "Refused", "find_matches"]


def find_matches(
    query: Query, events: Sequence[Event], now: int = 0, floats: frozenset[tuple[str, str]] = frozenset()
) -> list[Match]:
    """The matches of a query over all events there will ever be, in the order of O2.

    Every variable has a range, no (stream, id) comes twice, and the checker has nothing to say against the query.
    `floats` are the attributes (variable, name) whose type is float. It matters where a variable ranges over a stream
    that has ints and one that has floats: what it reads of both are floats.
    """
    if query.path is not None:
        raise Refused("PATH is not part of this matcher")
    query = with_parts_apart(query)
    if not all(is_true(join, {}, {}) for join in query.joins if not syntax.variables(join)):
        return []  # a part that names no variable holds for every combination, or for none
    existing = [event for event in sorted(events, key=lambda e: e.order) if exists(query, event, now)]
    qualifying = {r.variable: qualifying_events(query, r, existing, floats) for r in query.ranges}
    for window in query.windows:
        if isinstance(window, syntax.EventWindow):
            return windows.rows(query, window, qualifying[window.variable])
    pattern = Pattern(query, qualifying)
    found = list(following.matches(pattern, existing) if query.match == "NEXT" else pattern.matches())
    if query.match == "STRICT":
        found = [binding for binding in found if partition.adjacent(query, binding, existing, floats)]
    kept = [(time, b) for b in found if (time := pattern.time(b)) is not None and passes(query, b)]
    taken = partition.after_match(query, kept, floats)
    variables = [r.variable for r in query.ranges]
    taken.sort(key=lambda one: match_key(one[0], one[1], variables))
    return [show(query, time, binding) for time, binding in taken]


def with_parts_apart(query: Query) -> Query:
    """The query with each part of an AND in a JOIN as a condition of its own.

    S2: a JOIN that names an unbound variable says nothing about *it*. What it says about others still holds, as it does
    for a WINDOW; so `JOIN (x AND y)` means what `JOIN (x) JOIN (y)` means. A part over one variable is a FILTER (Q2).
    """
    parts = [part for join in query.joins for part in _parts(join)]
    return replace(
        query,
        joins=tuple(part for part in parts if len(syntax.variables(part)) != 1),
        filters=(*query.filters, *(part for part in parts if len(syntax.variables(part)) == 1)),
    )


def _parts(condition: syntax.Expression) -> list[syntax.Expression]:
    if isinstance(condition, syntax.Logical) and condition.word == "AND":
        return [part for operand in condition.operands for part in _parts(operand)]
    return [condition]


def exists(query: Query, event: Event, now: int) -> bool:
    """Whether an event is inside WITHIN; outside of it events do not exist, for anything (rule Q5)."""
    within = query.within
    if within is None:
        return True
    if within.low is not None:
        low = within.low.microseconds + (now if within.low.now else 0)
        if event.time < low or (event.time == low and not within.low_included):
            return False
    if within.high is not None:
        high = within.high.microseconds + (now if within.high.now else 0)
        if event.time > high or (event.time == high and not within.high_included):
            return False
    return True


def qualifying_events(
    query: Query, range: syntax.Range, existing: Sequence[Event], floats: frozenset[tuple[str, str]]
) -> list[Event]:
    """The events of the variable's streams for which its FILTERs are true (rule Q2), as the variable reads them."""
    filters = [f for f in query.filters if range.variable in syntax.variables(f)]
    names = {name for variable, name in floats if variable == range.variable}
    return [
        event
        for event in (as_read(event, names) for event in existing if event.stream in range.streams)
        if all(is_true(f, {range.variable: event}, {}) for f in filters)
    ]


def as_read(event: Event, floats: set[str]) -> Event:
    """The event with these attributes as floats."""
    return replace(
        event,
        attributes={
            name: float(value) if name in floats and isinstance(value, int) else value
            for name, value in event.attributes.items()
        },
    )


def aggregated(binding: Mapping[str, Bound]) -> dict[str, Sequence[Event]]:
    """With SEQ, aggregates range over a `+` or `{n,m}` variable (rule W6)."""
    return {variable: bound for variable, bound in binding.items() if isinstance(bound, tuple)}


def passes(query: Query, binding: Binding) -> bool:
    """HAVING filters matches (rule W6), and so does a comparison with an aggregate on its left in SELECT (rule W5)."""
    conditions = [condition for s in query.select if (condition := windows.condition_of(s)) is not None]
    if query.having is not None:
        conditions.append(query.having)
    return all(is_true(condition, binding, aggregated(binding)) for condition in conditions)


def show(query: Query, time: int, binding: Binding) -> Match:
    """A match as the output has it (rule O1)."""
    select: dict[str, Value] = {
        windows.name_of(s): evaluate(windows.value_of(s), binding, aggregated(binding)) for s in query.select
    }
    return Match(time, {r.variable: refer(binding[r.variable]) for r in query.ranges if r.variable in binding}, select)


def refer(bound: Bound) -> Reference | list[Reference] | None:
    if bound is None:
        return None
    if isinstance(bound, Event):
        return (bound.stream, bound.id)
    return [(event.stream, event.id) for event in bound]
