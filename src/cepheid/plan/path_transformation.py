"""Rule: one-hop paths from the event to a reading become FILTERs (the paper's transformation).

    PATH {?e hvc:airflow ?rate . FILTER (?rate > 500)}          FILTER (?e.flowrate > 500)
    PATH {?e hvc:airflow ?rate}                                 FILTER (?e.flowrate IS NOT NULL)
    PATH {?e hvc:airflow ?rate . VALUES ?l {5 9} . FILTER (?rate > ?l)}     FILTER (?e.flowrate > 5 OR ?e.flowrate > 9)

Only of attributes that are literals in every stream of the variable, of variables that nothing else in the PATH reads,
and of FILTERs that compare, compute and combine: so the FILTER is true exactly where the PATH is. What is an error in
SPARQL is NULL here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cepheid.knowledge.annotation import Annotations
from cepheid.language import syntax
from cepheid.language.parts import Part
from cepheid.language.path import Element, Token, written
from cepheid.language.printer import print_expression
from cepheid.language.syntax import Attribute, Constant, Expression, Kind
from cepheid.plan.rewriting import Rewriting


def transform(
    part: Part,
    streams: Sequence[str],
    annotations: Annotations,
    prefixes: Mapping[str, str],
    name: Callable[[str], str],
) -> Rewriting:
    """The part without its one-hop paths, and the FILTERs that say the same.

    `name` gives the attribute that stands for a property in the variable's streams.
    """
    if part.variable is None or part.flag is not None or len(part.groups) != 1:
        return Rewriting(part)
    (group,) = part.groups
    readings: dict[str, Attribute] = {}
    own: dict[str, Element] = {}
    filters: list[Expression] = []
    reasons: list[str] = []
    left = list(group)
    for element in group:
        iri = _one_hop(element, part.variable, prefixes)
        if iri is None or not _is_literal(iri, streams, annotations):
            continue
        assert element.ends is not None
        attribute = Attribute(part.variable, name(iri))
        target = element.ends[2]
        if target[0].kind != "variable":
            constant = _constant(target)
            if constant is not None and _is_term(constant, target, iri, streams, annotations):
                filters.append(syntax.Compare("=", attribute, constant))
                reasons.append(f"{written(element.tokens)}: {print_expression(filters[-1])}")
                left.remove(element)
            continue
        variable = target[0].text[1:]
        if variable not in readings and variable != part.variable:
            readings[variable], own[variable] = attribute, element
    choices = _choices(part, group)
    while hidden := [v for v in readings if not _is_read_by_filters(v, own[v], group, readings, choices)]:
        for variable in hidden:
            del readings[variable]
    for element in group:
        found = _translated(element, readings, choices) if element.variables else None
        if found is not None:
            filters.append(found)
            reasons.append(f"{written(element.tokens)}: {print_expression(found)}")
            left.remove(element)
            for choice in element.variables & set(choices):
                left.remove(choices[choice])
    for variable, attribute in readings.items():
        left.remove(own[variable])
        if not any(_fails_on_null(part_of, attribute) for f in filters for part_of in syntax.conjuncts(f)):
            filters.append(syntax.IsNull(attribute, negated=True))
            reasons.append(f"{written(own[variable].tokens)}: {print_expression(filters[-1])}")
    columns = {v: a for v, a in readings.items() if v in part.columns}
    rest = replace(
        part, groups=(tuple(left),) if left else (), columns=tuple(c for c in part.columns if c not in columns)
    )
    return Rewriting(rest, tuple(filters), tuple(reasons), columns)


def _fails_on_null(condition: Expression, attribute: Attribute) -> bool:
    """Whether a condition can't be true without a reading; an OR can."""
    inner = condition.operand if isinstance(condition, syntax.Not) else condition
    return isinstance(inner, syntax.Compare) and attribute in syntax.walk(inner)


def _is_read_by_filters(
    variable: str,
    own: Element,
    group: Sequence[Element],
    readings: Mapping[str, Attribute],
    choices: Mapping[str, Element],
) -> bool:
    """Whether nothing reads a variable but FILTERs that can be translated."""
    readers = (e for e in group if variable in e.variables and e is not own)
    return all(_translated(e, readings, choices) is not None for e in readers)


def _choices(part: Part, group: Sequence[Element]) -> dict[str, Element]:
    """The VALUES of one variable that one FILTER reads and nothing else: one of them has to fit it."""
    found: dict[str, Element] = {}
    for element in group:
        words = element.tokens
        if element.kind == "values" and words[1].kind == "variable" and all(map(_is_plain, words[3:-1])):
            name = words[1].text[1:]
            readers = [e for e in group if name in e.variables and e is not element]
            if name not in part.columns and [e.kind for e in readers] == ["filter"]:
                found[name] = element
    return found


def _one_hop(element: Element, event: str, prefixes: Mapping[str, str]) -> str | None:
    """The property, if the element is one triple from the event."""
    if element.ends is None:
        return None
    subject, path, _ = element.ends
    if [t.text[1:] for t in subject if t.kind == "variable"] != [event] or len(path) != 1:
        return None
    return next((iri for _, iri in Element("triple", path).names(prefixes)), None)


def _is_literal(iri: str, streams: Sequence[str], annotations: Annotations) -> bool:
    found = [a for s in streams for a in annotations.properties(s).values() if a.property == iri]
    return (
        bool(found)
        and len(found) == len({s for s in streams if _has(s, iri, annotations)})
        and all(a.kind == "literal" and a.type.value in ("bool", "int", "float", "string") for a in found)
    )


def _is_term(
    constant: Constant, target: Sequence[Token], iri: str, streams: Sequence[str], annotations: Annotations
) -> bool:
    """Whether equal values are equal terms, which is what a triple asks: 2.0 is a decimal, and a reading a double."""
    kinds = {a.type.value for s in streams for a in annotations.properties(s).values() if a.property == iri}
    exponent = len(target) == 1 and "e" in target[0].text.lower()
    term = {Kind.INT: "int", Kind.STRING: "string", Kind.BOOL: "bool", Kind.FLOAT: "float" if exponent else ""}
    return kinds == {term[constant.kind]} and target[0].kind != "iri"


def _has(stream: str, iri: str, annotations: Annotations) -> bool:
    return any(a.property == iri for a in annotations.properties(stream).values())


def _is_plain(token: Token) -> bool:
    """Whether a token is a term by itself, as pruning writes them."""
    return token.kind in ("iri", "name", "number", "string") and token.text.upper() != "UNDEF"


def _translated(
    element: Element, readings: Mapping[str, Attribute], choices: Mapping[str, Element]
) -> Expression | None:
    """A FILTER over readings, and at most one choice, as an expression of ours; None if it is more than that."""
    if element.kind != "filter":
        return None
    more = element.variables - set(readings)
    if len(more) == 1 and more <= set(choices) and len(element.variables) > 1:
        (name,) = more
        terms = choices[name].tokens[3:-1]
        known = [_translated(element.with_variable(name, term.text, term.kind), readings, {}) for term in terms]
        if not known:  # a comparison that is never true
            reading = readings[min(element.variables - more)]
            return syntax.Compare("!=", reading, reading)
        operands = tuple(one for one in known if one is not None)
        if len(operands) < len(known):
            return None
        return operands[0] if len(operands) == 1 else syntax.Logical("OR", operands)
    if more:
        return None
    try:
        reader = _Expressions(element.tokens[1:], readings)
        found = reader.either()
        return found if reader.at == len(reader.tokens) and _is_condition(found) else None
    except _Beyond:
        return None


def _is_condition(e: Expression) -> bool:
    return isinstance(e, syntax.Compare | syntax.Logical | syntax.Not)


class _Beyond(Exception):
    """Something that has no equal in our language, or none that is known to mean the same."""


_NUMBER: Final = re.compile(r"\d+")


def _constant(tokens: Sequence[Token]) -> Constant | None:
    """A literal; None for what is not plain."""
    sign = -1 if tokens[0].text == "-" else 1
    body = tokens[1:] if tokens[0].text in ("+", "-") else tokens
    if len(body) != 1:
        return _typed(body, sign)
    token = body[0]
    if token.kind == "number":
        if _NUMBER.fullmatch(token.text):
            value = sign * int(token.text)
            return Constant(Kind.INT, value) if abs(value) < 2**63 else None
        return Constant(Kind.FLOAT, sign * float(token.text))
    if token.kind == "string" and not token.text.startswith(('"""', "'''")) and "\\" not in token.text:
        return Constant(Kind.STRING, token.text[1:-1])
    if token.text in ("true", "false"):
        return Constant(Kind.BOOL, token.text == "true")
    if token.kind == "iri" and token.text.startswith('"'):  # a term that pruning put here
        return _pruned(token.text)
    return None


def _typed(tokens: Sequence[Token], sign: int) -> Constant | None:
    if len(tokens) == 3 and tokens[0].kind == "string" and tokens[1].text == "^^":
        return _pruned(f"{tokens[0].text}^^{tokens[2].text}", sign)
    return None


_LITERAL: Final = re.compile(r'"([^"\\]*)"(?:\^\^(?:<http://www\.w3\.org/2001/XMLSchema#|xsd:)(\w+)>?)?')


def _pruned(text: str, sign: int = 1) -> Constant | None:
    found = _LITERAL.fullmatch(text)
    if found is None:
        return None
    lexical, kind = found[1], found[2] or "string"
    try:
        match kind:
            case "string":
                return Constant(Kind.STRING, lexical)
            case "boolean":
                return Constant(Kind.BOOL, lexical in ("true", "1"))
            case "integer" | "int" | "long" | "short" | "nonNegativeInteger" | "positiveInteger":
                value = sign * int(lexical)
                return Constant(Kind.INT, value) if abs(value) < 2**63 else None
            case "decimal" | "double" | "float":
                number = sign * float(lexical)
                return Constant(Kind.FLOAT, number) if abs(number) < float("inf") else None
    except ValueError:
        pass
    return None


@dataclass
class _Expressions:
    """Reads SPARQL's expressions, as far as they mean what ours do."""

    tokens: Sequence[Token]
    readings: Mapping[str, Attribute]
    at: int = 0

    def _text(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def _take(self) -> Token:
        if self.at >= len(self.tokens):
            raise _Beyond
        self.at += 1
        return self.tokens[self.at - 1]

    def either(self) -> Expression:
        return self._chain("||", "OR", self._both)

    def _both(self) -> Expression:
        return self._chain("&&", "AND", self._compared)

    def _chain(self, sign: str, word: str, inner: Callable[[], Expression]) -> Expression:
        parts = [inner()]
        while self._text() == sign:
            self.at += 1
            parts.append(inner())
        if len(parts) == 1:
            return parts[0]
        if not all(map(_is_condition, parts)):
            raise _Beyond
        return syntax.Logical("AND" if word == "AND" else "OR", tuple(parts))

    def _compared(self) -> Expression:
        left = self._sum()
        sign = self._text()
        if sign not in ("=", "!=", "<", "<=", ">", ">="):
            return left
        self.at += 1
        return syntax.Compare(sign, left, self._sum())  # type: ignore[arg-type]

    def _sum(self) -> Expression:
        left = self._product()
        while self._text() in ("+", "-"):
            sign = self._take().text
            left = syntax.Arithmetic("+" if sign == "+" else "-", left, self._product())
        return left

    def _product(self) -> Expression:
        left = self._primary()
        while self._text() == "*":  # division of integers is exact in SPARQL, so it stays there
            self.at += 1
            left = syntax.Arithmetic("*", left, self._primary())
        if self._text() == "/":
            raise _Beyond
        return left

    def _primary(self) -> Expression:
        token = self._take()
        if token.text == "(":
            inner = self.either()
            if self._take().text != ")":
                raise _Beyond
            return inner
        if token.text == "!":
            operand = self._primary()
            if not _is_condition(operand):
                raise _Beyond
            return syntax.Not(operand)
        if token.kind == "variable":
            return self.readings[token.text[1:]]
        start = self.at - 1
        if token.text in ("+", "-"):
            self._take()
        if self._text() == "^^":
            self.at += 2
        if self.at < len(self.tokens) and self.tokens[self.at].kind == "language":
            raise _Beyond
        constant = _constant(self.tokens[start : self.at])
        if constant is None:
            raise _Beyond
        return constant
