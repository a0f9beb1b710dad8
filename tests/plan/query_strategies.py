"""Random queries over the whole grammar but PATH, with events, made so that the checker accepts them.

Conditions are random, so most would leave nothing to match. So a query is made around a witness: events of the case
that its variables could be bound to, in the order of SEQ. A condition that is not true of the witness is negated or
dropped, mostly, and windows are mostly wide enough for it. What else the query finds is left to chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hypothesis import strategies as st

from cepheid.language import syntax
from cepheid.language.checker import Checked, check
from cepheid.language.parser import parse
from cepheid.language.printer import print_query
from cepheid.language.scope import Catalogue
from cepheid.language.syntax import Attribute, Constant, Expression, Kind, Query, step_variables
from cepheid.model.events import Event
from cepheid.model.types import Type, Value
from tests.plan.expression_strategies import (
    Names,
    anything,
    condition,
    having,
    limited,
    logical,
    number,
    over,
    prefixes,
    text,
    total,
)
from tests.plan.stream_strategies import PROPERTY, SECOND, catalogues, event_lists
from tests.reference.events import Event as ReferenceEvent
from tests.reference.values import is_true

__all__ = ["NOW", "SECOND", "Case", "cases"]

#: What `now` in a query means.
NOW: Final = 2 * SECOND


@dataclass(frozen=True, repr=False)
class Case:
    """A query, as text and checked, the streams that there are, and all the events."""

    text: str
    checked: Checked
    events: tuple[Event, ...]
    catalogue: Catalogue

    def __repr__(self) -> str:
        lines = [
            f"  {e.stream}/{e.id!r} @{e.time / SECOND:g}s "
            + " ".join(f"{name}={value!r}" for name, value in e.attributes.items() if value is not None)
            for e in sorted(self.events, key=lambda e: e.order)
        ]
        return "\n".join(["", self.text.rstrip(), *lines, ""])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For Hypothesis, which prints dataclasses field by field otherwise."""
        printer.text(repr(self))


# The witness


@dataclass
class Witness:
    """Events that the variables of a query could be bound to; a variable that found none is not in it."""

    draw: st.DrawFn
    names: Names
    events: Sequence[Event]
    bound: dict[str, Event]

    def approves(self, made: Expression) -> bool:
        """Whether a condition is true of the witness, as far as it is known."""
        binding = {v: self._read(v) for v in syntax.variables(made) if v in self.bound}
        return len(binding) < len(syntax.variables(made)) or is_true(made, binding, {})

    def _read(self, variable: str) -> ReferenceEvent:
        event = self.bound[variable]
        load = next(iter(self.names.catalogue.properties[event.stream].values()))
        values = event.attributes
        return ReferenceEvent(
            event.stream, event.id, event.time, {**values, PROPERTY: values.get(load), "flow": values.get("f")}
        )

    def guided(self, made: Expression) -> Expression | None:
        """A condition, or its opposite, that is true of the witness; at times one that is not."""
        if self.approves(made) or self.draw(st.integers(0, 15)) == 15:
            return made
        opposite = made.operand if isinstance(made, syntax.Not) else syntax.Not(made)
        return opposite if self.approves(opposite) else None

    def span(self, variables: Sequence[str]) -> int:
        times = [self.bound[v].time for v in variables if v in self.bound]
        return max(times) - min(times) if times else 0

    def agrees(self, key: str) -> bool:
        """Whether the witness has one value of an attribute, and no null."""
        values = {event.attributes.get(key) for event in self.bound.values()}
        return None not in values and len(values) < 2


def witness(names: Names, seq: Sequence[syntax.Step], events: Sequence[Event]) -> Witness:
    """Events in the order of SEQ, of one key if there are such."""
    draw = names.draw
    found: dict[str, Event] = {}
    inside = [v for step in seq for v in step_variables(step)]
    times: list[int] = []
    for step in [*seq, *(syntax.One(v) for v in names.streams if v not in inside)]:
        if isinstance(step, syntax.Absent) or (isinstance(step, syntax.Maybe) and draw(st.booleans())):
            continue
        members = step_variables(step)
        after = max(times, default=None) if members[0] in inside else None
        for variable in members[:1] if isinstance(step, syntax.AnyOf) else members:
            fitting = [
                e
                for e in sorted(events, key=lambda e: e.order)
                if e.stream in names.streams[variable] and e not in found.values() and (after is None or e.time > after)
            ]
            alike = [e for e in fitting if e.attributes.get("k") in _keys(found, fitting)]
            if chosen := (alike or fitting)[:3]:
                found[variable] = draw(st.sampled_from(chosen))
        times += [found[v].time for v in members if v in found and v in inside]
    return Witness(draw, names, events, found)


def _keys(found: dict[str, Event], fitting: Sequence[Event]) -> set[Value]:
    """The key that an event is to have; the first may have any but null."""
    return {e.attributes.get("k") for e in [*found.values(), *fitting][: 1 if found else None]} - {None}


# Queries


def _is_open(step: syntax.Step) -> bool:
    return isinstance(step, syntax.Many | syntax.Maybe | syntax.Absent)


def steps(draw: st.DrawFn, take: Callable[[], str]) -> tuple[syntax.Step, ...]:
    """A SEQ that S3 and S4 allow."""
    found: list[syntax.Step] = []
    count = draw(st.sampled_from([1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4]))
    for place in range(count):
        before_edge = place in (1, count - 1) and bool(found) and _is_open(found[-1])
        kinds = ["one"] * 4 + ["all", "any"]
        many_near = any_many_near(found)
        if not before_edge and count != 1:
            kinds += ["maybe", "maybe", "absent", "absent"] + ([] if many_near else ["many"] * 6)
        kind = draw(st.sampled_from(kinds))
        match kind:
            case "one":
                found.append(syntax.One(take()))
            case "maybe":
                found.append(syntax.Maybe(take()))
            case "absent":
                found.append(syntax.Absent(take()))
            case "many":
                least, most = draw(st.sampled_from([(1, None), (2, None), (0, None), (0, 2), (1, 3), (1, 1), (2, 2)]))
                found.append(syntax.Many(take(), least, most))
            case "all":
                found.append(syntax.AllOf(tuple(take() for _ in range(draw(st.sampled_from([2, 2, 2, 3]))))))
            case "any":
                found.append(syntax.AnyOf(tuple(take() for _ in range(draw(st.sampled_from([2, 2, 2, 3]))))))
    if not any(isinstance(step, syntax.One | syntax.AllOf) for step in found):
        # Something that is surely bound, from which an open end can reach.
        found.insert(draw(st.integers(0, len(found))) if count == 1 else 1, syntax.One(take()))
    return tuple(found)


def any_many_near(found: Sequence[syntax.Step]) -> bool:
    """Whether the next step would follow one of many events, with at most steps between that may bind nothing."""
    for step in reversed(found):
        if isinstance(step, syntax.Many):
            return True
        if not isinstance(step, syntax.Maybe | syntax.Absent):
            return False
    return False


@st.composite
def patterns(draw: st.DrawFn, catalogue: Catalogue, events: Sequence[Event]) -> Query:
    """A query with SEQ, or a join."""
    streams: dict[str, tuple[str, ...]] = {}
    known = list(catalogue.streams)

    def take() -> str:
        name = f"e{len(streams)}"
        count = draw(st.sampled_from([1, 1, 1, 2]))
        streams[name] = tuple(draw(st.permutations(known))[:count])
        return name

    seq = steps(draw, take) if draw(st.integers(0, 7)) else ()
    policy: syntax.Policy = draw(st.sampled_from(["ANY", "NEXT", "STRICT"])) if seq else "ANY"
    if not seq or (policy == "ANY" and draw(st.integers(0, 5)) == 0):
        for _ in range(1 if seq else draw(st.integers(1, 3))):
            take()
    names = Names(draw, catalogue, streams)
    found = witness(names, seq, events)
    many = [s.variable for s in seq if isinstance(s, syntax.Many)]
    absent = [s.variable for s in seq if isinstance(s, syntax.Absent)]
    return scheduled(
        draw,
        Query(
            select=selected(names, [v for v in streams if v not in many and v not in absent], many),
            ranges=tuple(syntax.Range(v, s) for v, s in draw(st.permutations(list(streams.items())))),
            within=within(found),
            filters=filters(found),
            joins=joins(found, many, absent),
            seq=seq,
            windows=span_windows(found, seq, list(streams)),
            having=having(names, many) if many and draw(st.integers(0, 4)) == 0 else None,
            match=policy,
            after=draw(st.sampled_from(["KEEP", "CONSUME", "SKIP PAST LAST", "SKIP TO NEXT"])),
        ),
    )


def scheduled(draw: st.DrawFn, query: Query) -> Query:
    """With clauses that change nothing that is found (rule Q7)."""
    variables = tuple(r.variable for r in query.ranges)
    return replace(
        query,
        valid=draw(st.sampled_from([None, None, 5 * SECOND])),
        priority=draw(st.sampled_from([None, None, None, "high"])),
        stale=draw(st.sampled_from([None, None, None, "MARK", "SHED"])),
        align=(syntax.Align(variables, SECOND),) if draw(st.integers(0, 7)) == 0 else (),
    )


def span_windows(found: Witness, seq: Sequence[syntax.Step], variables: list[str]) -> tuple[syntax.SpanWindow, ...]:
    draw = found.draw
    made = []
    ends = (
        [s.variable for s in (seq[0], seq[-1]) if isinstance(s, syntax.Many | syntax.Maybe | syntax.Absent)]
        if seq
        else []
    )
    sure = [v for step in seq if isinstance(step, syntax.One | syntax.AllOf) for v in step_variables(step)]
    for end in dict.fromkeys(ends):
        one = draw(st.sampled_from(sure))
        others = [v for v in variables if v not in (end, one)]
        listed = others if draw(st.booleans()) else draw(_some(others))
        made.append([end, one, *listed])
    if len(variables) > 1 and draw(st.integers(0, 2)):
        made.append(variables if draw(st.booleans()) else [variables[0], *draw(_some(variables[1:]))])
    return tuple(
        syntax.SpanWindow(tuple(listed), width(found, listed)) for listed in (_without_circle(seq, m) for m in made)
    )


def width(found: Witness, variables: Sequence[str]) -> int:
    """Mostly wide enough for the witness, and often no wider."""
    if found.draw(st.integers(0, 5)) == 5:
        return found.draw(st.integers(0, 8)) * SECOND
    return found.span(variables) + found.draw(st.sampled_from([0, 0, 1, 2, 3, 20])) * SECOND


def _without_circle(seq: Sequence[syntax.Step], variables: Sequence[str]) -> list[str]:
    """The checker refuses a WINDOW of a last `?e?` and a list: each would reach as far as the other."""
    many = [s.variable for s in seq if isinstance(s, syntax.Many)]
    if not many or not isinstance(seq[-1], syntax.Maybe):
        return list(variables)
    last = seq[-1].variable
    left_out = many if variables[0] == last else [last] if set(many) & set(variables) else []
    return [v for v in variables if v not in left_out]


def _some(variables: Sequence[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(variables), unique=True) if variables else st.just([])


def joins(found: Witness, many: Sequence[str], absent: Sequence[str]) -> tuple[Expression, ...]:
    draw, names = found.draw, found.names
    variables = list(names.streams)
    made: list[Expression] = []
    if len(variables) > 1 and draw(st.integers(0, 4)):
        agreed = [key for key in ("k", "n", "v") if found.agrees(key)]
        likely = draw(st.lists(st.sampled_from(agreed), min_size=1, max_size=2, unique=True)) if agreed else []
        for key in likely if draw(st.integers(0, 7)) else draw(st.sampled_from([["k"], ["n"], ["v"], ["k", "n"]])):
            made += keys(names, key, [*many, *absent], absent)
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        some = draw(st.lists(st.sampled_from(variables), min_size=2, max_size=3, unique=True)) if variables[1:] else []
        if sum(v in many for v in some) + sum(v in absent for v in some) > 1 or not some:
            continue
        inner = names.only(*some)
        whole = over(inner, condition(inner, draw(st.integers(0, 2))))
        if draw(st.integers(0, 7)) == 0:
            whole = logical("AND", (whole, condition_on_nothing(draw)))
        guided = found.guided(whole)
        if guided is not None and len(syntax.variables(guided)) > 1:
            made.append(guided)
    return tuple(made)


def condition_on_nothing(draw: st.DrawFn) -> Expression:
    """True more often than not."""
    one = Constant(Kind.INT, 1)
    choices: list[Expression] = [
        Constant(Kind.BOOL, True),
        syntax.Compare("=", one, one),
        syntax.IsNull(one, True),
        Constant(Kind.BOOL, False),
        syntax.Compare("<", one, Constant(Kind.NULL, None)),
    ]
    return draw(st.sampled_from(choices))


def keys(names: Names, key: str, open: Sequence[str], absent: Sequence[str]) -> list[Expression]:
    """JOINs that make an attribute equal in all variables: each with one of them, or with the one before it."""
    draw = names.draw
    variables = [v for v in names.streams if names.has(v, key) and (v not in absent or draw(st.booleans()))]
    single = [v for v in variables if v not in open]
    if not single:
        return []
    chained = draw(st.booleans())
    found: list[Expression] = []
    for place, variable in enumerate(variables):
        before = variables[place - 1] if place else single[0]
        # No JOIN names two of many or NOT.
        other = before if chained and not (before in open and variable in open) else single[0]
        if other != variable:
            one, two = draw(st.permutations([Attribute(other, key), Attribute(variable, key)]))
            found.append(syntax.Compare("=", one, two))
    return found


def filters(found: Witness) -> tuple[Expression, ...]:
    draw = found.draw
    made = []
    for variable in found.names.streams:
        if draw(st.integers(0, 3)) == 0:
            guided = found.guided(condition(found.names.only(variable), draw(st.integers(0, 2))))
            if guided is not None and syntax.variables(guided) == (variable,):
                made.append(guided)
    return tuple(made)


def selected(names: Names, single: Sequence[str], many: Sequence[str]) -> tuple[syntax.Selected, ...]:
    draw = names.draw
    found: list[syntax.Selected] = []

    def select(expression: Expression) -> None:
        found.append(syntax.Selected(expression, f"x{len(found)}"))

    for variable in single:
        if draw(st.booleans()):
            one = names.attribute(*Type, of=variable)
            assert one is not None
            select(one)
    if single:
        some = names.only(*single)
        if draw(st.booleans()):
            select(draw(st.sampled_from([number, text, condition]))(some, 2))
        for _ in range(draw(st.integers(2, 4))):
            select(anything(some))
    for variable in many:
        select((limited if draw(st.integers(0, 5)) == 0 else total)(names, variable, single))
    if not found:
        select(Attribute(next(iter([*single, *names.streams])), "time"))
    return tuple(found)


def within(found: Witness) -> syntax.Within | None:
    """Mostly around the witness. With `now`, which is 2 s in the tests."""
    draw = found.draw
    if draw(st.integers(0, 3)):
        return None
    times = [event.time for event in found.bound.values()] or [0]

    def end(limit: int, away: int) -> syntax.Instant | None:
        if draw(st.integers(0, 3)) == 0:
            return None
        at = limit + away * draw(st.sampled_from([0, 1, 2, 3, 3, -1])) * SECOND
        if (NOW - at) * away >= 0 and draw(st.booleans()):
            at = NOW
        return syntax.Instant(at - NOW, True) if draw(st.booleans()) else syntax.Instant(at)

    low, high = end(min(times), -1), end(max(times), 1)
    return syntax.Within(low, high, draw(st.booleans()), draw(st.booleans())) if low or high else None


@st.composite
def moving(draw: st.DrawFn, catalogue: Catalogue, events: Sequence[Event]) -> Query:
    """A query with a moving window."""
    known = list(catalogue.streams)
    streams = {"e": tuple(draw(st.permutations(known))[: draw(st.integers(1, 2))])}
    names = Names(draw, catalogue, streams, ("e",))
    around = witness(names, (), events)
    kind: Any = draw(st.sampled_from(["sliding", "batch", "session", "length"]))
    size = draw(st.integers(1, 4)) * (1 if kind == "length" else SECOND)
    keys = [n for n in ("k", "n", "f", "raw", "wave", "ok", "at", PROPERTY) if names.has("e", n)]
    grouped = (
        draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3, unique=True)) if draw(st.integers(0, 2)) else []
    )
    if PROPERTY in grouped:
        grouped = [name for name in grouped if name not in ("v", "f")]  # it may be one of these
    group_by = tuple(Attribute("e", name) for name in grouped)
    # In batch and session windows there is no current event (rule W7).
    beside = ["e"] if kind in ("sliding", "length") else []
    found = [syntax.Selected(total(names, "e", beside), f"x{i}") for i in range(draw(st.integers(1, 3)))]
    if draw(st.integers(0, 3)) == 0:
        found.append(syntax.Selected(limited(names, "e", beside), f"x{len(found)}"))
    if beside:
        for made in (number(names, 1), anything(names)):
            if draw(st.booleans()):
                found.append(syntax.Selected(made, f"x{len(found)}"))
    elif draw(st.booleans()) and group_by:
        found.append(syntax.Selected(group_by[0], f"x{len(found)}"))
    return scheduled(
        draw,
        Query(
            select=tuple(found),
            ranges=tuple(syntax.Range(v, s) for v, s in streams.items()),
            within=within(around),
            filters=filters(around),
            windows=(syntax.EventWindow("e", kind, size),),
            group_by=group_by,
            having=having(names, ["e"]) if draw(st.integers(0, 3)) == 0 else None,
        ),
    )


# Cases


def spelled(draw: st.DrawFn, query: Query, catalogue: Catalogue) -> Query:
    """With the PREFIXes it needs; and at times without what may be left out: FROM, and AS where names don't clash."""
    conditions = [*query.filters, *query.joins, *([] if query.having is None else [query.having])]
    query = replace(query, prefixes=prefixes([*(s.expression for s in query.select), *conditions, *query.group_by]))
    # A variable that is in no FROM must be somewhere else.
    named = {v for selected in query.select for v in syntax.variables(selected.expression)}
    named |= {v for step in query.seq for v in step_variables(step)}
    everywhere = all(r.variable in named for r in query.ranges)
    if catalogue.default_stream is not None and draw(st.integers(0, 3)) == 0 and everywhere:
        query = replace(query, ranges=())
    local = [s.expression.name.rpartition(":")[2] for s in query.select if isinstance(s.expression, Attribute)]
    if local and len(set(local)) == len(local) and draw(st.booleans()):
        query = replace(
            query,
            select=tuple(replace(s, name=None) if isinstance(s.expression, Attribute) else s for s in query.select),
        )
    return query


def accepted(query: Query, catalogue: Catalogue) -> tuple[str, Checked] | None:
    """The query by way of its text, checked; without the policies that need a key it does not have."""
    for tried in (query, replace(query, after="KEEP"), replace(query, after="KEEP", match="ANY")):
        text = print_query(tried)
        parsed = parse(text)
        assert parsed == tried, text
        checked, _ = check(parsed, catalogue)
        if checked is not None:
            return text, checked
    return None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A query that the checker accepts, and events."""
    catalogue = draw(catalogues())
    events = draw(event_lists(catalogue))
    made = draw(moving(catalogue, events) if draw(st.integers(0, 5)) == 0 else patterns(catalogue, events))
    query = spelled(draw, made, catalogue)
    found = accepted(query, catalogue)
    if found is None:
        # Rare: what the checker refuses for a reason that is not built in here.
        found = accepted(replace(query, joins=(), having=None, filters=()), catalogue)
        if found is None:
            _, problems = check(query, catalogue)
            raise AssertionError(f"{print_query(query)}\n" + "\n".join(p.message for p in problems))
    return Case(*found, events, catalogue)
