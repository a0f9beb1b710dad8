"""The part of a query's filters that Catalyst can judge: rows that no variable can be bound to are dropped early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain
from operator import and_, or_
from typing import Final, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as sf

from cepheid.knowledge.tables import FLAG, TERM, VALUE
from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.syntax import Expression, Kind, conjuncts
from cepheid.plan.implied import implied

#: The column of an attribute of a variable.
ColumnOf: TypeAlias = Callable[[syntax.Attribute], Column]

_COMPARE: Final[dict[str, Callable[[Column, Column], Column]]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def qualifies(
    checked: Checked,
    stream: Column,
    column_of: ColumnOf,
    known: Callable[[str], Sequence[tuple[str, Column]]] = lambda variable: (),
) -> Column:
    """Whether a row may be an event of some variable. The matcher judges again, so this may let too much through.

    Under STRICT every event of the query's streams counts as a neighbour, so only the streams are judged (rule S10).
    `known` has for a variable whether its lookups find anything, each for the rows of one stream.
    """
    choices = []
    for given in checked.query.ranges:
        conditions = [stream.isin(list(given.streams))]
        if checked.query.match != "STRICT":
            for condition in (*chain.from_iterable(map(conjuncts, checked.query.filters)), *implied(checked)):
                if syntax.variables(condition) == (given.variable,):
                    translated = _translate(condition, column_of)
                    conditions += [] if translated is None else [translated]
            # Last, because they cost more than comparisons.
            conditions += [stream.isNull() | (stream != sf.lit(s)) | column for s, column in known(given.variable)]
        choices.append(reduce(and_, conditions))
    return reduce(or_, choices)


def condition_of(condition: Expression, column_of: ColumnOf) -> Column | None:
    """A condition for Catalyst; None if it is one that Catalyst might judge otherwise."""
    if isinstance(condition, syntax.Constant) and condition.kind is Kind.BOOL:
        return sf.lit(condition.value)
    return _translate(condition, column_of)


def in_time(within: syntax.Within | None, now: int, time: Column) -> Column:
    """Whether a time in microseconds lies in WITHIN: events outside do not exist for the query (rule Q5)."""
    condition = sf.lit(True)
    if within is None:
        return condition
    if within.low is not None:
        low = within.low.microseconds + (now if within.low.now else 0)
        condition = condition & (time >= low if within.low_included else time > low)
    if within.high is not None:
        high = within.high.microseconds + (now if within.high.now else 0)
        condition = condition & (time <= high if within.high_included else time < high)
    return condition


def _translate(e: Expression, column_of: ColumnOf) -> Column | None:
    """The condition for Catalyst, with the same three values; None for what it might judge otherwise (arithmetic)."""
    match e:
        case syntax.Compare(sign, left, right):
            sides = _value(left, column_of), _value(right, column_of)
            return None if sides[0] is None or sides[1] is None else _COMPARE[sign](sides[0], sides[1])
        case syntax.IsNull(operand, negated):
            value = _value(operand, column_of)
            return None if value is None else value.isNotNull() if negated else value.isNull()
        case syntax.Between(operand, low, high, negated):
            value, bottom, top = (_value(part, column_of) for part in (operand, low, high))
            if value is None or bottom is None or top is None:
                return None
            return ~value.between(bottom, top) if negated else value.between(bottom, top)
        case syntax.In(operand, items, negated):
            value = _value(operand, column_of)
            equal: list[Column] = []
            for choice in (_value(item, column_of) for item in items):
                if value is None or choice is None:
                    return None
                equal.append(value == choice)
            found = reduce(or_, equal)
            return ~found if negated else found
        case syntax.Not(operand):
            inner = _translate(operand, column_of)
            return None if inner is None else ~inner
        case syntax.Logical(word, operands):
            inners = [_translate(operand, column_of) for operand in operands]
            if any(inner is None for inner in inners):
                return None
            return reduce(and_ if word == "AND" else or_, [inner for inner in inners if inner is not None])
        case syntax.Attribute():
            return _value(e, column_of)
        case _:
            return None


def _value(e: Expression, column_of: ColumnOf) -> Column | None:
    if isinstance(e, syntax.Attribute):
        return None if e.name[0] in (VALUE, TERM, FLAG) else column_of(e)
    # NULL has no type of its own in Catalyst, and a NAME is the knowledge base's.
    if isinstance(e, syntax.Constant) and e.kind not in (Kind.NULL, Kind.NAME):
        return sf.lit(e.value)
    return None
