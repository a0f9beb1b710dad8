"""Moving windows of one variable, and what SELECT yields (rules W1 to W5, O2 and O3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cepheid.language import syntax
from cepheid.language.syntax import Expression, Query, Selected
from tests.reference.events import Event, Match, Refused, Value
from tests.reference.order import group_key, match_key
from tests.reference.values import compare, evaluate, is_true

# SELECT


def condition_of(selected: Selected) -> Expression | None:
    """A comparison with an aggregate on its left filters (rule W5)."""
    expression = selected.expression
    return (
        expression if isinstance(expression, syntax.Compare) and isinstance(expression.left, syntax.Aggregate) else None
    )


def value_of(selected: Selected) -> Expression:
    """... and yields the aggregate (rule W5)."""
    condition = condition_of(selected)
    return condition.left if isinstance(condition, syntax.Compare) else selected.expression


def name_of(selected: Selected) -> str:
    """AS, else the attribute's name (rule O3)."""
    if selected.name is not None:
        return selected.name
    if isinstance(selected.expression, syntax.Attribute):
        return local_name(selected.expression)
    raise Refused("a bare expression needs AS (rule O3)")


def local_name(attribute: syntax.Attribute) -> str:
    """`airflow` of `?e.airflow` and of `?e.hvc:airflow`."""
    return attribute.name.rpartition(":")[2]


# Windows


def rows(query: Query, window: syntax.EventWindow, events: Sequence[Event]) -> list[Match]:
    """The results of a moving window over the qualifying events, in the order of O2."""
    found: list[tuple[tuple[object, ...], Match]] = []
    for values, group in groups(query, events):
        for current, members, time, extent in windows_of(window, group):
            # In batch and session windows only what is grouped by is read outside of aggregates (rule W7), and that
            # all members share.
            event = members[0] if current is None else current
            binding, aggregated = {window.variable: event}, {window.variable: members}
            conditions = [condition for s in query.select if (condition := condition_of(s)) is not None]
            if query.having is not None:
                conditions.append(query.having)
            if not all(is_true(condition, binding, aggregated) for condition in conditions):
                continue
            select = {name_of(s): evaluate(value_of(s), binding, aggregated) for s in query.select}
            if current is not None:
                key = match_key(time, {window.variable: current}, [window.variable])
                match = Match(time, {window.variable: (current.stream, current.id)}, select)
            else:
                # W5: without GROUP BY there is one group for all, which has no values.
                # Equal values may differ in their looks, 0.0 and -0.0: those of the window's first event are shown.
                named = {local_name(attribute): members[0].value(attribute.name) for attribute in query.group_by}
                key = group_key(time, values)
                match = Match(time, {}, select, extent, named)
            found.append((key, match))
    return [match for _, match in sorted(found, key=lambda one: one[0])]


def groups(query: Query, events: Sequence[Event]) -> list[tuple[list[Value], list[Event]]]:
    """The events by the values of GROUP BY; nulls are one group (rule E6)."""
    found: list[tuple[list[Value], list[Event]]] = []
    for event in events:
        values = [event.value(attribute.name) for attribute in query.group_by]
        for known, members in found:
            if all(same_group(one, other) for one, other in zip(known, values, strict=True)):
                members.append(event)
                break
        else:
            found.append((values, [event]))
    return found


def same_group(one: Value, other: Value) -> bool:
    return (one is None and other is None) or compare("=", one, other) is True


def windows_of(
    window: syntax.EventWindow, events: Sequence[Event]
) -> Iterator[tuple[Event | None, list[Event], int, tuple[int, int] | None]]:
    """For each result of one group: the current event if there is one, the events in the window, the result's time,
    and start and end of batch and session windows."""
    size = window.size
    match window.kind:
        case "sliding":  # W1: (t - w, t]; so events of equal time see the same window
            for event in events:
                yield event, [e for e in events if event.time - size < e.time <= event.time], event.time, None
        case "length":  # W4: the last n, the current one included
            for i, event in enumerate(events):
                yield event, list(events[max(0, i + 1 - size) : i + 1]), event.time, None
        case "batch":  # W2: [k w, (k + 1) w) from the epoch; before it k is negative
            for k in sorted({event.time // size for event in events}):
                yield None, [e for e in events if e.time // size == k], (k + 1) * size, (k * size, (k + 1) * size)
        case "session":  # W3: a run of events with gaps < g
            runs: list[list[Event]] = []
            for event in events:
                if runs and event.time - runs[-1][-1].time < size:
                    runs[-1].append(event)
                else:
                    runs.append([event])
            for run in runs:
                yield None, run, run[-1].time + size, (run[0].time, run[-1].time + size)
