"""Queries written in Python: the same tree as the text gives.

    from cepheid.language.build import Q, event, not_

    a, b, c = event("a", "airflow"), event("b", "airflow"), event("c", "door")
    query = (
        Q.select(a.sensorID, (b.flowrate - a.flowrate).as_("rise"))
        .filter(a.flowrate > 500)
        .join(a.sensorID == b.sensorID)
        .seq(a, not_(c), b)
        .window(a, b, "5min")
    )

Conditions are joined with `&`, `|` and `~`, in parentheses. An attribute whose name is taken here, such as `plus`, is
`a["plus"]`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, cast

from cepheid.language import syntax
from cepheid.language.functions import AGGREGATES, FUNCTIONS
from cepheid.language.syntax import Expression, Kind
from cepheid.model.names import suggestion
from cepheid.model.time import EPOCH, parse_duration, parse_local

Plain: TypeAlias = bool | int | float | str | timedelta | datetime | None


class Value:
    """An expression, with Python's operators. It is true or false only in a query."""

    __slots__ = ("expression",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    def __bool__(self) -> bool:
        raise TypeError("a condition has no truth outside a query; join conditions with & | ~, in parentheses")

    def _compare(self, sign: syntax.Sign, other: Value | Plain) -> Value:
        return Value(syntax.Compare(sign, self.expression, _expression(other)))

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self._compare("=", cast("Value | Plain", other))

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self._compare("!=", cast("Value | Plain", other))

    def __lt__(self, other: Value | Plain) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Value | Plain) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Value | Plain) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Value | Plain) -> Value:
        return self._compare(">=", other)

    def __add__(self, other: Value | Plain) -> Value:
        return Value(syntax.Arithmetic("+", self.expression, _expression(other)))

    def __sub__(self, other: Value | Plain) -> Value:
        return Value(syntax.Arithmetic("-", self.expression, _expression(other)))

    def __mul__(self, other: Value | Plain) -> Value:
        return Value(syntax.Arithmetic("*", self.expression, _expression(other)))

    def __truediv__(self, other: Value | Plain) -> Value:
        return Value(syntax.Arithmetic("/", self.expression, _expression(other)))

    def __mod__(self, other: Value | Plain) -> Value:
        return Value(syntax.Arithmetic("%", self.expression, _expression(other)))

    def __radd__(self, other: Plain) -> Value:
        return Value(_expression(other)) + self

    def __rsub__(self, other: Plain) -> Value:
        return Value(_expression(other)) - self

    def __rmul__(self, other: Plain) -> Value:
        return Value(_expression(other)) * self

    def __rtruediv__(self, other: Plain) -> Value:
        return Value(_expression(other)) / self

    def __neg__(self) -> Value:
        return Value(syntax.Negative(self.expression))

    def __and__(self, other: Value) -> Value:
        return Value(_logical("AND", self.expression, other.expression))

    def __or__(self, other: Value) -> Value:
        return Value(_logical("OR", self.expression, other.expression))

    def __invert__(self) -> Value:
        return Value(syntax.Not(self.expression))

    def is_in(self, *items: Value | Plain) -> Value:
        """One of these."""
        return Value(syntax.In(self.expression, tuple(map(_expression, items))))

    def between(self, low: Value | Plain, high: Value | Plain) -> Value:
        """From low to high, both included."""
        return Value(syntax.Between(self.expression, _expression(low), _expression(high)))

    def is_null(self) -> Value:
        return Value(syntax.IsNull(self.expression))

    def is_not_null(self) -> Value:
        return Value(syntax.IsNull(self.expression, negated=True))

    def as_(self, name: str) -> Named:
        """The name it is selected under."""
        return Named(self, name)


@dataclass(frozen=True, slots=True)
class Named:
    """A value with the name it is selected under."""

    value: Value
    name: str


@dataclass(frozen=True, slots=True)
class Step:
    """A step of SEQ."""

    step: syntax.Step


class EventVariable:
    """A variable that stands for an event; its attributes are values: `e.flowrate`, `e["hvc:airflow"]`."""

    __slots__ = ("_name", "_streams")

    def __init__(self, name: str, streams: tuple[str, ...]) -> None:
        self._name = name
        self._streams = streams

    def __getattr__(self, name: str) -> Value:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Value:
        return Value(syntax.Attribute(self._name, name))

    def plus(self) -> Step:
        """All that qualify here, at least one: `?e+`."""
        return Step(syntax.Many(self._name, 1, None))

    def times(self, least: int, most: int | None = None) -> Step:
        """All that qualify here, if their number is in range: `?e{2,5}`; without `most` there is no upper end."""
        return Step(syntax.Many(self._name, least, most))

    def maybe(self) -> Step:
        """One, or none: `?e?`."""
        return Step(syntax.Maybe(self._name))


def event(name: str, *streams: str) -> EventVariable:
    """A variable over streams; without any, over the default stream."""
    return EventVariable(name, streams)


def not_(e: EventVariable) -> Step:
    """No event that qualifies here: `NOT ?e`."""
    return Step(syntax.Absent(e._name))


def all_(*events: EventVariable) -> Step:
    """One event each, in any order: `ALL(?a, ?b)`."""
    return Step(syntax.AllOf(tuple(e._name for e in events)))


def any_(*events: EventVariable) -> Step:
    """One of them: `ANY(?a, ?b)`."""
    return Step(syntax.AnyOf(tuple(e._name for e in events)))


def call(function: str, *arguments: Value | EventVariable | Plain) -> Value:
    """A function or an aggregate of the language: `call("AVG", e.flowrate)`, `call("COUNT", e)`, `call("ABS", x)`."""
    name = function.upper()
    parts = tuple(syntax.Variable(a._name) if isinstance(a, EventVariable) else _expression(a) for a in arguments)
    if name in AGGREGATES:
        if len(parts) != 1:
            raise TypeError(f"{name} takes one argument")
        return Value(syntax.Aggregate(name, parts[0]))
    if name not in FUNCTIONS:
        raise TypeError(
            f"unknown function {name}; {suggestion(name, [*FUNCTIONS, *AGGREGATES]) or 'docs/language.md lists them'}"
        )
    return Value(syntax.Call(name, parts))


@dataclass(frozen=True, slots=True)
class Q:
    """A query in the making: every call gives a new one. `tree` is what the text would give."""

    tree: syntax.Query

    @staticmethod
    def select(*values: Value | Named) -> Q:
        """Begins a query: the values of its matches."""
        selected = tuple(
            syntax.Selected(v.value.expression, v.name) if isinstance(v, Named) else syntax.Selected(v.expression)
            for v in values
        )
        return Q(syntax.Query(selected))

    def from_(self, *events: EventVariable) -> Q:
        """The streams of these variables, in this order, which is that of the output."""
        ranges = tuple(syntax.Range(e._name, e._streams) for e in events)
        return replace(self, tree=replace(self.tree, ranges=ranges))

    def filter(self, *conditions: Value) -> Q:
        """Conditions over one variable each."""
        return self._with(filters=(*self.tree.filters, *(c.expression for c in conditions)))

    def join(self, *conditions: Value) -> Q:
        """Conditions over several variables."""
        return self._with(joins=(*self.tree.joins, *(c.expression for c in conditions)))

    def seq(self, *steps: EventVariable | Step) -> Q:
        """Events one after the other."""
        built = tuple(syntax.One(s._name) if isinstance(s, EventVariable) else s.step for s in steps)
        return self._with(seq=built)

    def window(self, *parts: EventVariable | str | int) -> Q:
        """`window(a, b, "5min")`, or of one variable `window(e, "sliding", "5min")`, `window(e, "length", 100)`."""
        events = tuple(p._name for p in parts if isinstance(p, EventVariable))
        size = parts[-1]
        if len(parts) == 3 and len(events) == 1:
            kind = cast(Literal["sliding", "batch", "session", "length"], parts[1])
            number = size if isinstance(size, int) else parse_duration(str(size))
            built: syntax.Window = syntax.EventWindow(events[0], kind, number)
        else:
            built = syntax.SpanWindow(events, parse_duration(str(size)))
        return self._with(windows=(*self.tree.windows, built))

    def path(self, sparql: str) -> Q:
        """A SPARQL group that must hold as well."""
        group = syntax.PathGroup(sparql.strip())
        paths = [self.tree.path, group] if self.tree.path is not None else [group]
        flat: list[syntax.Path] = []
        for path in paths:
            flat += path.operands if isinstance(path, syntax.PathLogical) and path.word == "AND" else [path]
        return self._with(path=flat[0] if len(flat) == 1 else syntax.PathLogical("AND", tuple(flat)))

    def within(
        self, low: str | None = None, high: str | None = None, *, include: Literal["[)", "[]", "(]", "()"] = "[)"
    ) -> Q:
        """The time that events must lie in: `within("now - 1h", "2012-05-07T09:00")`; None is open."""
        ends = (None if low is None else _instant(low), None if high is None else _instant(high))
        return self._with(within=syntax.Within(*ends, include[0] == "[", include[1] == "]"))

    def group_by(self, *attributes: Value) -> Q:
        return self._with(group_by=tuple(cast(syntax.Attribute, a.expression) for a in attributes))

    def having(self, condition: Value) -> Q:
        return self._with(having=condition.expression)

    def match(self, policy: syntax.Policy) -> Q:
        return self._with(match=policy)

    def after_match(self, policy: syntax.AfterMatch) -> Q:
        return self._with(after=policy)

    def priority(self, level: str) -> Q:
        return self._with(priority=level)

    def valid(self, duration: str) -> Q:
        return self._with(valid=parse_duration(duration))

    def align(self, *parts: EventVariable | str) -> Q:
        """`align(a, b, "5ms")`."""
        events = tuple(p._name for p in parts if isinstance(p, EventVariable))
        return self._with(align=(*self.tree.align, syntax.Align(events, parse_duration(str(parts[-1])))))

    def stale(self, policy: Literal["MARK", "SHED"]) -> Q:
        return self._with(stale=policy)

    def _with(self, **parts: object) -> Q:
        return replace(self, tree=replace(self.tree, **parts))  # type: ignore[arg-type]


def _instant(text: str) -> syntax.Instant:
    if text.strip().lower().startswith("now"):
        return syntax.Instant(parse_local(text, now=0), now=True)
    return syntax.Instant(parse_local(text))


def _logical(word: Literal["AND", "OR"], *operands: Expression) -> syntax.Logical:
    flat: list[Expression] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, syntax.Logical) and operand.word == word else [operand]
    return syntax.Logical(word, tuple(flat))


def _expression(value: Value | Plain) -> Expression:
    match value:
        case Value():
            return value.expression
        case None:
            return syntax.Constant(Kind.NULL, None)
        case bool():
            return syntax.Constant(Kind.BOOL, value)
        case int():
            return syntax.Constant(Kind.INT, value)
        case float():
            return syntax.Constant(Kind.FLOAT, value)
        case str():
            return syntax.Constant(Kind.STRING, value)
        case timedelta():
            return syntax.Constant(Kind.DURATION, value // timedelta(microseconds=1))
        case datetime():
            if value.tzinfo is None:
                raise TypeError("a datetime needs a zone: datetime(2012, 5, 7, 9, tzinfo=UTC)")
            return syntax.Constant(Kind.TIMESTAMP, (value - EPOCH) // timedelta(microseconds=1))
    raise TypeError(f"a {type(value).__name__} can't be in a query")
