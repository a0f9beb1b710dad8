"""All matches of a query, straight from the rules of docs/semantics.md, with no thought of speed.

Rules are named where they are applied. Where a rule can be read in two ways a comment says which one is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cepheid.language import syntax
from cepheid.language.syntax import Query
from tests.reference import following, partition, path, windows
from tests.reference.events import Binding, Bound, Event, Match, Reference, Refused, Value
from tests.reference.order import match_key
from tests.reference.path import Knowledge
from tests.reference.pattern import Pattern
from tests.reference.values import evaluate, is_true

__all__ = ["Event", "Knowledge", "Match", "Refused", "find_matches"]


def find_matches(
    query: Query,
    events: Sequence[Event],
    now: int = 0,
    floats: frozenset[tuple[str, str]] = frozenset(),
    knowledge: Knowledge | None = None,
) -> list[Match]:
    """The matches of a query over all events there will ever be, in the order of O2.

    Every variable has a range, no (stream, id) comes twice, and the checker has nothing to say against the query.
    `floats` are the attributes (variable, name) whose type is float. It matters where a variable ranges over a stream
    that has ints and one that has floats: what it reads of both are floats.
    """
    if query.path is not None:
        if knowledge is None:
            raise Refused("PATH needs knowledge")
        return with_paths(query, events, now, floats, knowledge)
    return _plain_matches(query, events, now, floats)


def _plain_matches(
    query: Query,
    events: Sequence[Event],
    now: int,
    floats: frozenset[tuple[str, str]],
    is_candidate: Callable[[str, Event], bool] = lambda variable, event: True,
    fit: Callable[[Mapping[str, Bound]], bool] = lambda binding: True,
) -> list[Match]:
    """The matches of a query without PATHs: of events that are candidates, and that fit together elsewhere too."""
    query = with_parts_apart(query)
    if not all(is_true(join, {}, {}) for join in query.joins if not syntax.variables(join)):
        return []  # a part that names no variable holds for every combination, or for none
    existing = [event for event in sorted(events, key=lambda e: e.order) if exists(query, event, now)]
    qualifying = {
        r.variable: [e for e in qualifying_events(query, r, existing, floats) if is_candidate(r.variable, e)]
        for r in query.ranges
    }
    for window in query.windows:
        if isinstance(window, syntax.EventWindow):
            return windows.rows(query, window, qualifying[window.variable])
    pattern = Pattern(query, qualifying, fit)
    found = list(following.matches(pattern, existing) if query.match == "NEXT" else pattern.matches())
    if query.match == "STRICT":
        found = [binding for binding in found if partition.adjacent(query, binding, existing, floats)]
    kept = [(time, b) for b in found if (time := pattern.time(b)) is not None and passes(query, b)]
    taken = partition.after_match(query, kept, floats)
    variables = [r.variable for r in query.ranges]
    taken.sort(key=lambda one: match_key(one[0], one[1], variables))
    return [show(query, time, binding) for time, binding in taken]


def with_paths(
    query: Query,
    events: Sequence[Event],
    now: int,
    floats: frozenset[tuple[str, str]],
    knowledge: Knowledge,
) -> list[Match]:
    """The matches of a query with PATHs: those without them that the PATHs hold for, once for each way (rule P3)."""
    apart = with_parts_apart(query)
    conditions = [*apart.filters, *apart.joins]
    of_paths = [c for c in conditions if path.plain_variables(c)]
    if of_paths and (query.match != "ANY" or query.after != "KEEP" or any(_takes_several(s) for s in query.seq)):
        raise Refused("a condition on a PATH variable is judged here on whole matches only")
    moving = next((w for w in query.windows if isinstance(w, syntax.EventWindow)), None)
    if moving is not None and of_paths:
        raise Refused("a condition on a PATH variable in a moving window is not judged here")
    judged = {e.order: e for e in events}
    used = path.uses(query)
    selected = tuple(s for s in query.select if not path.plain_variables(s.expression))
    plain = replace(
        query,
        path=None,
        select=selected,
        filters=tuple(c for c in apart.filters if c not in of_paths),
        joins=tuple(c for c in apart.joins if c not in of_paths),
    )

    def is_candidate(variable: str, event: Event) -> bool:
        return path.qualifies(query, knowledge, variable, event)

    found: list[Match] = []
    by_reference = {(e.stream, e.id): e for e in judged.values()}
    for match, binding in _matches_and_bindings(
        plain, events, now, floats, is_candidate, by_reference, query, knowledge
    ):
        if moving is not None and moving.kind in ("batch", "session"):
            found.append(match)
            continue
        ways = [
            values
            for values in path.bindings(query, knowledge, binding)
            if all(
                is_true(_with_values(c, values, knowledge.prefixes), binding, {})
                for c in of_paths
                if not _names_unbound(c, query, binding)
            )
        ]
        # The other ways have the same events, which are taken then (rule S11).
        for values in ways if query.after == "KEEP" else ways[:1]:
            select = {
                windows.name_of(s): match.select[windows.name_of(s)]
                if s in selected
                else evaluate(_with_values(s.expression, values, knowledge.prefixes), binding, aggregated(binding))
                for s in query.select
            }
            found.append(replace(match, select=select, bindings={name: values[name] for name in used}))
    return found


def _names_unbound(condition: syntax.Expression, query: Query, binding: Binding) -> bool:
    """Whether a condition names a PATH variable that only unbound events have: it says nothing then (rule S2)."""
    events = {r.variable for r in query.ranges}
    for name in path.plain_variables(condition) - events:
        owners = [path.variables(p) & events for p in path.conjuncts(query.path) if name in path.variables(p)]
        if owners and all(binding.get(v) is None for own in owners for v in own):
            return True
    return False


def _takes_several(step: syntax.Step) -> bool:
    return isinstance(step, syntax.Many | syntax.Absent | syntax.Maybe)


def _with_values(
    expression: syntax.Expression, values: Mapping[str, Value], prefixes: Mapping[str, str]
) -> syntax.Expression:
    """The expression with constants in place of PATH variables, and IRIs in place of names."""

    def constant(e: syntax.Expression) -> syntax.Expression:
        if isinstance(e, syntax.Constant) and e.kind is syntax.Kind.NAME:
            prefix, _, local = str(e.value).partition(":")
            iri = str(e.value)[1:-1] if str(e.value).startswith("<") else prefixes[prefix] + local
            return syntax.Constant(syntax.Kind.STRING, iri)
        if not isinstance(e, syntax.Variable) or e.name not in values:
            return e
        value = values[e.name]
        kinds = {
            type(None): syntax.Kind.NULL,
            bool: syntax.Kind.BOOL,
            int: syntax.Kind.INT,
            float: syntax.Kind.FLOAT,
            str: syntax.Kind.STRING,
        }
        return syntax.Constant(kinds[type(value)], value)  # type: ignore[arg-type]

    return syntax.replaced(expression, constant)


def _matches_and_bindings(
    plain: Query,
    events: Sequence[Event],
    now: int,
    floats: frozenset[tuple[str, str]],
    is_candidate: Callable[[str, Event], bool],
    by_reference: Mapping[Reference, Event],
    query: Query,
    knowledge: Knowledge,
) -> list[tuple[Match, Binding]]:
    """Matches of the query without PATHs, among events that qualify by them, with the events that each binds."""
    joined = [p for p in path.conjuncts(query.path) if len(path.variables(p) & {r.variable for r in query.ranges}) != 1]
    apart = len(path.conjuncts(query.path)) < 2
    judged: dict[tuple[tuple[str, Reference], ...], bool] = {}

    def fit(binding: Mapping[str, Bound]) -> bool:
        if apart and not joined:
            return True
        single = tuple((v, (e.stream, e.id)) for v, e in sorted(binding.items()) if isinstance(e, Event))
        if single not in judged:
            judged[single] = path.fits(query, knowledge, binding)
        return judged[single]

    path.refuse(query)
    found = []
    for match in _plain_matches(plain, events, now, floats, is_candidate, fit):
        binding: Binding = {}
        for variable, bound in match.events.items():
            binding[variable] = (
                None
                if bound is None
                else tuple(by_reference[b] for b in bound)
                if isinstance(bound, list)
                else by_reference[bound]
            )
        found.append((match, binding))
    return found


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
