"""The types of expressions, and what does not go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from cepheid.language import syntax
from cepheid.language.errors import Span
from cepheid.language.functions import AGGREGATES, FUNCTIONS, NUMBER, ORDERED, ValueType
from cepheid.language.scope import unify
from cepheid.language.syntax import Expression, Kind
from cepheid.model.names import suggestion
from cepheid.model.time import ZoneError, zone_of

_T = ValueType
_CONSTANTS = {
    Kind.NULL: _T.NULL,
    Kind.BOOL: _T.BOOL,
    Kind.INT: _T.INT,
    Kind.FLOAT: _T.FLOAT,
    Kind.STRING: _T.STRING,
    Kind.DURATION: _T.DURATION,
    Kind.TIMESTAMP: _T.TIMESTAMP,
    Kind.NAME: _T.NODE,
}


class Report(Protocol):
    def __call__(self, code: str, message: str, span: Span | None, hint: str) -> None: ...


class Typer:
    """Finds the type of an expression; reports what can't be computed. A fault is said once, where it arises."""

    def __init__(
        self,
        attribute: Callable[[syntax.Attribute], ValueType],
        variable: Callable[[syntax.Variable], ValueType],
        report: Report,
    ) -> None:
        self._attribute = attribute
        self._variable = variable
        self._report = report

    def condition(self, expression: Expression, word: str) -> None:
        """An expression that must be true or false."""
        kind = self.type_of(expression)
        if kind is not _T.BOOL and not kind.is_loose:
            message = f"{word} needs a condition, and this is {_a(kind)}"
            hint = "compare it with something: > 500, = 'open', IS NOT NULL"
            self._report("type-mismatch", message, expression.span, hint)

    def type_of(self, expression: Expression) -> ValueType:
        match expression:
            case syntax.Constant():
                return _CONSTANTS[expression.kind]
            case syntax.Attribute():
                return self._attribute(expression)
            case syntax.Variable():
                return self._variable(expression)
            case syntax.Compare():
                return self._compare(expression)
            case syntax.Arithmetic():
                return self._arithmetic(expression)
            case syntax.Negative(operand):
                kind = self.type_of(operand)
                if kind.is_number or kind is _T.DURATION or kind.is_loose:
                    return kind
                return self._fault(f"- of {_a(kind)}", expression.span, "only a number or a duration has a sign")
            case syntax.Not(operand):
                self.condition(operand, "NOT")
                return _T.BOOL
            case syntax.Logical(word, operands):
                for operand in operands:
                    self.condition(operand, word)
                return _T.BOOL
            case syntax.In(operand, items):
                self._comparable([operand, *items], "IN", equality=True)
                return _T.BOOL
            case syntax.Between(operand, low, high):
                self._comparable([operand, low, high], "BETWEEN", equality=False)
                return _T.BOOL
            case syntax.IsNull(operand):
                self.type_of(operand)
                return _T.BOOL
            case syntax.Case(branches, otherwise):
                for when, _ in branches:
                    self.condition(when, "WHEN")
                values = [then for _, then in branches] + ([otherwise] if otherwise is not None else [])
                return self._common(values, "the values of CASE")
            case syntax.Call():
                return self._call(expression)
            case syntax.Aggregate():
                return self._aggregate(expression)

    def _fault(self, message: str, span: Span | None, hint: str) -> ValueType:
        self._report("type-mismatch", message, span, hint)
        return _T.UNKNOWN

    def _compare(self, e: syntax.Compare) -> ValueType:
        self._comparable([e.left, e.right], e.sign, equality=e.sign in ("=", "!="), span=e.span)
        return _T.BOOL

    def _comparable(self, parts: Sequence[Expression], what: str, *, equality: bool, span: Span | None = None) -> None:
        kinds = [self.type_of(part) for part in parts]
        first = kinds[0]
        for part, kind in zip(parts[1:], kinds[1:], strict=True):
            joint = unify(first, kind)
            if joint is None:
                hint = _compare_hint(first, kind)
                self._fault(f"{_a(first)} and {_a(kind)} can't be compared ({what})", span or part.span, hint)
                return
            first = joint
        if not equality and first not in (*ORDERED, _T.NODE) and not first.is_loose:
            message = f"{_a(first)} has no order, so {what} says nothing"
            self._fault(message, span or parts[0].span, "ask whether it is the same: = or !=")

    def _common(self, parts: Sequence[Expression], what: str) -> ValueType:
        joint = _T.NULL
        for part in parts:
            kind = self.type_of(part)
            found = unify(joint, kind)
            if found is None:
                hint = "give them one type: THEN 1 ELSE 0, or THEN 'on' ELSE 'off'"
                return self._fault(f"{what} are {_a(joint)} and {_a(kind)}", part.span, hint)
            joint = found
        return joint

    def _arithmetic(self, e: syntax.Arithmetic) -> ValueType:
        left, right = self.type_of(e.left), self.type_of(e.right)
        if left is _T.UNKNOWN or right is _T.UNKNOWN:
            return _T.UNKNOWN
        kind = _result(e.sign, left, right)
        if kind is not None:
            return kind
        hint = _arithmetic_hint(e.sign, left, right)
        return self._fault(f"{_a(left)} {e.sign} {_a(right)} has no meaning", e.span, hint)

    def _call(self, e: syntax.Call) -> ValueType:
        function = FUNCTIONS.get(e.function)
        kinds = [self.type_of(argument) for argument in e.arguments]
        if function is None:
            known = [*FUNCTIONS, *AGGREGATES]
            hint = suggestion(e.function, known) or "known: " + ", ".join(sorted(known))
            self._report("unknown-function", f"unknown function {e.function}", e.span, hint)
            return _T.UNKNOWN
        form = f"the form is: {e.function}({function.form})"
        if not function.takes(len(e.arguments)):
            self._report("wrong-count", f"{e.function} takes {function.count}, not {len(e.arguments)}", e.span, form)
            return _T.UNKNOWN
        for i, (argument, kind) in enumerate(zip(e.arguments, kinds, strict=True)):
            if kind not in function.types_of(i) and not kind.is_loose:
                wanted = " or ".join(t.value for t in function.types_of(i))
                hint = f"such as {e.function}(?e.time)" if _T.TIMESTAMP in function.types_of(i)[:1] else form
                self._fault(f"{e.function} takes {wanted}, and this is {_a(kind)}", argument.span, hint)
                return function.gives or _T.UNKNOWN
        if function.zoned and len(e.arguments) == len(function.arguments):
            self._zone(e.function, e.arguments[-1])
        if function.gives is not None:
            return function.gives
        joint = _T.NULL
        for argument, kind in zip(e.arguments, kinds, strict=True):
            found = unify(joint, kind)
            if found is None:
                hint = f"give {e.function} arguments of one type: all numbers, all text or all times"
                return self._fault(f"{e.function} of {_a(joint)} and {_a(kind)}", argument.span, hint)
            joint = found
        return joint

    def _zone(self, function: str, zone: Expression) -> None:
        """The clocks of a zone are handed to the engines with the query, so it says which."""
        if not isinstance(zone, syntax.Constant) or not isinstance(zone.value, str):
            hint = f"such as {function}(?e.time, 'America/Los_Angeles'); for one of several zones, CASE WHEN"
            self._report("not-constant", f"the zone of {function} has to be a text in the query", zone.span, hint)
            return
        try:
            zone_of(zone.value)
        except ZoneError as error:
            self._report("unknown-zone", error.message, zone.span, error.hint)

    def _aggregate(self, e: syntax.Aggregate) -> ValueType:
        if e.function == "COUNT":
            if not isinstance(e.argument, syntax.Variable):
                self.type_of(e.argument)
            return _T.INT
        kind = self.type_of(e.argument)
        if kind.is_loose or e.function in ("FIRST", "LAST"):
            return kind
        allowed = ORDERED if e.function in ("MIN", "MAX") else NUMBER
        if kind not in allowed:
            hint = "COUNT, FIRST and LAST are of anything; MIN and MAX of what has an order; the others of numbers"
            return self._fault(f"{e.function} of {_a(kind)}", e.span, hint)
        return kind if e.function in ("MIN", "MAX", "SUM") else _T.FLOAT


def _result(sign: str, left: ValueType, right: ValueType) -> ValueType | None:
    """The type of `left sign right`, or None."""
    if left is _T.NULL or right is _T.NULL:
        other = right if left is _T.NULL else left
        return other if other.is_number or other in (_T.NULL, _T.TIMESTAMP, _T.DURATION) else None
    if _T.NODE in (left, right):  # known when it is bound; what is no number gives null
        return _T.FLOAT if all(kind.is_number or kind is _T.NODE for kind in (left, right)) else None
    if left.is_number and right.is_number:
        return _T.FLOAT if sign == "/" or _T.FLOAT in (left, right) else _T.INT
    pair = (left, right)
    if sign == "-" and pair == (_T.TIMESTAMP, _T.TIMESTAMP):
        return _T.DURATION
    if sign in "+-" and pair == (_T.DURATION, _T.DURATION):
        return _T.DURATION
    if sign in "+-" and pair == (_T.TIMESTAMP, _T.DURATION):
        return _T.TIMESTAMP
    if sign == "+" and pair == (_T.DURATION, _T.TIMESTAMP):
        return _T.TIMESTAMP
    if sign == "*" and pair in ((_T.DURATION, _T.INT), (_T.INT, _T.DURATION)):
        return _T.DURATION
    if sign == "/" and pair == (_T.DURATION, _T.DURATION):
        return _T.FLOAT
    return None


def _a(kind: ValueType) -> str:
    return {"null": "NULL", "node": "an entity", "int": "an int"}.get(kind.value, f"a {kind.value}").replace(
        "a array", "an array"
    )


def _arithmetic_hint(sign: str, left: ValueType, right: ValueType) -> str:
    kinds = {left, right}
    if _T.STRING in kinds:
        return "join texts with CONCAT(a, b)" if sign == "+" else "only numbers, times and durations are computed with"
    if kinds == {_T.TIMESTAMP}:
        return "the time between two events is ?b.time - ?a.time"
    if kinds in ({_T.TIMESTAMP, _T.INT}, {_T.TIMESTAMP, _T.FLOAT}, {_T.DURATION, _T.INT}, {_T.DURATION, _T.FLOAT}):
        return "give the number a unit, such as 5min; a duration can be multiplied by a whole number"
    if _T.BOOL in kinds:
        return "make a number of it: CASE WHEN ?e.open THEN 1 ELSE 0 END"
    if kinds & {_T.UINT8_ARRAY, _T.FLOAT_ARRAY, _T.BYTES}:
        return "arrays are for the operators of `graph`, such as fft"
    return "numbers go with numbers, times with durations: ?e.time + 5min"


def _compare_hint(one: ValueType, other: ValueType) -> str:
    kinds = {one, other}
    if kinds == {_T.TIMESTAMP, _T.STRING}:
        return "write the time without quotes: 2012-05-07T09:00"
    if kinds in ({_T.DURATION, _T.INT}, {_T.DURATION, _T.FLOAT}):
        return "give the number a unit, such as 5min"
    if kinds in ({_T.STRING, _T.INT}, {_T.STRING, _T.FLOAT}):
        return "write a number without quotes, and text with them"
    if kinds == {_T.STRING, _T.BOOL}:
        return "write TRUE and FALSE without quotes"
    return "compare what is of one type: a number with a number, a time with a time"
