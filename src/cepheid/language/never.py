"""Patterns that can never match: conditions that leave no value, and a SEQ that its WINDOWs leave no time for.

Only what is sure is said; it is a warning, because such a query is as good as any other and finds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from cepheid.language import syntax
from cepheid.language.bounds import Report
from cepheid.language.syntax import Expression, Kind, Query, conjuncts, step_variables

#: The microseconds by which the second variable's event comes at least after the first's.
_Order: TypeAlias = tuple[str, str, int]
#: A pattern with more variables can't run anyway, and to look at all its pairs would take long.
_MANY = 64
_NUMBERS = (Kind.INT, Kind.FLOAT, Kind.TIMESTAMP, Kind.DURATION)
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


def report_never(query: Query, roles: Mapping[str, str], report: Report) -> None:
    """Warn of what can't be."""
    _report_values(query, roles, report)
    _report_within(query, report)
    _report_order(query, roles, report)


@dataclass
class _Values:
    """What conditions leave of an attribute: limits, with whether each is excluded; constants; nothing but null."""

    low: tuple[float, bool] = (-math.inf, False)
    high: tuple[float, bool] = (math.inf, False)
    among: frozenset[object] | None = None
    null: bool = False
    value: bool = False

    def narrow(self, sign: str, constant: object) -> None:
        self.value = True
        if sign == "=":
            self.allow(frozenset([constant]))
        elif isinstance(constant, int | float):
            if sign in (">", ">="):
                self.low = max(self.low, (constant, sign == ">"))
            elif sign in ("<", "<="):
                self.high = min(self.high, (constant, sign == "<"), key=lambda limit: (limit[0], not limit[1]))

    def allow(self, constants: frozenset[object]) -> None:
        self.value = True
        self.among = constants if self.among is None else self.among & constants

    def is_empty(self) -> bool:
        (low, above), (high, below) = self.low, self.high
        if (self.null and self.value) or low > high or (low == high and (above or below)):
            return True
        return self.among is not None and not any(map(self._fits, self.among))

    def _fits(self, constant: object) -> bool:
        (low, above), (high, below) = self.low, self.high
        if not isinstance(constant, int | float):
            return True
        return (constant > low or (constant == low and not above)) and (
            constant < high or (constant == high and not below)
        )


def _report_values(query: Query, roles: Mapping[str, str], report: Report) -> None:
    left: dict[tuple[str, str], _Values] = {}
    told: set[tuple[str, str]] = set()
    for given in (*query.filters, *query.joins):
        for condition in conjuncts(given):
            for attribute, sign, constant in _facts(condition):
                values = left.setdefault(attribute, _Values())
                if sign == "null":
                    values.null = True
                elif sign == "in":
                    values.allow(constant)  # type: ignore[arg-type]
                else:
                    values.narrow(sign, constant)
                if values.is_empty() and attribute not in told:
                    told.add(attribute)
                    variable, name = attribute
                    is_needed = roles.get(variable) in ("one", "all", "many", "free")
                    so = "nothing will match" if is_needed else f"there is no ?{variable}"
                    hint = "nothing compares with NULL: write IS NULL" if sign == "in" and not constant else None
                    message = f"no ?{variable}.{name} fits these limits, so {so}"
                    report("never", message, given.span, hint, severity="warning")


def _facts(e: Expression) -> Iterator[tuple[tuple[str, str], str, object]]:
    """What a condition says of an attribute by constants: a sign and a constant, `in` and some, or `null`."""
    if isinstance(e, syntax.IsNull) and isinstance(e.operand, syntax.Attribute) and not e.negated:
        yield (e.operand.variable, e.operand.name), "null", None
    elif isinstance(e, syntax.Compare):
        left, right, sign = e.left, e.right, e.sign
        if isinstance(left, syntax.Constant):
            left, right, sign = right, left, _MIRRORED[sign]  # type: ignore[assignment]
        if isinstance(left, syntax.Attribute) and isinstance(right, syntax.Constant):
            attribute = (left.variable, left.name)
            if right.kind is Kind.NULL:
                yield attribute, "in", frozenset()  # nothing compares with null
            elif right.kind in (*_NUMBERS, Kind.BOOL, Kind.STRING):
                yield attribute, sign, right.value
    elif isinstance(e, syntax.In) and isinstance(e.operand, syntax.Attribute) and not e.negated:
        constants = [item for item in e.items if isinstance(item, syntax.Constant) and item.kind is not Kind.NAME]
        if len(constants) == len(e.items):
            known = frozenset(item.value for item in constants if item.kind is not Kind.NULL)
            yield (e.operand.variable, e.operand.name), "in", known
    elif isinstance(e, syntax.Between) and isinstance(e.operand, syntax.Attribute) and not e.negated:
        for sign, end in ((">=", e.low), ("<=", e.high)):
            if isinstance(end, syntax.Constant) and end.kind in _NUMBERS:
                yield (e.operand.variable, e.operand.name), sign, end.value


def _report_within(query: Query, report: Report) -> None:
    within = query.within
    if within is None or within.low is None or within.high is None or within.low.now != within.high.now:
        return
    low = within.low.microseconds + (not within.low_included)
    high = within.high.microseconds - (not within.high_included)
    if low > high:
        report("never", "there is no time in this, so nothing will match", within.span, severity="warning")


def _report_order(query: Query, roles: Mapping[str, str], report: Report) -> None:
    """SEQ, WINDOWs and JOINs that compare times as bounds on differences: they hold together unless some add up to
    an event that comes after itself."""
    sure = {v for v, role in roles.items() if role in ("one", "all", "free")}
    if len(sure) > _MANY:
        return
    orders = [order for order in _orders(query) if sure.issuperset(order[:2])]
    latest = dict.fromkeys(sure, 0)
    for _ in range(len(sure) + 1):
        moved = False
        for earlier, later, least in orders:
            if latest[earlier] + least > latest[later]:
                latest[later] = latest[earlier] + least
                moved = True
        if not moved:
            return
    span = query.spans.get("seq") or query.spans.get("select")
    message = "no events can come in this order within these WINDOWs, so nothing will match"
    report("never", message, span, severity="warning")


def _orders(query: Query) -> Iterator[_Order]:
    steps = [step for step in query.seq if isinstance(step, syntax.One | syntax.AllOf)]
    for one, other in pairwise(steps):
        yield from ((a, b, 1) for a in step_variables(one) for b in step_variables(other))
    for window in query.windows:
        if isinstance(window, syntax.SpanWindow):
            yield from ((a, b, -window.width) for a in window.variables for b in window.variables if a != b)
    for join in query.joins:
        for condition in conjuncts(join):
            yield from _compared_times(condition)


def _compared_times(e: Expression) -> Iterator[_Order]:
    """`?b.time > ?a.time` and `?b.time - ?a.time > 5s`."""
    if not isinstance(e, syntax.Compare) or e.sign == "!=":
        return
    left, right, sign, width = e.left, e.right, e.sign, 0
    if isinstance(left, syntax.Constant):
        left, right, sign = right, left, _MIRRORED[sign]  # type: ignore[assignment]
    if isinstance(left, syntax.Arithmetic) and left.sign == "-" and isinstance(right, syntax.Constant):
        if right.kind is not Kind.DURATION or not isinstance(right.value, int):
            return
        difference, width = left, right.value
        left, right = difference.left, difference.right
    times = (left, right)
    if not all(isinstance(side, syntax.Attribute) and side.name == "time" for side in times):
        return
    one, other = (side.variable for side in times if isinstance(side, syntax.Attribute))
    # `one - other sign width`, in whole microseconds.
    if sign in (">", ">=", "="):
        yield other, one, width + (sign == ">")
    if sign in ("<", "<=", "="):
        yield one, other, -width + (sign == "<")
