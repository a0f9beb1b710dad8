"""What an expression is worth, with SQL's nulls (rule E6). None is null, and 'unknown' among truths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, cast
from zoneinfo import ZoneInfo

from cepheid.language import syntax
from cepheid.language.syntax import Expression
from tests.reference.events import Bound, Event, Refused, Value

Truth = bool | None


def evaluate(expression: Expression, binding: Mapping[str, Bound], aggregated: Mapping[str, Sequence[Event]]) -> Value:
    """The value of an expression.

    `binding` has the event of each variable outside of aggregates; an unbound variable's attributes are null (rule S2).
    `aggregated` has the events that an aggregate over a variable ranges over, in E2's order.
    """

    def value(inner: Expression) -> Value:
        return evaluate(inner, binding, aggregated)

    def truth(inner: Expression) -> Truth:
        return cast(Truth, value(inner))

    match expression:
        case syntax.Constant(kind=syntax.Kind.NAME):
            raise Refused("entities of the knowledge base are not part of this matcher")
        case syntax.Constant():
            return expression.value
        case syntax.Attribute(variable, name):
            bound = binding.get(variable)
            if isinstance(bound, tuple):
                raise Refused(f"?{variable} stands for many events (rule S3)")
            return None if bound is None else bound.value(name)
        case syntax.Variable(name):
            raise Refused(f"?{name} is an event, not a value")
        case syntax.Compare(sign, left, right):
            return compare(sign, value(left), value(right))
        case syntax.Arithmetic(sign, left, right):
            return calculate(sign, value(left), value(right))
        case syntax.Negative(operand):
            number = cast(float | None, value(operand))
            return None if number is None else _representable(-number)
        case syntax.Not(operand):
            return negate(truth(operand))
        case syntax.Logical("AND", operands):
            return conjunction([truth(o) for o in operands])
        case syntax.Logical("OR", operands):
            return disjunction([truth(o) for o in operands])
        case syntax.In(operand, items, negated):
            found = disjunction([compare("=", value(operand), value(item)) for item in items])
            return negate(found) if negated else found
        case syntax.Between(operand, low, high, negated):
            x = value(operand)
            inside = conjunction([compare(">=", x, value(low)), compare("<=", x, value(high))])
            return negate(inside) if negated else inside
        case syntax.IsNull(operand, negated):
            return (value(operand) is None) != negated
        case syntax.Case(branches, otherwise):
            for when, then in branches:
                if value(when) is True:
                    return value(then)
            return None if otherwise is None else value(otherwise)
        case syntax.Call(function, arguments):
            return call(function, [value(argument) for argument in arguments])
        case syntax.Aggregate(function, argument):
            (variable,) = syntax.variables(argument)
            events = aggregated[variable]
            if isinstance(argument, syntax.Variable):
                return len(events)  # COUNT(?e) counts events
            return aggregate(function, [evaluate(argument, {**binding, variable: e}, {}) for e in events])
    raise AssertionError(expression)


def is_true(expression: Expression, binding: Mapping[str, Bound], aggregated: Mapping[str, Sequence[Event]]) -> bool:
    """Whether a condition passes: only when it is true, not when it is unknown."""
    return evaluate(expression, binding, aggregated) is True


# Truth


def negate(one: Truth) -> Truth:
    return None if one is None else not one


def conjunction(parts: Sequence[Truth]) -> Truth:
    if False in parts:
        return False
    return None if None in parts else True


def disjunction(parts: Sequence[Truth]) -> Truth:
    if True in parts:
        return True
    return None if None in parts else False


# Numbers


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """An int that meets a float becomes one."""
    if isinstance(left, float) and isinstance(right, int):
        return left, float(right)
    if isinstance(left, int) and isinstance(right, float):
        return float(left), right
    return left, right


def _representable(result: Value) -> Value:
    """Null for an int that does not fit in 64 bits, and for a float that is not finite."""
    if isinstance(result, bool):
        return result
    if isinstance(result, int):
        return result if -(2**63) <= result < 2**63 else None
    if isinstance(result, float):
        return result if math.isfinite(result) else None
    return result


def compare(sign: syntax.Sign, left: Value, right: Value) -> Truth:
    """Text compares by code point, false is less than true."""
    if left is None or right is None:
        return None
    one, other = _alike(left, right)
    match sign:
        case "=":
            return bool(one == other)
        case "!=":
            return bool(one != other)
        case "<":
            return bool(one < other)
        case "<=":
            return bool(one <= other)
        case ">":
            return bool(one > other)
        case ">=":
            return bool(one >= other)


def calculate(sign: str, left: Value, right: Value) -> Value:
    """`/` is float division, `%` has the dividend's sign; by zero, and what does not fit, null."""
    if left is None or right is None:
        return None
    one, other = _alike(left, right)
    match sign:
        case "+":
            return _representable(one + other)
        case "-":
            return _representable(one - other)
        case "*":
            return _representable(one * other)
        case "/":
            return None if other == 0 else _representable(float(one) / float(other))
        case "%" if other == 0:
            return None
        case "%" if isinstance(one, float):
            return math.fmod(one, other)
        case "%":
            remainder: int = abs(one) % abs(other)
            return -remainder if one < 0 else remainder
    raise AssertionError(sign)


# Functions


def call(function: str, arguments: Sequence[Value]) -> Value:
    """A function of single values: null if an argument is, or if the result is out of its domain or not finite."""
    known = [argument for argument in arguments if argument is not None]
    if function == "COALESCE":
        return known[0] if known else None
    if function in ("LEAST", "GREATEST"):
        return _extreme(min if function == "LEAST" else max, known)
    if len(known) < len(arguments):
        return None
    try:
        return _representable(_FUNCTIONS[function](*arguments))
    except (ValueError, OverflowError, ZeroDivisionError):
        return None


def _extreme(choose: Callable[[Sequence[Any]], Any], values: Sequence[Value]) -> Value:
    """The least or the greatest; ints among floats become floats."""
    if any(isinstance(v, float) for v in values):
        values = [float(cast(float, v)) for v in values]
    return cast(Value, choose(values)) if values else None


def _round(x: float, digits: int = 0) -> float:
    """Half away from zero, of the shortest decimal that the float has: ROUND(2.675, 2) is 2.68."""
    if digits > 400:  # no float has as many decimals
        return float(x)
    if digits < -400:  # no float has as many digits before the point
        return 0.0
    with localcontext(prec=1000):
        return float(Decimal(repr(float(x))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def _substring(text: str, start: int, count: int | None = None) -> str:
    """The characters at positions start, start + 1, ...; the first is 1. As in SQL, those that are not there count."""
    if count is not None and count < 0:
        raise ValueError("a negative count is out of the domain")
    positions = range(start, len(text) + 1) if count is None else range(start, start + count)
    return "".join(text[p - 1] for p in range(max(positions.start, 1), min(positions.stop, len(text) + 1)))


#: Unicode's White_Space.
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def _moment(time: int) -> tuple[int, datetime]:
    """The year, and a moment that shares all else with this one: the calendar repeats after 146,097 days, 400 years."""
    cycles, rest = divmod(time, 146_097 * 86_400_000_000)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=rest)
    return moment.year + 400 * cycles, moment


def _of_time(read: Callable[[int, datetime], int]) -> Callable[..., Value]:
    """A function of what clocks show at a time: those of UTC, or of a zone."""

    def value(time: int, zone: str | None = None) -> Value:
        shown = _representable(time if zone is None else time + _ahead(time, zone))
        return None if shown is None else read(*_moment(cast(int, shown)))

    return value


def _ahead(time: int, zone: str) -> int:
    """What the clocks of a zone are ahead of UTC. Beyond Python's years, as in one that is whole cycles away."""
    cycle = 146_097 * 86_400_000_000
    first, last = (datetime(year, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC) for year in (2, 9999))
    low, high = first // timedelta(microseconds=1), last // timedelta(microseconds=1)
    time += cycle * max(-(-(low - time) // cycle), 0) - cycle * max(-(-(time - high) // cycle), 0)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)
    offset = moment.astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)


_FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "ABS": abs,
    "ROUND": _round,
    "FLOOR": lambda x: float(math.floor(x)),
    "CEIL": lambda x: float(math.ceil(x)),
    "SQRT": math.sqrt,
    "EXP": math.exp,
    "LN": math.log,
    "LOG10": math.log10,
    "POWER": math.pow,
    "LENGTH": len,
    "LOWER": str.lower,
    "UPPER": str.upper,
    "TRIM": lambda text: text.strip(_WHITE_SPACE),
    "SUBSTRING": _substring,
    "CONCAT": lambda *parts: "".join(parts),
    "CONTAINS": lambda text, part: part in text,
    "STARTS_WITH": str.startswith,
    "ENDS_WITH": str.endswith,
    "YEAR": _of_time(lambda year, _: year),
    "MONTH": _of_time(lambda _, moment: moment.month),
    "DAY": _of_time(lambda _, moment: moment.day),
    "HOUR": _of_time(lambda _, moment: moment.hour),
    "MINUTE": _of_time(lambda _, moment: moment.minute),
    "SECOND": _of_time(lambda _, moment: moment.second),
    "DAY_OF_WEEK": _of_time(lambda _, moment: moment.isoweekday()),
}


# Aggregates


def aggregate(function: str, values: Sequence[Value]) -> Value:
    """An aggregate of the values of events in E2's order: nulls are skipped, except by FIRST and LAST."""
    if function == "FIRST":
        return values[0] if values else None
    if function == "LAST":
        return values[-1] if values else None
    known: Sequence[Any] = [v for v in values if v is not None]
    if function == "COUNT":
        return len(known)
    if not known:
        return None
    if function in ("MIN", "MAX"):
        return _extreme(min if function == "MIN" else max, known)
    whole = all(isinstance(v, int) for v in known)
    try:
        match function:
            case "SUM":
                return _representable(sum(known) if whole else math.fsum(known))
            case "AVG":
                return _representable((float(sum(known)) if whole else math.fsum(known)) / len(known))
            case "STDDEV" if len(known) < 2:
                return None
            case "STDDEV":
                mean = math.fsum(known) / len(known)
                return _representable(math.sqrt(math.fsum((x - mean) * (x - mean) for x in known) / (len(known) - 1)))
    except (OverflowError, ValueError):  # a sum beyond the floats
        return None
    raise AssertionError(function)
