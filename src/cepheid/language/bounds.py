"""Patterns that can never match, and patterns whose state has no bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from cepheid.language import syntax
from cepheid.language.errors import Severity, Span
from cepheid.language.syntax import Expression, Kind, Query, step_variables


class Report(Protocol):
    def __call__(
        self, code: str, message: str, span: Span | None, hint: str | None = None, severity: Severity = "error"
    ) -> None: ...


def report_never(condition: Expression, report: Report) -> None:
    """Warn of a condition whose comparisons of one attribute with constants leave no value."""
    low: dict[tuple[str, str], tuple[float, bool]] = {}
    high: dict[tuple[str, str], tuple[float, bool]] = {}
    conjuncts = (
        condition.operands if isinstance(condition, syntax.Logical) and condition.word == "AND" else (condition,)
    )
    for conjunct in conjuncts:
        found = _limit(conjunct)
        if found is None:
            continue
        attribute, sign, value = found
        if sign in (">", ">=", "="):
            low[attribute] = max(low.get(attribute, (-math.inf, True)), (value, sign == ">"))
        if sign in ("<", "<=", "="):
            # For upper limits the strict one is the smaller, so it is held as False.
            high[attribute] = min(high.get(attribute, (math.inf, True)), (value, sign != "<"))
    for attribute, (bottom, strict_low) in low.items():
        top, closed_high = high.get(attribute, (math.inf, True))
        if bottom > top or (bottom == top and (strict_low or not closed_high)):
            name = f"?{attribute[0]}.{attribute[1]}"
            report("never", f"no {name} fits these limits, so nothing will match", condition.span, severity="warning")


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def _limit(e: Expression) -> tuple[tuple[str, str], str, float] | None:
    """The attribute, sign and number of a comparison with a constant."""
    if not isinstance(e, syntax.Compare) or e.sign == "!=":
        return None
    left, right, sign = e.left, e.right, e.sign
    if isinstance(left, syntax.Constant):
        left, right, sign = right, left, _MIRRORED[sign]  # type: ignore[assignment]
    if not isinstance(left, syntax.Attribute) or not isinstance(right, syntax.Constant):
        return None
    if right.kind not in (Kind.INT, Kind.FLOAT, Kind.TIMESTAMP, Kind.DURATION) or not isinstance(
        right.value, int | float
    ):
        return None
    return (left.variable, left.name), sign, right.value


def unbounded(query: Query, variables: Sequence[str], roles: Mapping[str, str]) -> list[str]:
    """The variables whose events would have to be kept for ever (rule Q4).

    Windows tie the variables they list together; in SEQ, what lies between two steps that are tied is tied too.
    """
    positive = [v for v in variables if roles[v] != "absent"]
    if len(positive) + sum(isinstance(s, syntax.Absent) for s in query.seq) < 2 and not query.seq:
        return []
    if len(positive) < 2 and not any(isinstance(s, syntax.Many | syntax.Maybe | syntax.Absent) for s in query.seq):
        return []
    group = {v: {v} for v in positive}

    def tie(names: Sequence[str]) -> None:
        joint = set().union(*(group[n] for n in names if n in group))
        for n in joint:
            group[n] = joint

    for window in query.windows:
        if isinstance(window, syntax.SpanWindow):
            tie(window.variables)
    changed = True
    while changed:
        changed = False
        for i, first in enumerate(query.seq):
            for j in range(len(query.seq) - 1, i + 1, -1):
                ends = [v for s in (first, query.seq[j]) for v in step_variables(s) if v in group]
                if len(ends) < 2 or len({id(group[v]) for v in ends}) != 1:
                    continue
                inner = [v for s in query.seq[i + 1 : j] for v in step_variables(s) if v in group]
                if any(v not in group[ends[0]] for v in inner):
                    tie([ends[0], *inner])
                    changed = True
    largest = max(group.values(), key=len)
    return [v for v in positive if v not in largest]
