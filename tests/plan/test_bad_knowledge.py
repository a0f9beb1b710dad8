"""PATHs and what is hard about knowledge: huge literals, loops, and changes while queries register."""

from __future__ import annotations

import threading

from pyoxigraph import Literal, NamedNode, Triple

from cepheid.app.known import Known
from cepheid.app.question import ask
from cepheid.cli.engines import find_matches
from cepheid.model.events import Event
from tests.plan.path_strategies import NS, PREFIXES, SECOND, knowledge
from tests.plan.test_paths import MEANINGS, ROOMS, checked_query, events, selected

HUGE = 3_000_000


def test_a_huge_literal_is_a_value_like_any_other() -> None:
    text = "é" * HUGE
    found = selected("SELECT ?n PATH {?e :src ?s . ?s :note ?n}", events("s1"), f'{ROOMS} :s1 :note "{text}" .')
    assert found == [{"n": text}]


def test_a_huge_value_leads_to_no_entity() -> None:
    given = [Event("a", 1, SECOND, {"sensor": "s" * HUGE, "flow": 1.0}), *events("s1", "s2")[1:]]
    assert [row["id"] for row in selected("SELECT ?e.id PATH {?e :src/:in ?r}", given)] == [2]


def test_numbers_that_no_integer_holds_are_text() -> None:
    huge = "9" * 400
    found = selected("SELECT ?n PATH {?e :src ?s . ?s :is ?n}", events("s1"), f"{ROOMS} :s1 :is {huge}, 1e999 .")
    assert sorted(str(row["n"]) for row in found) == sorted(["INF", huge])


def test_loops_have_an_end() -> None:
    turtle = f"@prefix : <{NS}> . :s1 :in :s2 . :s2 :in :s3 . :s3 :in :s1, :s3 ."
    assert len(selected("SELECT ?x PATH {?e :src/:in+ ?x}", events("s1"), turtle)) == 3


def test_a_query_registers_with_one_version_while_the_knowledge_changes() -> None:
    """Two triples always change together; a query that saw one of them without the other would tell."""
    known = Known(knowledge(f"{ROOMS} :s1 :left 0 . :s1 :right 0 ."), MEANINGS, prefixes=PREFIXES)
    path = "PATH {?e :src ?s . ?s :left ?l} PATH {?e :src ?s . ?s :right ?r} PATH {:s1 :left ?c}"
    checked, said = checked_query(f"SELECT ?l, ?r, ?c {path}")
    assert checked is not None, said
    ended = threading.Event()

    def triples(number: int) -> list[Triple]:
        subject = NamedNode(f"{NS}s1")
        return [Triple(subject, NamedNode(f"{NS}{side}"), Literal(number)) for side in ("left", "right")]

    def change() -> None:
        number = 0
        while not ended.is_set():
            known.knowledge.apply(triples(number + 1), triples(number))
            number += 1

    changing = threading.Thread(target=change)
    changing.start()
    seen = set()
    try:
        for _ in range(40):
            question = ask(checked, known)
            (match,) = find_matches("native", question, events("s1"), 0)
            assert len({match.select[name] for name in "lrc"}) == 1, match.select
            seen.add(match.select["l"])
    finally:
        ended.set()
        changing.join()
    assert len(seen) > 1
