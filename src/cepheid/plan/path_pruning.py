"""Rule: what a PATH says of constants is asked once and replaced by the answer (the paper's pruning and migration).

    PATH {?e hvc:airflow ?rate . hvc:GreenOfficeAirflow hvc:hasValue ?gaf . FILTER (?rate > ?gaf)}
    PATH {?e hvc:airflow ?rate . FILTER (?rate > 500)}          hvc:GreenOfficeAirflow hvc:hasValue ?gaf is 500

With several answers they stay, as VALUES; with none too, and the PATH is never true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyoxigraph import BlankNode

from cepheid.knowledge.asking import ask_all, shown_term
from cepheid.knowledge.store import Knowledge
from cepheid.language.parts import Part
from cepheid.language.path import Element, Token, written
from cepheid.plan.rewriting import Rewriting

#: More answers than this are not written into a query.
_MOST = 64


def prune(part: Part, knowledge: Knowledge, prefixes: Mapping[str, str]) -> Rewriting:
    """The part without triples that begin at a constant."""
    reasons: list[str] = []
    asked: list[Element] = []
    never: str | None = None
    while True:
        found = next((e for e in part.elements if _begins_at_constant(e, part)), None)
        if found is None:
            return Rewriting(part, (), tuple(reasons), asked=tuple(asked), never=never)
        asked.append(found)
        (name,) = found.variables
        answers = ask_all(knowledge, Part(None, ((found,),)), prefixes, [()], [name])[0]
        terms = sorted({term for (term,) in answers if term is not None}, key=str)
        if not terms:
            never = f"{written(found.tokens)}: nothing is known of it, so it is never true"
            reasons.append(never)
        if len(terms) > _MOST or any(isinstance(term, BlankNode) for term in terms):
            part = _kept(part, found)
            continue
        texts = [str(term) for term in terms]
        # No term can stand where BIND or VALUES binds a variable.
        is_free = name not in part.columns and not any(name in e.binds for e in part.elements)
        if len(terms) == 1 and is_free:
            part = _replaced(part, found, name, texts[0])
            reasons.append(f"{written(found.tokens)}: ?{name} is {shown_term(terms[0], prefixes)}")
        else:
            part = _changed(part, found, _values(found, name, texts))
            reasons += [f"{written(found.tokens)}: ?{name} is one of {len(terms)}"] if terms else []


def _begins_at_constant(element: Element, part: Part) -> bool:
    if element.ends is None or len(element.variables) != 1 or part.variable in element.variables:
        return False
    subject, path, target = element.ends
    constant = all(t.kind in ("iri", "name") for t in subject)
    return constant and len(target) == 1 and target[0].kind == "variable" and path[0].kind != "variable"


def _kept(part: Part, element: Element) -> Part:
    """The element as one that is not looked at again."""
    return _changed(part, element, replace(element, ends=None))


def _changed(part: Part, old: Element, new: Element) -> Part:
    return replace(part, groups=tuple(tuple(new if e is old else e for e in group) for group in part.groups))


def _replaced(part: Part, gone: Element, name: str, term: str) -> Part:
    groups = (tuple(e.with_variable(name, term) for e in group if e is not gone) for group in part.groups)
    return replace(part, groups=tuple(group for group in groups if group))


def _values(element: Element, name: str, terms: list[str]) -> Element:
    words = ["VALUES", f"?{name}", "{", *terms, "}"]
    kinds = ["word", "variable", "sign", *["iri"] * len(terms), "sign"]
    tokens = tuple(Token(kind, word, -1, -2) for kind, word in zip(kinds, words, strict=True))
    return Element("values", tokens, element.place)
