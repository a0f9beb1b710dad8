"""What follows: the same as a complete reasoner finds, and after any changes the same as from the start."""

from __future__ import annotations

from tempfile import NamedTemporaryFile

import owlrl  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from rdflib import Graph
from reasonable import PyReasoner  # type: ignore[import-untyped]

from cepheid._native import Reasoner
from tests.knowledge.ontologies import EX, OWL, RDF, RDFS, instance_lines, iri, ontologies, schema_lines

#: What the rules conclude about; owlrl also says that everything is a thing, and of every literal what it is.
TOLD = {
    *(iri(RDF + "type"), iri(RDFS + "subClassOf"), iri(RDFS + "subPropertyOf"), iri(RDFS + "domain")),
    *(iri(RDFS + "range"), iri(OWL + "equivalentClass"), iri(OWL + "equivalentProperty"), iri(OWL + "sameAs")),
}


def told(lines: list[str]) -> set[str]:
    """The lines that say something: about the example's own terms, and not of a thing that it is itself."""
    kept = set()
    for line in lines:
        s, p, o = line.removesuffix(" .").split(" ", 2)
        own = p.startswith(f"<{EX}") or p in TOLD
        if own and s.startswith(f"<{EX}") and o.startswith(f"<{EX}") and not (s == o and p in TOLD):
            kept.add(line)
    return kept


def concluded(base: list[str]) -> list[str]:
    reasoner = Reasoner(True, "", 100_000)
    reasoner.load("\n".join(base))
    return reasoner.facts().splitlines()


@settings(max_examples=30, deadline=None)
@given(ontologies())
def test_the_same_as_a_complete_reasoner(base: list[str]) -> None:
    graph = Graph()
    graph.parse(data="\n".join(base), format="nt")
    owlrl.DeductiveClosure(owlrl.OWLRL_Semantics).expand(graph)
    complete = [line for line in graph.serialize(format="nt").splitlines() if line.strip()]
    assert told(concluded(base)) == told(complete)


@settings(max_examples=30, deadline=None)
@given(ontologies())
def test_all_that_reasonable_concludes_follows(base: list[str]) -> None:
    """It has fewer rules (no chains, no keys, little of the schema), so nothing more than that can be said."""
    reasoner = PyReasoner()
    with NamedTemporaryFile("w", suffix=".n3") as file:
        file.write("\n".join(base))
        file.flush()
        reasoner.load_file(file.name)
    concluded_there = [f"{s.n3()} {p.n3()} {o.n3()} ." for s, p, o in reasoner.reason()]
    assert told(concluded_there) <= told(concluded(base))


changes = st.lists(
    st.tuples(st.lists(st.one_of(instance_lines, schema_lines), max_size=3), st.lists(st.integers(0, 30), max_size=3)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=200, deadline=None)
@given(ontologies(), changes)
def test_after_any_changes_the_same_as_from_the_start(
    base: list[str], changes: list[tuple[list[str], list[int]]]
) -> None:
    reasoner = Reasoner(True, "", 100_000)
    reasoner.load("\n".join(base))
    now = list(base)
    for added, positions in changes:
        before = set(reasoner.facts().splitlines())
        removed = [now[i % len(now)] for i in positions if now]
        delta = reasoner.apply("\n".join(added), "\n".join(removed))
        now = list(dict.fromkeys([*(line for line in now if line not in removed), *added]))
        if delta is None:
            reasoner.load("\n".join(now))
            continue
        after = set(reasoner.facts().splitlines())
        assert after == set(concluded(now))
        assert (set(delta[0].splitlines()), set(delta[1].splitlines())) == (after - before, before - after)


@settings(max_examples=30, deadline=None)
@given(ontologies(), instance_lines)
def test_kept_conclusions_are_as_good_as_drawn_ones(base: list[str], line: str) -> None:
    restored = Reasoner(True, "", 100_000)
    restored.restore("\n".join(base), "\n".join(concluded(base)))
    restored.apply(line, "")
    assert set(restored.facts().splitlines()) == set(concluded([*base, line]))
