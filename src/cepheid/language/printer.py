"""From a tree back to text: `parse(print_query(q)) == q`, and the same tree always gives the same text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from cepheid.language import syntax
from cepheid.language.syntax import Expression, Kind, Query
from cepheid.model.time import format_duration, format_instant

#: How tightly an expression binds; what binds less than its place allows is put in parentheses.
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _NEGATIVE, _PRIMARY = range(8)


def print_query(query: Query) -> str:
    """The text of a query, a clause a line."""
    return "\n".join(_clauses(query)) + "\n"


def normal_form(query: Query) -> str:
    """The text that stands for what a query finds: without what only concerns scheduling, conditions in order."""
    bare = replace(query, priority=None, valid=None, align=(), stale=None)
    return print_query(
        replace(
            bare,
            prefixes=tuple(sorted(bare.prefixes)),
            filters=tuple(sorted(bare.filters, key=print_expression)),
            joins=tuple(sorted(bare.joins, key=print_expression)),
            windows=tuple(sorted(bare.windows, key=print_window)),
        )
    )


def _clauses(query: Query) -> Iterator[str]:
    """The clauses that are there, in the order of the language's description."""
    single = {
        "SELECT": query.select,
        "FROM": query.ranges or None,
        "WITHIN": query.within,
        "SEQ": query.seq or None,
        "PATH": query.path,
        "GROUP": query.group_by or None,
        "HAVING": query.having,
        "MATCH": None if query.match == "ANY" else query.match,
        "AFTER": None if query.after == "KEEP" else query.after,
        "PRIORITY": query.priority,
        "VALID": query.valid,
        "STALE": query.stale,
    }
    several = {
        "PREFIX": query.prefixes,
        "FILTER": query.filters,
        "JOIN": query.joins,
        "WINDOW": query.windows,
        "ALIGN": query.align,
    }
    for kind in _ORDER:
        if kind in several:
            yield from (print_clause(kind, part) for part in several[kind])
        elif single[kind] is not None:
            yield print_clause(kind, single[kind])


_ORDER: Final = (
    "PREFIX", "SELECT", "FROM", "WITHIN", "FILTER", "JOIN", "SEQ", "WINDOW", "PATH", "GROUP", "HAVING", "MATCH",
    "AFTER", "PRIORITY", "VALID", "ALIGN", "STALE",
)  # fmt: skip


def print_clause(kind: str, part: Any) -> str:
    """One clause, by the word that it begins with and what the parser gives for it."""
    match kind:
        case "PREFIX":
            return f"PREFIX {part[0]}: <{part[1]}>"
        case "SELECT":
            return "SELECT " + ", ".join(map(print_selected, part))
        case "FROM":
            return "FROM " + ", ".join(f"(?{r.variable}, {' | '.join(r.streams)})" for r in part)
        case "WITHIN":
            return print_within(part)
        case "FILTER" | "JOIN" | "HAVING":
            return f"{kind} ({print_expression(part)})"
        case "SEQ":
            return f"SEQ ({', '.join(map(print_step, part))})"
        case "WINDOW":
            return print_window(part)
        case "PATH":
            return print_path(part)
        case "GROUP":
            return "GROUP BY " + ", ".join(map(print_expression, part))
        case "AFTER":
            return f"AFTER MATCH {part}"
        case "VALID":
            return f"VALID {format_duration(part)}"
        case "ALIGN":
            return f"ALIGN ({_listed(part.variables)}, {format_duration(part.within)})"
        case _:
            return f"{kind} {part}" if part else kind


def print_selected(selected: syntax.Selected) -> str:
    return print_expression(selected.expression) + (f" AS {selected.name}" if selected.name else "")


def print_within(within: syntax.Within) -> str:
    low, high = ("" if end is None else _instant(end) for end in (within.low, within.high))
    opening, closing = "[" if within.low_included else "(", "]" if within.high_included else ")"
    return f"WITHIN {opening}{low}, {high}{closing}"


def _instant(instant: syntax.Instant) -> str:
    if not instant.now:
        return _time(instant.microseconds)
    if instant.microseconds == 0:
        return "now"
    return f"now {'+' if instant.microseconds > 0 else '-'} {format_duration(abs(instant.microseconds))}"


def _time(microseconds: int) -> str:
    text = format_instant(microseconds).removesuffix("Z")
    return (text.rstrip("0").removesuffix(".") if "." in text else text) + "Z"


def print_step(step: syntax.Step) -> str:
    match step:
        case syntax.One(variable):
            return f"?{variable}"
        case syntax.Maybe(variable):
            return f"?{variable}?"
        case syntax.Many(variable, 1, None):
            return f"?{variable}+"
        case syntax.Many(variable, least, most):
            inside = f"{least}" if least == most else f"{least},{'' if most is None else most}"
            return f"?{variable}{{{inside}}}"
        case syntax.Absent(variable):
            return f"NOT ?{variable}"
        case syntax.AllOf(variables):
            return f"ALL({_listed(variables)})"
        case syntax.AnyOf(variables):
            return f"ANY({_listed(variables)})"


def print_window(window: syntax.Window) -> str:
    if isinstance(window, syntax.SpanWindow):
        return f"WINDOW ({_listed(window.variables)}, {format_duration(window.width)})"
    size = str(window.size) if window.kind == "length" else format_duration(window.size)
    return f"WINDOW (?{window.variable}, {window.kind}, {size})"


def _listed(variables: tuple[str, ...]) -> str:
    return ", ".join(f"?{variable}" for variable in variables)


def print_path(path: syntax.Path) -> str:
    if isinstance(path, syntax.PathGroup):
        # A comment at its end would hide the brace.
        return f"PATH {{{path.text}{chr(10) if '#' in path.text.rpartition(chr(10))[2] else ''}}}"
    parts = [print_path(p) if isinstance(p, syntax.PathGroup) else f"({print_path(p)})" for p in path.operands]
    return f" {path.word} ".join(parts)


def print_expression(expression: Expression) -> str:
    return _print(expression, _OR)


def _print(expression: Expression, place: int) -> str:
    strength, text = _parts(expression)
    return text if strength >= place else f"({text})"


def _parts(expression: Expression) -> tuple[int, str]:
    """How tightly an expression binds, and its text."""
    match expression:
        case syntax.Constant():
            text = print_constant(expression)
            return _NEGATIVE if expression.kind in _SIGNED and text.startswith("-") else _PRIMARY, text
        case syntax.Attribute(variable, name):
            return _PRIMARY, f"?{variable}.{name}"
        case syntax.Variable(name):
            return _PRIMARY, f"?{name}"
        case syntax.Logical(word, operands):
            level = _OR if word == "OR" else _AND
            return level, f" {word} ".join(_print(operand, level + 1) for operand in operands)
        case syntax.Not(operand):
            return _NOT, f"NOT {_print(operand, _NOT)}"
        case syntax.Compare(sign, left, right):
            return _COMPARE, f"{_print(left, _SUM)} {sign} {_print(right, _SUM)}"
        case syntax.In(operand, items, negated):
            listed = ", ".join(map(print_expression, items))
            return _COMPARE, f"{_print(operand, _SUM)} {'NOT ' if negated else ''}IN ({listed})"
        case syntax.Between(operand, low, high, negated):
            between = "NOT BETWEEN" if negated else "BETWEEN"
            return _COMPARE, f"{_print(operand, _SUM)} {between} {_print(low, _SUM)} AND {_print(high, _SUM)}"
        case syntax.IsNull(operand, negated):
            return _COMPARE, f"{_print(operand, _SUM)} IS {'NOT ' if negated else ''}NULL"
        case syntax.Arithmetic(sign, left, right):
            level = _SUM if sign in "+-" else _PRODUCT
            return level, f"{_print(left, level)} {sign} {_print(right, level + 1)}"
        case syntax.Negative(operand):
            # The parser folds a sign into a constant; and two signs side by side would begin a comment.
            plain = isinstance(operand, syntax.Constant) and operand.kind in _SIGNED
            return _NEGATIVE, f"-({print_expression(operand)})" if plain else f"- {_print(operand, _NEGATIVE)}"
        case syntax.Case(branches, otherwise):
            parts = [f"WHEN {print_expression(when)} THEN {print_expression(then)}" for when, then in branches]
            parts += [] if otherwise is None else [f"ELSE {print_expression(otherwise)}"]
            return _PRIMARY, f"CASE {' '.join(parts)} END"
        case syntax.Call(function, arguments):
            return _PRIMARY, f"{function}({', '.join(map(print_expression, arguments))})"
        case syntax.Aggregate(function, argument):
            return _PRIMARY, f"{function}({print_expression(argument)})"


_SIGNED: Final = (Kind.INT, Kind.FLOAT, Kind.DURATION)
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def print_constant(constant: syntax.Constant) -> str:
    value = constant.value
    match constant.kind:
        case Kind.NULL:
            return "NULL"
        case Kind.BOOL:
            return "TRUE" if value else "FALSE"
        case Kind.STRING:
            return '"' + "".join(_ESCAPES.get(c, c) for c in str(value)) + '"'
        case Kind.DURATION:
            assert isinstance(value, int)
            return format_duration(value)
        case Kind.TIMESTAMP:
            assert isinstance(value, int)
            return _time(value)
        case _:
            return repr(value) if isinstance(value, float) else str(value)
