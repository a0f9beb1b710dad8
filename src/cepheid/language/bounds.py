"""Patterns whose state has no bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cepheid.language import syntax
from cepheid.language.errors import Severity, Span
from cepheid.language.syntax import Query, step_variables


class Report(Protocol):
    def __call__(
        self, code: str, message: str, span: Span | None, hint: str | None = None, severity: Severity = "error"
    ) -> None: ...


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
