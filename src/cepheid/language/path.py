"""The inside of a PATH: its elements, which variables connect them, and what it may not say.

A group is cut into elements (a triple pattern, a FILTER, an OPTIONAL, ...) and each keeps its own text. So parts of a
group are put together again from what the user wrote, and a SPARQL engine evaluates them; nothing is translated. That
is why this is a reader of its own rather than a SPARQL algebra: rdflib and spargebra both lose the text and its places.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal, TypeAlias

from cepheid.language import syntax
from cepheid.language.errors import Span

_TOKEN: Final = re.compile(
    r"""(?P<blank>(?:\s+|\#[^\n]*)+)
      | (?P<iri><[^<>"{}|^`\\\s]*>)
      | (?P<string>\"\"\"(?:\\.|(?!\"\"\").)*\"\"\"|'''(?:\\.|(?!''').)*'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
      | (?P<variable>[?$]\w+)
      | (?P<blanknode>_:[\w.-]*\w)
      | (?P<name>(?:[^\W\d_](?:[\w.-]*\w)?)?:(?:(?:[\w:%-]|\\.|\.(?=[\w:%-]))*))
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<language>@[A-Za-z]+(?:-[A-Za-z0-9]+)*)
      | (?P<word>[^\W\d]\w*)
      | (?P<sign>\^\^|&&|\|\||!=|<=|>=|[-{}()\[\].;,^|/*+?!=<>&])
      """,
    re.VERBOSE | re.DOTALL,
)
A: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"

Kind: TypeAlias = Literal["triple", "filter", "bind", "values", "optional", "group", "minus"]


_FORM: Final = "the form is: PATH {?e evt:hasSource/bd:in ?room . ?room a bd:Office}"


class PathFault(ValueError):
    """Something in a PATH that can't be read or is not allowed, and where."""

    def __init__(self, code: str, message: str, span: Span | None, hint: str) -> None:
        super().__init__(message)
        self.code, self.span, self.hint = code, span, hint


@dataclass(frozen=True, slots=True)
class Token:
    """A word of SPARQL; `start` is its place in the text of the group."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Element:
    """One part of a group: a triple pattern, or a clause with all that is in it.

    A triple has its subject, its predicate or path and its object, each as tokens. One with brackets in it is not taken
    apart: `ends` is None then.
    """

    kind: Kind
    tokens: tuple[Token, ...]
    place: Span | None = field(default=None, compare=False, repr=False)
    ends: tuple[tuple[Token, ...], tuple[Token, ...], tuple[Token, ...]] | None = None

    @cached_property
    def text(self) -> str:
        return written(self.tokens) + (" ." if self.kind == "triple" else "")

    @cached_property
    def variables(self) -> frozenset[str]:
        return frozenset(t.text[1:] for t in self.tokens if t.kind == "variable")

    @cached_property
    def links(self) -> frozenset[str]:
        """What connects it with others: its variables, and labelled blank nodes, which are variables too."""
        return self.variables | {t.text for t in self.tokens if t.kind == "blanknode"}

    @cached_property
    def binds(self) -> frozenset[str]:
        """The variables to which BIND or VALUES gives a value, wherever it stands in it."""
        found: set[str] = set()
        for i, token in enumerate(self.tokens):
            word = token.text.upper() if token.kind == "word" else ""
            following = self.tokens[i + 1 :]
            if word == "AS" and following and following[0].kind == "variable":
                found.add(following[0].text[1:])
            elif word == "VALUES":
                for t in following:
                    if t.text == "{":
                        break
                    if t.kind == "variable":
                        found.add(t.text[1:])
        return frozenset(found)

    def names(self, prefixes: Mapping[str, str]) -> Iterator[tuple[Token, str | None]]:
        """The IRIs that it mentions; None where the prefix is unknown."""
        for token in self.tokens:
            if token.kind == "iri":
                yield token, token.text[1:-1]
            elif token.kind == "name":
                yield token, expand(token.text, prefixes)

    def with_variable(self, name: str, term: str, kind: str = "iri") -> Element:
        """The element with a term in place of a variable; `kind` is that of the term's token."""
        return self._put({name: term}, kind)

    def renamed(self, names: Mapping[str, str]) -> Element:
        """The element with other variables, `?x`, by their names."""
        return self._put(names, "variable")

    def _put(self, words: Mapping[str, str], kind: str) -> Element:
        def put(tokens: Iterable[Token]) -> tuple[Token, ...]:
            return tuple(
                Token(kind, words[t.text[1:]], t.start, t.end) if t.kind == "variable" and t.text[1:] in words else t
                for t in tokens
            )

        ends = None if self.ends is None else (put(self.ends[0]), put(self.ends[1]), put(self.ends[2]))
        return replace(self, tokens=put(self.tokens), ends=ends)


def written(tokens: Sequence[Token]) -> str:
    """The text of tokens, with a space where there was one."""
    text = ""
    for i, token in enumerate(tokens):
        text += token.text if i and tokens[i - 1].end == token.start else f" {token.text}"
    return text.strip()


def expand(name: str, prefixes: Mapping[str, str]) -> str | None:
    """The IRI of `prefix:name`; None if the prefix is unknown."""
    prefix, _, local = name.partition(":")
    return prefixes[prefix] + re.sub(r"\\(.)", r"\1", local) if prefix in prefixes else None


def tokens(group: syntax.PathGroup) -> list[Token]:
    """The words of a group. Raises PathFault where there is none."""
    found, position, text = [], 0, group.text
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            message = f"{text[position]!r} has no meaning in a PATH"
            raise PathFault("path-syntax", message, span_at(group, position), _FORM)
        if match.lastgroup != "blank":
            found.append(Token(str(match.lastgroup), match.group(), position, match.end()))
        position = match.end()
    return found


def span_at(group: syntax.PathGroup, start: int, end: int | None = None) -> Span | None:
    """The place in the query of a place in the group's text."""
    place = group.place
    if place is None:
        return group.span

    def at(offset: int) -> tuple[int, int]:
        before = group.text[:offset]
        lines = before.count("\n")
        column = offset - before.rfind("\n") if lines else place.column + offset
        return place.line + lines, column

    (line, column), (end_line, end_column) = at(start), at(start + 1 if end is None else end)
    return Span(place.source, line, column, end_line, end_column)


def elements(group: syntax.PathGroup) -> list[Element]:
    """The elements of a group, in order. Raises PathFault for what is no group pattern, or leaves the machine."""
    reader = _Reader(group, tokens(group))
    return reader.elements()


_REFUSED: Final = {
    "SERVICE": (
        "SERVICE would ask another machine; a PATH is judged by the application's own knowledge",
        "add what that machine knows to `knowledge: {sources: [...]}`",
    ),
    "GRAPH": ("GRAPH has no meaning here: the knowledge is one graph", "leave out GRAPH and the braces of its group"),
    "SELECT": (
        "a PATH is a group of patterns; SELECT inside it is not supported",
        "write its patterns into the PATH; the knowledge can also conclude them by a rule (.rq)",
    ),
    "LATERAL": ("LATERAL is not SPARQL 1.1", "write its patterns into the PATH"),
}


@dataclass
class _Reader:
    group: syntax.PathGroup
    words: Sequence[Token]
    at: int = 0

    def elements(self) -> list[Element]:
        for word in self.words:
            if word.kind == "word" and word.text.upper() in _REFUSED:
                raise self._fault("path-refused", *_REFUSED[word.text.upper()], word)
        found: list[Element] = []
        while self.at < len(self.words):
            word = self.words[self.at]
            upper = word.text.upper() if word.kind == "word" else ""
            if word.text == ".":
                self.at += 1
            elif upper == "FILTER":
                found.append(self._filter())
            elif upper in ("OPTIONAL", "MINUS"):
                found.append(self._clause("optional" if upper == "OPTIONAL" else "minus", 1, braces=True))
            elif upper == "BIND":
                found.append(self._clause("bind", 1))
            elif upper == "VALUES":
                found.append(self._values())
            elif word.text == "{":
                found.append(self._nested())
            else:
                found += self._triples()
        return found

    def _fault(self, code: str, message: str, hint: str, word: Token | None) -> PathFault:
        start, end = (word.start, word.end) if word is not None else (len(self.group.text) - 1, None)
        return PathFault(code, message, span_at(self.group, max(0, start), end), hint)

    def _element(self, kind: Kind, start: int) -> Element:
        taken = tuple(self.words[start : self.at])
        place = span_at(self.group, taken[0].start, taken[-1].end)
        return Element(kind, taken, place)

    def _brackets(self) -> None:
        """Passes over what is inside a pair of brackets, and over them."""
        pairs = {"{": "}", "(": ")", "[": "]"}
        opening = self.words[self.at] if self.at < len(self.words) else None
        if opening is None or opening.text not in pairs:
            raise self._fault(
                "path-syntax", "expected '{' or '('", "such as FILTER (?t > 20) or OPTIONAL {?r bd:name ?n}", opening
            )
        stack = []
        while self.at < len(self.words):
            text = self.words[self.at].text
            self.at += 1
            if text in pairs:
                stack.append(pairs[text])
            elif stack and text == stack[-1]:
                stack.pop()
                if not stack:
                    return
        raise self._fault("path-syntax", "this bracket is never closed", "each of ( [ { needs its own ) ] }", opening)

    def _clause(self, kind: Kind, words: int, *, braces: bool = False) -> Element:
        start = self.at
        self.at += words
        if braces and self._text() != "{":
            word = self.words[start].text
            hint = f"such as {word.upper()} {{?r bd:name ?n}}"
            raise self._fault("path-syntax", f"expected '{{' after {word}", hint, self._word())
        self._brackets()
        return self._element(kind, start)

    def _filter(self) -> Element:
        start = self.at
        self.at += 1
        while self.at < len(self.words) and self._text().upper() in ("NOT", "EXISTS"):
            self.at += 1
        if self._word() is not None and self.words[self.at].kind in ("word", "name", "iri"):
            self.at += 1  # a function: FILTER regex(...)
        self._brackets()
        return self._element("filter", start)

    def _values(self) -> Element:
        start = self.at
        self.at += 1
        if self._text() == "(":
            self._brackets()
        else:
            self.at += 1
        self._brackets()
        return self._element("values", start)

    def _nested(self) -> Element:
        start = self.at
        self._brackets()
        while self._text().upper() == "UNION":
            self.at += 1
            self._brackets()
        return self._element("group", start)

    def _word(self) -> Token | None:
        return self.words[self.at] if self.at < len(self.words) else None

    def _text(self) -> str:
        word = self._word()
        return word.text if word is not None else ""

    # triples

    def _triples(self) -> Iterator[Element]:
        """The triples of one subject, each by itself."""
        start = self.at
        if any(w.text in "[(" for w in self._block()):
            while self.at < len(self.words) and not self._ends_block():
                if self._text() in ("[", "("):
                    self._brackets()
                else:
                    self.at += 1
            # A path may have parentheses; what is simple enough is read again, as triples.
            whole = self._element("triple", start)
            try:
                self.at = start
                yield from self._plain()
            except PathFault:
                self.at = start + len(whole.tokens)
                yield whole
            return
        yield from self._plain()

    def _block(self) -> Sequence[Token]:
        end = self.at
        while end < len(self.words) and not self._ends_block(end):
            end += 1
        return self.words[self.at : end]

    def _ends_block(self, at: int | None = None) -> bool:
        word = self.words[self.at if at is None else at]
        keyword = word.kind == "word" and word.text.upper() in ("FILTER", "OPTIONAL", "MINUS", "BIND", "VALUES")
        return word.text in (".", "{") or keyword

    def _plain(self) -> list[Element]:
        found: list[Element] = []
        subject = self._term()
        while True:
            path = self._path()
            while True:
                target = self._term()
                every = (*subject, *path, *target)
                place = span_at(self.group, every[0].start, every[-1].end)
                found.append(Element("triple", every, place, (subject, path, target)))
                if self._text() != ",":
                    break
                self.at += 1
            if self._text() != ";":
                return found
            while self._text() == ";":
                self.at += 1
            if self._word() is None or self._ends_block():
                return found

    def _term(self) -> tuple[Token, ...]:
        word = self._word()
        if word is None:
            raise self._fault("path-syntax", "the PATH ends where a term is expected", _FORM, word)
        start = self.at
        if word.text in ("+", "-") and self.at + 1 < len(self.words):
            self.at += 1
            word = self.words[self.at]
        is_term = word.kind in ("variable", "iri", "name", "blanknode", "number", "string")
        if not is_term and not (word.kind == "word" and word.text in ("true", "false")):
            raise self._fault("path-syntax", f"expected a term, found '{word.text}'", _FORM, word)
        self.at += 1
        if word.kind == "string" and self._text() == "^^":
            self.at += 2
        elif word.kind == "string" and self._word() is not None and self.words[self.at].kind == "language":
            self.at += 1
        return tuple(self.words[start : self.at])

    def _path(self) -> tuple[Token, ...]:
        start = self.at
        word = self._word()
        if word is not None and word.kind == "variable":
            self.at += 1
        else:
            self._alternatives()
        return tuple(self.words[start : self.at])

    def _alternatives(self) -> None:
        self._step()
        while self._text() in ("/", "|"):
            self.at += 1
            self._step()

    def _step(self) -> None:
        while self._text() in ("^", "!"):
            self.at += 1
        word = self._word()
        if word is None:
            raise self._fault("path-syntax", "the PATH ends where a property is expected", _FORM, word)
        if word.text == "(":
            self.at += 1
            self._alternatives()
            if self._text() != ")":
                message = f"expected ')', found '{self._text()}'"
                raise self._fault("path-syntax", message, "such as (bd:in|bd:near)/bd:floor", self._word())
            self.at += 1
        elif word.kind in ("iri", "name") or word.text == "a":
            self.at += 1
        else:
            raise self._fault("path-syntax", f"expected a property, found '{word.text}'", _FORM, word)
        if self._text() in ("*", "+", "?"):
            self.at += 1


def groups(path: syntax.Path | None) -> Iterator[syntax.PathGroup]:
    """The PATHs of a query, in order."""
    if isinstance(path, syntax.PathGroup):
        yield path
    elif path is not None:
        for operand in path.operands:
            yield from groups(operand)


def variables(path: syntax.Path | None) -> tuple[str, ...]:
    """The variables that PATHs mention, each once, in order; what can't be read mentions none."""
    found: dict[str, None] = {}
    for group in groups(path):
        try:
            words = tokens(group)
        except PathFault:
            continue
        found |= dict.fromkeys(word.text[1:] for word in words if word.kind == "variable")
    return tuple(found)


def roots(path: syntax.Path | None, annotated: Collection[str], prefixes: Mapping[str, str]) -> tuple[str, ...]:
    """The variables from which a path begins with an annotated property: without FROM, they are events.

    Nothing leads to an event, so a variable to which something does is none.
    """
    found: dict[str, None] = {}
    reached: set[str] = set()
    for group in groups(path):
        try:
            items = elements(group)
        except PathFault:
            continue
        for item in items:
            if item.ends is None:
                continue
            subject, steps, target = item.ends
            first = next((iri for _, iri in Element("triple", steps[:1]).names(prefixes)), None)
            if subject[0].kind == "variable" and first in annotated:
                found[subject[0].text[1:]] = None
            reached |= {t.text[1:] for t in target if t.kind == "variable"}
    return tuple(name for name in found if name not in reached)


def syntax_fault(group: syntax.PathGroup, prefixes: Mapping[str, str]) -> PathFault | None:
    """What a SPARQL parser has against a group."""
    import pyoxigraph

    head = "ASK {\n"
    try:
        pyoxigraph.Store().query(f"{head}{group.text}\n}}", prefixes=dict(prefixes))
    except ValueError as error:
        message = f"a prefix does not stand for an absolute IRI: {error}"
        return PathFault("not-an-iri", message, group.span, "such as PREFIX bd: <http://example.org/plant#>")
    except SyntaxError as error:
        found = re.match(r"error at (\d+):(\d+): (.*)", str(error), re.DOTALL)
        if found is None:
            return PathFault("path-syntax", str(error), group.span, _FORM)
        line, column = int(found[1]) - 1, int(found[2])
        lines = group.text.split("\n")
        offset = sum(len(text) + 1 for text in lines[: line - 1]) + column - 1
        return PathFault(
            "path-syntax",
            f"SPARQL: {found[3].strip()}",
            span_at(group, min(offset, max(0, len(group.text) - 1))),
            _FORM,
        )
    return None


def path_fault(path: str, prefixes: Mapping[str, str]) -> str | None:
    """What is wrong with a path from one entity to another, such as bd:in/bd:of; None if nothing is."""
    import pyoxigraph

    try:
        words = tokens(syntax.PathGroup(path))
    except PathFault as fault:
        return str(fault)
    if any(word.kind == "variable" or word.text in ("{", "}", ".", ";", ",") for word in words):
        return "it leads from one entity to another, without variables and braces"
    for word in words:
        if word.kind == "name" and expand(word.text, prefixes) is None:
            return f"unknown prefix '{word.text.partition(':')[0]}'"
    head = "ASK { ?from "
    try:
        pyoxigraph.Store().query(f"{head}{path} ?to }}", prefixes=dict(prefixes))
    except ValueError as error:
        return f"a prefix does not stand for an absolute IRI: {error}"
    except SyntaxError as error:
        found = re.match(r"error at 1:(\d+):", str(error))
        rest = path[int(found[1]) - 1 - len(head) :].strip() if found is not None else path
        return f"SPARQL does not expect '{rest}' there" if rest else "SPARQL can't read it to its end"
    return None
