"""What FILTERs and JOINs imply together: a comparison with a constant is carried over to what a JOIN ties it to.

    FILTER (?a.room = 'r7') JOIN (?a.room = ?b.room)       ?b.room = 'r7'
    FILTER (?a.temp > 30) JOIN (?b.temp > ?a.temp)         ?b.temp >= 30

No match is lost by it, and events that could never be in one are known before they are kept, or leave a table. What
is known may change while events are held, so constants that come from it are not carried over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.syntax import Attribute, Compare, Constant, Expression, Kind, Sign, conjuncts

_TURNED: Final[dict[Sign, Sign]] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: For `x sign y` and `y sign constant`, what is true of `x` and the constant. The weak form, because an int and a float
#: may differ by less than a float can hold.
_CARRIED: Final[dict[Sign, Sign]] = {"=": "=", "<": "<=", "<=": "<=", ">": ">=", ">=": ">="}


def implied(checked: Checked) -> tuple[Compare, ...]:
    """The comparisons of an attribute with a constant that follow from the query, besides those that it has."""
    query = checked.query
    sure = _bound_before(query)
    known = list(dict.fromkeys(_constants(query.filters[: _said(checked)], query.joins)))
    links = list(_links(checked))
    for found in known:  # grows as it goes: what follows may have more to follow
        assert isinstance(found.left, Attribute)
        for one, sign, other in links:
            if other != found.left or one.variable not in sure.get(other.variable, frozenset()):
                continue
            carried = _carry(sign, found.sign)
            new = None if carried is None else Compare(carried, one, found.right)
            if new is not None and new not in known:
                known.append(new)
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


def _links(checked: Checked) -> Iterator[tuple[Attribute, Sign, Attribute]]:
    """The JOINs that compare two attributes of one type: across types equality is not what equality is."""
    types = {key: resolved.type for key, resolved in checked.attributes.items()}
    for left, sign, right in _comparisons(checked.query.joins):
        if isinstance(left, Attribute) and isinstance(right, Attribute) and left.variable != right.variable:
            one, other = types[left.variable, left.name], types[right.variable, right.name]
            if one is other:
                yield left, sign, right


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
