"""The triples along a property path: there are some where SPARQL says that the path holds, and they are true."""

from __future__ import annotations

from itertools import product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyoxigraph import NamedNode, Quad

from cepheid.knowledge.chains import Graph, chain
from cepheid.knowledge.store import Knowledge
from cepheid.language.path import tokens
from cepheid.language.syntax import PathGroup
from tests.plan.path_strategies import NODES, NS, PREFIXES, knowledge, ontologies

PATHS = (
    *(":in", "^:in", ":in/:part", ":in/:part/:near", "^(:in/:part)", "(:in|^:part)/:near?", ":in+", "^:in+", ":part*"),
    *(":in?", ":in|:near", "!:in", "!^:in", "!(:in|^:part)", "(:in/^:part)+", "((:in|:near)*)/:part", "!(:in|:near)"),
    *("a", ":in/a", "^a", "<http://x#in>/:part"),
)


def links_of(kb: Knowledge, path: str, start: str, end: str) -> list[tuple[str, str, str]] | None:
    found = chain(tokens(PathGroup(path)), PREFIXES, Graph(kb), NamedNode(NS + start), NamedNode(NS + end))
    return None if found is None else [(s.value, p, o.value) for s, p, o in found]


def is_there(kb: Knowledge, name: str) -> bool:
    node = NamedNode(NS + name)
    return any(kb.store.quads_for_pattern(node, None, None)) or any(kb.store.quads_for_pattern(None, None, node))


@given(turtle=ontologies(), path=st.sampled_from(PATHS))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_there_are_triples_where_the_path_holds(turtle: str, path: str) -> None:
    kb = knowledge(turtle)
    # Of what is nowhere in the graph Oxigraph says that not even a path without steps leads to itself.
    for start, end in product(filter(lambda name: is_there(kb, name), (*NODES, "Room")), repeat=2):
        holds = bool(kb.store.query(f"ASK {{ <{NS}{start}> {path} <{NS}{end}> }}", prefixes=PREFIXES))
        links = links_of(kb, path, start, end)
        assert (links is not None) == holds, (turtle, path, start, end)
        here = NS + start
        for s, p, o in links or ():
            assert Quad(NamedNode(s), NamedNode(p), NamedNode(o)) in kb.store
            assert here in (s, o)
            here = o if here == s else s
        assert not holds or here == NS + end


def test_of_several_ways_it_is_a_shortest() -> None:
    kb = knowledge(f"@prefix : <{NS}> . :a :p :b . :b :p :c . :c :p :d . :a :q :d . :a :r :d .")
    assert links_of(kb, ":p+|:r", "a", "d") == [(f"{NS}a", f"{NS}r", f"{NS}d")]
    assert links_of(kb, "(:p|:q)+", "a", "d") == [(f"{NS}a", f"{NS}q", f"{NS}d")]
    assert len(links_of(kb, ":p+", "a", "d") or ()) == 3


def test_an_event_s_own_triples_are_among_them() -> None:
    kb = knowledge(f"@prefix : <{NS}> . :s :in :r .")
    event, sensor = NamedNode("urn:event"), NamedNode(f"{NS}s")
    graph = Graph(kb, [(event, f"{NS}src", sensor)])
    found = chain(tokens(PathGroup(":src/:in")), PREFIXES, graph, event, NamedNode(f"{NS}r"))
    assert found == [(event, f"{NS}src", sensor), (sensor, f"{NS}in", NamedNode(f"{NS}r"))]
