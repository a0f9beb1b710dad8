"""Knowledge that changes while a query stands: what is concerned is refreshed, the rest is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode, Triple

from cepheid.app.known import Known
from cepheid.app.live import LiveMatcher
from cepheid.knowledge.annotation import Annotation, Annotations
from cepheid.knowledge.store import Knowledge
from cepheid.language.checker import Checked, check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from tests.plan.path_strategies import LINKS, NODES, PathCase, cases
from tests.plan.running import EXAMPLES

NS = "http://x#"
TURTLE = """@prefix : <http://x#> .
:s1 :in :r1 . :s2 :in :r2 . :s3 :in :r3 .
:r1 a :Office . :r2 a :Hall . :r3 a :Hall .
:Limit :is 100 .
"""
STREAM = Stream("air", {"sensor": Type.STRING, "flow": Type.FLOAT}, id_kind="int")
MEANINGS = Annotations(
    {
        "air": {
            "sensor": Annotation(f"{NS}src", "template", Type.STRING, template=NS + "{value}"),
            "flow": Annotation(f"{NS}flow", "literal", Type.FLOAT),
        }
    }
)


@pytest.fixture
def known(tmp_path: Path) -> Known:
    (tmp_path / "kb.ttl").write_text(TURTLE, encoding="utf-8")
    knowledge = Knowledge.load(["kb.ttl"], folder=tmp_path, reasoning="none")
    return Known(knowledge, MEANINGS, prefixes={"": NS})


def query(text: str) -> Checked:
    checked, problems = check(parse(text), Catalogue({"air": STREAM}, "air", {"": NS}))
    assert checked is not None, problems
    return checked


def triple(subject: str, name: str, target: str | int) -> Triple:
    end = NamedNode(NS + target) if isinstance(target, str) else Literal(target)
    a = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
    return Triple(NamedNode(NS + subject), NamedNode(a if name == "a" else NS + name), end)


class Running:
    """Feeds events one after the other, a second apart."""

    def __init__(self, text: str, known: Known) -> None:
        self.matcher = LiveMatcher(query(text), known)
        self.number = 0

    def feed(self, sensor: str, flow: float = 0.0) -> list[Match]:
        self.number += 1
        self.matcher.push([Event("air", self.number, self.number * 1_000_000, {"sensor": sensor, "flow": flow})])
        return self.matcher.advance(self.number * 1_000_000 + 1)


OFFICES = "SELECT ?e.id PATH {?e :src ?s . ?s :in ?r . ?r a :Office}"


def test_a_changed_triple_is_in_force_from_the_next_event_on(known: Known) -> None:
    running = Running(OFFICES, known)
    assert [len(running.feed(s)) for s in ("s1", "s2")] == [1, 0]
    known.knowledge.apply([triple("r2", "a", "Office")], [triple("r1", "a", "Office")])
    assert [len(running.feed(s)) for s in ("s1", "s2", "s3")] == [0, 1, 0]


def test_only_the_keys_that_a_change_concerns_are_asked_for_again(known: Known) -> None:
    running = Running(OFFICES, known)
    known.knowledge.apply([triple("r2", "a", "Office")], [])
    running.feed("s2")
    # The room itself has the form of a sensor's entity, so it is one of the keys.
    assert running.matcher.refreshed == 2
    known.knowledge.apply([triple("r2", "near", "r3")], [])
    running.feed("s2")
    assert running.matcher.refreshed == 2


def test_a_new_entity_is_known(known: Known) -> None:
    running = Running(OFFICES, known)
    assert not running.feed("s9")
    known.knowledge.apply([triple("s9", "in", "r1")], [])
    assert running.feed("s9")


def test_a_match_records_the_version_of_the_knowledge(known: Known) -> None:
    running = Running(OFFICES, known)
    (first,) = running.feed("s1")
    known.knowledge.apply([triple("r2", "a", "Office")], [])
    (second,) = running.feed("s2")
    assert (first.knowledge, second.knowledge) == (1, 2)


def test_a_changed_constant_takes_its_place_and_the_state_stays(known: Known) -> None:
    text = """SELECT ?a.id AS a, ?b.id AS b SEQ (?a, ?b) WINDOW (?a, ?b, 1min)
    PATH {?a :flow ?f . :Limit :is ?l . FILTER (?f > ?l)} PATH {?b :flow ?g . FILTER (?g < 10)}"""
    running = Running(text, known)
    assert not running.feed("s1", 150)  # above 100
    known.knowledge.apply([triple("Limit", "is", 200)], [triple("Limit", "is", 100)])
    assert not running.feed("s1", 160)  # not above 200
    (match,) = running.feed("s1", 5)
    assert dict(match.select) == {"a": 1, "b": 3}
    assert running.matcher.renewed == 1


ABOVE = """SEQ (?a, ?b) WINDOW (?a, ?b, 1min)
PATH {?a :flow ?f . :Limit :is ?l . FILTER (?f > ?l) . ?a :src/:in ?r} PATH {?b :flow ?g . FILTER (?g < 10)}"""


@pytest.mark.parametrize("selected", ["?a.id AS a, ?b.id AS b", "?f, ?g", "?a.id AS a, ?r"])
def test_the_state_stays_whatever_becomes_of_a_constant(known: Known, selected: str) -> None:
    running = Running(f"SELECT {selected} {ABOVE}", known)
    low, high = triple("Limit", "is", 100), triple("Limit", "is", 200)
    running.feed("s1", 150)
    known.knowledge.apply([high], [])  # two limits: above one of them is enough
    running.feed("s1", 150)
    assert len(running.feed("s1", 5)) == 2
    known.knowledge.apply([], [low, high])  # none: nothing can be above it
    running.feed("s1", 500)
    assert len(running.feed("s1", 5)) == 2
    known.knowledge.apply([high], [])
    running.feed("s1", 150)
    running.feed("s1", 250)
    assert len(running.feed("s1", 5)) == 3
    assert (running.matcher.renewed, running.matcher.begun) == (3, 0)


def test_where_the_state_does_not_fit_the_query_begins_anew(known: Known, caplog: pytest.LogCaptureFixture) -> None:
    running = Running(f"SELECT ?f {ABOVE}", known)
    running.feed("s1", 150)
    known.knowledge.apply([triple("Limit", "is", "r1")], [])  # a room is no number: FILTER can't say that
    running.feed("s1", 160)
    assert [match.select["f"] for match in running.feed("s1", 5)] == [160.0]
    assert running.matcher.begun == 1
    assert "begins anew" in caplog.text


def test_where_an_event_comes_to_have_several_values_any_of_them_will_do(known: Known) -> None:
    text = """SELECT ?a.id AS a, ?b.id AS b SEQ (?a, ?b) WINDOW (?a, ?b, 1min) MATCH NEXT
    PATH {?a :src/:in ?r} PATH {?b :src/:in ?r}"""
    running = Running(text, known)
    assert [len(running.feed(sensor)) for sensor in ("s1", "s2", "s1")] == [0, 0, 1]
    known.knowledge.apply([triple("s1", "in", "r2")], [])
    running.feed("s1")  # in r1 and r2
    assert [dict(match.select) for match in running.feed("s2")] == [{"a": 4, "b": 5}]
    assert [dict(match.select) for match in running.feed("s1")] == [{"a": 5, "b": 6}]  # and not 4, again
    # It is by one value that events were found before.
    assert running.matcher.begun == 1
    known.knowledge.apply([], [triple("s1", "in", "r2")])
    # Each event is judged as it was when it came.
    assert [dict(match.select) for match in running.feed("s2")] == [{"a": 6, "b": 7}]
    assert not running.feed("s1")
    assert (running.matcher.renewed, running.matcher.begun) == (1, 1)


def test_a_condition_of_the_match_follows_too(known: Known) -> None:
    text = """SELECT ?a.id AS a, ?b.id AS b SEQ (?a, ?b) WINDOW (?a, ?b, 1min)
    PATH {?a :src/:in/a :Office . :Limit :is ?l . ?l :of ?a} OR PATH {?b :src/:in/a :Office}"""
    running = Running(text, known)
    assert not running.feed("s1")
    assert not running.feed("s2")
    assert running.feed("s1")
    known.knowledge.apply([], [triple("Limit", "is", 100)])
    assert not running.feed("s2")
    assert running.feed("s1")
    assert running.matcher.begun == 0


def test_a_path_that_nothing_fitted_is_true_once_something_does(known: Known) -> None:
    running = Running("SELECT ?e.id PATH {?e :src/:in/:under ?roof}", known)
    assert not running.feed("s1")
    known.knowledge.apply([triple("r1", "under", "roof")], [])
    assert running.feed("s1")


@st.composite
def changed_triples(draw: st.DrawFn) -> Triple:
    """A triple such as random ontologies have."""
    kind = draw(st.sampled_from(["link", "link", "type", "limit", "serial"]))
    subject, target = draw(st.sampled_from(NODES)), draw(st.sampled_from(NODES))
    if kind == "link":
        return triple(subject, draw(st.sampled_from(LINKS)), target)
    if kind == "type":
        return triple(subject, "a", draw(st.sampled_from(["Room", "Hall"])))
    if kind == "limit":
        return triple(subject, "limit", draw(st.sampled_from([1, 2, 3])))
    return Triple(NamedNode(NS + subject), NamedNode(f"{NS}serial"), Literal(target))


@given(case=cases(), steps=st.lists(st.tuples(st.booleans(), changed_triples()), min_size=1, max_size=4))
@settings(max_examples=EXAMPLES // 4, suppress_health_check=list(HealthCheck), deadline=None)
def test_after_any_change_events_are_judged_as_by_one_who_begins_then(
    case: PathCase, steps: list[tuple[bool, Triple]]
) -> None:
    # What is held from before was judged by other versions: here is what each event is judged by.
    assume(len(case.checked.event_variables) == 1 and not case.checked.query.windows)
    known = case.known("auto")
    live = LiveMatcher(case.checked, known)
    for number, (adds, changed) in enumerate(steps, 1):
        known.knowledge.apply([changed] if adds else [], [] if adds else [changed])
        given = [Event("a", 100 * number + e.id, e.time + number * 10**9, e.attributes) for e in case.events]  # type: ignore[operator]
        live.push(given)
        fresh = LiveMatcher(case.checked, known)
        fresh.push(given)
        found, wanted = (m.advance(None if m is fresh else (number + 1) * 10**9 - 1) for m in (live, fresh))
        assert [(m.id, m.select) for m in found] == [(m.id, m.select) for m in wanted], (case.text, steps)
