"""Users' own rules: a CONSTRUCT a file. Plain patterns join the rules of the native core; others are run as SPARQL.

CONSTRUCT { ?s bd:hasLocation ?room } WHERE { ?s brick:isPointOf ?vav . ?vav brick:feeds ?room }
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyoxigraph import Literal, NamedNode, Quad, QueryTriples, Store

from cepheid.knowledge.errors import Fault, KnowledgeError, Unreadable, gathering
from cepheid.knowledge.sources import broken, located, shown
from cepheid.knowledge.terms import RDF, XSD
from cepheid.language.errors import Diagnostic, Rejected, Source, Span
from cepheid.model.names import near_file

_TOKEN: Final = re.compile(
    r"""(?P<comment>\#[^\n]*) | (?P<space>\s+)
      | (?P<iri><[^<>"{}|^`\\\s]*>)
      | (?P<variable>[?$]\w+)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<language>@[A-Za-z]+(?:-[A-Za-z0-9]+)*)
      | (?P<number>[+-]?(?:\d+\.\d+|\d+))
      | (?P<name>(?:[^\W\d][\w.-]*)?:(?:[\w:%](?:[\w.:%-]*[\w:%-])?)?)
      | (?P<word>[^\W\d]\w*)
      | (?P<mark>\^\^|[{}.;,]|.)""",
    re.VERBOSE | re.DOTALL,
)
#: What a question in SPARQL begins with.
_FORMS: Final = ("CONSTRUCT", "SELECT", "ASK", "DESCRIBE")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a file. `lines` are for the native core; without them it is run as SPARQL."""

    name: str
    text: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of an application, in the order of their files."""

    rules: tuple[Rule, ...] = ()

    @property
    def native(self) -> str:
        """Rules for the native core, a line each."""
        return "\n".join(line for rule in self.rules for line in rule.lines)

    @property
    def sparql(self) -> tuple[Rule, ...]:
        """Rules that only SPARQL can judge."""
        return tuple(rule for rule in self.rules if not rule.lines)

    @property
    def hash(self) -> str:
        return hashlib.sha256("\0".join(rule.text for rule in self.rules).encode()).hexdigest()


def read_rules(paths: Iterable[Path], folder: Path) -> Rules:
    """The rules of files. Raises Unreadable with every fault."""
    rules: list[Rule] = []
    faults: list[Fault] = []
    for number, path in enumerate(paths):
        with gathering(faults, ("knowledge", "rules", number)):
            rules.append(_read(located(path, folder)))
    if faults:
        raise Unreadable(faults)
    return Rules(tuple(rules))


def _read(path: Path) -> Rule:
    name = shown(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise KnowledgeError(f"no such rule: {name}", near_file(path, [".rq"])) from None
    except OSError as error:
        hint = "a rule is a file with one CONSTRUCT"
        raise KnowledgeError(f"{name}: {error.strerror or error}", hint) from None
    except UnicodeDecodeError:
        hint = f"convert it: iconv -f latin1 -t utf-8 {path.name}"
        raise KnowledgeError(f"{name}: not UTF-8 text", hint) from None
    tokens = list(_tokens(text))
    source = Source(name, text)
    for kind, word, at in tokens:
        if kind == "word" and word.upper() == "SERVICE":
            raise _fault(source, at, word, "SERVICE would leave this machine", "load the data as a source instead")
    try:
        found = Store().query(text)
    except SyntaxError as error:
        raise Rejected([broken(name, text.encode(), error)]) from None
    asks = next(((word, at) for kind, word, at in tokens if kind == "word" and word.upper() in _FORMS), ("", 0))
    if not isinstance(found, QueryTriples) or asks[0].upper() == "DESCRIBE":
        hint = "such as CONSTRUCT { ?s ex:in ?room } WHERE { ?s ex:of ?box . ?box ex:feeds ?room }"
        raise _fault(source, asks[1], asks[0], "a rule is a CONSTRUCT: what follows { } from what WHERE { }", hint)
    made = re.search(r"CONSTRUCT\s*\{([^}]*)\}", re.sub(r"#[^\n]*", "", text), re.IGNORECASE)
    if made and ("_:" in made[1] or "[" in made[1]):
        hint = "name it instead: BIND (IRI(CONCAT(STR(?x), ...)) AS ?new)"
        raise _fault(
            source, asks[1], asks[0], "a blank node in CONSTRUCT would be a new one each time, without end", hint
        )
    return Rule(path.name, text, tuple(_as_lines(path.stem, tokens)))


def _fault(source: Source, at: int, word: str, message: str, hint: str) -> Rejected:
    line = source.text.count("\n", 0, at) + 1
    column = at - source.text.rfind("\n", 0, at)
    span = Span(source, line, column, line, column + max(1, len(word)))
    return Rejected([Diagnostic("error", "broken-rule", message, span, hint)])


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or ""
        if kind not in ("comment", "space"):
            yield kind, found[0], found.start()


class _NotPlain(Exception):
    """A rule that says more than triple patterns."""


def _as_lines(name: str, tokens: Sequence[tuple[str, str, int]]) -> list[str]:
    """A CONSTRUCT of nothing but triples as lines for the native core, one for each triple that it makes; else none."""
    try:
        words = _Words(tokens)
        words.prologue()
        words.expect("CONSTRUCT")
        heads = words.triples()
        words.expect("WHERE", optional=True)
        body = words.triples()
        words.end()
    except _NotPlain:
        return []
    known = {term for triple in body for term in triple}
    if not body or any(term.startswith("?") and term not in known for head in heads for term in head):
        return []
    return [f"{name.replace(' ', '_')} {' . '.join(map(' '.join, body))} -> {' '.join(head)}" for head in heads]


class _Words:
    """Reads the tokens of a plain CONSTRUCT; raises _NotPlain at the first thing that is none."""

    def __init__(self, tokens: Sequence[tuple[str, str, int]]) -> None:
        self._tokens = tokens
        self._next = 0
        self._prefixes: dict[str, str] = {}

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._next][:2] if self._next < len(self._tokens) else ("end", "")

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        self._next += 1
        return token

    def expect(self, word: str, *, optional: bool = False) -> None:
        if self._peek()[1].upper() == word:
            self._next += 1
        elif not optional:
            raise _NotPlain

    def end(self) -> None:
        if self._peek()[0] != "end":
            raise _NotPlain

    def prologue(self) -> None:
        while self._peek()[1].upper() == "PREFIX":
            self._take()
            prefix, iri = self._take(), self._take()
            if prefix[0] != "name" or iri[0] != "iri":
                raise _NotPlain
            self._prefixes[prefix[1][:-1]] = iri[1][1:-1]

    def triples(self) -> list[list[str]]:
        self.expect("{")
        found = []
        while self._peek()[1] != "}":
            subject = self._term()
            while True:
                predicate = self._term()
                found.append([subject, predicate, self._term()])
                while self._peek()[1] == ",":
                    self._take()
                    found.append([subject, predicate, self._term()])
                if self._peek()[1] != ";":
                    break
                while self._peek()[1] == ";":
                    self._take()
                if self._peek()[1] in (".", "}"):
                    break
            if self._peek()[1] == ".":
                self._take()
            elif self._peek()[1] != "}":
                raise _NotPlain
        self.expect("}")
        return found

    def _term(self) -> str:
        kind, word = self._take()
        if kind == "variable":
            return "?" + word[1:]
        if kind == "iri":
            return str(NamedNode(word[1:-1])) if ":" in word else self._refuse()
        if kind == "name":
            prefix, _, local = word.partition(":")
            return str(NamedNode(self._prefixes[prefix] + local)) if prefix in self._prefixes else self._refuse()
        if kind == "word" and word == "a":
            return f"<{RDF}type>"
        if kind == "number":
            datatype = XSD + ("decimal" if "." in word else "integer")
            return _stored(Literal(word, datatype=NamedNode(datatype)))
        if kind == "text" and "\\" not in word:
            return self._literal(word[1:-1])
        return self._refuse()

    def _literal(self, value: str) -> str:
        kind, word = self._peek()
        if kind == "language":
            self._take()
            return _stored(Literal(value, language=word[1:]))
        if word == "^^":
            self._take()
            return _stored(Literal(value, datatype=NamedNode(self._term()[1:-1])))
        return str(Literal(value))

    def _refuse(self) -> str:
        raise _NotPlain


def _stored(literal: Literal) -> str:
    """A literal in the one form that a store gives it."""
    store, any_node = Store(), NamedNode("urn:x")
    store.add(Quad(any_node, any_node, literal))
    return str(next(iter(store)).object)


def conclusions(rule: Rule, store: Store) -> set[str]:
    """What a rule concludes from a store, as lines of N-Triples."""
    found = store.query(rule.text)
    assert isinstance(found, QueryTriples)
    return {f"{triple} ." for triple in found}
