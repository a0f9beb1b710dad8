"""The syntax tree of a χ-CEP query. Trees compare by meaning: places in the source don't count.

What each part means is in docs/semantics.md; here is only its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from cepheid.language.errors import Span

# Expressions


class Kind(Enum):
    """What a literal is."""

    NULL = "null"
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STRING = "string"
    DURATION = "duration"
    TIMESTAMP = "timestamp"
    NAME = "name"  # prefix:name or <iri>, an entity of the knowledge base


@dataclass(frozen=True, slots=True)
class Constant:
    """A value in the text. Durations and timestamps are microseconds; a NAME is as written."""

    kind: Kind
    value: bool | int | float | str | None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Attribute:
    """`?e.flowrate`, or `?e.hvc:airflow`, whose name has the colon. `id` and `time` are attributes too."""

    variable: str
    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable alone: an event in COUNT(?e), or what a PATH binds."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


Sign: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Compare:
    """Two values compared."""

    sign: Sign
    left: Expression
    right: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two values combined."""

    sign: Literal["+", "-", "*", "/", "%"]
    left: Expression
    right: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Negative:
    """`-x`."""

    operand: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT x`."""

    operand: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Logical:
    """Two or more conditions joined by AND or by OR."""

    word: Literal["AND", "OR"]
    operands: tuple[Expression, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class In:
    """`x [NOT] IN (a, b)`."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Between:
    """`x [NOT] BETWEEN low AND high`, both included."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    """`x IS [NOT] NULL`."""

    operand: Expression
    negated: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Case:
    """`CASE WHEN c THEN x ... [ELSE y] END`."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A function of single values; its name in capitals."""

    function: str
    arguments: tuple[Expression, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function over several events: COUNT, SUM, AVG, MIN, MAX, STDDEV, FIRST, LAST."""

    function: str
    argument: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


Expression: TypeAlias = (
    Constant
    | Attribute
    | Variable
    | Compare
    | Arithmetic
    | Negative
    | Not
    | Logical
    | In
    | Between
    | IsNull
    | Case
    | Call
    | Aggregate
)


# Clauses


@dataclass(frozen=True, slots=True)
class Selected:
    """One value of SELECT; `name` is what AS says."""

    expression: Expression
    name: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Range:
    """`(?e, a | b)` of FROM: the streams that a variable ranges over."""

    variable: str
    streams: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Instant:
    """A time in WITHIN: microseconds, or with `now` an offset from now."""

    microseconds: int
    now: bool = False


@dataclass(frozen=True, slots=True)
class Within:
    """`WITHIN [from, to)`; an end that is None is open."""

    low: Instant | None
    high: Instant | None
    low_included: bool = True
    high_included: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class One:
    """`?e`: one event."""

    variable: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Maybe:
    """`?e?`: one event, or none."""

    variable: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Many:
    """`?e{n,m}`: all that qualify, if their number is in range. `?e+` is {1,}."""

    variable: str
    least: int = 1
    most: int | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Absent:
    """`NOT ?e`: no event qualifies here."""

    variable: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AllOf:
    """`ALL(?a, ?b)`: one event each, in any order."""

    variables: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """`ANY(?a, ?b)`: one of them."""

    variables: tuple[str, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Step: TypeAlias = One | Maybe | Many | Absent | AllOf | AnyOf


@dataclass(frozen=True, slots=True)
class SpanWindow:
    """`WINDOW (?a, ?b, 5min)`: the events bound to these lie at most so far apart (microseconds)."""

    variables: tuple[str, ...]
    width: int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EventWindow:
    """`WINDOW (?e, sliding, 5min)`: a moving window; `size` is microseconds, or a number of events for length."""

    variable: str
    kind: Literal["sliding", "batch", "session", "length"]
    size: int
    span: Span | None = field(default=None, compare=False, repr=False)


Window: TypeAlias = SpanWindow | EventWindow


@dataclass(frozen=True, slots=True)
class PathGroup:
    """`PATH { ... }`: the text between the braces, white space at its ends removed; `place` is where that begins."""

    text: str
    span: Span | None = field(default=None, compare=False, repr=False)
    place: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PathLogical:
    """PATHs joined by AND or by OR."""

    word: Literal["AND", "OR"]
    operands: tuple[Path, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Path: TypeAlias = PathGroup | PathLogical


@dataclass(frozen=True, slots=True)
class Align:
    """`ALIGN (?a, ?b, 5ms)`."""

    variables: tuple[str, ...]
    within: int
    span: Span | None = field(default=None, compare=False, repr=False)


Policy: TypeAlias = Literal["ANY", "NEXT", "STRICT"]
AfterMatch: TypeAlias = Literal["KEEP", "CONSUME", "SKIP PAST LAST", "SKIP TO NEXT"]


@dataclass(frozen=True, slots=True)
class Query:
    """A query. What was not written is empty or None; `match` and `after` have their defaults."""

    select: tuple[Selected, ...]
    prefixes: tuple[tuple[str, str], ...] = ()
    ranges: tuple[Range, ...] = ()
    within: Within | None = None
    filters: tuple[Expression, ...] = ()
    joins: tuple[Expression, ...] = ()
    seq: tuple[Step, ...] = ()
    windows: tuple[Window, ...] = ()
    path: Path | None = None
    group_by: tuple[Attribute, ...] = ()
    having: Expression | None = None
    match: Policy = "ANY"
    after: AfterMatch = "KEEP"
    priority: str | None = None
    valid: int | None = None
    align: tuple[Align, ...] = ()
    stale: Literal["MARK", "SHED"] | None = None
    spans: dict[str, Span] = field(default_factory=dict, compare=False, repr=False, hash=False)


#: What each step is called, by the checker and in the plans of the native core.
STEP_NAMES: Final[Mapping[type[Step], str]] = {
    One: "one",
    Maybe: "maybe",
    Many: "many",
    Absent: "absent",
    AllOf: "all",
    AnyOf: "any",
}


def step_variables(step: Step) -> tuple[str, ...]:
    """The variables of a step."""
    return step.variables if isinstance(step, AllOf | AnyOf) else (step.variable,)


def children(expression: Expression) -> Iterator[Expression]:
    """The expressions directly inside one."""
    for part in fields(expression):
        value = getattr(expression, part.name)
        if isinstance(value, Expression):
            yield value
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, Expression):
                    yield item
                elif isinstance(item, tuple):
                    yield from item


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and all inside it, outermost first."""
    stack = [expression]
    while stack:
        found = stack.pop()
        yield found
        stack.extend(reversed(list(children(found))))


def rebuilt(expression: Expression, change: Callable[[Attribute], Attribute]) -> Expression:
    """The expression with each attribute changed."""
    return replaced(expression, lambda e: change(e) if isinstance(e, Attribute) else e)


def attributes(query: Query) -> Iterator[Attribute]:
    """The attributes that a query mentions outside of PATHs."""
    expressions = [*(s.expression for s in query.select), *query.filters, *query.joins, *query.group_by]
    for expression in [*expressions, *([query.having] if query.having is not None else [])]:
        yield from (e for e in walk(expression) if isinstance(e, Attribute))


def replaced(expression: Expression, put: Callable[[Expression], Expression], *, totals: bool = False) -> Expression:
    """The expression with what `put` gives for each constant, attribute and variable in it; with `totals` for each
    aggregate, too, and not for what is in it."""
    if isinstance(expression, Constant | Attribute | Variable) or (totals and isinstance(expression, Aggregate)):
        return put(expression)

    def inside(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(inside, value))
        return replaced(value, put, totals=totals) if isinstance(value, Expression) else value

    parts = {part.name: inside(getattr(expression, part.name)) for part in fields(expression) if part.name != "span"}
    return replace(expression, **parts)


def conjuncts(condition: Expression) -> Iterator[Expression]:
    """The parts of an AND, each a condition of its own: one that names an unbound variable says nothing (rule S2)."""
    if isinstance(condition, Logical) and condition.word == "AND":
        for operand in condition.operands:
            yield from conjuncts(operand)
    else:
        yield condition


def variables(expression: Expression) -> tuple[str, ...]:
    """The variables that an expression mentions, each once, in order."""
    found = (
        e.variable if isinstance(e, Attribute) else e.name if isinstance(e, Variable) else None
        for e in walk(expression)
    )
    return tuple(dict.fromkeys(name for name in found if name is not None))
