"""Random queries made simple enough for SQL or SPARQL, so that more than a few of them are rewritten."""

from __future__ import annotations

from dataclasses import replace

from cepheid.language import syntax
from cepheid.language.syntax import Expression, step_variables
from tests.plan.query_strategies import Case, accepted


def simpler(case: Case) -> Case | None:
    """The case with a query for SQL: MATCH ANY, and no functions; None if nothing is left of it."""
    query = case.checked.query
    moving = next((w for w in query.windows if isinstance(w, syntax.EventWindow)), None)
    absent = {s.variable for s in query.seq if isinstance(s, syntax.Absent)}
    many = {s.variable for s in query.seq if isinstance(s, syntax.Many)}
    select = tuple(s for s in query.select if is_plain(s.expression))
    if not select:
        one = next((r.variable for r in query.ranges if r.variable not in absent | many), None)
        made = syntax.Attribute(one, "time") if one is not None else None
        if moving is not None:
            select = (syntax.Selected(syntax.Aggregate("COUNT", syntax.Variable(moving.variable)), "count"),)
        elif made is not None:
            select = (syntax.Selected(made, "moment"),)
    return _accepted(
        replace(
            query,
            select=select,
            match="ANY",
            after="KEEP",
            filters=tuple(f for f in query.filters if is_plain(f)),
            joins=tuple(j for j in query.joins if is_plain(j)),
            having=query.having if query.having is not None and is_plain(query.having) else None,
        ),
        case,
    )


def of_single_events(case: Case) -> Case | None:
    """The case with a query for SPARQL: single events, a NOT between two, no functions and no aggregates."""
    query = case.checked.query
    steps: list[syntax.Step] = []
    for step in query.seq:
        match step:
            case syntax.Many(variable) | syntax.Maybe(variable):
                steps.append(syntax.One(variable))
            case syntax.AnyOf(variables):
                steps.append(syntax.AllOf(variables))
            case _:
                steps.append(step)
    while steps and isinstance(steps[0], syntax.Absent):
        steps.append(steps.pop(0))
    ended: list[syntax.Step] = [s for s in steps if isinstance(s, syntax.Absent)]
    plain: list[syntax.Step] = [s for s in steps if not isinstance(s, syntax.Absent)]
    steps = [*plain[:1], *ended, *plain[1:]] if len(plain) > 1 else plain
    kept = {v for step in steps for v in step_variables(step)} | (
        set() if steps else {r.variable for r in query.ranges}
    )
    absent = {s.variable for s in steps if isinstance(s, syntax.Absent)}
    ranges = tuple(r for r in query.ranges if r.variable in kept)
    single = next(r.variable for r in ranges if r.variable not in absent)

    def fits(condition: Expression) -> bool:
        return set(syntax.variables(condition)) <= kept and is_plain(condition)

    windows = tuple(
        replace(w, variables=names)
        for w in query.windows
        if isinstance(w, syntax.SpanWindow) and len(names := tuple(v for v in w.variables if v in kept)) > 1
    )
    made = replace(
        query,
        seq=tuple(steps),
        ranges=ranges,
        match="ANY",
        after="KEEP",
        windows=windows,
        group_by=(),
        having=None,
        filters=tuple(f for f in query.filters if fits(f)),
        joins=tuple(j for j in query.joins if fits(j)),
        select=(syntax.Selected(syntax.Attribute(single, "time"), "moment"),),
        align=(),
        valid=None,
    )
    return _accepted(made, case)


def is_plain(condition: Expression) -> bool:
    """Whether it calls no function, and reads no array."""
    return not any(
        isinstance(e, syntax.Call) or (isinstance(e, syntax.Attribute) and e.name == "wave")
        for e in syntax.walk(condition)
    )


def _accepted(query: syntax.Query, case: Case) -> Case | None:
    found = accepted(query, case.catalogue)
    return None if found is None else Case(found[0], found[1], case.events, case.catalogue)
