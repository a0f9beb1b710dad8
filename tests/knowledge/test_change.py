"""Knowledge that changes: by the API, the journal and files; what is kept between runs; what contradicts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyoxigraph import NamedNode, RdfFormat, Triple, parse

from cepheid.knowledge import journal
from cepheid.knowledge.errors import Inconsistent, KnowledgeError
from cepheid.knowledge.follow import Follower
from cepheid.knowledge.store import Change, Knowledge
from cepheid.language.errors import Rejected
from tests.knowledge.ontologies import instance_lines, ontologies, schema_lines

PREFIX = """@prefix ex: <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
"""
ROOMS = PREFIX + "ex:Office rdfs:subClassOf ex:Room . ex:r1 a ex:Office ."
EX = {"ex": "http://example.org/"}


def triples(text: str) -> list[Triple]:
    return [Triple(q.subject, q.predicate, q.object) for q in parse(PREFIX + text, RdfFormat.TURTLE)]


def rooms(knowledge: Knowledge) -> set[str]:
    found = knowledge.select("SELECT ?x { ?x a ex:Room }", EX)
    return {row["x"].value.removeprefix(EX["ex"]) for row in found}


def lines(knowledge: Knowledge) -> set[str]:
    return {f"{q.subject} {q.predicate} {q.object} ." for q in knowledge.store}


def load(folder: Path, text: str = ROOMS, **more: object) -> Knowledge:
    (folder / "rooms.ttl").write_text(text)
    return Knowledge.load(["rooms.ttl"], folder=folder, **more)  # type: ignore[arg-type]


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ontologies(),
    st.lists(
        st.tuples(
            st.lists(st.one_of(instance_lines, schema_lines), max_size=3), st.lists(st.integers(0, 30), max_size=3)
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_after_any_changes_the_store_is_what_a_full_load_gives(
    tmp_path: Path, base: list[str], changes: list[tuple[list[str], list[int]]]
) -> None:
    (tmp_path / "base.nt").write_text("\n".join(base))
    knowledge = Knowledge.load(["base.nt"], folder=tmp_path)
    now = list(base)
    for added, positions in changes:
        removed = [now[i % len(now)] for i in positions if now]
        before, version = lines(knowledge), knowledge.version
        change = knowledge.apply(_parsed(added), _parsed(removed))
        now = list(dict.fromkeys([*(line for line in now if line not in removed), *added]))
        (tmp_path / "base.nt").write_text("\n".join(now))
        assert lines(knowledge) == lines(Knowledge.load(["base.nt"], folder=tmp_path))
        assert (_lines(change.added), _lines(change.removed)) == (lines(knowledge) - before, before - lines(knowledge))
        assert change.version == knowledge.version == version + 1


def _parsed(given: list[str]) -> list[Triple]:
    return [Triple(q.subject, q.predicate, q.object) for q in parse("\n".join(given), RdfFormat.N_TRIPLES)]


def _lines(given: tuple[Triple, ...]) -> set[str]:
    return {f"{triple} ." for triple in given}


def test_a_changed_list_of_an_axiom_is_swapped_in_whole(tmp_path: Path) -> None:
    knowledge = load(tmp_path, ROOMS + "ex:s ex:of ex:v . ex:v ex:feeds ex:r1 .")
    heard: list[Change] = []
    knowledge.listen(heard.append)
    before = knowledge.store
    knowledge.apply(triples("ex:in owl:propertyChainAxiom (ex:of ex:feeds) ."), [])
    assert knowledge.store is not before
    assert Triple(*(NamedNode(EX["ex"] + n) for n in ("s", "in", "r1"))) in heard[0].added


def test_nothing_is_parsed_or_concluded_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    first = load(tmp_path, cache=cache)
    monkeypatch.setattr("cepheid.knowledge.sources.SourceFile.load", lambda _: pytest.fail("parsed again"))
    monkeypatch.setattr("cepheid.knowledge.reasoning.Conclusions.load", lambda *_: pytest.fail("concluded again"))
    second = Knowledge.load(["rooms.ttl"], folder=tmp_path, cache=cache)
    assert (lines(second), second.digest) == (lines(first), first.digest)
    second.apply(triples("ex:r2 a ex:Office ."), triples("ex:r1 a ex:Office ."))
    assert rooms(second) == {"r2"}


def test_many_facts_are_asked_on_disk_and_changed_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cepheid.knowledge.cache._MANY_BYTES", 0)
    load(tmp_path, cache=tmp_path / "cache")
    again = Knowledge.load(["rooms.ttl"], folder=tmp_path, cache=tmp_path / "cache")
    with pytest.raises(RuntimeError, match="read-write"):
        again.store.clear()
    assert rooms(again) == {"r1"}
    again.apply(triples("ex:r2 a ex:Office ."), [])
    assert rooms(again) == {"r1", "r2"}


def test_a_cache_that_is_damaged_is_no_harm(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    load(tmp_path, cache=cache)
    for file in cache.rglob("*.json"):
        file.write_text("{")
    for file in cache.rglob("ruled.nt"):
        file.unlink()
    assert rooms(Knowledge.load(["rooms.ttl"], folder=tmp_path, cache=cache)) == {"r1"}


def test_what_contradicts_is_told(tmp_path: Path) -> None:
    disjoint = ROOMS + "ex:Room owl:disjointWith ex:Person ."
    with pytest.raises(Inconsistent, match="ex:r1 is both a ex:Room and a ex:Person, which are disjoint"):
        load(tmp_path, disjoint + "ex:r1 a ex:Person .", prefixes=EX)
    knowledge = load(tmp_path, disjoint, prefixes=EX)
    before = lines(knowledge)
    with pytest.raises(Inconsistent):
        knowledge.apply(triples("ex:r1 a ex:Person ."), triples("ex:r2 a ex:Office ."))
    assert (lines(knowledge), knowledge.version) == (before, 1)
    assert rooms(knowledge) == {"r1"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ex:p a owl:IrreflexiveProperty . ex:a ex:p ex:a .", "ex:a ex:p itself"),
        ("ex:p a owl:AsymmetricProperty . ex:a ex:p ex:b . ex:b ex:p ex:a .", "ex:p is asymmetric"),
        ("ex:p owl:propertyDisjointWith ex:q . ex:a ex:p ex:b ; ex:q ex:b .", "ex:p and ex:q are disjoint"),
        ("ex:a owl:sameAs ex:b . ex:a owl:differentFrom ex:b .", "different from it"),
        ("[] a owl:AllDifferent ; owl:members (ex:a ex:b) . ex:a owl:sameAs ex:b .", "said to be different"),
        ("[] a owl:AllDisjointClasses ; owl:members (ex:C ex:D) . ex:a a ex:C, ex:D .", "which are disjoint"),
        ("ex:C owl:complementOf ex:D . ex:a a ex:C, ex:D .", "which is what no ex:C is"),
        ("ex:a a owl:Nothing .", "owl:Nothing"),
        ("ex:p a owl:FunctionalProperty . ex:a ex:p 1, 2 .", "which is functional"),
        ("ex:C owl:maxCardinality 0 ; owl:onProperty ex:p . ex:a a ex:C ; ex:p ex:b .", "may have none"),
        (
            "[] owl:sourceIndividual ex:a ; owl:assertionProperty ex:p ; owl:targetIndividual ex:b . ex:a ex:p ex:b .",
            "said not to be",
        ),
    ],
)
def test_every_kind_of_clash(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(Inconsistent, match=told):
        load(tmp_path, PREFIX + text, prefixes=EX)


def test_subclass_loops_are_no_harm(tmp_path: Path) -> None:
    knowledge = load(
        tmp_path, PREFIX + "ex:A rdfs:subClassOf ex:B . ex:B rdfs:subClassOf ex:Room, ex:A . ex:r1 a ex:A ."
    )
    assert rooms(knowledge) == {"r1"}


def rule(folder: Path, text: str) -> list[Path]:
    (folder / "own.rq").write_text("PREFIX ex: <http://example.org/>\n" + text)
    return [Path("own.rq")]


CHAIN = PREFIX + "ex:s ex:of ex:v . ex:v ex:feeds ex:r1 . ex:r1 ex:partOf ex:f1 ."


@pytest.mark.parametrize(
    "text",
    [
        "CONSTRUCT { ?s ex:in ?r } WHERE { ?s ex:of ?v . ?v ex:feeds ?r }",
        "CONSTRUCT { ?s ex:in ?r } WHERE { ?s ex:of/ex:feeds ?r }",
        "CONSTRUCT { ?s ex:in ?r } WHERE { ?s ex:of ?v . ?v ex:feeds ?r FILTER NOT EXISTS { ?r ex:closed true } }",
    ],
)
def test_own_rules_follow_changes_as_they_are_plain_or_not(text: str, tmp_path: Path) -> None:
    knowledge = load(tmp_path, CHAIN, rules=rule(tmp_path, text), cache=tmp_path / "cache")
    question = "SELECT ?r { ex:s ex:in ?r }"
    assert knowledge.select(question, EX) == [{"r": NamedNode(EX["ex"] + "r1")}]
    again = Knowledge.load(["rooms.ttl"], folder=tmp_path, rules=[Path("own.rq")], cache=tmp_path / "cache")
    for one in (knowledge, again):
        change = one.apply(triples("ex:v ex:feeds ex:r2 ."), triples("ex:v ex:feeds ex:r1 ."))
        assert one.select(question, EX) == [{"r": NamedNode(EX["ex"] + "r2")}]
        assert triples("ex:s ex:in ex:r1 .")[0] in change.removed
        assert triples("ex:s ex:in ex:r2 .")[0] in change.added


def test_a_rule_may_be_wrong_again(tmp_path: Path) -> None:
    text = "CONSTRUCT { ?r a ex:Open } WHERE { ?r a ex:Room FILTER NOT EXISTS { ?r ex:closed true } }"
    knowledge = load(tmp_path, rules=rule(tmp_path, text))
    opened = "SELECT ?r { ?r a ex:Open }"
    assert len(knowledge.select(opened, EX)) == 1
    knowledge.apply(triples("ex:r1 ex:closed true ."), [])
    assert knowledge.select(opened, EX) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CONSTRUCT { ?s ex:p ?o } WHERE { ?s ex:p }", "own.rq:2:"),
        ("SELECT * { ?s ?p ?o }", "a rule is a CONSTRUCT"),
        ("CONSTRUCT { ?s ex:p _:b } WHERE { ?s ex:of ?o }", "without end"),
        ("CONSTRUCT { ?s ex:p ?o } WHERE { SERVICE <http://example.org/> { ?s ex:of ?o } }", "leave this machine"),
    ],
)
def test_broken_rules(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(Rejected) as caught:
        load(tmp_path, CHAIN, rules=rule(tmp_path, text))
    assert told in str(caught.value)


def test_a_rule_without_end(tmp_path: Path) -> None:
    text = "CONSTRUCT { ?s ex:n ?m } WHERE { ?s ex:n ?n BIND (?n + 1 AS ?m) }"
    with pytest.raises(KnowledgeError, match=r"own\.rq: something new follows even after 100 rounds"):
        load(tmp_path, PREFIX + "ex:s ex:n 1 .", rules=rule(tmp_path, text))


def test_a_change_without_end_changes_nothing(tmp_path: Path) -> None:
    text = "CONSTRUCT { ?s ex:n ?m } WHERE { ?s ex:n ?n . ?s a ex:Counter BIND (?n + 1 AS ?m) }"
    knowledge = load(tmp_path, ROOMS + "ex:r1 ex:n 1 .", rules=rule(tmp_path, text))
    before = lines(knowledge)
    with pytest.raises(KnowledgeError, match="rounds"):
        knowledge.apply(triples("ex:r1 a ex:Counter ."), [])
    assert (lines(knowledge), knowledge.version) == (before, 1)
    knowledge.apply(triples("ex:r2 a ex:Office ."), [])
    assert rooms(knowledge) == {"r1", "r2"}


def test_the_journal_is_followed_and_outlives_the_process(tmp_path: Path) -> None:
    knowledge = load(tmp_path)
    with Follower(knowledge):
        journal.append(knowledge.journal, triples("ex:r2 a ex:Office ."), triples("ex:r1 a ex:Office ."))
        wait_for(lambda: knowledge.version == 2)
        assert rooms(knowledge) == {"r2"}
    again = Knowledge.load(["rooms.ttl"], folder=tmp_path)
    assert (rooms(again), again.version) == ({"r2"}, 1)
    with knowledge.journal.open("ab") as file:
        file.write(b'{"added": ["<a> <b>')
    journal.append(knowledge.journal, triples("ex:r3 a ex:Office ."), [])
    assert rooms(Knowledge.load(["rooms.ttl"], folder=tmp_path)) == {"r2", "r3"}


def test_a_changed_file_is_followed_and_a_broken_one_told(tmp_path: Path) -> None:
    knowledge = load(tmp_path)
    faults: list[Exception] = []
    replace(tmp_path / "rooms.ttl", ROOMS + "ex:r8 a ex:Office .")  # what changes before is not missed
    with Follower(knowledge, faults.append):
        wait_for(lambda: rooms(knowledge) == {"r1", "r8"})
        replace(tmp_path / "rooms.ttl", ROOMS + "ex:r9 a ex:Office .")
        wait_for(lambda: rooms(knowledge) == {"r1", "r9"})
        replace(tmp_path / "rooms.ttl", ROOMS + "ex:r9 a")
        wait_for(lambda: bool(faults))
        assert isinstance(faults[0], Rejected)
        assert rooms(knowledge) == {"r1", "r9"}


def replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_blank_nodes_have_no_names_to_be_removed_by(tmp_path: Path) -> None:
    with pytest.raises(KnowledgeError, match="blank node"):
        load(tmp_path).apply([], triples("ex:r1 ex:p [] ."))


def test_subjects_by_value_follow_changes(tmp_path: Path) -> None:
    knowledge = load(tmp_path, PREFIX + 'ex:s1 ex:id "A", 7 .')
    ids = knowledge.having(EX["ex"] + "id")
    assert ids == {"A": (NamedNode(EX["ex"] + "s1"),), "7": (NamedNode(EX["ex"] + "s1"),)}
    knowledge.apply(triples('ex:s2 ex:id "A" .'), triples("ex:s1 ex:id 7 ."))
    assert knowledge.having(EX["ex"] + "id") == {"A": tuple(NamedNode(EX["ex"] + n) for n in ("s1", "s2"))}
