"""From the text of a query to its tree, with every fault of its syntax found.

A query is cut at the words that begin clauses, and each clause is parsed by itself: a fault in one hides no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import lark
from lark.lexer import Lexer

from cepheid.language import syntax
from cepheid.language.errors import Diagnostic, Rejected, Source, Span
from cepheid.language.functions import AGGREGATES
from cepheid.language.lexer import CLAUSES, MAX_DEPTH, Text, Token, tokens
from cepheid.language.syntax import Expression, Kind, Query
from cepheid.model.names import suggestion
from cepheid.model.time import TimeError, parse_duration, parse_local
from cepheid.model.types import INT64_MAX

#: A longer text is refused.
MAX_LENGTH: Final = 16 * 2**20


def parse(text: str, name: str = "query") -> Query:
    """The tree of a query; Rejected, with every fault, if it is none. `name` is the text's name in messages."""
    query, problems = examine(Source(name, text))
    if query is None or problems:
        raise Rejected(problems)
    return query


def examine(source: Source) -> tuple[Query | None, list[Diagnostic]]:
    """The tree of a query, unless its syntax is wrong, and everything wrong with it, in order."""
    problems: list[Diagnostic] = []
    if len(source.text) > MAX_LENGTH:
        span = Span(source, 1, 1, 1, 1)
        message = f"a query of more than {MAX_LENGTH:,} characters"
        hint = "what makes a list of values so long belongs into a stream or the knowledge"
        return None, [Diagnostic("error", "too-long", message, span, hint)]
    text = Text.of(source)
    assembly = _Assembly(text, problems)
    for clause in clauses(text, problems, assembly.begun):
        assembly.add(clause)
    query = assembly.query()
    problems.sort(key=lambda d: (d.span.line, d.span.column) if d.span else (0, 0))
    return (None if any(p.severity == "error" for p in problems) else query), problems


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause by itself: the word that it begins with, where it stands, and what it says."""

    kind: str
    start: int
    end: int
    parsed: Any


def clauses(text: Text, problems: list[Diagnostic], begun: set[str] | None = None) -> Iterator[Clause]:
    """The clauses of a text that are right, in order; what is wrong goes to `problems`, every word to `begun`."""
    words = tokens(text, problems)
    if any(problem.code == "too-deep" for problem in problems):
        return
    # What is no word has been told: what stands in for it can be wrong too, which says nothing more.
    told = {(p.span.line, p.span.column) for p in problems if p.code == "not-a-word" and p.span is not None}
    for clause in _cut(words, text, problems):
        if begun is not None:
            begun.add(clause[0].kind)
        parsed = _parse_clause(clause, text, problems)
        if isinstance(parsed, Diagnostic):
            if parsed.span is None or (parsed.span.line, parsed.span.column) not in told:
                problems.append(parsed)
        else:
            kind = "PATH" if clause[0].kind == "LPAR" else clause[0].kind
            yield Clause(kind, clause[0].start, clause[-1].end, parsed)


def _cut(words: Sequence[Token], text: Text, problems: list[Diagnostic]) -> Iterator[list[Token]]:
    """The words of each clause. Words before the first one, or between two, are a fault."""
    current: list[Token] = []
    for i, word in enumerate(words):
        if _begins_clause(words, i):
            if current:
                yield current
            current = [word]
        elif current:
            current.append(word)
        else:
            if not problems or problems[-1].code != "no-clause":
                hint = suggestion(word.text.upper(), CLAUSES) or "a query begins with SELECT, or with PREFIX"
                problems.append(
                    Diagnostic(
                        "error", "no-clause", f"'{word.text}' begins no clause", text.span(word.start, word.end), hint
                    )
                )
    if current:
        yield current


def _begins_clause(words: Sequence[Token], i: int) -> bool:
    word, behind = words[i], words[i - 1].kind if i else ""
    if word.kind == "MATCH":
        return behind != "AFTER"
    if word.kind == "PATH":
        return behind not in ("AND", "OR", "LPAR")
    if word.kind == "LPAR" and behind not in ("AND", "OR", "LPAR"):
        # Parentheses around PATHs begin a clause; those of an expression never hold one.
        j = i
        while j < len(words) and words[j].kind == "LPAR":
            j += 1
        return j < len(words) and words[j].kind == "PATH"
    return word.kind in CLAUSES


class _Given(Lexer):
    """Hands lark the words that are already there."""

    def __init__(self, _conf: object) -> None:
        pass

    def lex(self, data: Any, _state: object = None) -> Iterator[lark.Token]:
        for word in data:
            yield lark.Token(word.kind, word.text, start_pos=word.start, end_pos=word.end, line=1, column=1)


_STARTS: Final = [f"{word.lower()}_clause" for word in sorted(CLAUSES)]


@cache
def _grammar() -> lark.Lark:
    text = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    return lark.Lark(
        text, parser="lalr", lexer=_Given, start=_STARTS, propagate_positions=True, maybe_placeholders=False
    )


def _parse_clause(clause: list[Token], text: Text, problems: list[Diagnostic]) -> Any:
    """What a clause says, or what is wrong with it."""
    first = clause[0]
    kind = "path" if first.kind == "LPAR" else first.kind.lower()
    try:
        tree = _grammar().parse(cast(str, clause), start=f"{kind}_clause")
        builder = _Builder(text, problems)
        parsed = builder.transform(tree)
        builder.refuse_too_large()
        return parsed
    except _Fault as fault:
        return fault.diagnostic
    except lark.UnexpectedToken as fault:
        return _unexpected(fault, clause, text)
    except lark.exceptions.VisitError as fault:
        if isinstance(fault.orig_exc, _Fault):
            return fault.orig_exc.diagnostic
        raise fault.orig_exc from None


def _unexpected(fault: lark.UnexpectedToken, clause: list[Token], text: Text) -> Diagnostic:
    expected = {_shown(name) for name in fault.expected}
    listed = sorted(e for e in expected if e)
    if "NAME" in fault.expected and not fault.expected & {"VARIABLE", "$END", "DOT", "PNAME"}:
        wanted = "expected a name"
    elif len(listed) <= 8:
        wanted = f"expected {_alternatives(listed)}"
    else:
        wanted = "expected a value" if "VARIABLE" in fault.expected else "expected an operator or the end of the value"
    word = fault.token
    if word.type == "$END":
        end = clause[-1].end
        hint = _meant(fault, clause[-1]) or _clause_hint(clause[0].kind)
        return Diagnostic(
            "error", "syntax", f"{clause[0].text.upper()} ends too soon: {wanted}", text.span(end, end + 1), hint
        )
    start, end = int(word.start_pos or 0), int(word.end_pos or 0)
    shown = word if len(word) <= 30 else word[:27] + "..."
    before = next(t for t in reversed(clause) if t.start < start)
    hint = _meant(fault, before) or _clause_hint(clause[0].kind)
    if word.type == "NAME" and "$END" in fault.expected and word.upper() not in _ELSEWHERE:
        hint = suggestion(word.upper(), CLAUSES) or hint
    return Diagnostic("error", "syntax", f"{wanted}, found '{shown}'", text.span(start, end), hint)


#: Words of other languages, and what is said here instead.
_ELSEWHERE: Final = {
    "HOPPING": "a sliding window is due with each event, a batch window at its end",
    "LIKE": "write CONTAINS(text, part), STARTS_WITH(text, part) or ENDS_WITH(text, part)",
    "LIMIT": "a query gives every match: leave it out",
    "ORDER": "matches come in the order of their times: leave it out",
    "TUMBLING": "such a window is called batch: WINDOW (?e, batch, 5min)",
}


def _meant(fault: lark.UnexpectedToken, before: Token) -> str | None:
    """What somebody who knows other languages may have meant."""
    word = fault.token
    if word.type == "NAME" and word.upper() in _ELSEWHERE:
        return _ELSEWHERE[word.upper()]
    if before.text.upper() == "DISTINCT":
        return "no match is given twice: leave DISTINCT out"
    if word.type == "STAR" and before.kind == "LPAR":
        return "COUNT(?e) counts events"
    if word.type == "EQ" and before.kind == "EQ":
        return "write = to compare"
    if fault.expected == {"LPAR"} and before.kind == "NAME":
        if word.type == "DOT":
            return f"a variable begins with ?: ?{before.text}"
        return f"an attribute is one of a variable: ?e.{before.text}"
    return None


_FORMS: Final = {
    "PREFIX": "PREFIX hvc: <http://example.org/hvac#>",
    "SELECT": "SELECT ?e.sensorID, ?e.flowrate AS flow",
    "WHERE": "WHERE FILTER (?e.flowrate > 500)",
    "FROM": "FROM (?e, airflowReport), (?f, meterUpdate | meterReport)",
    "WITHIN": "WITHIN [2012-05-07T09:00, now)",
    "FILTER": "FILTER (?e.flowrate > 500)",
    "JOIN": "JOIN (?e2.sensorID = ?e1.sensorID)",
    "SEQ": "SEQ (?a, ?b+, NOT ?c, ?d{2,5}, ALL(?e, ?f))",
    "WINDOW": "WINDOW (?e1, ?e2, 5min) or WINDOW (?e, sliding, 5min)",
    "PATH": "PATH {?e evt:hasSource ?src} AND PATH {...}",
    "LPAR": "(PATH {...} OR PATH {...})",
    "GROUP": "GROUP BY ?e.sensorID",
    "HAVING": "HAVING (AVG(?e.flowrate) > 500)",
    "MATCH": "MATCH ANY, MATCH NEXT or MATCH STRICT",
    "AFTER": "AFTER MATCH KEEP, CONSUME, SKIP PAST LAST or SKIP TO NEXT",
    "PRIORITY": "PRIORITY high",
    "VALID": "VALID 10ms",
    "ALIGN": "ALIGN (?a, ?b, 5ms)",
    "STALE": "STALE MARK or STALE SHED",
}


def _clause_hint(kind: str) -> str | None:
    form = _FORMS.get(kind)
    return f"the form is: {form}" if form else None


_SHOWN: Final = {
    "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "LBRACE": "'{'", "RBRACE": "'}'", "COMMA": "','",
    "DOT": "'.'", "BAR": "'|'", "QMARK": "'?'", "EQ": "'='", "NE": "'!='", "LT": "'<'", "LE": "'<='", "GT": "'>'",
    "GE": "'>='", "PLUS": "'+'", "MINUS": "'-'", "STAR": "'*'", "SLASH": "'/'", "PERCENT": "'%'",
    "VARIABLE": "a variable such as ?e", "INSTANT": "a time", "DURATION": "a duration such as 5min",
    "FLOAT": "a number", "INT": "a whole number", "STRING": "a text in quotes", "PNAME": "prefix:name",
    "NAME": "a name", "IRI": "an <iri>",
    "GROUP_TEXT": "'{'", "$END": "the end of the clause",
}  # fmt: skip


def _shown(terminal: str) -> str:
    return _SHOWN.get(terminal, terminal)


def _alternatives(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


_IN_PARTS: Final = "several FILTERs must all be true; for one of many values write IN (1, 2, 3)"
_LARGEST: Final = "the largest float is about 1.8e308"


class _Fault(Exception):
    """Something that the grammar lets pass and the tree can't hold."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


@lark.v_args(meta=True)
class _Builder(lark.Transformer[lark.Token, Any]):
    """Turns lark's tree of one clause into ours. A method a rule, named as the rule is."""

    def __init__(self, text: Text, problems: list[Diagnostic]) -> None:
        super().__init__()
        self._text = text
        self._problems = problems
        self._too_large: list[lark.Token] = []

    # what the methods share

    def _span(self, meta: Any) -> Span:
        return self._text.span(meta.start_pos, meta.end_pos)

    def _at(self, token: lark.Token) -> Span:
        return self._text.span(int(token.start_pos or 0), int(token.end_pos or 0))

    def _fail(self, code: str, message: str, span: Span, hint: str) -> _Fault:
        return _Fault(Diagnostic("error", code, message, span, hint))

    def _duration(self, token: lark.Token) -> int:
        try:
            return parse_duration(re.sub(r"\s+", "", token).lower())
        except TimeError as error:
            raise self._fail("duration", str(error), self._at(token), "durations are such as 10ms or 1h30min") from None

    def _positive(self, token: lark.Token) -> int:
        width = self._duration(token) if token.type == "DURATION" else self._int(token)
        if width == 0:
            hint = "give it one, such as 5min" if token.type == "DURATION" else "give it one, such as 100"
            raise self._fail("duration", "a window of no size never holds anything", self._at(token), hint)
        return width

    def refuse_too_large(self) -> None:
        """Refuse what only a sign would have made right."""
        for token in self._too_large:
            self._int(token)

    def _int(self, token: lark.Token, greatest: int = INT64_MAX) -> int:
        value = int(token) if len(token) <= 25 else INT64_MAX + 2
        if value > greatest:
            hint = f"the largest whole number is {INT64_MAX}; a float reaches further: 1e19"
            raise self._fail("out-of-range", f"'{token[:30]}' does not fit in 64 bits", self._at(token), hint)
        return value

    def _fold(self, parts: list[Any], make: Any) -> Expression:
        """Parts `a + b - c` as a tree that leans left."""
        if len(parts) // 2 > MAX_DEPTH:
            raise self._fail("too-deep", f"more than {MAX_DEPTH} operators in a row", parts[0].span, _IN_PARTS)
        result = parts[0]
        for sign, operand in zip(parts[1::2], parts[2::2], strict=True):
            result = make(str(sign), result, operand, _joined(result.span, operand.span))
        return cast(Expression, result)

    # clauses

    def prefix_clause(self, meta: Any, parts: list[Any]) -> Any:
        _, prefix, iri = parts
        return str(prefix)[:-1], str(iri)[1:-1]

    def select_clause(self, meta: Any, parts: list[Any]) -> Any:
        return tuple(part for part in parts if isinstance(part, syntax.Selected))

    def selected(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Selected(parts[0], parts[2] if len(parts) > 1 else None, self._span(meta))

    def from_clause(self, meta: Any, parts: list[Any]) -> Any:
        return tuple(part for part in parts if isinstance(part, syntax.Range))

    def range(self, meta: Any, parts: list[Any]) -> Any:
        streams = tuple(str(p) for p in parts if not isinstance(p, lark.Token))
        return syntax.Range(_variable(parts[1]), streams, self._span(meta))

    def name(self, meta: Any, parts: list[Any]) -> str:
        return str(parts[0].value)  # a plain text, so that it can be told from a token

    def within_clause(self, meta: Any, parts: list[Any]) -> Any:
        comma = next(i for i, p in enumerate(parts) if isinstance(p, lark.Token) and p.type == "COMMA")
        low = next((p for p in parts[:comma] if isinstance(p, syntax.Instant)), None)
        high = next((p for p in parts[comma:] if isinstance(p, syntax.Instant)), None)
        return syntax.Within(low, high, parts[1].type == "LSQB", parts[-1].type == "RSQB", self._span(meta))

    def now(self, meta: Any, parts: list[Any]) -> Any:
        if len(parts) == 1:
            return syntax.Instant(0, now=True)
        offset = self._duration(parts[2])
        return syntax.Instant(offset if parts[1].type == "PLUS" else -offset, now=True)

    def instant(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Instant(self._instant(parts[0]))

    def _instant(self, token: lark.Token) -> int:
        try:
            return parse_local(str(token))
        except TimeError as error:
            hint = "times are such as 2012-05-07, 2012-05-07T09:00 or now - 5min"
            raise self._fail("time", str(error), self._at(token), hint) from None

    def where_clause(self, meta: Any, parts: list[Any]) -> Any:
        return ()

    def filter_clause(self, meta: Any, parts: list[Any]) -> Any:
        return parts[2]

    join_clause = having_clause = filter_clause

    def seq_clause(self, meta: Any, parts: list[Any]) -> Any:
        return tuple(part for part in parts if not isinstance(part, lark.Token))

    def one(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.One(_variable(parts[0]), self._span(meta))

    def maybe(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Maybe(_variable(parts[0]), self._span(meta))

    def plus(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Many(_variable(parts[0]), 1, None, self._span(meta))

    def exactly(self, meta: Any, parts: list[Any]) -> Any:
        count = self._int(parts[2])
        return syntax.Many(_variable(parts[0]), count, count, self._span(meta))

    def times(self, meta: Any, parts: list[Any]) -> Any:
        numbers = [self._int(p) for p in parts if p.type == "INT"]
        least, most = numbers[0], numbers[1] if len(numbers) > 1 else None
        if most is not None and most < least:
            raise self._fail(
                "never", f"{{{least},{most}}} is an empty range", self._span(meta), "the smaller number first"
            )
        return syntax.Many(_variable(parts[0]), least, most, self._span(meta))

    def absent(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Absent(_variable(parts[1]), self._span(meta))

    def all_of(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.AllOf(_variables(parts), self._span(meta))

    def any_of(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.AnyOf(_variables(parts), self._span(meta))

    def event_window(self, meta: Any, parts: list[Any]) -> Any:
        kind, size = parts[4], parts[6]
        if (kind.type == "LENGTH") != (size.type == "INT"):
            wanted = "a number of events, such as 100" if kind.type == "LENGTH" else "a duration, such as 5min"
            example = "100" if kind.type == "LENGTH" else "5min"
            hint = f"the form is: WINDOW ({parts[2]}, {kind.lower()}, {example})"
            raise self._fail("wrong-type", f"a {kind.lower()} window has {wanted}", self._at(size), hint)
        return syntax.EventWindow(_variable(parts[2]), kind.lower(), self._positive(size), self._span(meta))

    def span_window(self, meta: Any, parts: list[Any]) -> Any:
        width = next(p for p in parts if p.type == "DURATION")
        return syntax.SpanWindow(_variables(parts), self._duration(width), self._span(meta))

    def path_clause(self, meta: Any, parts: list[Any]) -> Any:
        return parts[0]

    def path_group(self, meta: Any, parts: list[Any]) -> Any:
        inside = str(parts[1])[1:-1]
        start = int(parts[1].start_pos) + 1 + len(inside) - len(inside.lstrip())
        return syntax.PathGroup(inside.strip(), self._span(meta), self._text.span(start, start + 1))

    def path_or(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.PathLogical("OR", tuple(p for p in parts if not isinstance(p, lark.Token)), self._span(meta))

    def path_and(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.PathLogical("AND", tuple(p for p in parts if not isinstance(p, lark.Token)), self._span(meta))

    def path_atom(self, meta: Any, parts: list[Any]) -> Any:
        return parts[1]

    def group_clause(self, meta: Any, parts: list[Any]) -> Any:
        return tuple(part for part in parts if isinstance(part, syntax.Attribute))

    def match_clause(self, meta: Any, parts: list[Any]) -> Any:
        return parts[1].type

    def after_clause(self, meta: Any, parts: list[Any]) -> Any:
        return " ".join(part.type for part in parts[2:])

    def priority_clause(self, meta: Any, parts: list[Any]) -> Any:
        return parts[1]

    def valid_clause(self, meta: Any, parts: list[Any]) -> Any:
        return self._positive(parts[1])

    def align_clause(self, meta: Any, parts: list[Any]) -> Any:
        width = next(p for p in parts if p.type == "DURATION")
        return syntax.Align(_variables(parts), self._positive(width), self._span(meta))

    def stale_clause(self, meta: Any, parts: list[Any]) -> Any:
        return parts[1].type

    # expressions

    def or_expression(self, meta: Any, parts: list[Any]) -> Any:
        return self._logical("OR", meta, parts)

    def and_expression(self, meta: Any, parts: list[Any]) -> Any:
        return self._logical("AND", meta, parts)

    def _logical(self, word: Any, meta: Any, parts: list[Any]) -> Any:
        flat: list[Expression] = []
        for part in parts:
            if isinstance(part, syntax.Logical) and part.word == word:
                flat += part.operands  # AND of ANDs is one AND: there is one tree for one meaning
            elif not isinstance(part, lark.Token):
                flat.append(part)
        return syntax.Logical(word, tuple(flat), self._span(meta))

    def not_expression(self, meta: Any, parts: list[Any]) -> Any:
        operand = parts[-1]
        if len(parts) - 1 > MAX_DEPTH:
            raise self._fail("too-deep", f"more than {MAX_DEPTH} operators in a row", self._span(meta), _IN_PARTS)
        for _ in parts[:-1]:
            operand = syntax.Not(operand, self._span(meta))
        return operand

    def compare(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Compare(cast(syntax.Sign, str(parts[1])), parts[0], parts[2], self._span(meta))

    def in_list(self, meta: Any, parts: list[Any]) -> Any:
        items = tuple(p for p in parts[1:] if not isinstance(p, lark.Token))
        return syntax.In(parts[0], items, _has(parts, "NOT"), self._span(meta))

    def between(self, meta: Any, parts: list[Any]) -> Any:
        low, high = (p for p in parts[1:] if not isinstance(p, lark.Token))
        return syntax.Between(parts[0], low, high, _has(parts, "NOT"), self._span(meta))

    def is_null(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.IsNull(parts[0], _has(parts, "NOT"), self._span(meta))

    def sum(self, meta: Any, parts: list[Any]) -> Any:
        return self._fold(parts, syntax.Arithmetic)

    def product(self, meta: Any, parts: list[Any]) -> Any:
        return self._fold(parts, syntax.Arithmetic)

    def negation(self, meta: Any, parts: list[Any]) -> Any:
        operand = parts[-1]
        if _is(operand, INT64_MAX + 1):
            self._too_large.pop()  # with its sign it is the least of all ints
        if len(parts) - 1 > MAX_DEPTH:
            raise self._fail("too-deep", f"more than {MAX_DEPTH} operators in a row", self._span(meta), _IN_PARTS)
        for _ in parts[:-1]:
            if (
                isinstance(operand, syntax.Constant)
                and operand.kind in (Kind.INT, Kind.FLOAT, Kind.DURATION)
                and not _is(operand, -INT64_MAX - 1)
            ):
                operand = replace(operand, value=-cast(float, operand.value), span=self._span(meta))
            else:
                operand = syntax.Negative(operand, self._span(meta))
        return operand

    def primary(self, meta: Any, parts: list[Any]) -> Any:
        return parts[1]

    def attribute(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Attribute(_variable(parts[0]), str(parts[2]), self._span(meta))

    def variable(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Variable(_variable(parts[0]), self._span(meta))

    def int_constant(self, meta: Any, parts: list[Any]) -> Any:
        value = self._int(parts[0], INT64_MAX + 1)
        if value > INT64_MAX:
            self._too_large.append(parts[0])
        return syntax.Constant(Kind.INT, value, self._span(meta))

    def float_constant(self, meta: Any, parts: list[Any]) -> Any:
        value = float(parts[0])
        if value == float("inf"):
            raise self._fail("out-of-range", f"'{parts[0][:30]}' does not fit in a float", self._span(meta), _LARGEST)
        return syntax.Constant(Kind.FLOAT, value, self._span(meta))

    def string_constant(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Constant(Kind.STRING, _unquoted(parts[0]), self._span(meta))

    def duration_constant(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Constant(Kind.DURATION, self._duration(parts[0]), self._span(meta))

    def instant_constant(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Constant(Kind.TIMESTAMP, self._instant(parts[0]), self._span(meta))

    def true_constant(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Constant(Kind.BOOL, True, self._span(meta))

    def false_constant(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Constant(Kind.BOOL, False, self._span(meta))

    def null_constant(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Constant(Kind.NULL, None, self._span(meta))

    def name_constant(self, meta: Any, parts: list[Any]) -> Any:
        return syntax.Constant(Kind.NAME, str(parts[0]), self._span(meta))

    def case(self, meta: Any, parts: list[Any]) -> Any:
        values = [p for p in parts if not isinstance(p, lark.Token)]
        otherwise = values.pop() if len(values) % 2 else None
        branches = tuple(zip(values[::2], values[1::2], strict=True))
        return syntax.Case(branches, otherwise, self._span(meta))

    def call(self, meta: Any, parts: list[Any]) -> Any:
        name = str(parts[0]).upper()
        arguments = tuple(p for p in parts if not isinstance(p, lark.Token))
        if name in AGGREGATES:
            if len(arguments) != 1:
                hint = f"such as {name}(?e.flowrate)"
                raise self._fail("wrong-count", f"{name} takes one argument", self._span(meta), hint)
            return syntax.Aggregate(name, arguments[0], self._span(meta))
        return syntax.Call(name, arguments, self._span(meta))


def _is(expression: Expression, value: int) -> bool:
    return isinstance(expression, syntax.Constant) and expression.kind is Kind.INT and expression.value == value


def _variable(token: str) -> str:
    return str(token)[1:]


def _variables(parts: list[lark.Token]) -> tuple[str, ...]:
    return tuple(_variable(p) for p in parts if p.type == "VARIABLE")


def _has(parts: list[Any], kind: str) -> bool:
    return any(isinstance(p, lark.Token) and p.type == kind for p in parts)


def _joined(first: Span | None, last: Span | None) -> Span | None:
    return replace(first, end_line=last.end_line, end_column=last.end_column) if first and last else None


_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text[1:-1], flags=re.DOTALL)


#: How to say in one clause what stands in two.
_ONCE: Final = {
    "SELECT": "one SELECT lists all values: SELECT ?e.id, ?e.flowrate AS flow",
    "FROM": "one FROM lists all variables: FROM (?e, airflowReport), (?f, meterUpdate)",
    "SEQ": "one SEQ lists all steps: SEQ (?a, ?b, ?c)",
    "GROUP": "one GROUP BY lists all attributes: GROUP BY ?e.sensorID, ?e.room",
    "HAVING": "join the two conditions with AND",
    "WITHIN": "write the time that both have in common",
}


@dataclass
class _Assembly:
    """Puts the clauses together."""

    text: Text
    problems: list[Diagnostic]
    parts: dict[str, Any] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    #: The words that begin clauses, right ones or not.
    begun: set[str] = field(default_factory=set)

    def add(self, clause: Clause) -> None:
        kind, parsed = clause.kind, clause.parsed
        if kind == "WHERE":
            return
        span = self.text.span(clause.start, clause.start + len(kind))
        field_name = _FIELDS[kind]
        if kind in ("PREFIX", "FILTER", "JOIN", "WINDOW", "PATH", "ALIGN"):
            self.parts.setdefault(field_name, []).append(parsed)
        elif field_name in self.parts:
            line = self.spans[field_name].line
            self.problems.append(
                Diagnostic(
                    "error",
                    "duplicate-clause",
                    f"a second {kind}; the first is on line {line}",
                    span,
                    _ONCE.get(kind, "keep one of them"),
                )
            )
            return
        else:
            self.parts[field_name] = parsed
        self.spans.setdefault(field_name, span)

    def query(self) -> Query | None:
        parts = dict(self.parts)
        if "select" not in parts:
            unsure = any(d.code in ("syntax", "no-clause", "unclosed") for d in self.problems)
            if not unsure and "SELECT" not in self.begun:
                span = self.text.span(0, 1)
                self.problems.append(
                    Diagnostic("error", "no-select", "a query needs SELECT", span, _clause_hint("SELECT"))
                )
            return None
        paths = parts.pop("path", [])
        path = paths[0] if len(paths) == 1 else syntax.PathLogical("AND", _flat_and(paths)) if paths else None
        for name in ("prefixes", "filters", "joins", "windows", "align"):
            parts[name] = tuple(parts.get(name, ()))
        return Query(path=path, spans=self.spans, **parts)


def _flat_and(paths: Sequence[syntax.Path]) -> tuple[syntax.Path, ...]:
    flat: list[syntax.Path] = []
    for path in paths:
        flat += path.operands if isinstance(path, syntax.PathLogical) and path.word == "AND" else [path]
    return tuple(flat)


_FIELDS: Final = {
    "PREFIX": "prefixes", "SELECT": "select", "FROM": "ranges", "WITHIN": "within", "FILTER": "filters",
    "JOIN": "joins", "SEQ": "seq", "WINDOW": "windows", "PATH": "path", "GROUP": "group_by",
    "HAVING": "having", "MATCH": "match",
    "AFTER": "after", "PRIORITY": "priority", "VALID": "valid", "ALIGN": "align", "STALE": "stale",
}  # fmt: skip
