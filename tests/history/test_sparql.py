"""`--to sparql`: run by pyoxigraph over events as RDF, it finds the matches of the native matcher, in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyoxigraph as ox
import pytest
from hypothesis import HealthCheck, assume, given, settings

from cepheid.app import load
from cepheid.history.asked import Asked, asked
from cepheid.history.sparql import as_rdf, to_sparql
from cepheid.history.sql import NotExact
from cepheid.knowledge.annotation import root_of
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.plan.matcher import Matcher
from tests.history.held import asked_of
from tests.history.simpler import of_single_events
from tests.plan.query_strategies import NOW, Case, cases


def found(question: Asked, store: ox.Store) -> list[dict[str, str]]:
    """The events of each solution, by variable."""
    solutions: Any = store.query(to_sparql(question))
    variables = [v.value for v in solutions.variables if f"{v.value}_id" in {o.value for o in solutions.variables}]
    return [{v: solution[v].value for v in variables} for solution in solutions]


def events_of(match: Match) -> dict[str, str]:
    return {v: root_of(Event(*ref, 0)).value for v, ref in match.events.items() if isinstance(ref, tuple)}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(case=cases())
def test_sparql_finds_the_same(case: Case) -> None:
    simple = of_single_events(case)
    assume(simple is not None)
    assert simple is not None
    question = asked_of(simple.checked, simple.catalogue.streams, NOW)
    store = ox.Store()
    store.extend(as_rdf(simple.events))
    try:
        answered = found(question, store)
    except NotExact:
        assume(False)
    wanted = [events_of(match) for match in Matcher(simple.checked, NOW).matches(simple.events)]
    # Where streams share a time, SPARQL has no order of streams' names.
    assert sorted(map(str, answered)) == sorted(map(str, wanted))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?b.flow - ?a.flow AS rise SEQ (?a, ?b) WINDOW (?a, ?b, 1min) PATH { ?a p:from ?s . ?s p:in p:hall }",
        "SELECT ?a.flow SEQ (?a, ?b) WINDOW (?a, ?b, 1min) PATH { ?a p:from/p:in ?r . ?b p:from/p:in ?r }",
        "SELECT ?a.flow SEQ (?a, NOT ?n, ?b) WINDOW (?a, ?b, 1min) PATH { ?n p:from ?s . ?s p:in p:yard }",
        # Another event in one of the rooms of both is one too many, whatever other rooms there are.
        "SELECT ?a.flow SEQ (?a, NOT ?n, ?b) WINDOW (?a, ?b, 1min) "
        "PATH { ?a p:from/p:in ?r . ?n p:from/p:in ?r . ?b p:from/p:in ?r }",
    ],
)
def test_paths_stand_as_they_are_written(tmp_path: Path, text: str) -> None:
    (tmp_path / "plant.ttl").write_text("@prefix p: <http://p/> . p:s1 p:in p:hall . p:s2 p:in p:yard, p:hall .")
    (tmp_path / "app.yaml").write_text("""
name: plant
prefixes: {p: "http://p/"}
default_stream: air
streams:
  air:
    attributes: {sensor: string, flow: float}
    semantics: {sensor: {property: "p:from", entity: "p:{value}"}}
knowledge: {sources: [plant.ttl]}
""")
    app = load(tmp_path / "app.yaml")
    question = asked(app, text, 0)
    events = [Event("air", i, i * 1_000_000, {"sensor": f"s{i % 3}", "flow": float(i)}) for i in range(9)]
    known = question.question.known
    assert known is not None
    store = ox.Store()
    store.extend(ox.Quad(q.subject, q.predicate, q.object) for q in known.knowledge.store)
    store.extend(as_rdf(events, known))
    wanted = [events_of(match) for match in Matcher(question.checked).matches(events)]
    assert len(wanted) > 4
    assert found(question, store) == wanted


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("name: a\nstreams: {s: {attributes: {x: int}}}\ndefault_stream: s\n")
    app = load(tmp_path / "app.yaml")
    for text in (
        "SELECT ?a.x SEQ (?a, ?b) MATCH NEXT WINDOW (?a, ?b, 1s)",
        "SELECT SUM(?a.x) AS n WINDOW (?a, batch, 1s)",
    ):
        with pytest.raises(NotExact):
            to_sparql(asked(app, text, 0))
