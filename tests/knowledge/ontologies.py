"""Random small ontologies, with every kind of axiom that the rules of OWL RL speak of."""

from __future__ import annotations

from hypothesis import strategies as st

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"
EX = "http://example.org/"
ONE = '"1"^^<http://www.w3.org/2001/XMLSchema#nonNegativeInteger>'


def iri(text: str) -> str:
    return f"<{text}>"


TYPE = iri(RDF + "type")
CLASSES = [iri(f"{EX}C{i}") for i in range(5)]
PROPERTIES = [iri(f"{EX}p{i}") for i in range(4)]
THINGS = [iri(f"{EX}x{i}") for i in range(5)]

_class = st.sampled_from(CLASSES)
_property = st.sampled_from(PROPERTIES)
_thing = st.sampled_from(THINGS)


def _line(*terms: str) -> str:
    return f"{' '.join(terms)} ."


def _list(name: str, members: list[str]) -> tuple[str, list[str]]:
    nodes = [iri(f"{EX}{name}_{i}") for i in range(len(members))] + [iri(RDF + "nil")]
    lines = []
    for i, member in enumerate(members):
        lines += [_line(nodes[i], iri(RDF + "first"), member), _line(nodes[i], iri(RDF + "rest"), nodes[i + 1])]
    return nodes[0], lines


@st.composite
def _list_axiom(draw: st.DrawFn, name: str) -> list[str]:
    kind = draw(st.sampled_from(["intersectionOf", "unionOf", "oneOf", "propertyChainAxiom", "hasKey"]))
    subject = draw(_property if kind == "propertyChainAxiom" else _class)
    members = {"oneOf": _thing, "propertyChainAxiom": _property, "hasKey": _property}.get(kind, _class)
    head, lines = _list(name, draw(st.lists(members, min_size=1, max_size=2)))
    return [*lines, _line(subject, iri(OWL + kind), head)]


@st.composite
def _restriction(draw: st.DrawFn) -> list[str]:
    subject = draw(_class)
    kind = draw(st.sampled_from(["someValuesFrom", "allValuesFrom", "hasValue", "maxCardinality"]))
    value = {"hasValue": draw(_thing), "maxCardinality": ONE}.get(kind) or draw(_class)
    return [_line(subject, iri(OWL + "onProperty"), draw(_property)), _line(subject, iri(OWL + kind), value)]


def _axiom(subject: st.SearchStrategy[str], predicate: str, object_: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda s, o: _line(s, iri(predicate), o), subject, object_)


_KINDS = ("SymmetricProperty", "TransitiveProperty", "FunctionalProperty", "InverseFunctionalProperty")
schema_lines = st.one_of(
    _axiom(_class, RDFS + "subClassOf", _class),
    _axiom(_class, OWL + "equivalentClass", _class),
    _axiom(_property, RDFS + "subPropertyOf", _property),
    _axiom(_property, OWL + "equivalentProperty", _property),
    _axiom(_property, RDFS + "domain", _class),
    _axiom(_property, RDFS + "range", _class),
    _axiom(_property, OWL + "inverseOf", _property),
    _axiom(_property, RDF + "type", st.sampled_from([iri(OWL + kind) for kind in _KINDS])),
)
instance_lines = st.one_of(
    st.builds(_line, _thing, _property, _thing),
    st.builds(_line, _thing, _property, _thing),
    st.builds(lambda x, c: _line(x, TYPE, c), _thing, _class),
    _axiom(_thing, OWL + "sameAs", _thing),
)


@st.composite
def ontologies(draw: st.DrawFn) -> list[str]:
    """Lines of N-Triples."""
    lines = draw(st.lists(schema_lines, max_size=6)) + draw(st.lists(instance_lines, min_size=1, max_size=7))
    for number in range(draw(st.integers(0, 2))):
        lines += draw(st.one_of(_list_axiom(f"l{number}"), _restriction()))
    return list(dict.fromkeys(lines))
