"""Knowledge: what is loaded, what follows, and what a question may cost."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyoxigraph import NamedNode, Triple

from cepheid.knowledge.errors import TooMuch
from cepheid.knowledge.store import Knowledge
from cepheid.language.errors import Rejected

PREFIXES = {"ex": "http://example.org/", "rdfs": "http://www.w3.org/2000/01/rdf-schema#"}
OFFICES = """
@prefix ex: <http://example.org/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
ex:Office rdfs:subClassOf ex:Room .
ex:Room rdfs:subClassOf ex:Space .
ex:r105 a ex:Office .
ex:s1 ex:id "D105VOL" ; ex:in ex:r105 .
"""


def ex(name: str) -> NamedNode:
    return NamedNode(PREFIXES["ex"] + name)


@pytest.fixture
def offices(tmp_path: Path) -> Knowledge:
    (tmp_path / "offices.ttl").write_text(OFFICES)
    return Knowledge.load(["offices.ttl"], folder=tmp_path)


def test_consequences_are_there(offices: Knowledge) -> None:
    assert offices.select("SELECT ?x { ?x a ex:Space }", PREFIXES) == [{"x": ex("r105")}]
    assert offices.version == 1


def test_a_change_takes_its_consequences_along(offices: Knowledge) -> None:
    a = NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
    change = offices.apply([Triple(ex("r106"), a, ex("Room"))], [Triple(ex("r105"), a, ex("Office"))])
    assert change.version == offices.version == 2
    assert Triple(ex("r105"), a, ex("Space")) in change.removed
    assert offices.select("SELECT ?x { ?x a ex:Space }", PREFIXES) == [{"x": ex("r106")}]


def test_a_question_is_bounded(offices: Knowledge) -> None:
    with pytest.raises(TooMuch, match="more than 2 solutions"):
        offices.select("SELECT * { ?s ?p ?o }", PREFIXES, limit=2)
    with pytest.raises(Rejected, match="SPARQL:1:17: error: this is not SPARQL"):
        offices.select("SELECT * { ?s ?p", PREFIXES)


def test_a_reader_asks_several_things_of_one_version(offices: Knowledge) -> None:
    with offices.reading() as version:
        assert version == 1
        assert len(offices.select("SELECT ?x { ?x a ex:Space }", PREFIXES, seconds=5)) == 1


def test_subjects_by_value(offices: Knowledge) -> None:
    assert offices.having(PREFIXES["ex"] + "id") == {"D105VOL": (ex("s1"),)}


def test_nearest_name(offices: Knowledge) -> None:
    assert offices.knows(PREFIXES["ex"] + "Office")
    assert not offices.knows(PREFIXES["ex"] + "Ofice")
    assert offices.nearest(PREFIXES["ex"] + "Ofice", PREFIXES) == "ex:Office"
