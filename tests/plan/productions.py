"""Which productions of the grammar a query has, by name; `ALL` are those that generated queries must have.

Names come from the language's own tables, so that what is added there is missed here until it is generated. Left out is
PATH, and with it entities, which need knowledge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from cepheid.language import syntax
from cepheid.language.functions import AGGREGATES, FUNCTIONS
from cepheid.language.syntax import Expression, Kind, Query, step_variables

_CLAUSES: Final = ("PREFIX", "FROM", "WITHIN", "FILTER", "JOIN", "SEQ", "GROUP BY", "HAVING", "PRIORITY", "VALID")
_WITHINS: Final = ("[", "(", "]", ")", "open start", "open end", "now", "now +", "now -", "instant")
_STEPS: Final = ("?e", "?e?", "?e+", "?e{n}", "?e{n,m}", "?e{n,}", "?e{0,m}", "?e{0,}", "NOT ?e", "ALL", "ANY")
_WORDS: Final = ("negative", "NOT", "AND", "OR", "IN", "NOT IN", "BETWEEN", "NOT BETWEEN", "IS NULL", "IS NOT NULL")
_CASES: Final = ("CASE", "CASE with ELSE", "CASE without ELSE", "CASE of several")
_ATTRIBUTES: Final = ("?e.id", "?e.time", "?e.name", "?e.prefix:name")
_OTHERS: Final = (
    *("no FROM", "AS left out", "several streams a variable", "several variables without SEQ", "variables beside SEQ"),
    *("WINDOW of variables", "several WINDOWs", "WINDOW of one variable", "GROUP BY several", "ALIGN"),
    *("COUNT of events", "condition on an aggregate in SELECT", "function of optional arguments", "function repeats"),
    "function by the clocks of a zone",
    *("JOIN with a conjunct over one variable", "JOIN with a conjunct over none"),
    *("first step open", "last step open", "time - time", "time + duration", "duration * int", "duration / duration"),
)
_KINDS: Final = tuple(kind for kind in Kind if kind is not Kind.NAME)

ALL: Final = frozenset(
    [
        *_CLAUSES,
        *(f"WITHIN {part}" for part in _WITHINS),
        *(f"step {step}" for step in _STEPS),
        *(f"word {word}" for word in _WORDS),
        *_CASES,
        *(f"attribute {attribute}" for attribute in _ATTRIBUTES),
        *(f"constant {kind.value}" for kind in _KINDS),
        *(f"sign {sign}" for sign in (*get_args(syntax.Sign), "+", "-", "*", "/", "%")),
        *(f"function {name}" for name in FUNCTIONS),
        *(f"aggregate {name}" for name in AGGREGATES),
        *(f"WINDOW {kind}" for kind in ("sliding", "batch", "session", "length")),
        *(f"MATCH {policy}" for policy in get_args(syntax.Policy)),
        *(f"AFTER MATCH {policy}" for policy in get_args(syntax.AfterMatch)),
        *(f"MATCH {one} AFTER {two}" for one in get_args(syntax.Policy) for two in get_args(syntax.AfterMatch)),
        *(f"STALE {word}" for word in ("MARK", "SHED")),
        *_OTHERS,
    ]
)


def productions(query: Query) -> frozenset[str]:
    """The productions of a query, as it is written."""
    return frozenset(_of_clauses(query)) | frozenset(_of_steps(query)) | frozenset(_of_expressions(query))


def _of_clauses(query: Query) -> Iterator[str]:
    present = (
        *(query.prefixes, query.ranges, query.within, query.filters, query.joins, query.seq, query.group_by),
        *(query.having, query.priority, query.valid),
    )
    yield from (name for name, clause in zip(_CLAUSES, present, strict=True) if clause)
    if not query.ranges:
        yield "no FROM"
    if any(len(r.streams) > 1 for r in query.ranges):
        yield "several streams a variable"
    if any(selected.name is None for selected in query.select):
        yield "AS left out"
    if len(query.group_by) > 1:
        yield "GROUP BY several"
    if query.align:
        yield "ALIGN"
    if query.stale is not None:
        yield f"STALE {query.stale}"
    yield f"MATCH {query.match}"
    yield f"AFTER MATCH {query.after}"
    yield f"MATCH {query.match} AFTER {query.after}"
    for part in _parts_of_within(query.within):
        yield f"WITHIN {part}"
    spans = [window for window in query.windows if isinstance(window, syntax.SpanWindow)]
    if spans:
        yield "WINDOW of variables"
    if len(spans) > 1:
        yield "several WINDOWs"
    if any(len(window.variables) == 1 for window in spans):
        yield "WINDOW of one variable"
    yield from (f"WINDOW {window.kind}" for window in query.windows if isinstance(window, syntax.EventWindow))


def _parts_of_within(within: syntax.Within | None) -> Iterator[str]:
    if within is None:
        return
    yield "[" if within.low_included else "("
    yield "]" if within.high_included else ")"
    if within.low is None:
        yield "open start"
    if within.high is None:
        yield "open end"
    for end in (within.low, within.high):
        if end is not None and end.now:
            yield "now" if end.microseconds == 0 else "now +" if end.microseconds > 0 else "now -"
        elif end is not None:
            yield "instant"


def _of_steps(query: Query) -> Iterator[str]:
    for step in query.seq:
        match step:
            case syntax.One():
                yield "step ?e"
            case syntax.Maybe():
                yield "step ?e?"
            case syntax.Absent():
                yield "step NOT ?e"
            case syntax.AllOf():
                yield "step ALL"
            case syntax.AnyOf():
                yield "step ANY"
            case syntax.Many(_, 1, None):
                yield "step ?e+"
            case syntax.Many(_, least, most) if least == most:
                yield "step ?e{n}"
            case syntax.Many(_, least, most):
                yield f"step ?e{{{0 if least == 0 else 'n'},{'' if most is None else 'm'}}}"
    names = {variable for expression in _expressions(query) for variable in syntax.variables(expression)}
    names |= {r.variable for r in query.ranges}
    if query.seq:
        open_steps = syntax.Many | syntax.Maybe | syntax.Absent
        if isinstance(query.seq[0], open_steps):
            yield "first step open"
        if isinstance(query.seq[-1], open_steps):
            yield "last step open"
        if names - {variable for step in query.seq for variable in step_variables(step)}:
            yield "variables beside SEQ"
    elif len(names) > 1:
        yield "several variables without SEQ"


def _expressions(query: Query) -> list[Expression]:
    found = [*(s.expression for s in query.select), *query.filters, *query.joins, *query.group_by]
    return found if query.having is None else [*found, query.having]


def _of_expressions(query: Query) -> Iterator[str]:
    for expression in _expressions(query):
        for inner in syntax.walk(expression):
            yield from _of_expression(inner)
    if any(isinstance(s.expression, syntax.Compare) and _is_aggregate(s.expression.left) for s in query.select):
        yield "condition on an aggregate in SELECT"
    for join in query.joins:
        conjuncts = join.operands if isinstance(join, syntax.Logical) and join.word == "AND" else (join,)
        counts = [len(syntax.variables(conjunct)) for conjunct in conjuncts]
        if 1 in counts:
            yield "JOIN with a conjunct over one variable"
        if 0 in counts:
            yield "JOIN with a conjunct over none"


def _is_aggregate(expression: Expression) -> bool:
    return isinstance(expression, syntax.Aggregate)


def _of_expression(e: Expression) -> Iterator[str]:
    match e:
        case syntax.Constant(kind):
            yield f"constant {kind.value}"
        case syntax.Attribute(_, name):
            known = f"?e.{name}" if name in ("id", "time") else "?e.prefix:name" if ":" in name else "?e.name"
            yield f"attribute {known}"
        case syntax.Compare(sign):
            yield f"sign {sign}"
        case syntax.Arithmetic(sign):
            yield f"sign {sign}"
            yield from _with_time(e)
        case syntax.Negative():
            yield "word negative"
        case syntax.Not():
            yield "word NOT"
        case syntax.Logical(word):
            yield f"word {word}"
        case syntax.In(negated=negated):
            yield "word NOT IN" if negated else "word IN"
        case syntax.Between(negated=negated):
            yield "word NOT BETWEEN" if negated else "word BETWEEN"
        case syntax.IsNull(negated=negated):
            yield "word IS NOT NULL" if negated else "word IS NULL"
        case syntax.Case(branches, otherwise):
            yield "CASE"
            yield "CASE without ELSE" if otherwise is None else "CASE with ELSE"
            if len(branches) > 1:
                yield "CASE of several"
        case syntax.Call(name, arguments):
            yield f"function {name}"
            if FUNCTIONS[name].zoned and len(arguments) == 2:
                yield "function by the clocks of a zone"
            elif FUNCTIONS[name].optional and len(arguments) == len(FUNCTIONS[name].arguments):
                yield "function of optional arguments"
            if FUNCTIONS[name].repeats and len(arguments) > len(FUNCTIONS[name].arguments):
                yield "function repeats"
        case syntax.Aggregate(name, argument):
            yield f"aggregate {name}"
            if isinstance(argument, syntax.Variable):
                yield "COUNT of events"


def _with_time(e: syntax.Arithmetic) -> Iterator[str]:
    """Arithmetic of times, as the generator writes it: with an attribute that is a time, or a duration in the text."""

    def is_time(operand: Expression) -> bool:
        return isinstance(operand, syntax.Attribute) and operand.name in ("time", "at")

    def is_duration(operand: Expression) -> bool:
        constant = isinstance(operand, syntax.Constant) and operand.kind is Kind.DURATION
        return constant or (isinstance(operand, syntax.Arithmetic) and is_time(operand.left) and is_time(operand.right))

    if e.sign == "-" and is_time(e.left) and is_time(e.right):
        yield "time - time"
    if e.sign in ("+", "-") and is_time(e.left) and is_duration(e.right):
        yield "time + duration"
    if e.sign == "*" and (is_duration(e.left) or is_duration(e.right)):
        yield "duration * int"
    if e.sign == "/" and is_duration(e.left) and is_duration(e.right):
        yield "duration / duration"
