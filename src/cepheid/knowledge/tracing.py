"""The triples by which an event satisfies a part of a PATH, or the element at which it stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cepheid.knowledge.asking import Facts, Solution, ask_all, shown_term
from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.terms import Term
from cepheid.language.parts import Part
from cepheid.language.path import Element, Token


@dataclass(frozen=True, slots=True)
class Trace:
    """What was found, element by element; `stopped` is the first element that nothing fits, None if all do."""

    found: tuple[str, ...]
    stopped: str | None = None


def trace(part: Part, facts: Facts, knowledge: Knowledge, prefixes: Mapping[str, str]) -> Trace:
    """Goes along a part as far as there is a solution; of several the first is shown."""
    taken: list[Element] = []
    best: dict[str, Term] = {}
    for element in _patterns_first(part.elements):
        tried = [*taken, element]
        names = sorted({v for e in tried for v in e.variables} - {part.variable or ""})
        small = replace(part, groups=(tuple(tried),), columns=())
        solutions = ask_all(knowledge, small, prefixes, [facts], names)[0]
        if not solutions:
            shown = tuple(_shown(e, best, part.variable, prefixes) for e in taken)
            return Trace(shown, _shown(element, best, part.variable, prefixes))
        taken, best = tried, _first(names, solutions)
    return Trace(tuple(_shown(e, best, part.variable, prefixes) for e in taken))


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
