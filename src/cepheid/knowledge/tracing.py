"""The triples by which an event satisfies a part of a PATH, or the element at which it stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyoxigraph import NamedNode

from cepheid.knowledge.asking import Facts, Solution, ask_all, is_root, shown_term
from cepheid.knowledge.chains import Graph, chain
from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.terms import Term, short
from cepheid.language.parts import ROOT, Part
from cepheid.language.path import A, Element, Token, expand


@dataclass(frozen=True, slots=True)
class Trace:
    """The triples and other elements that were found; `stopped` is the first that nothing fits, None if all do."""

    found: tuple[str, ...]
    stopped: str | None = None


def trace(part: Part, facts: Facts, knowledge: Knowledge, prefixes: Mapping[str, str]) -> Trace:
    """Goes along a part as far as there is a solution; of several the first is shown."""
    taken: list[Element] = []
    best: dict[str, Term] = {}
    graph = Graph(knowledge, [(NamedNode(ROOT), name, term) for name, term in facts])

    def found() -> tuple[str, ...]:
        lines = [line for element in taken for line in _lines(element, best, part.variable, graph, prefixes)]
        return tuple(dict.fromkeys(lines))

    for element in _patterns_first(part.elements):
        tried = [*taken, element]
        names = sorted({v for e in tried for v in e.variables} - {part.variable or ""})
        small = replace(part, groups=(tuple(tried),), columns=())
        solutions = ask_all(knowledge, small, prefixes, [facts], names)[0]
        if not solutions:
            return Trace(found(), _shown(element, best, part.variable, prefixes))
        taken, best = tried, _first(names, solutions)
    return Trace(found())


def _lines(
    element: Element, known: Mapping[str, Term], event: str | None, graph: Graph, prefixes: Mapping[str, str]
) -> list[str]:
    """The triples of an element along its path; of what is none the element itself."""
    if element.ends is not None and len(element.ends[1]) > 1:
        first, path, last = element.ends
        start, end = (_term(tokens, known, event, prefixes) for tokens in (first, last))
        links = None if start is None or end is None else chain(path, prefixes, graph, start, end)
        if links:
            root = f"?{event}"
            ends = [(root if is_root(s) else short(s, prefixes), p, o) for s, p, o in links]
            return [
                f"{s} {_property(p, prefixes)} {root if is_root(o) else shown_term(o, prefixes)}" for s, p, o in ends
            ]
    return [_shown(element, known, event, prefixes)]


def _property(name: str, prefixes: Mapping[str, str]) -> str:
    return "a" if name == A else short(NamedNode(name), prefixes)


def _term(
    tokens: tuple[Token, ...], known: Mapping[str, Term], event: str | None, prefixes: Mapping[str, str]
) -> Term | None:
    """What the end of a triple is; None if that is not one known node."""
    if len(tokens) != 1:
        return None
    (token,) = tokens
    if token.kind == "variable":
        return NamedNode(ROOT) if token.text[1:] == event else known.get(token.text[1:])
    if token.kind == "iri":
        return NamedNode(token.text[1:-1])
    iri = expand(token.text, prefixes) if token.kind == "name" else None
    return None if iri is None else NamedNode(iri)


def _patterns_first(elements: tuple[Element, ...]) -> list[Element]:
    """In order, but FILTERs last: they judge what the rest binds, wherever they stand."""
    return sorted(elements, key=lambda element: element.kind == "filter")


def _first(names: list[str], solutions: list[Solution]) -> dict[str, Term]:
    chosen = min(solutions, key=lambda solution: [str(term) for term in solution])
    return {name: term for name, term in zip(names, chosen, strict=True) if term is not None}


def _shown(element: Element, known: Mapping[str, Term], event: str | None, prefixes: Mapping[str, str]) -> str:
    text = ""
    for i, token in enumerate(element.tokens):
        word = _word(token, known, event, prefixes)
        text += word if i and element.tokens[i - 1].end == token.start else f" {word}"
    return text.strip()


def _word(token: Token, known: Mapping[str, Term], event: str | None, prefixes: Mapping[str, str]) -> str:
    name = token.text[1:] if token.kind == "variable" else None
    if name is None or name == event or name not in known:
        return token.text
    return shown_term(known[name], prefixes)
