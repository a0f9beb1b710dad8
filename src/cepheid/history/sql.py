"""Expressions of the language as Spark SQL, with the same three values and the same results; or not at all.

What SQL would judge otherwise, or might, is refused with a reason: the query then goes to the matcher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from cepheid.language import syntax
from cepheid.language.functions import FUNCTIONS, ValueType
from cepheid.language.syntax import Expression, Kind

_T = ValueType
Word: TypeAlias = Literal["greatest", "least"]
#: The column of an attribute, and its type.
ColumnOf: TypeAlias = Callable[[syntax.Attribute], tuple[str, ValueType]]
#: The column of an aggregate, and its type.
TotalOf: TypeAlias = Callable[[syntax.Aggregate], tuple[str, ValueType]]

_TRY: Final = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "%": "try_mod"}
_KINDS: Final = {
    Kind.NULL: _T.NULL,
    Kind.BOOL: _T.BOOL,
    Kind.INT: _T.INT,
    Kind.FLOAT: _T.FLOAT,
    Kind.STRING: _T.STRING,
    Kind.TIMESTAMP: _T.TIMESTAMP,
    Kind.DURATION: _T.DURATION,
}
#: Types that SQL holds as bigint.
_WHOLE: Final = (_T.INT, _T.TIMESTAMP, _T.DURATION)
_NAMES: Final = {
    _T.NULL: "string",
    _T.BOOL: "boolean",
    _T.INT: "bigint",
    _T.TIMESTAMP: "bigint",
    _T.DURATION: "bigint",
    _T.FLOAT: "double",
    _T.STRING: "string",
    _T.BYTES: "binary",
    _T.UINT8_ARRAY: "binary",
}


class NotExact(ValueError):
    """Something that SQL can't give exactly. The message says what."""


@dataclass(frozen=True)
class Sql:
    """An expression of SQL, in parentheses where it needs them, and what it gives."""

    text: str
    type: ValueType

    @property
    def as_float(self) -> str:
        return self.text if self.type is _T.FLOAT else f"CAST({self.text} AS double)"


def name_of(kind: ValueType) -> str:
    """What SQL calls a type."""
    if kind not in _NAMES:
        raise NotExact(f"{kind.value}, which SQL compares otherwise")
    return _NAMES[kind]


def quoted(name: str) -> str:
    """A name of a column or table."""
    return "`" + name.replace("`", "``") + "`"


def text_of(value: str) -> str:
    """A text as SQL writes it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def variable_name(variable: str) -> str:
    """What stands for a variable: a table, or a column that has the columns of that table."""
    return quoted("?" + variable)


def extreme(word: Word, values: Sequence[str]) -> str:
    """The greatest or least of some values; nulls are passed over."""
    return values[0] if len(values) == 1 else f"{word}({', '.join(values)})"


def expression(e: Expression, column_of: ColumnOf, total_of: TotalOf | None = None) -> Sql:
    """An expression in SQL. Raises NotExact."""

    def of(part: Expression) -> Sql:
        return expression(part, column_of, total_of)

    match e:
        case syntax.Constant():
            return _constant(e)
        case syntax.Attribute():
            if e.name[0] in "?=!":
                raise NotExact("what a PATH binds, which only the matcher looks up")
            return Sql(*column_of(e))
        case syntax.Compare(sign, left, right):
            one, other = _alike(of(left), of(right))
            return Sql(f"({one} {'<>' if sign == '!=' else sign} {other})", _T.BOOL)
        case syntax.Arithmetic(sign, left, right):
            return _arithmetic(sign, of(left), of(right))
        case syntax.Negative(operand):
            inner = of(operand)
            if inner.type is _T.FLOAT:
                return Sql(f"(- {inner.text})", _T.FLOAT)
            return Sql(f"try_subtract(0L, {inner.text})", inner.type)
        case syntax.Not(operand):
            return Sql(f"(NOT {of(operand).text})", _T.BOOL)
        case syntax.Logical(word, operands):
            return Sql("(" + f" {word} ".join(of(operand).text for operand in operands) + ")", _T.BOOL)
        case syntax.In(operand, items, negated):
            equal = (_alike(of(operand), of(item)) for item in items)
            found = " OR ".join(f"{one} = {other}" for one, other in equal)
            return Sql(f"(NOT ({found}))" if negated else f"({found})", _T.BOOL)
        case syntax.Between(operand, low, high, negated):
            bottom, top = _alike(of(operand), of(low)), _alike(of(operand), of(high))
            inside = f"({bottom[0]} >= {bottom[1]} AND {top[0]} <= {top[1]})"
            return Sql(f"(NOT {inside})" if negated else inside, _T.BOOL)
        case syntax.IsNull(operand, negated):
            return Sql(f"({of(operand).text} IS {'NOT ' if negated else ''}NULL)", _T.BOOL)
        case syntax.Case(branches, otherwise):
            return _case(branches, otherwise, of)
        case syntax.Call(function, arguments):
            if FUNCTIONS[function].zoned and len(arguments) == 2:
                raise NotExact(f"{function} by the clocks of a zone, of which Spark's Java may know other rules")
            raise NotExact(f"{function}, which Spark's own may round or fold otherwise")
        case syntax.Aggregate(function):
            if total_of is None:
                raise NotExact(f"{function} here")
            return Sql(*total_of(e))
        case _:
            raise NotExact("what a PATH binds, which only the matcher looks up")


def _constant(constant: syntax.Constant) -> Sql:
    kind, value = constant.kind, constant.value
    if kind is Kind.NAME:
        raise NotExact("a name of the knowledge base")
    if kind is Kind.STRING:
        return Sql(text_of(str(value)), _T.STRING)
    if kind is Kind.FLOAT:
        return Sql(f"double('{float(str(value))!r}')", _T.FLOAT)
    if kind is Kind.NULL:
        return Sql("NULL", _T.NULL)
    if kind is Kind.BOOL:
        return Sql(str(value).lower(), _T.BOOL)
    return Sql(f"bigint('{value}')" if str(value).startswith("-") else f"{value}L", _KINDS[kind])


def _alike(one: Sql, other: Sql) -> tuple[str, str]:
    """Two values as ones of one type."""
    for side in (one, other):
        name_of(side.type)
    if _T.FLOAT in (one.type, other.type) and one.type is not other.type and _T.NULL not in (one.type, other.type):
        return one.as_float, other.as_float
    return one.text, other.text


def _arithmetic(sign: str, one: Sql, other: Sql) -> Sql:
    kinds = {one.type, other.type}
    if _T.NULL in kinds:
        raise NotExact("arithmetic with NULL itself")
    if not kinds <= {*_WHOLE, _T.FLOAT}:
        raise NotExact(f"{sign} of {one.type.value} and {other.type.value}")
    if _T.FLOAT not in kinds and sign != "/":
        return Sql(f"{_TRY[sign]}({one.text}, {other.text})", _whole(sign, one.type, other.type))
    if sign in ("/", "%"):  # by zero: null
        found = f"({one.as_float} {sign} nullif({other.as_float}, 0.0D))"
    else:
        found = f"({one.as_float} {sign} {other.as_float})"
    # Out of range is null, as everything that is no number.
    return Sql(f"if(abs({found}) < double('Infinity'), {found}, NULL)", _T.FLOAT)


def _whole(sign: str, one: ValueType, other: ValueType) -> ValueType:
    if _T.TIMESTAMP in (one, other):
        return _T.DURATION if one is other else _T.TIMESTAMP
    return _T.DURATION if _T.DURATION in (one, other) else _T.INT


def _case(
    branches: tuple[tuple[Expression, Expression], ...], otherwise: Expression | None, of: Callable[[Expression], Sql]
) -> Sql:
    values = [of(then) for _, then in branches] + ([] if otherwise is None else [of(otherwise)])
    kinds = {value.type for value in values} - {_T.NULL}
    if len(kinds) > 1 and kinds != {_T.INT, _T.FLOAT}:
        raise NotExact("CASE of several types")
    kind = _T.FLOAT if _T.FLOAT in kinds else next(iter(kinds), _T.NULL)
    name = name_of(kind)
    texts = [f"CAST({value.text} AS {name})" for value in values]
    whens = " ".join(f"WHEN {of(when).text} THEN {text}" for (when, _), text in zip(branches, texts, strict=False))
    last = "" if otherwise is None else f" ELSE {texts[-1]}"
    return Sql(f"(CASE {whens}{last} END)", kind)
