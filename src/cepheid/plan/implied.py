"""What FILTERs and JOINs imply together: a comparison with a constant is carried over to what a JOIN ties it to.

    FILTER (?a.room = 'r7') JOIN (?a.room = ?b.room)       ?b.room = 'r7'
    FILTER (?a.temp > 30) JOIN (?b.temp > ?a.temp)         ?b.temp >= 30
    FILTER (?a.flow > 500) JOIN (?b.flow - ?a.flow > 50)   ?b.flow >= 550

No match is lost by it, and events that could never be in one are known before they are kept, or leave a table. What
is known may change while events are held, so constants that come from it are not carried over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.functions import ValueType
from cepheid.language.syntax import Arithmetic, Attribute, Compare, Constant, Expression, Kind, Sign, conjuncts

_TURNED: Final[dict[Sign, Sign]] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: For `x sign y` and `y sign constant`, what is true of `x` and the constant. The weak form, because an int and a float
#: may differ by less than a float can hold.
_CARRIED: Final[dict[Sign, Sign]] = {"=": "=", "<": "<=", "<=": "<=", ">": ">=", ">=": ">="}
#: Integers up to here are floats too.
_EXACT: Final = 2**53

#: `one sign other + shift`; the shift is None where there is none.
_Link: TypeAlias = "tuple[Attribute, Sign, Attribute, int | float | None]"


def implied(checked: Checked) -> tuple[Compare, ...]:
    """The comparisons of an attribute with a constant that follow from the query, besides those that it has."""
    query = checked.query
    sure = _bound_before(query)
    known = list(dict.fromkeys(_constants(query.filters[: _said(checked)], query.joins)))
    links = list(_links(checked))
    # By place in `known`: the attributes that a constant came by, none of them twice.
    ways: list[tuple[Expression, ...]] = [(found.left,) for found in known]
    for number, found in enumerate(known):  # grows as it goes: what follows may have more to follow
        for one, sign, other, shift in links:
            if other != found.left or one.variable not in sure.get(other.variable, frozenset()) or one in ways[number]:
                continue
            carried = _carry(sign, found.sign)
            constant = found.right if shift is None else _shifted(found.right, shift)
            new = None if carried is None or constant is None else Compare(carried, one, constant)
            if new is not None and new not in known:
                known.append(new)
                ways.append((*ways[number], one))
    asked = set(_constants(query.filters, query.joins))
    return tuple(found for found in known if found not in asked)


def _carry(link: Sign, sign: Sign) -> Sign | None:
    """The sign for `x` and a constant, where `x link y` and `y sign constant`; None if nothing follows."""
    if link == "=":
        return sign
    if sign == "=" or link[0] == sign[0]:
        return _CARRIED[link]
    return None


def _comparisons(conditions: tuple[Expression, ...]) -> Iterator[tuple[Expression, Sign, Expression]]:
    """Both ways round."""
    for condition in conditions:
        for part in conjuncts(condition):
            if isinstance(part, Compare) and part.sign in _TURNED:
                yield part.left, part.sign, part.right
                yield part.right, _TURNED[part.sign], part.left


def _said(checked: Checked) -> int:
    """How many of the FILTERs are the query's own; those that became of PATHs come behind them (semantic.py)."""
    return len(checked.query.filters if checked.origin is None else checked.origin.filters)


def _constants(filters: tuple[Expression, ...], joins: tuple[Expression, ...]) -> Iterator[Compare]:
    for left, sign, right in _comparisons((*filters, *joins)):
        if isinstance(left, Attribute) and isinstance(right, Constant) and right.kind not in (Kind.NULL, Kind.NAME):
            yield Compare(sign, left, right)


def _links(checked: Checked) -> Iterator[_Link]:
    """The JOINs that compare two attributes of one type: across types equality is not what equality is."""
    types = {key: resolved.type for key, resolved in checked.attributes.items()}
    for left, sign, right in _comparisons(checked.query.joins):
        for one, link, other, shift in (_plain_link(left, sign, right), *_shifted_links(left, sign, right)):
            if isinstance(one, Attribute) and isinstance(other, Attribute) and one.variable != other.variable:
                kinds = types[one.variable, one.name], types[other.variable, other.name]
                if kinds[0] is kinds[1] and (shift is None or _is_shift_of(shift, kinds[0])):
                    yield one, link, other, shift


def _plain_link(left: Expression, sign: Sign, right: Expression) -> tuple[Expression, Sign, Expression, None]:
    return left, sign, right, None


def _shifted_links(
    left: Expression, sign: Sign, right: Expression
) -> Iterator[tuple[Expression, Sign, Expression, int | float]]:
    """`x - y > 50` and `x > y + 50`, seen from x and from y; not equalities, which rounding may make true.

    Rounding keeps the order of numbers. So where `x - y`, rounded, is greater than 50, `x - y` is, and where x is
    greater than 500 + 50, it is not less than that rounded.
    """
    if sign == "=" or not isinstance(left, Arithmetic):
        return
    match left, right:
        case Arithmetic("-", Attribute() as x, Attribute() as y), Constant(kind=Kind.INT | Kind.FLOAT, value=c):
            assert isinstance(c, int | float)
            yield x, sign, y, c
            yield y, _TURNED[sign], x, -c
        case Arithmetic("+" | "-" as how, Attribute() as y, Constant(kind=Kind.INT | Kind.FLOAT, value=c)), Attribute():
            assert isinstance(c, int | float)
            shift = c if how == "+" else -c
            yield right, _TURNED[sign], y, shift
            yield y, sign, right, -shift


def _is_shift_of(shift: int | float, kind: ValueType) -> bool:
    """Whether attributes of a type are shifted by it as numbers are."""
    return kind is ValueType.FLOAT or (kind is ValueType.INT and isinstance(shift, int))


def _shifted(constant: Expression, shift: int | float) -> Constant | None:
    """A constant, shifted; None if it is no number, or would be too great for one."""
    if not isinstance(constant, Constant) or not isinstance(constant.value, int | float):
        return None
    if any(isinstance(x, int) and abs(x) > _EXACT for x in (constant.value, shift)):
        return None
    total = constant.value + shift
    return Constant(Kind.INT if isinstance(total, int) else Kind.FLOAT, total) if math.isfinite(total) else None


def _bound_before(query: syntax.Query) -> Mapping[str, frozenset[str]]:
    """By variable that is bound to one event in every match: those whose events are judged with it.

    Under MATCH NEXT these are the later steps' only, because a step takes its event by what is bound so far.
    """
    every = frozenset(r.variable for r in query.ranges)
    loose: set[str] = set()
    later: dict[str, frozenset[str]] = {}
    for place, step in enumerate(query.seq):
        variables = syntax.step_variables(step)
        if not isinstance(step, syntax.One | syntax.AllOf):
            loose.update(variables)
        following = frozenset(v for other in query.seq[place + 1 :] for v in syntax.step_variables(other))
        later.update(dict.fromkeys(variables, following))
    return {v: later[v] if query.match == "NEXT" else every - {v} for v in every - loose}
