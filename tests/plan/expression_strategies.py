"""Random expressions of every kind over the attributes of some variables, of types that fit.

A drawn bool decides, seldom `flatmap`: what is drawn can be left out piece by piece when a failure is shrunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from hypothesis import strategies as st

from cepheid.language import syntax
from cepheid.language.scope import Catalogue
from cepheid.language.syntax import Aggregate, Attribute, Constant, Expression, Kind
from cepheid.model.types import Type
from tests.plan.stream_strategies import ATTRIBUTES, PREFIX, PROPERTY, SECOND, SPELLINGS


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
                    by_type.setdefault(kind, []).extend([name, *SPELLINGS.get(name, ())])
            by_type.setdefault(Type.TIMESTAMP, []).append("time")
            id_kinds = {self.catalogue.streams[s].id_kind for s in streams}
            if len(id_kinds) == 1:
                by_type.setdefault(Type.INT if id_kinds == {"int"} else Type.STRING, []).append("id")
            loads = {self._load(stream) for stream in streams}
            by_type.setdefault(Type.FLOAT if Type.FLOAT in loads else Type.INT, []).append(PROPERTY)
            self.attributes[variable] = by_type

    def _load(self, stream: str) -> Type:
        (attribute,) = self.catalogue.properties[stream].values()
        return self.catalogue.streams[stream].attributes[attribute]

    def only(self, *usable: str) -> Names:
        return replace(self, usable=usable)

    def attribute(self, *kinds: Type, of: str | None = None) -> Attribute | None:
        variable = of or self.draw(st.sampled_from(list(self.usable)))
        names = [name for kind in kinds for name in self.attributes[variable].get(kind, [])]
        return Attribute(variable, self.draw(st.sampled_from(names))) if names else None

    def has(self, variable: str, attribute: str) -> bool:
        return any(attribute in listed for listed in self.attributes[variable].values())


def prefixes(expressions: Sequence[Expression]) -> tuple[tuple[str, str], ...]:
    """The PREFIXes that the expressions need."""
    named = {e.name for expression in expressions for e in syntax.walk(expression) if isinstance(e, Attribute)}
    return (PREFIX,) if PROPERTY in named else ()


_NUMBERS: Final = (Type.INT, Type.FLOAT)
_OF_TIME: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "DAY_OF_WEEK")
_OF_NUMBER: Final = ("ABS", "ROUND", "FLOOR", "CEIL", "SQRT", "EXP", "LN", "LOG10", "POWER", "LENGTH")
_OF_SEVERAL: Final = ("LEAST", "GREATEST", "COALESCE")
_OF_TEXT: Final = ("LOWER", "UPPER", "TRIM", "SUBSTRING", "CONCAT")
_TESTS: Final = ("CONTAINS", "STARTS_WITH", "ENDS_WITH")
_SIGNS: Final[st.SearchStrategy[syntax.Sign]] = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
_NULL: Final = Constant(Kind.NULL, None)


def number(names: Names, depth: int = 2) -> Expression:
    draw = names.draw
    choice = draw(st.integers(0, 9 if depth > 0 else 3))
    if choice <= 2:
        return names.attribute(*_NUMBERS) or Constant(Kind.INT, 1)
    if choice == 3:
        whole = [Constant(Kind.INT, i) for i in (0, 1, 2, 3)]
        return draw(st.sampled_from([*whole, Constant(Kind.FLOAT, 0.5), Constant(Kind.FLOAT, 2.5), _NULL]))
    if choice in (4, 5):
        sign: Any = draw(st.sampled_from(["+", "-", "*", "/", "%"]))
        return syntax.Arithmetic(sign, number(names, depth - 1), number(names, depth - 1))
    if choice == 6:
        inner = number(names, depth - 1)
        # The parser folds the sign into a constant.
        return inner if isinstance(inner, Constant) else syntax.Negative(inner)
    if choice == 7:
        return choose(names, depth, number)
    function = draw(st.sampled_from(_OF_NUMBER) | st.sampled_from(_OF_SEVERAL) | st.sampled_from(_OF_TIME))
    return call(names, function, depth - 1, number)


def call(names: Names, function: str, depth: int, of: Callable[[Names, int], Expression] | None = None) -> Expression:
    """A call of any function; those that take every type get values of one kind."""
    draw = names.draw
    if function in _OF_TIME:
        zone = draw(st.sampled_from(["", "", "Australia/Lord_Howe", "America/Los_Angeles"]))
        return syntax.Call(function, (moment(names, depth), *([Constant(Kind.STRING, zone)] if zone else [])))
    if function in _OF_SEVERAL:
        of = of or draw(st.sampled_from([number, text, moment]))
        return syntax.Call(function, tuple(of(names, depth) for _ in range(draw(st.integers(2, 3)))))
    if function in _TESTS:
        return syntax.Call(function, (text(names, depth), text(names, depth)))
    if function == "LENGTH" or function in ("LOWER", "UPPER", "TRIM"):
        return syntax.Call(function, (text(names, depth),))
    if function == "SUBSTRING":
        places = [Constant(Kind.INT, i) for i in draw(st.lists(st.integers(-1, 3), min_size=1, max_size=2))]
        return syntax.Call(function, (text(names, depth), *places))
    if function == "CONCAT":
        return syntax.Call(function, tuple(text(names, depth) for _ in range(draw(st.integers(2, 3)))))
    if function == "POWER":
        return syntax.Call(function, (number(names, depth), number(names, depth)))
    if function == "ROUND" and draw(st.booleans()):
        return syntax.Call(function, (number(names, depth), Constant(Kind.INT, draw(st.sampled_from([0, 1, -1])))))
    return syntax.Call(function, (number(names, depth),))


def anything(names: Names) -> Expression:
    """One of all forms and functions, each as likely: for SELECT, where it makes no match less likely."""
    draw = names.draw
    known = (*_OF_NUMBER, *_OF_TIME, *_OF_SEVERAL, *_OF_TEXT, *_TESTS)
    form = draw(st.sampled_from([*known, "+", "-", "*", "/", "%", *_FORMS]))
    if form in known:
        return call(names, form, 1)
    if form in _FORMS:
        return _FORMS[form](names)
    sign: Any = form
    return syntax.Arithmetic(sign, number(names, 1), number(names, 1))


def text(names: Names, depth: int = 1) -> Expression:
    draw = names.draw
    choice = draw(st.integers(0, 6 if depth > 0 else 2))
    if choice <= 1:
        return names.attribute(Type.STRING) or Constant(Kind.STRING, "a")
    if choice == 2:
        return Constant(Kind.STRING, draw(st.sampled_from(["x", "a", "", "ä\n\"'"])))
    if choice == 3:
        return choose(names, depth, text)
    return call(names, draw(st.sampled_from(_OF_TEXT)), depth - 1)


def moment(names: Names, depth: int = 1) -> Expression:
    """A time: of an event, in the text, or so long before or after one."""
    draw = names.draw
    one = names.attribute(Type.TIMESTAMP)
    assert one is not None
    choice = draw(st.integers(0, 5 if depth > 0 else 3))
    if choice <= 2:
        return one
    if choice == 3:
        return Constant(Kind.TIMESTAMP, draw(st.integers(0, 8)) * SECOND)
    sign: Any = draw(st.sampled_from(["+", "-"]))
    return syntax.Arithmetic(sign, one, duration(names, depth - 1))


def duration(names: Names, depth: int = 1) -> Expression:
    draw = names.draw
    choice = draw(st.integers(0, 3 if depth > 0 else 0))
    if choice <= 1:
        return Constant(Kind.DURATION, draw(st.integers(0, 5)) * SECOND)
    if choice == 2:
        one, other = names.attribute(Type.TIMESTAMP), names.attribute(Type.TIMESTAMP)
        assert one is not None
        assert other is not None
        return syntax.Arithmetic("-", one, other)
    return syntax.Arithmetic("*", duration(names, depth - 1), Constant(Kind.INT, draw(st.integers(-1, 2))))


def choose(names: Names, depth: int, value: Callable[[Names, int], Expression]) -> Expression:
    """CASE."""
    branches = tuple(
        (condition(names, depth - 1), value(names, depth - 1)) for _ in range(names.draw(st.integers(1, 2)))
    )
    return syntax.Case(branches, value(names, depth - 1) if names.draw(st.booleans()) else None)


def condition(names: Names, depth: int = 2) -> Expression:
    draw = names.draw
    choice = draw(st.integers(0, 12 if depth > 0 else 6))
    if choice <= 1:
        return syntax.Compare(draw(_SIGNS), number(names, depth - 1), number(names, depth - 1))
    if choice == 2:
        return syntax.Compare(draw(_SIGNS), text(names, depth - 1), text(names, depth - 1))
    if choice == 3:
        return names.attribute(Type.BOOL) or Constant(Kind.BOOL, True)
    if choice == 4:
        return moments(names, draw(_SIGNS))
    if choice == 5:
        return draw(st.sampled_from([equal_or_not, true_or_false]))(names)
    if choice == 6:
        return one_of(names)
    if choice == 7:
        word: Literal["AND", "OR"] = draw(st.sampled_from(["AND", "OR"]))
        return logical(word, [condition(names, depth - 1) for _ in range(draw(st.integers(2, 3)))])
    if choice == 8:
        return syntax.Not(condition(names, depth - 1))
    if choice == 9:
        return one_of(names, depth - 1)
    if choice == 10:
        return between(names, depth - 1)
    if choice == 11:
        of = draw(st.sampled_from([number, number, text]))
        return syntax.IsNull(of(names, depth - 1), draw(st.booleans()))
    return call(names, draw(st.sampled_from(_TESTS)), depth - 1)


def one_of(names: Names, depth: int = 0) -> Expression:
    """IN."""
    of = names.draw(st.sampled_from([number, number, text, moment]))
    items = tuple(of(names, 0) for _ in range(names.draw(st.integers(1, 3))))
    return syntax.In(of(names, depth), items, names.draw(st.booleans()))


def between(names: Names, depth: int = 0) -> Expression:
    of = names.draw(st.sampled_from([number, number, text, moment]))
    return syntax.Between(of(names, depth), of(names, 0), of(names, 0), names.draw(st.booleans()))


def equal_or_not(names: Names) -> Expression:
    """What has no order can be equal still."""
    kind = names.draw(st.sampled_from([Type.BYTES, Type.FLOAT_ARRAY, Type.BOOL]))
    one, other = names.attribute(kind), names.attribute(kind)
    assert one is not None
    assert other is not None
    sign: syntax.Sign = names.draw(st.sampled_from(["=", "!="]))
    return syntax.Compare(sign, one, other)


def true_or_false(names: Names) -> Expression:
    constant = Constant(Kind.BOOL, names.draw(st.booleans()))
    one = names.attribute(Type.BOOL)
    if one is None or names.draw(st.booleans()):
        return constant
    return syntax.Compare(names.draw(_SIGNS), one, constant)


def moments(names: Names, sign: Any) -> Expression:
    """Times compared, or their difference with a duration, or two of these by their ratio."""
    choice = names.draw(st.integers(0, 2))
    if choice == 0:
        return syntax.Compare(sign, moment(names), moment(names))
    if choice == 1:
        return syntax.Compare(sign, duration(names), duration(names))
    return syntax.Compare(sign, ratio(names), Constant(Kind.INT, names.draw(st.integers(0, 2))))


def ratio(names: Names) -> Expression:
    return syntax.Arithmetic("/", duration(names), duration(names))


#: Forms that are rare otherwise.
_FORMS: Final[dict[str, Callable[[Names], Expression]]] = {
    "between": between,
    "in": one_of,
    "null": lambda names: syntax.IsNull(number(names, 1), names.draw(st.booleans())),
    "case": lambda names: choose(names, 1, number),
    "ratio": ratio,
    "duration": lambda names: duration(names, 2),
    "moment": moment,
}


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


def numeric_aggregate(names: Names, variable: str) -> Aggregate:
    function = names.draw(st.sampled_from(["COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV", "FIRST", "LAST"]))
    if function == "COUNT":
        return Aggregate(function, syntax.Variable(variable))
    made = number(names.only(variable), names.draw(st.integers(0, 1)))
    return Aggregate(function, made if syntax.variables(made) == (variable,) else Attribute(variable, "v"))


def total(names: Names, variable: str, beside: Sequence[str]) -> Expression:
    """An aggregate, or one inside an expression, with others or with what variables of one event have."""
    draw = names.draw
    choice = draw(st.integers(0, 5))
    if choice <= 2:
        return aggregate(names, variable)
    one = numeric_aggregate(names, variable)
    if choice == 3:
        return syntax.Call(draw(st.sampled_from(["COALESCE", "LEAST"])), (one, Constant(Kind.INT, 0)))
    with_one = bool(beside) and draw(st.booleans())
    other = number(names.only(*beside), 0) if with_one else numeric_aggregate(names, variable)
    sign: Any = draw(st.sampled_from(["+", "-", "*", "/"]))
    return syntax.Arithmetic(sign, one, other)


def limited(names: Names, variable: str, beside: Sequence[str]) -> Expression:
    """A comparison with an aggregate on its left, which in SELECT is a condition."""
    draw = names.draw
    if draw(st.booleans()):
        count = Aggregate("COUNT", syntax.Variable(variable))
        return syntax.Compare(">=", count, Constant(Kind.INT, draw(st.integers(0, 2))))
    right = number(names.only(*beside), 0) if beside else Constant(Kind.INT, 1)
    return syntax.Compare(draw(_SIGNS), numeric_aggregate(names, variable), right)


def having(names: Names, over: Sequence[str]) -> Expression:
    draw = names.draw
    variable = draw(st.sampled_from(list(over)))
    choice = draw(st.integers(0, 5))
    if choice <= 1:
        sign: syntax.Sign = draw(st.sampled_from([">=", ">", "!="]))
        count = Aggregate("COUNT", syntax.Variable(variable))
        return syntax.Compare(sign, count, Constant(Kind.INT, draw(st.integers(0, 3))))
    one = numeric_aggregate(names, variable)
    if choice == 2:
        return syntax.IsNull(one, draw(st.booleans()))
    if choice == 3:
        return syntax.Between(one, Constant(Kind.INT, 0), Constant(Kind.INT, 3), draw(st.booleans()))
    if choice == 4:
        word: Literal["AND", "OR"] = draw(st.sampled_from(["AND", "OR"]))
        return logical(word, (having(names, over), having(names, over)))
    return syntax.Compare(draw(_SIGNS), one, Constant(Kind.INT, draw(st.integers(0, 3))))
