"""Random catalogues, events and queries over the whole grammar but PATH, made so that the checker accepts them.

Times and windows are few whole seconds, keys and values few too, so that ties, borders and matches are common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from hypothesis import strategies as st

from cepheid.language import syntax
from cepheid.language.checker import Checked, check
from cepheid.language.parser import parse
from cepheid.language.printer import print_query
from cepheid.language.scope import Catalogue
from cepheid.language.syntax import Aggregate, Attribute, Constant, Expression, Kind, Query, conjuncts, step_variables
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import INT64_MAX, Type, Value

SECOND: Final = 1_000_000
#: The greatest number of events in a case; the reference tries every combination.
MOST_EVENTS: Final = 10

ATTRIBUTES: Final[dict[str, Type]] = {
    "k": Type.STRING,
    "n": Type.INT,
    "v": Type.INT,
    "f": Type.FLOAT,
    "s": Type.STRING,
    "ok": Type.BOOL,
    "at": Type.TIMESTAMP,
    "raw": Type.BYTES,
    "wave": Type.FLOAT_ARRAY,
}
_VALUES: Final[dict[str, st.SearchStrategy[Value]]] = {
    "k": st.sampled_from(["x"] * 7 + ["y", "y", None]),
    "n": st.sampled_from([1, 1, 1, 1, 2, None]),
    "v": st.sampled_from([0, 1, 2, 3, 3, -2, None, INT64_MAX]),
    "f": st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.5, -3.25, 0.1, 1e300, None]),
    "s": st.sampled_from(["", "a", "ab", "Bä", " b ", "ß", None]),
    "ok": st.sampled_from([True, False, None]),
    "at": st.sampled_from([0, 3 * SECOND, -5 * SECOND, 1336381500 * SECOND, None]),
    "raw": st.sampled_from([b"", b"\x00", b"\xff", None]),
    "wave": st.sampled_from([(), (0.5,), (0.5, -1.0), None]),
}


@dataclass(frozen=True, repr=False)
class Case:
    """A query, as text and checked, and all the events there are."""

    text: str
    checked: Checked
    events: tuple[Event, ...]

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


# Streams and events


@st.composite
def catalogues(draw: st.DrawFn) -> Catalogue:
    streams = {}
    for name in draw(st.sampled_from([["a"], ["a"], ["a"], ["a", "b"], ["b", "a_c"], ["c", "a", "b"]])):
        kinds = dict(ATTRIBUTES)
        if draw(st.integers(0, 3)) == 0:
            kinds["v"] = Type.FLOAT
        if draw(st.integers(0, 5)) == 0:
            del kinds["s"]
        if draw(st.integers(0, 8)) == 0:
            del kinds["n"]
        id_kind: Literal["int", "string"] = draw(st.sampled_from(["int", "int", "string"]))
        streams[name] = Stream(name, kinds, id_kind=id_kind)
    return Catalogue(streams)


@st.composite
def event_lists(draw: st.DrawFn, catalogue: Catalogue) -> tuple[Event, ...]:
    names = list(catalogue.streams)
    count = draw(st.integers(0, 3)) if draw(st.integers(0, 9)) == 0 else draw(st.integers(5, MOST_EVENTS))
    ids = draw(st.permutations(range(count)))
    start = draw(st.sampled_from([0, 0, -4, 100]))
    # The reference does not know that an int beside another stream's float is one; with small ones that is the same.
    mixed = any(stream.attributes["v"] is Type.FLOAT for stream in catalogue.streams.values())
    events = []
    for number in range(count):
        stream = catalogue.streams[draw(st.sampled_from(names))]
        attributes = {}
        for name, kind in stream.attributes.items():
            value = draw(_VALUES[name])
            if name == "v" and value == INT64_MAX and mixed:
                value = 7
            if kind is Type.FLOAT and isinstance(value, int):
                value = float(value)
            if value is not None or draw(st.booleans()):
                attributes[name] = value
        time = (start + draw(st.integers(0, 8))) * SECOND
        event_id = ids[number] if stream.id_kind == "int" else f"e{ids[number]}"
        events.append(Event(stream.name, event_id, time, attributes))
    return tuple(events)


# Expressions


@dataclass
class Names:
    """The variables that an expression may use, and the attributes that each has by type."""

    draw: st.DrawFn
    catalogue: Catalogue
    streams: dict[str, tuple[str, ...]]
    usable: Sequence[str] = ()
    attributes: dict[str, dict[Type, list[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for variable, streams in self.streams.items():
            by_type: dict[Type, list[str]] = {}
            for name in ATTRIBUTES:
                kinds = {k for s in streams if (k := self.catalogue.streams[s].attributes.get(name)) is not None}
                if kinds:
                    kind = Type.FLOAT if len(kinds) > 1 else kinds.pop()
                    by_type.setdefault(kind, []).append(name)
            by_type.setdefault(Type.TIMESTAMP, []).append("time")
            id_kinds = {self.catalogue.streams[s].id_kind for s in streams}
            if len(id_kinds) == 1:
                by_type.setdefault(Type.INT if id_kinds == {"int"} else Type.STRING, []).append("id")
            self.attributes[variable] = by_type

    def only(self, *usable: str) -> Names:
        return replace(self, usable=usable)

    def attribute(self, *kinds: Type, of: str | None = None) -> Attribute | None:
        variable = of or self.draw(st.sampled_from(list(self.usable)))
        names = [name for kind in kinds for name in self.attributes[variable].get(kind, [])]
        return Attribute(variable, self.draw(st.sampled_from(names))) if names else None


_NUMBERS: Final = (Type.INT, Type.FLOAT)
_SIGNS: Final = ("=", "!=", "<", "<=", ">", ">=")


def number(names: Names, depth: int = 2) -> Expression:
    draw = names.draw
    choice = draw(st.integers(0, 9 if depth > 0 else 3))
    if choice <= 2:
        return names.attribute(*_NUMBERS) or Constant(Kind.INT, 1)
    if choice == 3:
        return draw(
            st.sampled_from(
                [Constant(Kind.INT, i) for i in (0, 1, 2, 3)] + [Constant(Kind.FLOAT, x) for x in (0.5, 2.5)]
            )
        )
    if choice in (4, 5):
        sign: Any = draw(st.sampled_from(["+", "-", "*", "/", "%"]))
        return syntax.Arithmetic(sign, number(names, depth - 1), number(names, depth - 1))
    if choice == 6:
        inner = number(names, depth - 1)
        # The parser folds the sign into a constant.
        return inner if isinstance(inner, Constant) else syntax.Negative(inner)
    if choice == 7:
        return condition_case(names, depth, number)
    function = draw(
        st.sampled_from(["ABS", "ROUND", "FLOOR", "CEIL", "SQRT", "EXP", "LN", "LOG10", "POWER", "LEAST", "GREATEST"])
        | st.sampled_from(["COALESCE", "LENGTH", "YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "DAY_OF_WEEK"])
    )
    if function == "LENGTH":
        return syntax.Call(function, (text(names, depth - 1),))
    if function in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "DAY_OF_WEEK"):
        moment = names.attribute(Type.TIMESTAMP)
        assert moment is not None
        return syntax.Call(function, (moment,))
    if function in ("POWER", "LEAST", "GREATEST", "COALESCE"):
        return syntax.Call(function, (number(names, depth - 1), number(names, depth - 1)))
    if function == "ROUND" and draw(st.booleans()):
        return syntax.Call(function, (number(names, depth - 1), Constant(Kind.INT, draw(st.sampled_from([0, 1, -1])))))
    return syntax.Call(function, (number(names, depth - 1),))


def text(names: Names, depth: int = 1) -> Expression:
    draw = names.draw
    choice = draw(st.integers(0, 5 if depth > 0 else 2))
    if choice <= 1:
        return names.attribute(Type.STRING) or Constant(Kind.STRING, "a")
    if choice == 2:
        return Constant(Kind.STRING, draw(st.sampled_from(["x", "a", "", "ä\n\"'"])))
    function = draw(st.sampled_from(["LOWER", "UPPER", "TRIM", "SUBSTRING", "CONCAT"]))
    if function == "SUBSTRING":
        places = [Constant(Kind.INT, i) for i in draw(st.lists(st.integers(-1, 3), min_size=1, max_size=2))]
        return syntax.Call(function, (text(names, depth - 1), *places))
    if function == "CONCAT":
        return syntax.Call(function, (text(names, depth - 1), text(names, depth - 1)))
    return syntax.Call(function, (text(names, depth - 1),))


def condition_case(names: Names, depth: int, value: Callable[[Names, int], Expression]) -> Expression:
    branches = tuple(
        (condition(names, depth - 1), value(names, depth - 1)) for _ in range(names.draw(st.integers(1, 2)))
    )
    return syntax.Case(branches, value(names, depth - 1) if names.draw(st.booleans()) else None)


def condition(names: Names, depth: int = 2) -> Expression:
    draw = names.draw
    choice = draw(st.integers(0, 9 if depth > 0 else 4))
    sign: Any = draw(st.sampled_from(_SIGNS))
    if choice <= 1:
        return syntax.Compare(sign, number(names, depth - 1), number(names, depth - 1))
    if choice == 2:
        return syntax.Compare(sign, text(names, depth - 1), text(names, depth - 1))
    if choice == 3:
        return names.attribute(Type.BOOL) or Constant(Kind.BOOL, True)
    if choice == 4:
        return moments(names, sign)
    if choice == 5:
        word: Literal["AND", "OR"] = draw(st.sampled_from(["AND", "OR"]))
        return logical(word, [condition(names, depth - 1) for _ in range(draw(st.integers(2, 3)))])
    if choice == 6:
        return syntax.Not(condition(names, depth - 1))
    if choice == 7:
        items = tuple(number(names, 0) for _ in range(draw(st.integers(1, 3))))
        return syntax.In(number(names, depth - 1), items, draw(st.booleans()))
    if choice == 8:
        negated = draw(st.booleans())
        return syntax.Between(number(names, depth - 1), number(names, 0), number(names, 0), negated)
    if draw(st.booleans()):
        return syntax.IsNull(number(names, depth - 1), draw(st.booleans()))
    function = draw(st.sampled_from(["CONTAINS", "STARTS_WITH", "ENDS_WITH"]))
    return syntax.Call(function, (text(names, depth - 1), text(names, depth - 1)))


def moments(names: Names, sign: Any) -> Expression:
    """Times compared, or their difference with a duration."""
    one, other = names.attribute(Type.TIMESTAMP), names.attribute(Type.TIMESTAMP)
    assert one is not None
    assert other is not None
    if names.draw(st.booleans()):
        return syntax.Compare(sign, one, other)
    width = Constant(Kind.DURATION, names.draw(st.integers(0, 5)) * SECOND)
    return syntax.Compare(sign, syntax.Arithmetic("-", one, other), width)


def over(names: Names, condition: Expression) -> Expression:
    """The condition, made to name all usable variables."""
    missing = [v for v in names.usable if v not in syntax.variables(condition)]
    for variable in missing:
        extra: Expression = syntax.IsNull(Attribute(variable, "time"), True)
        condition = logical("OR" if names.draw(st.integers(0, 3)) == 0 else "AND", (condition, extra))
    return condition


def logical(word: Literal["AND", "OR"], parts: Sequence[Expression]) -> Expression:
    """As the parser does: one AND of an AND in an AND."""
    flat: list[Expression] = []
    for part in parts:
        flat += part.operands if isinstance(part, syntax.Logical) and part.word == word else [part]
    return syntax.Logical(word, tuple(flat))


# Queries


def _is_open(step: syntax.Step) -> bool:
    return isinstance(step, syntax.Many | syntax.Maybe | syntax.Absent)


def steps(draw: st.DrawFn, take: Callable[[], str]) -> tuple[syntax.Step, ...]:
    """A SEQ that S3 and S4 allow."""
    found: list[syntax.Step] = []
    count = draw(st.sampled_from([1, 2, 2, 2, 3, 3, 3, 4]))
    for place in range(count):
        before_edge = place in (1, count - 1) and bool(found) and _is_open(found[-1])
        kinds = ["one"] * 4 + ["all", "any"]
        many_near = any_many_near(found)
        if not before_edge and count != 1:
            kinds += ["maybe", "maybe", "absent"] + ([] if many_near else ["many", "many"])
        kind = draw(st.sampled_from(kinds))
        match kind:
            case "one":
                found.append(syntax.One(take()))
            case "maybe":
                found.append(syntax.Maybe(take()))
            case "absent":
                found.append(syntax.Absent(take()))
            case "many":
                least, most = draw(
                    st.sampled_from([(1, None), (1, None), (2, None), (0, None), (0, 2), (1, 3), (2, 2)])
                )
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
def patterns(draw: st.DrawFn, catalogue: Catalogue) -> Query:
    """A query with SEQ, or a join."""
    streams: dict[str, tuple[str, ...]] = {}
    known = list(catalogue.streams)

    def take() -> str:
        name = f"e{len(streams)}"
        count = draw(st.sampled_from([1, 1, 1, 2]))
        streams[name] = tuple(draw(st.permutations(known))[:count])
        return name

    seq = steps(draw, take) if draw(st.integers(0, 7)) else ()
    policy: syntax.Policy = draw(st.sampled_from(["ANY", "ANY", "NEXT", "STRICT"])) if seq else "ANY"
    if not seq or (policy == "ANY" and draw(st.integers(0, 5)) == 0):
        for _ in range(1 if seq else draw(st.integers(1, 3))):
            take()
    names = Names(draw, catalogue, streams)
    many = [s.variable for s in seq if isinstance(s, syntax.Many)]
    absent = [s.variable for s in seq if isinstance(s, syntax.Absent)]
    return Query(
        select=selected(names, [v for v in streams if v not in many and v not in absent], many),
        ranges=tuple(syntax.Range(v, s) for v, s in draw(st.permutations(list(streams.items())))),
        within=draw(withins()),
        filters=filters(names),
        joins=joins(names, many, absent),
        seq=seq,
        windows=span_windows(draw, seq, list(streams)),
        having=having(names, many) if many and draw(st.integers(0, 4)) == 0 else None,
        match=policy,
        after=draw(st.sampled_from(["KEEP", "KEEP", "CONSUME", "SKIP PAST LAST", "SKIP TO NEXT"])),
        valid=draw(st.sampled_from([None, None, 5 * SECOND])),
    )


def span_windows(draw: st.DrawFn, seq: Sequence[syntax.Step], variables: list[str]) -> tuple[syntax.SpanWindow, ...]:
    width = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 20]).map(lambda w: w * SECOND)
    found = []
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
        found.append(syntax.SpanWindow((end, one, *listed), draw(width)))
    if len(variables) > 1 and draw(st.integers(0, 2)):
        listed = variables if draw(st.booleans()) else [variables[0], *draw(_some(variables[1:]))]
        found.append(syntax.SpanWindow(tuple(listed), draw(width)))
    return tuple(_without_circle(seq, window) for window in found)


def _without_circle(seq: Sequence[syntax.Step], window: syntax.SpanWindow) -> syntax.SpanWindow:
    """A WINDOW of a last `?e?` and a list has each depend on the other, which native and reference resolve differently:
    native takes the deadline of the list without the `?e?`."""
    many = [s.variable for s in seq if isinstance(s, syntax.Many)]
    if not many or not isinstance(seq[-1], syntax.Maybe):
        return window
    last = seq[-1].variable
    left_out = many if window.variables[0] == last else [last] if set(many) & set(window.variables) else []
    return replace(window, variables=tuple(v for v in window.variables if v not in left_out))


def _some(variables: Sequence[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(variables), unique=True) if variables else st.just([])


def joins(names: Names, many: Sequence[str], absent: Sequence[str]) -> tuple[Expression, ...]:
    draw = names.draw
    variables = list(names.streams)
    found: list[Expression] = []
    if len(variables) > 1 and draw(st.integers(0, 2)):
        for key in draw(st.sampled_from([["k"], ["k"], ["n"], ["v"], ["k", "n"]])):
            found += keys(names, key, [*many, *absent], absent)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        some = draw(st.lists(st.sampled_from(variables), min_size=2, max_size=3, unique=True)) if variables[1:] else []
        if sum(v in many for v in some) + sum(v in absent for v in some) > 1 or not some:
            continue
        inner = names.only(*some)
        made = over(inner, condition(inner, draw(st.integers(0, 2))))
        # A conjunct that names nothing would be a condition on nothing.
        if len(syntax.variables(made)) > 1 and all(map(syntax.variables, conjuncts(made))):
            found.append(made)
    return tuple(found)


def keys(names: Names, key: str, open: Sequence[str], absent: Sequence[str]) -> list[Expression]:
    """JOINs that make an attribute equal in all variables: each with one of them, or with the one before it."""
    draw = names.draw
    variables = [v for v in names.streams if _has(names, v, key) and (v not in absent or draw(st.booleans()))]
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


def _has(names: Names, variable: str, attribute: str) -> bool:
    return any(attribute in listed for listed in names.attributes[variable].values())


def filters(names: Names) -> tuple[Expression, ...]:
    draw = names.draw
    found = []
    for variable in names.streams:
        if draw(st.integers(0, 4)) == 0:
            made = condition(names.only(variable), draw(st.integers(0, 2)))
            if syntax.variables(made) == (variable,):
                found.append(made)
    return tuple(found)


def aggregate(names: Names, variable: str) -> Aggregate:
    draw = names.draw
    function = draw(st.sampled_from(["COUNT", "COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV", "FIRST", "LAST"]))
    if function == "COUNT" and draw(st.booleans()):
        return Aggregate(function, syntax.Variable(variable))
    inner = names.only(variable)
    if function in ("FIRST", "LAST", "MIN", "MAX", "COUNT") and draw(st.booleans()):
        return Aggregate(function, inner.attribute(Type.STRING, Type.TIMESTAMP) or Attribute(variable, "time"))
    made = number(inner, draw(st.integers(0, 1)))
    return Aggregate(function, made if syntax.variables(made) == (variable,) else Attribute(variable, "v"))


def having(names: Names, over: Sequence[str]) -> Expression:
    variable = names.draw(st.sampled_from(list(over)))
    sign: Any = names.draw(st.sampled_from(_SIGNS))
    limit = Constant(Kind.INT, names.draw(st.integers(0, 3)))
    count = Aggregate("COUNT", syntax.Variable(variable))
    if names.draw(st.booleans()):
        return syntax.Compare(sign, count, limit)
    return syntax.Compare(sign, Aggregate("SUM", Attribute(variable, "v")), limit)


def selected(names: Names, single: Sequence[str], many: Sequence[str]) -> tuple[syntax.Selected, ...]:
    draw = names.draw
    found: list[syntax.Selected] = []
    for variable in single:
        if draw(st.booleans()):
            one = names.attribute(*Type, of=variable)
            assert one is not None
            found.append(syntax.Selected(one, f"x{len(found)}"))
    if draw(st.booleans()) and single:
        some = names.only(*single)
        made = draw(st.sampled_from([number, text, condition]))(some, 2)
        found.append(syntax.Selected(made, f"x{len(found)}"))
    for variable in many:
        total: Expression = aggregate(names, variable)
        if draw(st.integers(0, 7)) == 0:
            total = syntax.Compare(">=", Aggregate("COUNT", syntax.Variable(variable)), Constant(Kind.INT, 2))
        found.append(syntax.Selected(total, f"x{len(found)}"))
    if not found:
        found.append(syntax.Selected(Attribute(next(iter([*single, *names.streams])), "time"), "x0"))
    return tuple(found)


@st.composite
def withins(draw: st.DrawFn) -> syntax.Within | None:
    if draw(st.integers(0, 9)):
        return None

    def end() -> syntax.Instant | None:
        if draw(st.integers(0, 3)) == 0:
            return None
        return syntax.Instant(draw(st.integers(0, 6)) * SECOND, draw(st.booleans()))

    low, high = end(), end()
    return syntax.Within(low, high, draw(st.booleans()), draw(st.booleans())) if low or high else None


@st.composite
def moving(draw: st.DrawFn, catalogue: Catalogue) -> Query:
    """A query with a moving window."""
    known = list(catalogue.streams)
    streams = {"e": tuple(draw(st.permutations(known))[: draw(st.integers(1, 2))])}
    names = Names(draw, catalogue, streams, ("e",))
    kind: Any = draw(st.sampled_from(["sliding", "batch", "session", "length"]))
    size = draw(st.integers(1, 4)) * (1 if kind == "length" else SECOND)
    keys = [n for n in ("k", "n", "f", "raw", "wave", "ok") if _has(names, "e", n)]
    grouped = draw(st.lists(st.sampled_from(keys), max_size=2, unique=True)) if draw(st.booleans()) else []
    group_by = tuple(Attribute("e", name) for name in grouped)
    found = [syntax.Selected(aggregate(names, "e"), f"x{i}") for i in range(draw(st.integers(1, 3)))]
    if draw(st.integers(0, 3)) == 0:
        limit = syntax.Compare(">", Aggregate("COUNT", syntax.Variable("e")), Constant(Kind.INT, 1))
        found.append(syntax.Selected(limit, f"x{len(found)}"))
    if kind in ("sliding", "length") and draw(st.booleans()):
        found.append(syntax.Selected(number(names, 1), f"x{len(found)}"))
    elif draw(st.booleans()) and group_by:
        found.append(syntax.Selected(group_by[0], f"x{len(found)}"))
    return Query(
        select=tuple(found),
        ranges=tuple(syntax.Range(v, s) for v, s in streams.items()),
        within=draw(withins()),
        filters=filters(names),
        windows=(syntax.EventWindow("e", kind, size),),
        group_by=group_by,
        having=having(names, ["e"]) if draw(st.integers(0, 3)) == 0 else None,
    )


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
    query = draw(moving(catalogue) if draw(st.integers(0, 4)) == 0 else patterns(catalogue))
    found = accepted(query, catalogue)
    if found is None:
        # Rare: what the checker refuses for a reason that is not built in here.
        bare = replace(query, joins=(), having=None, filters=())
        found = accepted(bare, catalogue)
        if found is None:
            _, problems = check(query, catalogue)
            raise AssertionError(f"{print_query(query)}\n" + "\n".join(p.message for p in problems))
    return Case(*found, draw(event_lists(catalogue)))
