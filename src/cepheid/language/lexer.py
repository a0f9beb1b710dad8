"""The words of a χ-CEP text. PATH groups are taken whole: what is in them is SPARQL's."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cepheid.language.errors import Diagnostic, Source, Span

#: Words that begin a clause; inside one they can only be names.
CLAUSES: Final = frozenset(
    """PREFIX SELECT FROM WITHIN WHERE FILTER JOIN SEQ WINDOW PATH GROUP HAVING
    MATCH AFTER PRIORITY VALID ALIGN STALE""".split()  # noqa: SIM905
)
#: Words with a meaning inside clauses.
WORDS: Final = frozenset(
    """AND OR NOT IN BETWEEN CASE WHEN THEN ELSE END IS NULL TRUE FALSE AS BY NOW
    ALL ANY NEXT STRICT KEEP CONSUME SKIP PAST LAST TO MARK SHED SLIDING BATCH SESSION LENGTH""".split()  # noqa: SIM905
)
#: Signs by the names they have in the grammar.
SIGNS: Final = {
    "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", "{": "LBRACE", "}": "RBRACE",
    ",": "COMMA", ".": "DOT", "|": "BAR", "?": "QMARK",
    "=": "EQ", "!=": "NE", "<": "LT", "<=": "LE", ">": "GT", ">=": "GE",
    "+": "PLUS", "-": "MINUS", "*": "STAR", "/": "SLASH", "%": "PERCENT",
}  # fmt: skip
#: Deeper nesting is refused, so that nothing behind the parser can run out of stack.
MAX_DEPTH: Final = 50

_SPLIT: Final = "several FILTERs must all be true: make one of each part of an AND"
#: What other languages write so.
_MEANT: Final = {
    "&&": "write AND", "&": "write AND", "!": "write NOT, or != to compare", ";": "a query ends without a sign",
    "$": "a variable begins with ?, such as ?e", "^": "write POWER(x, 2)", "~": "write CONTAINS(text, part)",
}  # fmt: skip

_TOKEN = re.compile(
    r"""(?P<BLANK>(?:\s+|\#[^\n]*|--[^\n]*)+)
      | (?P<VARIABLE>\?[^\W\d]\w*)
      | (?P<INSTANT>\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?
          (?:\[[A-Za-z][\w+/-]*\])?(?!\w))
      | (?P<DURATION>(?:\d+(?:\.\d+)?[ \t]*(?i:us|ms|min|s|h|d)(?![^\W\d]))+(?!\w))
      | (?P<FLOAT>(?:\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)(?!\w))
      | (?P<INT>\d+(?!\w))
      | (?P<STRING>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | (?P<PNAME>(?:[^\W\d]\w*)?:(?:\w+|(?=\s*<)))
      | (?P<NAME>[^\W\d]\w*)
      | (?P<SIGN>!=|<=|>=|[-=<>+*/%(),.|{}\[\]?])
      """,
    re.VERBOSE,
)
_COMMENT = re.compile(r"(?:#|--)[^\n]*")
_WORD = re.compile(r"[\w.]+")
#: Text in the quotes of a word processor.
_CURLY = re.compile("[“”„‘’]([^“”„‘’\n]*)[“”‘’]")
_IRI = re.compile(r"<[^<>\"{}|^`\\\s]*>")
#: In SPARQL, what can hide a brace.
_SPARQL_OPAQUE = re.compile(
    r'"""(?:\\.|(?!""").)*"""|\'\'\'(?:\\.|(?!\'\'\').)*\'\'\''
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|<[^<>\"{}|^`\\\s]*>|\#[^\n]*",
    re.DOTALL,
)
#: After one of these an operand has ended, so `<` compares.
_OPERAND_ENDS: Final = frozenset(
    ("VARIABLE", "INSTANT", "DURATION", "FLOAT", "INT", "STRING", "NAME", "PNAME", "RPAR", "IRI", "END", "NULL")
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word: `kind` is its class, or the word itself for keywords and signs."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(slots=True)
class Text:
    """A source that knows the place of an offset and, once it was read, its comments: where each begins, and what."""

    source: Source
    _starts: list[int]
    comments: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    def of(cls, source: Source) -> Text:
        starts = [0] + [m.end() for m in re.finditer("\n", source.text)]
        return cls(source, starts)

    def span(self, start: int, end: int) -> Span:
        line, column = self._place(start)
        end_line, end_column = self._place(max(start, end))
        return Span(self.source, line, column, end_line, end_column)

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


def tokens(text: Text, problems: list[Diagnostic]) -> list[Token]:
    """The words of a text; what is none is reported and passed over."""
    words = list(_Lexer(text, problems).run())
    return [replace(word, kind="NAME") if is_name else word for word, is_name in zip(words, _names(words), strict=True)]


def _names(words: Sequence[Token]) -> Iterator[bool]:
    """For each word whether it is a name here, whatever it means elsewhere: a stream in FROM, or a value after AS."""
    clause = ""
    for i, word in enumerate(words):
        before, after = words[i - 1].kind if i else "", words[i + 1].kind if i + 1 < len(words) else ""
        is_name = word.kind in CLAUSES | WORDS and (
            (clause == "FROM" and before in ("COMMA", "BAR") and after in ("RPAR", "BAR"))
            or (before == "AS" and (after in ("", "COMMA") or after in CLAUSES))
        )
        if word.kind in CLAUSES and not is_name:
            clause = word.kind
        yield is_name


class _Lexer:
    def __init__(self, text: Text, problems: list[Diagnostic]) -> None:
        self._text = text
        self._content = text.source.text
        self._problems = problems
        self._behind = ""
        self._depth = 0

    def run(self) -> Iterator[Token]:
        position, end = 0, len(self._content)
        while position < end:
            token = self._next(position)
            position = token.end
            if token.kind == "BLANK":
                self._text.comments += [(token.start + m.start(), m.group()) for m in _COMMENT.finditer(token.text)]
                continue
            yield token
            self._track(token)

    def _next(self, position: int) -> Token:
        content = self._content
        if content[position] == "<" and self._behind not in _OPERAND_ENDS:
            iri = _IRI.match(content, position)
            if iri:
                return Token("IRI", iri.group(), position, iri.end())
        if content[position] == "{" and self._behind == "PATH":
            return self._group(position)
        found = _TOKEN.match(content, position)
        if found is None:
            return self._rubbish(position)
        kind, word = str(found.lastgroup), found.group()
        if kind == "NAME" and not (self._behind == "DOT" and content[position - 1] == "."):
            upper = word.upper()
            if upper in CLAUSES or upper in WORDS:
                kind = upper
        elif kind == "SIGN":
            kind = SIGNS[word]
        return Token(kind, word, position, found.end())

    def _track(self, token: Token) -> None:
        self._behind = token.kind if not token.text.endswith(":") else "PREFIX_NAME"
        if token.kind in ("LPAR", "CASE"):
            self._depth += 1
            if self._depth == MAX_DEPTH + 1:
                self._report("too-deep", f"nested more than {MAX_DEPTH} deep", token.start, token.end, _SPLIT)
        elif token.kind in ("RPAR", "END"):
            self._depth = max(0, self._depth - 1)
        elif token.kind in CLAUSES:
            self._depth = 0

    def _group(self, start: int) -> Token:
        """The braces of a PATH, and all between them."""
        content, depth, position = self._content, 0, start
        while position < len(content):
            opaque = _SPARQL_OPAQUE.match(content, position)
            if opaque:
                position = opaque.end()
                continue
            if content[position] == "{":
                depth += 1
            elif content[position] == "}":
                depth -= 1
                if depth == 0:
                    return Token("GROUP_TEXT", content[start : position + 1], start, position + 1)
            position += 1
        self._report("unclosed", "this brace is never closed", start, start + 1, "a PATH ends with }")
        return Token("GROUP_TEXT", content[start:] + "}", start, len(content))

    def _rubbish(self, start: int) -> Token:
        content = self._content
        end = start + 1
        if content[start] in "\"'":
            line_end = content.find("\n", start)
            end = len(content) if line_end < 0 else line_end
            self._report("unclosed", "this text is never closed", start, end, f"end it with {content[start]}")
            return Token("STRING", content[start:end].rstrip("\\") + content[start], start, end)
        curly = _CURLY.match(content, start)
        if curly:
            hint = f"text goes into straight quotes: '{_short(curly.group(1))}'"
            self._report("not-a-word", f"{curly.group()[0]} begins no text", start, curly.end(), hint)
            return Token("STRING", "''", start, curly.end())
        word = _WORD.match(content, start)
        if word:
            end = word.end()
            message = f"'{_short(word.group())}' is neither a number nor a name"
            hint = "a name begins with a letter; a duration has a unit: us, ms, s, min, h or d"
            self._report("not-a-word", message, start, end, hint)
            return Token("INT", "0", start, end)  # stands in, so that no second fault is seen
        while end < len(content) and _TOKEN.match(content, end) is None and content[end] not in "\"'<{":
            end += 1
        hint = _MEANT.get(content[start:end].strip(), "text with such signs goes into quotes: 'a@b'")
        self._report("not-a-word", f"{_short(content[start:end])!r} has no meaning here", start, end, hint)
        return Token("BLANK", "", start, end)

    def _report(self, code: str, message: str, start: int, end: int, hint: str) -> None:
        self._problems.append(Diagnostic("error", code, message, self._text.span(start, end), hint))


def _short(text: str) -> str:
    return text if len(text) <= 30 else text[:27] + "..."
