"""PATHs rule by rule (P1 to P5), what is refused of them, and the W3C's property paths."""

# ruff: noqa: N802 (the rules' names have capitals)
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from cepheid.app.known import Known
from cepheid.app.question import ask
from cepheid.cli.engines import find_matches
from cepheid.knowledge.annotation import Annotation, Annotations
from cepheid.language.checker import Checked, check
from cepheid.language.errors import Rejected, Source
from cepheid.language.parser import examine
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.matches import Bound, Match
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.semantic import Mode
from tests.plan.path_strategies import NS, PREFIXES, SECOND, knowledge

STREAM = Stream("a", {"sensor": Type.STRING, "flow": Type.FLOAT}, id_kind="int")
MEANINGS = Annotations(
    {
        "a": {
            "sensor": Annotation(f"{NS}src", "template", Type.STRING, template=NS + "{value}"),
            "flow": Annotation(f"{NS}flow", "literal", Type.FLOAT),
        }
    }
)
ROOMS = """@prefix : <http://x#> .
:s1 :in :r1 . :s2 :in :r1, :r2 . :s3 :in :r3 .
:r1 a :Office . :r2 a :Office . :r3 a :Hall .
"""


def checked_query(text: str, path: str = "") -> tuple[Checked | None, list[str]]:
    tree, problems = examine(Source("query", f"{text} {path}"))
    assert tree is not None, problems
    properties = {"a": {annotation.property: name for name, annotation in MEANINGS.properties("a").items()}}
    checked, said = check(tree, Catalogue({"a": STREAM}, "a", PREFIXES, properties))
    return checked, [f"{p.code}: {p.message}" for p in said]


def events(*sensors: str | None, flow: float | None = None) -> list[Event]:
    return [Event("a", n, n * SECOND, {"sensor": s, "flow": flow}) for n, s in enumerate(sensors, 1)]


def matched(
    text: str, given: Sequence[Event], turtle: str = ROOMS, mode: Mode = "auto", *, reference: bool = True
) -> list[Match]:
    """What a query finds: the same by the native core and by the reference, in order and with the same ids."""
    checked, said = checked_query(text)
    assert checked is not None, said
    question = ask(checked, Known(knowledge(turtle), MEANINGS, mode, PREFIXES))
    native = list(find_matches("native", question, given, 0))
    if reference:
        plain = list(find_matches("reference", question, given, 0))
        assert [(m.id, m.select) for m in native] == [(m.id, m.select) for m in plain]
    return native


def selected(text: str, given: Sequence[Event], turtle: str = ROOMS) -> list[dict[str, Any]]:
    return [dict(m.select) for m in matched(text, given, turtle)]


def ids(found: list[dict[str, Any]]) -> list[Any]:
    return [row["id"] for row in found]


def short(value: str) -> str:
    return value.removeprefix(NS)


def test_P1_an_attribute_without_an_entity_has_no_triple() -> None:
    given = events("s1", None, "unknown")
    assert ids(selected("SELECT ?e.id PATH {?e :src ?s}", given)) == [1, 3]
    assert ids(selected("SELECT ?e.id PATH {?e :src ?s . ?s :in ?r}", given)) == [1]
    assert ids(selected("SELECT ?e.id PATH {OPTIONAL {?e :src ?s} FILTER (!BOUND(?s))}", given)) == [2]


def test_P2_a_group_is_split_by_shared_variables() -> None:
    order = "SEQ (?a, ?b) WINDOW (?a, ?b, 1min)"
    apart = "PATH {?a :src/:in/a :Office . ?b :src/:in/a :Hall}"
    assert selected(f"SELECT ?a.id AS a, ?b.id AS b {order} {apart}", events("s1", "s2", "s3")) == [
        {"a": 1, "b": 3},
        {"a": 2, "b": 3},
    ]
    joined = "PATH {?a :src/:in ?r . ?b :src/:in ?r}"
    assert selected(f"SELECT ?a.id AS a, ?b.id AS b {order} {joined}", events("s1", "s3", "s2")) == [{"a": 1, "b": 3}]


@pytest.mark.parametrize("limits", [":k :is ?l .", "VALUES ?l {2 9}"])
def test_P2_what_only_a_filter_connects_is_with_the_event_that_it_reads(limits: str) -> None:
    order = "SEQ (?a, ?b) WINDOW (?a, ?b, 1min)"
    path = f"PATH {{?a :src/:in ?r . ?b :src/:in ?r . {limits} ?a :flow ?v . FILTER (?v > ?l)}}"
    given = [*events("s1", flow=2.5), Event("a", 2, 2 * SECOND, {"sensor": "s1", "flow": 0.5})]
    given.append(Event("a", 3, 3 * SECOND, {"sensor": "s2", "flow": 0.5}))
    found = selected(f"SELECT ?a.id AS a, ?b.id AS b {order} {path}", given, f"{ROOMS} :k :is 2, 9 .")
    assert found == [{"a": 1, "b": 2}, {"a": 1, "b": 3}]


def test_P2_what_names_no_event_is_known_now() -> None:
    assert ids(selected("SELECT ?e.id FROM (?e, a) PATH {:s1 :in :r1}", events("s1", "s2"))) == [1, 2]
    assert ids(selected("SELECT ?e.id FROM (?e, a) PATH {:s1 :in :r2}", events("s1", "s2"))) == []
    found = selected("SELECT ?e.id, ?r FROM (?e, a) PATH {:s2 :in ?r}", events("s1"))
    assert [short(row["r"]) for row in found] == ["r1", "r2"]


def test_P3_one_match_for_each_binding_that_is_used() -> None:
    path = "PATH {?e :src ?s . ?s :in ?r . ?r a ?kind}"
    given = events("s2")
    assert len(selected(f"SELECT ?e.id {path}", given)) == 1
    assert [short(row["r"]) for row in selected(f"SELECT ?e.id, ?r {path}", given)] == ["r1", "r2"]
    assert [short(row["kind"]) for row in selected(f"SELECT ?e.id, ?kind {path}", given)] == ["Office"]
    assert [short(row["r"]) for row in selected(f"SELECT ?r JOIN (?e.sensor != ?r) {path}", given)] == ["r1", "r2"]
    assert [short(row["r"]) for row in selected(f"SELECT ?r FILTER (?r = :r2) {path}", given)] == ["r2"]


def test_P3_with_every_policy_and_window() -> None:
    path = "PATH {?e :src/:in ?r} PATH {?f :src ?g}"
    for policy in ("ANY", "NEXT", "STRICT"):
        text = f"SELECT ?r SEQ (?e, ?f) WINDOW (?e, ?f, 1min) MATCH {policy} {path}"
        assert [short(row["r"]) for row in selected(text, events("s2", "s3"))] == ["r1", "r2"]
    once = f"SELECT ?r SEQ (?e, ?f) WINDOW (?e, ?f, 1min) AFTER MATCH CONSUME {path}"
    assert len(selected(once, events("s2", "s3"))) == 1
    moving = "SELECT COUNT(?e) AS n, ?r WINDOW (?e, sliding, 1min) PATH {?e :src/:in ?r}"
    assert [(row["n"], short(row["r"])) for row in selected(moving, events("s2"))] == [(1, "r1"), (1, "r2")]
    many = "SELECT ?r, COUNT(?f) AS n SEQ (?e, ?f+) WINDOW (?e, ?f, 1min) PATH {?e :src/:in ?r} PATH {?f :src/:in ?q}"
    assert [row["n"] for row in selected(many, events("s2", "s2"))] == [1, 1]


@pytest.mark.parametrize(
    ("seq", "sensors"),
    [("?e, ?f?", ("s1", "s2")), ("?e, ?f?, ?g", ("s1", "s2", "s3")), ("?f?, ?e", ("s2", "s1"))],
)
def test_P3_an_optional_event_of_a_run_has_all_its_bindings(seq: str, sensors: tuple[str, ...]) -> None:
    """Under NEXT it is the first event that is taken, and not the first of what is known of it."""
    last = seq[-2:] if seq.endswith("?g") else "?f"
    path = "PATH {?f :src/:in ?r}" + (" PATH {?g :src/:in :r3}" if "?g" in seq else "")
    text = f"SELECT ?e.id, ?r SEQ ({seq}) WINDOW (?e, {last}, 1min) FILTER (?e.sensor = 's1') MATCH NEXT {path}"
    assert [short(row["r"]) for row in selected(text, events(*sensors))] == ["r1", "r2"]
    # The second of two is not taken, whatever is known of it.
    twice = (*sensors, *sensors[1:]) if seq == "?e, ?f?" else sensors
    assert len(selected(text, events(*twice))) == 2


#: Sensors by the rooms that they are in: s12 is in r1 and r2.
SEVERAL = """@prefix : <http://x#> .
:s1 :in :r1 . :s2 :in :r2 . :s3 :in :r3 . :s12 :in :r1, :r2 . :s13 :in :r1, :r3 . :s23 :in :r2, :r3 .
:s123 :in :r1, :r2, :r3 .
"""


@pytest.mark.parametrize(
    ("pattern", "sensors", "found"),
    [
        # Any room that they share will do, and the first event that shares one is taken: once.
        ("SEQ (?a, ?b) WINDOW (?a, ?b, 1min) MATCH NEXT", "s12 s1 s2", ["1 2"]),
        ("SEQ (?a, ?b) WINDOW (?a, ?b, 1min) MATCH NEXT", "s12 s3 s123", ["1 3", "2 3"]),
        # No room that two of them share each is one that all three share.
        ("SEQ (?a, ?b, ?c) WINDOW (?a, ?b, ?c, 1min) MATCH NEXT", "s12 s1 s2 s13", ["1 2 4"]),
        ("SEQ (?a, ?b, ?c) WINDOW (?a, ?b, ?c, 1min)", "s12 s13 s23", []),
        # One match for each event that qualifies; unbound only if none does, in whichever room.
        ("SEQ (?a, ?b?) WINDOW (?a, ?b, 2s)", "s12 s1 s3", ["1 2", "2 None", "3 None"]),
        ("SEQ (?a, ?b?, ?c) WINDOW (?a, ?b, ?c, 2s)", "s12 s1 s12", ["1 2 3", "1 None 2", "2 None 3"]),
        ("SEQ (?a, ?b?, ?c) WINDOW (?a, ?b, ?c, 1min) MATCH NEXT", "s12 s1 s12", ["1 None 2", "2 None 3"]),
        # A list has all that qualify, each by itself.
        ("SEQ (?a, ?b+) WINDOW (?a, ?b, 3s)", "s12 s1 s2 s3", ["1 [2, 3]"]),
        ("SEQ (?a, ?b{2,2}, ?c) WINDOW (?a, ?b, ?c, 1min)", "s12 s1 s2 s12", ["1 [2, 3] 4"]),
        ("SEQ (?a, ?b{2,2}, ?c) WINDOW (?a, ?b, ?c, 1min) MATCH NEXT", "s12 s1 s2 s12", ["1 [2, 3] 4"]),
        # The third is taken once two are there, and then one of them is in no room with it.
        ("SEQ (?a, ?b{2,2}, ?c) WINDOW (?a, ?b, ?c, 1min) MATCH NEXT", "s12 s1 s2 s1 s12", []),
        # An event in any of the rooms is one too many.
        ("SEQ (?a, NOT ?b, ?c) WINDOW (?a, ?c, 1min)", "s12 s1 s12", ["1 2", "2 3"]),
        ("SEQ (?a, NOT ?b, ?c) WINDOW (?a, ?c, 1min)", "s12 s3 s12", ["1 3"]),
        ("SEQ (?a, NOT ?b) WINDOW (?a, ?b, 1s)", "s12 s2 s13", ["2", "3"]),
    ],
)
@pytest.mark.parametrize("mode", ["auto", "cache"])
def test_P2_of_several_values_one_that_fits_is_enough(
    pattern: str, sensors: str, found: list[str], mode: Literal["auto", "cache"]
) -> None:
    names = [name for name in "abc" if f"?{name}" in pattern]
    path = " ".join(f"PATH {{?{name} :src/:in ?r}}" for name in names)
    around = ", ".join(f"(?{name}, a)" for name in names)
    shown = next(name for name in names if f"NOT ?{name}" not in pattern)
    matches = matched(f"SELECT ?{shown}.sensor FROM {around} {pattern} {path}", events(*sensors.split()), SEVERAL, mode)
    assert sorted(" ".join(map(_ids_of, match.events.values())) for match in matches) == found


def _ids_of(bound: Bound) -> str:
    return str([ref[1] for ref in bound] if isinstance(bound, list) else None if bound is None else bound[1])


@pytest.mark.parametrize(
    ("pattern", "sensors", "found"),
    [
        ("SEQ (?a, ?b) WINDOW (?a, ?b, 1min) MATCH NEXT", "s12 s1 s2", ["1 2 r1"]),
        ("SEQ (?a, ?b) WINDOW (?a, ?b, 1min) MATCH NEXT", "s12 s123", ["1 2 r1", "1 2 r2"]),
        ("SEQ (?a, ?b?) WINDOW (?a, ?b, 2s)", "s12 s2 s3", ["1 2 r2", "2 None r2", "3 None r3"]),
        # With the room that the match is of, lists and NOT are judged.
        ("SEQ (?a, ?b+) WINDOW (?a, ?b, 3s)", "s12 s1 s2 s1", ["1 [2, 4] r1", "1 [3] r2", "2 [4] r1"]),
        ("SEQ (?a, NOT ?b, ?c) WINDOW (?a, ?c, 1min)", "s12 s1 s12", ["1 2 r1", "1 3 r2", "2 3 r1"]),
    ],
)
def test_P3_events_that_share_what_is_used(pattern: str, sensors: str, found: list[str]) -> None:
    """A match for each value that all have who are bound to one event."""
    names = [name for name in "abc" if f"?{name}" in pattern]
    path = " ".join(f"PATH {{?{name} :src/:in ?r}}" for name in names)
    around = ", ".join(f"(?{name}, a)" for name in names)
    is_judged = "+" not in pattern and "NOT" not in pattern
    matches = matched(
        f"SELECT ?r FROM {around} {pattern} {path}", events(*sensors.split()), SEVERAL, reference=is_judged
    )
    shown = [[*map(_ids_of, match.events.values()), short(str(match.select["r"]))] for match in matches]
    assert sorted(map(" ".join, shown)) == found


#: Sensors by limits: s59 has two.
LIMITS = "@prefix : <http://x#> . :s1 :limit 1 . :s3 :limit 3 . :s6 :limit 6 . :s10 :limit 10 . :s59 :limit 5, 9 ."


@pytest.mark.parametrize(
    ("pattern", "sensors", "found"),
    [
        ("SEQ (?a, ?b) WINDOW (?a, ?b, 1min) MATCH NEXT", "s59 s3 s6 s10", ["1 3", "2 3", "3 4"]),
        ("SEQ (?a, ?b) WINDOW (?a, ?b, 1min)", "s59 s3 s6", ["1 3", "2 3"]),
        ("SEQ (?a, ?b?) WINDOW (?a, ?b, 3s)", "s59 s3 s6", ["1 3", "2 3", "3 None"]),
        ("SEQ (?a, ?b+) WINDOW (?a, ?b, 3s)", "s59 s3 s6 s10", ["1 [3, 4]", "2 [3, 4]", "3 [4]"]),
        ("SEQ (?a, NOT ?b) WINDOW (?a, ?b, 1s)", "s59 s6 s3 s59", ["2", "4"]),
    ],
)
def test_P2_of_several_values_that_are_compared_one_is_enough(pattern: str, sensors: str, found: list[str]) -> None:
    path = "PATH {?a :src/:limit ?x . ?b :src/:limit ?y . FILTER (?x < ?y)}"
    is_judged = not any(word in pattern for word in ("+", "NOT", "?b?"))
    matches = matched(
        f"SELECT ?a.sensor FROM (?a, a), (?b, a) {pattern} {path}",
        events(*sensors.split()),
        LIMITS,
        reference=is_judged,
    )
    assert sorted(" ".join(map(_ids_of, match.events.values())) for match in matches) == found


def test_P2_a_reading_is_compared_with_several_values() -> None:
    path = "PATH {?a :src/:limit ?x . ?b :flow ?y . FILTER (?x < ?y)}"
    given = [*events("s59", flow=0.0), *(Event("a", n, n * SECOND, {"sensor": "s1", "flow": n + 3.0}) for n in (3, 7))]
    text = f"SELECT ?a.id AS a, ?b.id AS b SEQ (?a, ?b) WINDOW (?a, ?b, 1min) MATCH NEXT {path}"
    assert selected(text, given, LIMITS) == [{"a": 1, "b": 3}, {"a": 3, "b": 7}]


def test_P2_two_shared_variables_fit_in_one_solution() -> None:
    turtle = (
        f"{ROOMS} :s1 :pair [ :x 1 ; :y 2 ], [ :x 3 ; :y 4 ] . :s2 :pair [ :x 1 ; :y 4 ] . :s3 :pair [ :x 3 ; :y 4 ] ."
    )
    path = " ".join(f"PATH {{?{v} :src/:pair ?p{v} . ?p{v} :x ?x ; :y ?y}}" for v in "ab")
    text = f"SELECT ?a.id AS a, ?b.id AS b SEQ (?a, ?b) WINDOW (?a, ?b, 1min) MATCH NEXT {path}"
    assert selected(text, events("s1", "s2", "s3"), turtle) == [{"a": 1, "b": 3}]


def test_P4_paths_of_different_events_are_judged_on_the_match() -> None:
    text = "SELECT ?a.id AS a, ?b.id AS b SEQ (?a, ?b) WINDOW (?a, ?b, 1min)"
    either = "PATH {?a :src/:in :r2} OR PATH {?b :src/:in :r2}"
    assert selected(f"{text} {either}", events("s1", "s2", "s3")) == [{"a": 1, "b": 2}, {"a": 2, "b": 3}]
    both = "(PATH {?a :src/:in :r1} OR PATH {?a :src/:in :r3}) AND PATH {?b :src/:in :r3}"
    assert selected(f"{text} {both}", events("s1", "s3", "s3")) == [
        {"a": 1, "b": 2},
        {"a": 1, "b": 3},
        {"a": 2, "b": 3},
    ]


def test_a_condition_on_what_an_unbound_event_has_says_nothing() -> None:
    text = "SELECT ?e.id AS e, ?f.id AS f SEQ (ANY(?e, ?f)) JOIN (?r = ?q) PATH {?e :src/:in ?r} PATH {?f :src/a ?q}"
    assert selected(text, events("s1", "s3")) == [{"e": 1, "f": None}, {"e": 2, "f": None}]


def test_a_variable_that_may_be_unbound() -> None:
    text = "SELECT ?e.id, ?r SEQ (?e, ?f?) WINDOW (?e, ?f, 1s) PATH {?f :src/:in ?r}"
    assert [row["r"] for row in selected(text, events("s9", "s1"))] == [f"{NS}r1", None]
    any_of = "SELECT ?r SEQ (ANY(?e, ?f)) PATH {?e :src :s1 . :s1 :in ?r} PATH {?f :src :s3 . :s3 :in ?r}"
    checked, _ = checked_query(any_of)
    assert checked is not None


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("PATH {SERVICE <http://far> {?e :src ?s}}", "path-refused: SERVICE would ask another machine"),
        ("PATH {SELECT ?e {?e :src ?s}}", "path-refused: a PATH is a group of patterns"),
        ("PATH {?e nowhere:src ?s}", "unknown-prefix: unknown prefix 'nowhere'"),
        ("PATH {?e :src }", "path-syntax: the PATH ends where a term is expected"),
        ("PATH {?e :src ?s FILTER (}", "path-syntax: "),
        ("PATH {BIND (:x AS ?e)}", "path-binds-event: ?e is an event, so BIND can't bind it"),
        ("PATH {?e :src ?s . OPTIONAL {?f :src ?s}}", "path-events: this reads what belongs to ?e and ?f at once"),
        ("PATH {?e :src ?s} OR PATH {?f :src ?s}", "path-or: ?s is used outside of an OR"),
    ],
)
def test_refused(path: str, said: str) -> None:
    used = ", ?s" if "OR" in path.split() else ""
    checked, problems = checked_query(f"SELECT ?e.id{used} FROM (?e, a), (?f, a)", path)
    assert checked is None
    assert any(problem.startswith(said) for problem in problems), problems


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT ?s SEQ (?e, ?f+) WINDOW (?e, ?f, 1s) PATH {?f :src ?s}", "many-values: ?s belongs to ?f"),
        ("SELECT ?e.id, ?s SEQ (?e, NOT ?f) WINDOW (?e, ?f, 1s) PATH {?f :src ?s}", "absent-value: ?s belongs to ?f"),
        ("SELECT ?s, COUNT(?e) AS n WINDOW (?e, batch, 1s) PATH {?e :src ?s}", "not-grouped: ?s is each event's own"),
        (
            "SELECT ?e.id SEQ (?e, ?f+, ?h, ?g+) WINDOW (?e, ?f, ?g, ?h, 1s) PATH {?f :src ?s . ?g :src ?s}",
            "two-many: the PATHs share ?s",
        ),
    ],
)
def test_where_a_path_variable_has_no_one_value(text: str, said: str) -> None:
    _, problems = checked_query(text)
    assert any(problem.startswith(said) for problem in problems), problems


def test_what_is_unknown_or_never_true_is_said() -> None:
    known = Known(knowledge(ROOMS), MEANINGS, prefixes=PREFIXES)

    def warnings(path: str) -> list[str]:
        checked, said = checked_query("SELECT ?e.id FROM (?e, a)", path)
        assert checked is not None, said
        return [f"{w.code}: {w.message} {w.hint or ''}".strip() for w in known.lower(checked).warnings]

    assert warnings("PATH {?e :src/:in/a :Ofice}")[0] == (
        "unknown-term: the knowledge says nothing of :Ofice did you mean :Office?"
    )
    assert warnings("PATH {:s1 :in :r9}")[-1].startswith("never-true: this PATH is never true, so nothing matches")
    assert warnings("PATH {:s1 :in :r1}") == [
        "always-true: this PATH names no event and is true: it says nothing leave it out, or connect it with an event"
    ]
    assert warnings("PATH {?e :src/:in ?r . ?r :in ?q}")[-1].startswith("never-true")


def test_a_path_needs_knowledge() -> None:
    checked, _ = checked_query("SELECT ?e.id PATH {?e :src ?s}")
    assert checked is not None
    with pytest.raises(Rejected, match="PATH needs knowledge"):
        ask(checked, None)


#: The W3C's SPARQL 1.1 tests of property paths (w3c/rdf-tests, sparql/sparql11/property-path, August 2026) that no
#: PATH can stand for, and why.
NO_PATHS = {
    "pp06": "asks which of two graphs a path is in: GRAPH is refused, the knowledge is one graph",
    "pp07": "the same with one graph",
    "pp34": "GRAPH",
    "pp35": "GRAPH ?g",
}
_ABC = ":a :p1 :b . :b :p2 :a . :a :p3 :c"
_TWICE = ":a :p1 :b . :b :p2 :c . :a :p1 :d . :d :p2 :c"
_DIAMOND = ":a :p :b . :b :p :z . :a :p :c . :c :p :z"
_FIRST = ":a :p1 :b . :b :p4 :c . :a :p2 :d . :d :p3 :c . :a :p1 :e"
_SECOND = ":a :p0 :c . :a :p3 :b . :d :p1 :a . :d :p2 :e . :c :p2 :f . :c :p3 :g"
_CLIQUE = ":a0 :p :a1, :a2 . :a1 :p :a0, :a2 . :a2 :p :a0, :a1"
_KNOWS = (
    ":a :knows :b . :b :knows :c . :a :knows :c . :d :knows :e . :e :knows :f . :f :knows :e . "
    ':f :name "test" . :a :homepage :h'
)
_PAIR = ":sd :pd :od . :sr :pr :or"
_KINDS = ":sa a :oa . :sp :p :op"
#: The others, restated: name; data; what is asked, ?s being what the event comes from and ?x the answer; and by ?s the
#: answers. Where the W3C asks for pairs, each first one has its line here. How often an answer comes, of which pp11
#: speaks, no PATH says: each binding is one (rule P3). The event's own triple is in the graph too, and a negated way
#: back leads to it: e.
W3C: list[tuple[str, str, str, dict[str, str]]] = [
    ("pp01", _ABC, "?s :p1/:p2/:p3 ?x", {"a": "c"}),
    ("pp02", _ABC, "?s (:p1/:p2/:p3)* ?x", {"a": "a c"}),
    ("pp03", ":a :p1 :b . :b :p2 :a . :a :p3 :b . :b :p4 :a", "?s :p1/:p2/:p3/:p4 ?x", {"a": "a"}),
    ("pp08", ":a :p :b", "?s ^:p :a", {"b": "b", "a": ""}),
    ("pp09", ":a :p1 :b . :b :p2 :c", "?s ^(:p1/:p2) ?x", {"c": "a"}),
    ("pp10", ":a :p1 :b . :a :p2 :c . :a :p3 :d", "?s !(:p1|:p2) ?x", {"a": "d"}),
    ("pp11", _TWICE, "?s :p1/:p2 ?x", {"a": "c"}),
    ("pp12", _TWICE, "?s (:p1/:p2)+ ?x", {"a": "c"}),
    ("pp14", ":a :knows :b . :b :knows :c", "?s :knows* ?x", {"a": "a b c", "b": "b c", "c": "c"}),
    (
        "pp16",
        _KNOWS,
        "?s :knows* ?x",
        {"a": "a b c", "b": "b c", "c": "c", "d": "d e f", "e": "e f", "f": "e f", "h": "h"},
    ),
    ("pp21", _DIAMOND, "?s :p+ ?x", {"a": "b c z"}),
    ("pp23", f"{_DIAMOND} . :z :p :X", "?s :p+ ?x", {"a": "X b c z"}),
    ("pp25", f"{_DIAMOND} . :c :p :c", "?s :p+ ?x", {"a": "b c z"}),
    ("pp28a", f"{_DIAMOND} . :c :p :c", "?s (:p/:p)? ?x", {"a": "a c z"}),
    ("pp30", _FIRST, "?s :p1|:p2/:p3|:p4 ?x", {"a": "b c e"}),
    ("pp31", _FIRST, "?s (:p1|:p2)/(:p3|:p4) ?x", {"a": "c"}),
    ("pp32", _SECOND, "?s :p0|^:p1/:p2|:p3 ?x", {"a": "b c e"}),
    ("pp33", _SECOND, "?s (:p0|^:p1)/:p2|:p3 ?x", {"a": "b e f"}),
    ("pp36", _CLIQUE, "?s (:p)* :a1", {"a0": "a0"}),
    ("pp37", _CLIQUE, "?s ((:p)*)* ?x", {"a0": "a0 a1 a2"}),
    ("values_and_path", "", "VALUES ?x { 1 } ?x :p? ?x", {"s": ""}),
    ("nps_inverse", _PAIR, "?s !^:pr ?x", {"od": "e sd", "or": "e", "sd": "e", "sr": "e"}),
    (
        "nps_direct_and_inverse",
        _PAIR,
        "?s !(:pd|^:pr) ?x",
        {"od": "e sd", "sr": "e or", "or": "e", "sd": "e"},
    ),
    ("nps_a", _KINDS, "?s !a ?x", {"sp": "op", "sa": ""}),
    ("nps_a_inverse", _KINDS, "?s !^a ?x", {"op": "e sp", "oa": "e"}),
    ("zero_or_more_set_start", "", "?x :p* ?s", {"o": "o"}),
    ("zero_or_more_set_end", "", "?s :p* ?x", {"s": "s"}),
    ("zero_or_one_set_start", "", "?x :p? ?s", {"o": "o"}),
    ("zero_or_one_set_end", "", "?s :p? ?x", {"s": "s"}),
]


@pytest.mark.parametrize(("data", "asked", "answers"), [case[1:] for case in W3C], ids=[case[0] for case in W3C])
def test_w3c_property_path(data: str, asked: str, answers: dict[str, str]) -> None:
    turtle = f"@prefix : <{NS}> . {data} {'.' if data else ''}"
    wanted = "?x" if "?x" in asked else "?s"
    for start, reached in answers.items():
        found = selected(f"SELECT {wanted} PATH {{?e :src ?s . {asked}}}", events(start), turtle)
        names = (short(str(row[wanted[1:]])).replace("urn:cepheid:event", "e") for row in found)
        assert sorted(names) == reached.split(), start


@pytest.mark.parametrize("name", NO_PATHS)
def test_w3c_property_path_in_a_graph_is_refused(name: str) -> None:
    """What the four ask that are left out."""
    asked = {"pp06": "?g", "pp07": "?g", "pp34": ":ng", "pp35": "?g"}[name]
    checked, said = checked_query(f"SELECT ?x PATH {{?e :src ?s . GRAPH {asked} {{ ?s :p1* ?x }} }}")
    assert checked is None
    assert "GRAPH has no meaning here" in " ".join(said)


def test_two_events_are_never_one() -> None:
    """Each part is of its own event (rule P2); the reference has the triples of both in one graph."""
    path = "PATH {?a :src/^:src ?x . ?b :src/^:src ?x}"
    checked, said = checked_query(f"SELECT ?a.id AS a, ?x SEQ (?a, ?b) WINDOW (?a, ?b, 1min) {path}")
    assert checked is not None, said
    question = ask(checked, Known(knowledge(ROOMS), MEANINGS, prefixes=PREFIXES))
    assert list(find_matches("native", question, events("s1", "s1"), 0)) == []
