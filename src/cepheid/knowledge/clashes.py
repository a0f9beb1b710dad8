"""What contradicts: the rules of OWL RL that end in `false`, as questions whose answers say who clashes with what."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyoxigraph import NamedNode, QuerySolutions, Store

from cepheid.knowledge.terms import OWL, RDF, RDFS, Node, short

#: So many clashes are told; the first few are what a user mends.
SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Clash:
    """A pattern that no world can fit. `?x` is whom it is about; `told` is a sentence with its variables in braces."""

    rule: str
    pattern: str
    told: str
    needs: str  # a term without which the pattern can't be there


_CLASHES: Final = (
    Clash("cls-nothing2", "?x a owl:Nothing", "{x} is an owl:Nothing, which nothing is", "Nothing"),
    Clash(
        "cax-dw",
        "?c owl:disjointWith ?d . ?x a ?c . ?x a ?d",
        "{x} is both a {c} and a {d}, which are disjoint",
        "disjointWith",
    ),
    Clash(
        "cax-adc",
        "?all a owl:AllDisjointClasses ; owl:members ?list . ?list rdf:rest*/rdf:first ?c, ?d . ?x a ?c . ?x a ?d "
        "FILTER (STR(?c) < STR(?d))",
        "{x} is both a {c} and a {d}, which are disjoint",
        "AllDisjointClasses",
    ),
    Clash(
        "cls-com",
        "?c owl:complementOf ?d . ?x a ?c . ?x a ?d",
        "{x} is both a {c} and a {d}, which is what no {c} is",
        "complementOf",
    ),
    Clash(
        "eq-diff1",
        "?x owl:sameAs ?y . ?x owl:differentFrom ?y",
        "{x} is the same as {y} and different from it",
        "differentFrom",
    ),
    Clash(
        "eq-diff2",
        "?all a owl:AllDifferent ; owl:members|owl:distinctMembers ?list . ?list rdf:rest*/rdf:first ?x, ?y . "
        "?x owl:sameAs ?y FILTER (STR(?x) < STR(?y))",
        "{x} and {y} are the same, but said to be different",
        "AllDifferent",
    ),
    Clash(
        "prp-irp",
        "?p a owl:IrreflexiveProperty . ?x ?p ?x",
        "{x} {p} itself, but {p} is irreflexive",
        "IrreflexiveProperty",
    ),
    Clash(
        "prp-asyp",
        "?p a owl:AsymmetricProperty . ?x ?p ?y . ?y ?p ?x",
        "{x} {p} {y} and back, but {p} is asymmetric",
        "AsymmetricProperty",
    ),
    Clash(
        "prp-pdw",
        "?p owl:propertyDisjointWith ?q . ?x ?p ?y . ?x ?q ?y",
        "{x} {p} {y} and {x} {q} {y}, but {p} and {q} are disjoint",
        "propertyDisjointWith",
    ),
    Clash(
        "prp-npa",
        "?n owl:sourceIndividual ?x ; owl:assertionProperty ?p ; owl:targetIndividual|owl:targetValue ?y . ?x ?p ?y",
        "{x} {p} {y}, which is said not to be",
        "assertionProperty",
    ),
    Clash(
        "cls-maxc1",
        "?r owl:maxCardinality ?none ; owl:onProperty ?p . ?x a ?r . ?x ?p ?y FILTER (?none = 0)",
        "{x} has {y} as {p}, but may have none",
        "maxCardinality",
    ),
    Clash(
        "prp-fp",
        "?p a owl:FunctionalProperty . ?x ?p ?y, ?z FILTER (isLiteral(?y) && isLiteral(?z) && ?y < ?z)",
        "{x} has both {y} and {z} as {p}, which is functional",
        "FunctionalProperty",
    ),
)
_PREFIXES: Final = {"owl": OWL, "rdf": RDF, "rdfs": RDFS}


def find(store: Store, prefixes: Mapping[str, str], about: Collection[Node] | None = None) -> list[str]:
    """What clashes in a store, said in words; only about these nodes, if any are given."""
    told: list[str] = []
    values = ""
    if about is not None:
        named = [str(node) for node in about if isinstance(node, NamedNode)]
        values = f"VALUES ?x {{ {' '.join(named)} }}"
    for clash in _CLASHES:
        if len(told) >= SHOWN or not _is_used(store, OWL + clash.needs):
            continue
        found = store.query(f"SELECT DISTINCT * {{ {values} {clash.pattern} }} LIMIT {SHOWN}", prefixes=_PREFIXES)
        assert isinstance(found, QuerySolutions)
        names = [variable.value for variable in found.variables]
        for solution in found:
            bound = zip(names, solution, strict=True)
            terms = {name: short(value, {**_PREFIXES, **prefixes}) for name, value in bound if value is not None}
            told.append(f"{clash.told.format(**terms)} ({clash.rule})")
    return told[:SHOWN]


def _is_used(store: Store, iri: str) -> bool:
    node = NamedNode(iri)
    return (
        next(store.quads_for_pattern(None, node, None), None) is not None
        or next(store.quads_for_pattern(None, None, node), None) is not None
    )
