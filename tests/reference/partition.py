"""Partitions, and what is judged within them: MATCH STRICT and AFTER MATCH (rules S7, S10 and S11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cepheid.language import syntax
from cepheid.language.syntax import Query, step_variables
from tests.reference.events import Binding, Event, Refused, Value, bound_events
from tests.reference.order import bound_key
from tests.reference.values import compare

#: An attribute of a variable.
Place = tuple[str, str]
#: The values of the classes, one a class. None: the event is in no partition.
Key = tuple[Value, ...] | None


def classes(query: Query) -> list[set[Place]]:
    """The classes of attributes that equality JOINs make equal and that touch every variable, NOT ones aside (S7)."""
    absent = {s.variable for s in query.seq if isinstance(s, syntax.Absent)}
    unsure = set(absent)
    for step in query.seq:
        if isinstance(step, syntax.Maybe | syntax.AnyOf) or (isinstance(step, syntax.Many) and step.least == 0):
            unsure |= set(step_variables(step))
    links = list(equalities(query))
    found: list[set[Place]] = []
    for link in links:
        if not any(variable in unsure for variable, _ in link):
            touched = [c for c in found if c & set(link)]
            found = [c for c in found if c not in touched] + [set(link).union(*touched)]
    # "Links through a NOT variable or one that may be unbound don't" count: such a variable belongs to the class of an
    # attribute that it is linked with, but makes no two classes one.
    for link in links:
        for sure, loose in (link, reversed(link)):
            if sure[0] not in unsure and loose[0] in unsure:
                if not any(sure in c for c in found):
                    found.append({sure})
                for c in found:
                    if sure in c:
                        c.add(loose)
    wanted = {r.variable for r in query.ranges} - absent
    return [c for c in found if wanted <= {variable for variable, _ in c}]


def equalities(query: Query) -> Iterator[tuple[Place, Place]]:
    """The pairs of attributes that top-level JOINs say are equal; conjuncts of AND count."""
    for join in query.joins:
        for part in join.operands if isinstance(join, syntax.Logical) and join.word == "AND" else (join,):
            if isinstance(part, syntax.Compare) and part.sign == "=":
                left, right = part.left, part.right
                if isinstance(left, syntax.Attribute) and isinstance(right, syntax.Attribute):
                    yield (left.variable, left.name), (right.variable, right.name)


def key(query: Query, event: Event, floats: frozenset[Place]) -> Key:
    """The values of an event in the classes: null in one of them, and it is in no partition (S7).

    In a class with floats (see `matcher.find_matches`) the ints are floats too.

    A class is one attribute in each stream. In a stream that it does not touch, one that only a NOT variable ranges
    over, it has no value: such events are in no partition either.
    """
    values: list[Value] = []
    for places in classes(query):
        names = {
            name
            for variable, name in places
            for r in query.ranges
            if r.variable == variable and event.stream in r.streams
        }
        if len(names) > 1:
            raise Refused(f"STRICT and AFTER MATCH need one key a stream, not {sorted(names)} (rule S7)")
        value = event.value(names.pop()) if names else None
        if value is None:
            return None
        values.append(float(value) if places & floats and isinstance(value, int) else value)
    return tuple(values)


def same(one: Key, other: Key) -> bool:
    """Whether two keys are those of one partition: equal as in a JOIN."""
    if one is None or other is None:
        return False
    return all(compare("=", a, b) is True for a, b in zip(one, other, strict=True))


def adjacent(query: Query, binding: Binding, existing: Sequence[Event], floats: frozenset[Place]) -> bool:
    """Whether the bound events are neighbours among all events of the FROM streams in their partition (S10).

    This is asked of the matches of MATCH ANY: it has no part in what qualifies for `?e+`, `?e?` or NOT.
    """
    streams = {stream for r in query.ranges for stream in r.streams}
    bound = sorted(bound_events(binding), key=lambda e: e.order)
    own = key(query, bound[0], floats)
    members = [e for e in existing if e.stream in streams and same(key(query, e, floats), own)]
    return any(members[i : i + len(bound)] == bound for i in range(len(members)))


def after_match(
    query: Query, matches: Sequence[tuple[int, Binding]], floats: frozenset[Place]
) -> list[tuple[int, Binding]]:
    """The matches that AFTER MATCH leaves of those that KEEP gives (S11)."""
    if query.after == "KEEP":
        return list(matches)
    partitions: list[tuple[Key, list[Binding]]] = []
    left = []
    for time, binding in sorted(matches, key=lambda match: greedy_order(query, *match)):
        own = key(query, bound_events(binding)[0], floats)
        for known, members in partitions:
            if same(known, own):
                taken = members
                break
        else:
            taken = []
            partitions.append((own, taken))
        if may_follow(query, binding, taken):
            taken.append(binding)
            left.append((time, binding))
    return left


def greedy_order(query: Query, time: int, binding: Binding) -> tuple[Any, ...]:
    """By match time, then the last event under E2, then the events in step order.

    Variables outside SEQ follow the steps. Of matches of the same events the one whose events are bound to variables
    written earlier comes first.
    """
    inside = [v for step in query.seq for v in step_variables(step)]
    variables = inside + [r.variable for r in query.ranges if r.variable not in inside]
    last = max(event.order for event in bound_events(binding))
    events = tuple(event.order for event in bound_events(binding, variables))
    unbound = tuple(not binding[v] for v in variables if v in binding)
    return (time, last, events, unbound, *(bound_key(binding[v]) for v in variables if v in binding))


def may_follow(query: Query, binding: Binding, taken: Sequence[Binding]) -> bool:
    """Whether a match may be taken after these. First and last events are so under E2."""

    def first(one: Binding) -> Any:
        return min(event.order for event in bound_events(one))

    def last(one: Binding) -> Any:
        return max(event.order for event in bound_events(one))

    match query.after:
        case "KEEP":
            return True
        case "CONSUME":
            return not any(set(bound_events(binding)) & set(bound_events(other)) for other in taken)
        case "SKIP PAST LAST":
            return all(first(binding) > last(other) for other in taken)
        case "SKIP TO NEXT":
            return all(first(binding) != first(other) for other in taken)
