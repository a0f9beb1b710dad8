"""The reference, held against examples worked out by hand from the rules; a test bears the rule's name.

Events are written `b3(k=1)`: stream b, second 3, attributes; the id is `b3`, and a letter after the number makes
another id: `b3x`. A variable ranges over the stream of its first letter unless FROM says otherwise. A match is written
as the ids in the order of the variables' first mention, `-` for unbound, and `@` its time in seconds.
"""
# ruff: noqa: N802 (the rules' names have capitals)

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cepheid.language.parser import parse
from cepheid.language.syntax import Query, Range
from tests.reference.matcher import Event, Match, Refused, find_matches

SECOND = 1_000_000
PAPER = Path(__file__).parents[1] / "golden" / "language" / "paper"


def events(text: str) -> list[Event]:
    found = []
    for stream, time, extra, attributes in re.findall(r"([a-z])(-?\d+)([a-z]?)(\([^)]*\))?", text):
        found.append(
            Event(stream, f"{stream}{time}{extra}", int(time) * SECOND, eval(f"dict{attributes}") if attributes else {})
        )
    return found


def query(text: str) -> Query:
    """A query whose variables all have ranges, in the order of FROM, else of first mention."""
    parsed = parse(text)
    known = {r.variable for r in parsed.ranges}
    mentioned = dict.fromkeys(re.findall(r"\?(\w+)", text))
    return replace(parsed, ranges=parsed.ranges + tuple(Range(v, (v[0],)) for v in mentioned if v not in known))


def matches(text: str, given: str, now: int = 0) -> list[Match]:
    """The matches, which do not depend on the order in which events are given (rule E2)."""
    found = find_matches(query(text), events(given), now * SECOND)
    assert find_matches(query(text), events(given)[::-1], now * SECOND) == found
    return found


def found(text: str, given: str, now: int = 0) -> list[str]:
    """The matches as text. Without a SELECT the query selects nothing of interest."""
    if not text.startswith("SELECT"):
        text = f"{text} SELECT 1 AS one"
    return [shown(match) for match in matches(text, given, now)]


def shown(match: Match) -> str:
    parts = []
    for bound in match.events.values():
        if bound is None:
            parts.append("-")
        elif isinstance(bound, list):
            parts.append(f"[{' '.join(str(name) for _, name in bound)}]")
        else:
            parts.append(str(bound[1]))
    return f"{' '.join(parts)} @{match.time // SECOND}"


def selected(text: str, given: str) -> list[object]:
    """What the one selected value is in each match."""
    return [next(iter(match.select.values())) for match in matches(text, given)]


def value(expression: str, attributes: str = "") -> object:
    """What an expression over ?e is for one event."""
    (result,) = selected(f"SELECT {expression} AS v, ?e.id", f"e0({attributes})")
    return result


def test_it_imports_only_the_syntax_tree() -> None:
    for file in Path(__file__).parent.glob("*.py"):
        if file != Path(__file__):
            modules = re.findall(r"^(?:from|import) (cepheid\S*)(?: import (\w+))?", file.read_text(), re.MULTILINE)
            assert set(modules) <= {("cepheid.language", "syntax")} | {
                ("cepheid.language.syntax", name)
                for name in ("Expression", "Query", "Step", "step_variables", "Selected")
            }, file


# The paper


def test_paper_query_1() -> None:
    text = (PAPER / "query1.chi").read_text()
    given = "e0(sensorID='D1',flowrate=510.0) e1(sensorID='D2',flowrate=500.0) e2(sensorID='D3',flowrate=None)"
    assert matches(text, given) == [Match(0, {"e": ("e", "e0")}, {"sensorID": "D1", "flowrate": 510.0})]


def test_paper_query_2() -> None:
    # At 0 the average is 400; at 60 it is 500, which is not above; at 120 it is 600; at 300 the event of 0 is gone, and
    # it is (600 + 800 + 700) / 3.
    text = (PAPER / "query2.chi").read_text()
    given = "e0(flowrate=400.0) e60(flowrate=600.0) e120(flowrate=800.0) e300(flowrate=700.0)"
    assert matches(text, given) == [
        Match(120 * SECOND, {"e": ("e", "e120")}, {"avgrate": 600.0}),
        Match(300 * SECOND, {"e": ("e", "e300")}, {"avgrate": 700.0}),
    ]


def test_paper_query_3() -> None:
    # e2 needs the sensor of e1, more than 50 above it, at most 300 seconds later. e301 is too late for e0.
    text = (PAPER / "query3.chi").read_text()
    given = """e0(sensorID='D1',flowrate=510.0) e1(sensorID='D1',flowrate=560.0) e2(sensorID='D2',flowrate=900.0)
               e300(sensorID='D1',flowrate=561.0) e301(sensorID='D1',flowrate=700.0)"""
    assert [(shown(m), m.select) for m in matches(text, given)] == [
        ("e0 e300 @300", {"sensorID": "D1"}),
        ("e1 e301 @301", {"sensorID": "D1"}),
        ("e300 e301 @301", {"sensorID": "D1"}),
    ]


# E2


def test_E2_time_then_stream_then_id() -> None:
    assert found("SELECT ?e.id FROM (?e, b | a)", "b1 b0 a1 b1x") == ["b0 @0", "a1 @1", "b1 @1", "b1x @1"]


def test_E2_number_ids_compare_as_numbers() -> None:
    given = [Event("e", 10, 0), Event("e", 9, 0)]
    assert [m.select["id"] for m in find_matches(query("SELECT ?e.id"), given)] == [9, 10]


# E6


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("?e.n = ?e.n", None),
        ("?e.n = 1 AND 1 = 2", False),
        ("?e.n = 1 AND 1 = 1", None),
        ("?e.n = 1 OR 1 = 1", True),
        ("?e.n = 1 OR 1 = 2", None),
        ("NOT ?e.n = 1", None),
        ("?e.n IS NULL", True),
        ("?e.n IS NOT NULL", False),
        ("1 IS NULL", False),
        ("?e.n IN (1, 2)", None),
        ("1 IN (?e.n, 1)", True),
        ("1 IN (?e.n, 2)", None),
        ("1 NOT IN (?e.n, 2)", None),
        ("1 NOT IN (2, 3)", True),
        ("?e.n BETWEEN 1 AND 2", None),
        ("3 BETWEEN ?e.n AND 2", False),
        ("3 NOT BETWEEN ?e.n AND 2", True),
        ("2 BETWEEN 2 AND 2", True),
        ("CASE WHEN ?e.n = 1 THEN 1 WHEN 1 = 1 THEN 2 END", 2),
        ("CASE WHEN ?e.n = 1 THEN 1 END", None),
        ("CASE WHEN ?e.n = 1 THEN 1 ELSE 3 END", 3),
        ("?e.n + 1", None),
        ("-?e.n", None),
    ],
)
def test_E6_nulls_are_three_valued(expression: str, result: object) -> None:
    assert value(expression, "n=None") is result or value(expression, "n=None") == result


def test_E6_a_condition_passes_only_when_true() -> None:
    given = "e0(x=None) e1(x=1) e2(x=3)"
    assert found("FILTER (?e.x > 2)", given) == ["e2 @2"]
    assert found("FILTER (NOT ?e.x > 2)", given) == ["e1 @1"]


def test_E6_null_keys_join_nothing() -> None:
    assert found("JOIN (?a.k = ?b.k)", "a0(k=None) b1(k=None)") == []
    assert found("JOIN (?a.k = ?b.k)", "a0 b1") == []  # E3: a missing attribute is null


def test_E6_in_group_by_nulls_are_one_group() -> None:
    text = "SELECT COUNT(?e) AS n WINDOW (?e, batch, 10s) GROUP BY ?e.k"
    assert [(m.group, m.select["n"]) for m in matches(text, "e0(k=None) e1(k=1) e2")] == [
        ({"k": None}, 2),
        ({"k": 1}, 1),
    ]


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("7 / 2", 3.5),
        ("6 / 2", 3.0),
        ("7 / 0", None),
        ("7.5 / 0.0", None),
        ("7 % 3", 1),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("-7.5 % 2", -1.5),
        ("7 % 0", None),
        ("7.0 % 0", None),
        ("9223372036854775807 + 0", 9223372036854775807),
        ("9223372036854775807 + 1", None),
        ("-9223372036854775807 - 2", None),
        ("9223372036854775807 * 2", None),
        ("-(-9223372036854775807 - 1)", None),
        ("ABS(-9223372036854775807 - 1)", None),
        ("9223372036854775807 + 1.0", 2.0**63),
        ("1e308 * 10", None),
        ("9007199254740993 = 9007199254740992.0", True),  # the int becomes a float first
        ("'b' > 'B'", True),
        ("'é' > 'z'", True),
        ("FALSE < TRUE", True),
        ("2012-05-07T09:00 + 1h = 2012-05-07T10:00", True),
        ("?e.time + 5min = 1970-01-01T00:05", True),
        ("2012-05-07T09:00 - 2012-05-07T08:00 > 59min", True),
        ("-?e.x", -4),
    ],
)
def test_E6_arithmetic_and_comparison(expression: str, result: object) -> None:
    got = value(expression, "x=4")
    assert got == result
    assert type(got) is type(result)


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("ABS(-3)", 3),
        ("ABS(-3.5)", 3.5),
        ("ROUND(2.5)", 3.0),
        ("ROUND(-2.5)", -3.0),
        ("ROUND(2.675, 2)", 2.68),
        ("ROUND(1250, -2)", 1300.0),
        ("ROUND(7)", 7.0),
        ("ROUND(2.5, ?e.n)", None),
        ("FLOOR(-1.5)", -2.0),
        ("CEIL(-1.5)", -1.0),
        ("CEIL(3)", 3.0),
        ("SQRT(9)", 3.0),
        ("SQRT(-1)", None),
        ("EXP(0)", 1.0),
        ("EXP(1000)", None),
        ("LN(1)", 0.0),
        ("LN(0)", None),
        ("LOG10(1000)", 3.0),
        ("LOG10(-1)", None),
        ("POWER(2, 10)", 1024.0),
        ("POWER(10.0, 400)", None),
        ("POWER(-8.0, 0.5)", None),
        ("POWER(0, -1)", None),
        ("LEAST(3, ?e.n, 2)", 2),
        ("GREATEST(3, ?e.n, 2.5)", 3.0),
        ("LEAST(?e.n, ?e.n)", None),
        ("GREATEST('a', 'b')", "b"),
        ("COALESCE(?e.n, ?e.n, 5)", 5),
        ("COALESCE(?e.n, ?e.n)", None),
        ("LENGTH('χ-CEP')", 5),
        ("LOWER('ABC')", "abc"),
        ("UPPER('abc')", "ABC"),
        ("TRIM('  a b ')", "a b"),
        ("SUBSTRING('event', 2)", "vent"),
        ("SUBSTRING('event', 2, 3)", "ven"),
        ("SUBSTRING('event', 4, 9)", "nt"),
        ("SUBSTRING('event', 9)", ""),
        ("SUBSTRING('event', 0, 2)", "e"),
        ("SUBSTRING('event', 2, -1)", None),
        ("CONCAT('a', 'b', 'c')", "abc"),
        ("CONCAT('a', ?e.n)", None),
        ("CONTAINS('event', 'ven')", True),
        ("STARTS_WITH('event', 'ev')", True),
        ("ENDS_WITH('event', 'ev')", False),
        ("CONTAINS('event', ?e.n)", None),
        ("YEAR(2012-05-07T09:08:07.654321)", 2012),
        ("MONTH(2012-05-07T09:08:07.654321)", 5),
        ("DAY(2012-05-07T09:08:07.654321)", 7),
        ("HOUR(2012-05-07T09:08:07.654321)", 9),
        ("MINUTE(2012-05-07T09:08:07.654321)", 8),
        ("SECOND(2012-05-07T09:08:07.654321)", 7),
        ("DAY_OF_WEEK(2012-05-07T09:08:07.654321)", 1),
        ("DAY_OF_WEEK(1970-01-01T00:00)", 4),
        ("YEAR(1969-12-31T23:59:59)", 1969),
    ],
)
def test_E6_functions(expression: str, result: object) -> None:
    got = value(expression, "n=None")
    assert got == result
    assert type(got) is type(result)


def aggregated(expression: str, given: str) -> object:
    """What an aggregate is over all events between a and z."""
    (result,) = selected(f"SELECT {expression} AS v SEQ (?a, ?b{{0,}}, ?z)", f"a0 {given} z9")
    return result


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("COUNT(?b)", 3),
        ("COUNT(?b.x)", 2),
        ("SUM(?b.x)", 5),
        ("AVG(?b.x)", 2.5),
        ("MIN(?b.x)", 1),
        ("MAX(?b.x)", 4),
        ("STDDEV(?b.x)", math.sqrt(4.5)),
        ("FIRST(?b.x)", None),
        ("LAST(?b.x)", 4),
        ("MAX(?b.s)", "y"),
        ("SUM(?b.x * 2)", 10),
        ("MAX(?b.x) - MIN(?b.x)", 3),
    ],
)
def test_E6_aggregates_skip_nulls_but_first_and_last_do_not(expression: str, result: object) -> None:
    got = aggregated(expression, "b1(x=None,s='x') b2(x=1,s='y') b3(x=4,s='Z')")
    assert got == result
    assert type(got) is type(result)


def test_E6_over_no_values_count_is_0_and_the_others_null() -> None:
    for given in ("", "b1(x=None)"):
        assert aggregated("COUNT(?b.x)", given) == 0
        for function in ("SUM", "AVG", "MIN", "MAX", "STDDEV", "FIRST", "LAST"):
            assert aggregated(f"{function}(?b.x)", given) is None


def test_E6_stddev_is_null_below_two_values() -> None:
    assert aggregated("STDDEV(?b.x)", "b1(x=3) b2(x=None)") is None


def test_E6_a_sum_that_does_not_fit_is_null_and_its_average_is_not() -> None:
    given = "b1(x=9223372036854775807) b2(x=9223372036854775807)"
    assert aggregated("SUM(?b.x)", given) is None
    assert aggregated("AVG(?b.x)", given) == 2.0**63
    assert aggregated("SUM(?b.x)", given + " b3(x=-9223372036854775807)") == 9223372036854775807
    assert aggregated("SUM(?b.x)", "b1(x=1e308) b2(x=1e308)") is None


def test_E6_sums_of_floats_round_once() -> None:
    assert aggregated("SUM(?b.x)", "b1(x=1e16) b2(x=1.0) b3(x=-1e16)") == 1.0


# Q


def test_Q2_an_event_qualifies_if_the_variables_filters_are_true() -> None:
    given = "a0(x=1) a1(x=5) b2(x=1) b3(x=9)"
    assert found("FILTER (?a.x > 2) FILTER (?a.x < 9) FILTER (?b.x < 3) SEQ (?a, ?b)", given) == ["a1 b2 @2"]


def test_Q2_of_the_variables_streams_only() -> None:
    assert found("SELECT ?e.id FROM (?e, a | b)", "a0 b1 c2") == ["a0 @0", "b1 @1"]


def test_Q3_distinct_variables_bind_distinct_events() -> None:
    assert found("SELECT ?a.id, ?a2.id AS other", "a0 a1") == ["a0 a1 @1", "a1 a0 @1"]


def test_Q3_without_seq_every_combination_that_satisfies_joins_and_windows() -> None:
    given = "b0(k=1) a1(k=1) b2(k=2) b3(k=1) b9(k=1)"
    assert found("JOIN (?a.k = ?b.k) WINDOW (?a, ?b, 5s)", given) == ["a1 b0 @1", "a1 b3 @3"]


def test_Q4_window_is_inclusive() -> None:
    assert found("SEQ (?a, ?b) WINDOW (?a, ?b, 5s)", "a0 b5 b6") == ["a0 b5 @5"]


def test_Q4_greatest_minus_least_of_the_listed_variables() -> None:
    assert found("SEQ (?a, ?b, ?c) WINDOW (?a, ?c, 5s)", "a0 b1 c5 c6") == ["a0 b1 c5 @5"]
    assert found("SEQ (?a, ?b, ?c) WINDOW (?a, ?b, 5s)", "a0 b1 c9") == ["a0 b1 c9 @9"]


def test_Q4_several_windows_all_hold() -> None:
    given = "a0 b1 c5 b4"
    assert found("SEQ (?a, ?b, ?c) WINDOW (?a, ?c, 5s) WINDOW (?b, ?c, 2s)", given) == ["a0 b4 c5 @5"]


def test_Q4_a_window_of_no_width_holds_for_equal_times() -> None:
    assert found("WINDOW (?a, ?b, 0s)", "a1 b1 b2") == ["a1 b1 @1"]


@pytest.mark.parametrize(
    ("within", "left"),
    [
        ("[1970-01-01T00:00:01, 1970-01-01T00:00:03]", ["e1", "e2", "e3"]),
        ("[1970-01-01T00:00:01, 1970-01-01T00:00:03)", ["e1", "e2"]),
        ("(1970-01-01T00:00:01, 1970-01-01T00:00:03]", ["e2", "e3"]),
        ("(1970-01-01T00:00:01, 1970-01-01T00:00:03)", ["e2"]),
        ("[1970-01-01T00:00:03, )", ["e3", "e4"]),
        ("( , 1970-01-01T00:00:01)", ["e0"]),
        ("[now, )", ["e2", "e3", "e4"]),
        ("[now - 1s, now + 1s)", ["e1", "e2"]),
    ],
)
def test_Q5_within(within: str, left: list[str]) -> None:
    got = matches(f"SELECT ?e.id WITHIN {within}", "e0 e1 e2 e3 e4", now=2)
    assert [m.select["id"] for m in got] == left


def test_Q5_outside_of_it_events_do_not_exist_for_anything() -> None:
    within = "WITHIN [1970-01-01T00:00:02, )"
    assert found(f"SEQ (NOT ?b, ?a) WINDOW (?a, ?b, 5s) {within}", "b1 a3") == ["a3 @3"]
    assert found(f"SEQ (?b{{0,}}, ?a) WINDOW (?a, ?b, 5s) {within}", "b1 b2 a3") == ["[b2] a3 @3"]
    assert selected(f"SELECT COUNT(?e) AS n WINDOW (?e, sliding, 5s) {within}", "e1 e2 e3") == [1, 2]


def test_Q6_the_time_is_that_of_the_last_component() -> None:
    assert found("SEQ (?a, ?b) JOIN (?c.k = ?a.k)", "a0(k=1) b1 c7(k=1)") == ["a0 b1 c7 @7"]
    assert found("SEQ (?a, ?b) JOIN (?c.k = ?a.k)", "c0(k=1) a1(k=1) b2") == ["a1 b2 c0 @2"]


# S1


def test_S1_a_step_is_later_than_the_one_before() -> None:
    assert found("SEQ (?a, ?b)", "b0 a1 b1 b2") == ["a1 b2 @2"]


def test_S1_greatest_of_the_one_least_of_the_next() -> None:
    assert found("SEQ (ALL(?a, ?b), ?c)", "a1 c2 b3 c3 c4") == ["a1 b3 c4 @4"]
    assert found("SEQ (?a, ALL(?b, ?c))", "b0 a1 c1 b2 c3") == ["a1 b2 c3 @3"]


# S2


def test_S2_one_match_for_each_qualifying_event() -> None:
    assert found("SEQ (?a, ?b?, ?c)", "b0 a0 b1 b2 c3 b3") == ["a0 b1 c3 @3", "a0 b2 c3 @3"]


def test_S2_if_there_is_none_one_with_it_unbound() -> None:
    assert found("SEQ (?a, ?b?, ?c)", "b0 a0 c3 b3") == ["a0 - c3 @3"]


def test_S2_the_filters_joins_and_windows_decide_what_qualifies() -> None:
    assert found("SEQ (?a, ?b?, ?c) FILTER (?b.x > 1)", "a0 b1(x=1) c3") == ["a0 - c3 @3"]
    assert found("SEQ (?a, ?b?, ?c) JOIN (?b.k = ?c.k)", "a0 b1(k=1) c3(k=2) c4(k=1)") == ["a0 - c3 @3", "a0 b1 c4 @4"]
    assert found("SEQ (?a, ?b?, ?c) WINDOW (?b, ?c, 1s)", "a0 b1 c2 c3") == ["a0 b1 c2 @2", "a0 - c3 @3"]


def test_S2_a_join_that_names_an_unbound_variable_says_nothing() -> None:
    assert found("SEQ (?a, ?b?, ?c) JOIN (?b.k = ?c.k)", "a0(k=1) c3(k=2)") == ["a0 - c3 @3"]


def test_S2_the_parts_of_an_and_are_joins_of_their_own() -> None:
    given = "a0(k=1) c3(k=2)"
    assert found("SEQ (?a, ?b?, ?c) JOIN (?a.k = ?c.k AND ?b.k = ?c.k)", given) == []
    assert found("SEQ (?a, ?b?, ?c) JOIN (?a.k = ?c.k) JOIN (?b.k = ?c.k)", given) == []
    assert found("SEQ (?a, ?b?, ?c) JOIN (?a.k = 1 AND ?b.k = ?c.k)", given) == ["a0 - c3 @3"]


def test_S7_ints_in_a_class_with_floats_are_compared_as_floats() -> None:
    text = query("SEQ (?a, ?b) JOIN (?a.k = ?b.k) MATCH STRICT SELECT ?b.k + 1 AS k FROM (?b, a | b)")
    given = [Event("a", 1, 0, {"k": 2**63 - 1}), Event("a", 2, 1, {"k": 2**63 - 2}), Event("b", 3, 2, {"k": 1.5})]
    assert find_matches(text, given) == []
    (match,) = find_matches(text, given, floats=frozenset({("b", "k")}))
    assert (match.events, match.select) == ({"a": ("a", 1), "b": ("a", 2)}, {"k": 2.0**63})


@pytest.mark.parametrize("policy", ["ANY", "NEXT", "STRICT"])
def test_S2_a_part_that_names_no_variable_holds_for_all_or_for_none(policy: str) -> None:
    text = f"SEQ (?a?, ?b, NOT ?c) JOIN (?a.k = ?b.k AND {{}}) WINDOW (?a, ?b, ?c, 9s) MATCH {policy}"
    for given, bound in [("a0(k=1) b1(k=1)", "a0 b1 @9"), ("b1(k=1)", "- b1 @10")]:
        assert found(text.format("1 < 2"), given) == [bound]
        assert found(text.format("1 > 2"), given) == []
        assert found(text.format("1 > NULL"), given) == []


def test_S2_a_window_that_names_an_unbound_variable_still_bounds_the_others() -> None:
    assert found("SEQ (?a, ?b?, ?c) WINDOW (?a, ?b, ?c, 2s)", "a0 c2 c3") == ["a0 - c2 @2"]


def test_S2_in_select_it_is_null() -> None:
    text = "SELECT ?b.k AS k, COALESCE(?b.k, 0) AS known SEQ (?a, ?b?, ?c)"
    assert [m.select for m in matches(text, "a0 c1")] == [{"k": None, "known": 0}]


def test_S2_two_of_them_are_each_judged_with_the_other_as_it_is() -> None:
    # c1 lies before b2. With b2 bound no c fits after it; with c1 bound no b fits before it.
    assert found("SEQ (?a, ?b?, ?c?, ?d)", "a0 c1 b2 d3") == ["a0 - c1 d3 @3", "a0 b2 - d3 @3"]
    assert found("SEQ (?a, ?b?, ?c?, ?d)", "a0 b1 c2 d3") == ["a0 b1 c2 d3 @3"]
    assert found("SEQ (?a, ?b?, ?c?, ?d)", "a0 d3") == ["a0 - - d3 @3"]


def test_S2_beside_a_list_it_is_judged_with_the_list_as_it_is() -> None:
    # With c2 bound the list ends before it. Unbound, the list is b1 and b3, and no c lies between b3 and d4.
    assert found("SEQ (?a, ?b+, ?c?, ?d)", "a0 b1 c2 b3 d4") == ["a0 [b1] c2 d4 @4", "a0 [b1 b3] - d4 @4"]
    assert found("SEQ (?a, ?b+, ?c?, ?d)", "a0 c1 b2 d3") == ["a0 [b2] - d3 @3"]


# S3


def test_S3_all_that_qualify_strictly_between_the_neighbours() -> None:
    assert found("SEQ (?a, ?b+, ?c)", "a0 b0 b1 b2 c3 b3 b4") == ["a0 [b1 b2] c3 @3"]
    assert found("SEQ (ALL(?a, ?d), ?b+, ?c)", "a0 b1 d2 b3 c4") == ["a0 d2 [b3] c4 @4"]


def test_S3_each_is_judged_by_itself_with_the_joins_that_name_it() -> None:
    given = "a0(k=1) b1(k=1,x=9) b2(k=2,x=1) b3(k=1,x=1) c4(x=5)"
    assert found("SEQ (?a, ?b+, ?c) JOIN (?b.k = ?a.k)", given) == ["a0 [b1 b3] c4 @4"]
    assert found("SEQ (?a, ?b+, ?c) JOIN (?b.k = ?a.k) JOIN (?b.x < ?c.x)", given) == ["a0 [b3] c4 @4"]


def test_S3_and_with_the_windows_that_name_it() -> None:
    assert found("SEQ (?a, ?b+, ?c) WINDOW (?a, ?b, 1s)", "a0 b1 b2 c3") == ["a0 [b1] c3 @3"]
    assert found("SEQ (?a, ?b+, ?c) WINDOW (?b, ?c, 1s)", "a0 b1 b2 c3") == ["a0 [b2] c3 @3"]


def test_S3_a_window_with_a_single_event_does_not_bound_the_span_of_the_others() -> None:
    # b1 and d5 are each 2 seconds from c3. Q4 to the letter would find 4 seconds between them.
    assert found("SEQ (?a, ?b+, ?c, ?d+, ?e) WINDOW (?b, ?c, ?d, 2s)", "a0 b1 c3 d5 e6") == ["a0 [b1] c3 [d5] e6 @6"]


def test_S3_a_window_that_lists_no_single_event_bounds_their_span_or_there_is_no_match() -> None:
    assert found("SEQ (?a, ?b+, ?c) WINDOW (?b, 1s)", "a0 b1 b2 c4") == ["a0 [b1 b2] c4 @4"]
    assert found("SEQ (?a, ?b+, ?c) WINDOW (?b, 1s)", "a0 b1 b3 c4") == []
    text = "SEQ (?a, ?b+, ?c, ?d+, ?e) WINDOW (?b, ?d, 3s)"
    assert found(text, "a0 b1 c2 d4 e5") == ["a0 [b1] c2 [d4] e5 @5"]
    assert found(text, "a0 b1 c2 d5 e6") == []


def test_S3_an_unbound_variable_in_that_window_is_no_single_event() -> None:
    assert found("SEQ (?a, ?x?, ?c, ?b+, ?d) WINDOW (?x, ?b, 1s)", "a0 c1 b2 b4 d5") == []


@pytest.mark.parametrize(
    ("count", "number", "matched"),
    [
        ("+", 0, False),
        ("+", 1, True),
        ("+", 3, True),
        ("{2,3}", 1, False),
        ("{2,3}", 2, True),
        ("{2,3}", 3, True),
        ("{2,3}", 4, False),
        ("{2}", 2, True),
        ("{2}", 3, False),
        ("{2,}", 1, False),
        ("{2,}", 4, True),
        ("{0,1}", 0, True),
        ("{0,1}", 2, False),
    ],
)
def test_S3_their_number_is_at_least_1_or_in_the_given_range(count: str, number: int, matched: bool) -> None:
    given = [f"b{i + 1}" for i in range(number)]
    wanted = [f"a0 [{' '.join(given)}] c9 @9"] if matched else []
    assert found(f"SEQ (?a, ?b{count}, ?c)", " ".join(["a0", *given, "c9"])) == wanted


def test_S3_two_such_steps_cant_be_adjacent_nor_with_nothing_bound_between() -> None:
    for between in ("", "NOT ?x, ", "?x?, "):
        with pytest.raises(Refused, match="S3"):
            found(f"SEQ (?a, ?b+, {between}?c+, ?d)", "a0")


def test_S3_outside_an_aggregate_an_attribute_of_it_is_an_error() -> None:
    with pytest.raises(Refused, match="S3"):
        matches("SELECT ?b.x SEQ (?a, ?b+, ?c)", "a0 b1 c2")


# S4


def test_S4_trailing_not_fires_at_the_deadline() -> None:
    assert found("SEQ (?a, NOT ?b) WINDOW (?a, ?b, 5s)", "a0") == ["a0 @5"]


def test_S4_the_deadline_is_inclusive() -> None:
    assert found("SEQ (?a, NOT ?b) WINDOW (?a, ?b, 5s)", "a0 b5") == []
    assert found("SEQ (?a, NOT ?b) WINDOW (?a, ?b, 5s)", "a0 b6") == ["a0 @5"]


def test_S4_else_the_window_that_lists_the_first_step() -> None:
    assert found("SEQ (?a, NOT ?b) WINDOW (?a, 5s)", "a0 a3 b7") == ["a0 @5"]
    assert found("SEQ (?a, ?c, NOT ?b) WINDOW (?a, ?c, 5s)", "a0 c3 b6") == ["a0 c3 @5"]
    assert found("SEQ (?a, ?c, NOT ?b) WINDOW (?a, ?c, 5s)", "a0 c3 b5") == []


def test_S4_the_window_that_lists_it_comes_before_the_first_steps() -> None:
    text = "SEQ (?a, ?c, NOT ?b) WINDOW (?a, ?c, 5s) WINDOW (?c, ?b, 4s)"
    assert found(text, "a0 c3 b7") == []
    assert found(text, "a0 c3 b8") == ["a0 c3 @7"]


def test_S4_f_is_the_least_time_of_the_bound_events_that_the_window_lists() -> None:
    assert found("SEQ (?a, ?c, NOT ?b) WINDOW (?a, ?b, ?c, 5s)", "a0 c3") == ["a0 c3 @5"]
    assert found("SEQ (ALL(?a, ?d), NOT ?b) WINDOW (?a, ?b, ?d, 5s)", "d0 a2 b6") == ["a2 d0 @5"]
    assert found("SEQ (?a, ?d+, ?c, NOT ?b) WINDOW (?d, ?b, 5s)", "a0 d1 d2 c3 b7") == ["a0 [d1 d2] c3 @6"]


def test_S4_of_several_the_earliest_deadline() -> None:
    text = "SEQ (?a, ?c, NOT ?b) WINDOW (?a, ?b, 5s) WINDOW (?c, ?b, 1s)"
    assert found(text, "a0 c3 b5") == ["a0 c3 @4"]


def test_S4_the_last_bound_events_time_if_that_is_later() -> None:
    assert found("SEQ (?a, ?c, NOT ?b) WINDOW (?a, ?b, 5s)", "a0 c9 b10") == ["a0 c9 @9"]


def test_S4_trailing_plus_reaches_to_the_deadline() -> None:
    assert found("SEQ (?a, ?b+) WINDOW (?a, ?b, 5s)", "a0 b0 b1 b5 b6") == ["a0 [b1 b5] @5"]
    assert found("SEQ (?a, ?b+) WINDOW (?a, 5s)", "a0 b0 b1 b5 b6") == ["a0 [b1 b5] @5"]
    assert found("SEQ (?a, ?b+) WINDOW (?a, ?b, 5s)", "a0 b6") == []


def test_S4_trailing_range_counts_up_to_the_deadline() -> None:
    assert found("SEQ (?a, ?b{0,1}) WINDOW (?a, ?b, 5s)", "a0 b6") == ["a0 [] @5"]
    assert found("SEQ (?a, ?b{0,1}) WINDOW (?a, ?b, 5s)", "a0 b1 b5") == []


def test_S4_trailing_maybe_has_its_events_time_or_the_deadline() -> None:
    assert found("SEQ (?a, ?b?) WINDOW (?a, ?b, 5s)", "a0 b1 b5 b6") == ["a0 b1 @1", "a0 b5 @5"]
    assert found("SEQ (?a, ?b?) WINDOW (?a, ?b, 5s)", "a0 b6") == ["a0 - @5"]


def test_S4_as_the_first_step_it_reaches_back() -> None:
    assert found("SEQ (NOT ?b, ?a) WINDOW (?a, ?b, 5s)", "b0 a5") == []
    assert found("SEQ (NOT ?b, ?a) WINDOW (?a, ?b, 5s)", "b0 a6") == ["a6 @6"]
    assert found("SEQ (?b+, ?a) WINDOW (?a, ?b, 5s)", "b0 b1 b3 a6 b6") == ["[b1 b3] a6 @6"]
    assert found("SEQ (?b?, ?a) WINDOW (?a, ?b, 5s)", "b0 b1 b3 a6") == ["b1 a6 @6", "b3 a6 @6"]
    assert found("SEQ (?b?, ?a) WINDOW (?a, ?b, 5s)", "b0 a6") == ["- a6 @6"]


def test_S4_l_is_the_greatest_time_of_the_bound_events_that_the_window_lists() -> None:
    assert found("SEQ (NOT ?b, ?a, ?c) WINDOW (?a, ?b, ?c, 5s)", "b1 a4 c6") == []
    assert found("SEQ (NOT ?b, ?a, ?c) WINDOW (?a, ?b, ?c, 5s)", "b0 a4 c6") == ["a4 c6 @6"]


def test_S4_lists_at_both_ends_the_first_is_taken_without_the_last() -> None:
    # The first reaches back to a4 - 5s; the last to b0 + 5s.
    assert found("SEQ (?b+, ?a, ?c+) WINDOW (?b, ?a, ?c, 5s)", "b0 b3 a4 c5 c6") == ["[b0 b3] a4 [c5] @5"]


def test_S4_without_a_bound_event_there_is_no_deadline_and_it_never_comes() -> None:
    text = "SEQ (?x?, ?a, ?b+) WINDOW (?x, ?b, 5s)"
    assert found(text, "x0 a1 b5 b6") == ["x0 a1 [b5] @5"]
    assert found(text, "a1 b5") == []


# S5


def test_S5_no_event_qualifies_strictly_between() -> None:
    assert found("SEQ (?a, NOT ?b, ?c)", "a0 b1 c2") == []
    assert found("SEQ (?a, NOT ?b, ?c)", "a0 b0 b2 c2") == ["a0 c2 @2"]
    assert found("SEQ (?a, NOT ?b, ?c) FILTER (?b.x > 1)", "a0 b1(x=1) c2") == ["a0 c2 @2"]


def test_S5_joins_with_the_other_bound_variables_included() -> None:
    text = "SEQ (?a, NOT ?b, ?c) JOIN (?b.k = ?a.k)"
    assert found(text, "a0(k=1) b1(k=2) c2") == ["a0 c2 @2"]
    assert found(text, "a0(k=1) b1(k=1) c2") == []
    # Also with a later step's.
    text = "SEQ (?a, NOT ?b, ?c, ?d) JOIN (?b.k = ?d.k)"
    assert found(text, "a0 b1(k=1) c2 d3(k=1) d4(k=2)") == ["a0 c2 d4 @4"]


def test_S5_a_join_with_an_unbound_variable_says_nothing() -> None:
    assert found("SEQ (?a, ?c?, NOT ?b, ?d) JOIN (?b.k = ?c.k)", "a0 b1(k=1) d2") == []


def test_S5_the_nearest_bound_events_on_either_side() -> None:
    assert found("SEQ (?a, ?b+, NOT ?c, ?d)", "a0 c1 b2 d3") == ["a0 [b2] d3 @3"]
    assert found("SEQ (?a, ?b+, NOT ?c, ?d)", "a0 b1 c2 d3") == []
    assert found("SEQ (?a, NOT ?b, ?c?, ?d)", "a0 c1 b2 d3") == ["a0 c1 d3 @3"]
    assert found("SEQ (?a, NOT ?b, ?c?, ?d)", "a0 b2 d3") == []
    assert found("SEQ (ALL(?a, ?b), NOT ?c, ?d)", "a0 c1 b2 d3") == ["a0 b2 d3 @3"]


def test_S5_a_window_that_names_it_limits_which_events_count() -> None:
    assert found("SEQ (?a, NOT ?b, ?c) WINDOW (?b, ?c, 1s)", "a0 b1 c3") == ["a0 c3 @3"]
    assert found("SEQ (?a, NOT ?b, ?c) WINDOW (?b, ?c, 1s)", "a0 b2 c3") == []


def test_S5_an_event_that_another_variable_binds_counts() -> None:
    assert found("SELECT ?b2.id SEQ (?a, NOT ?b, ?c)", "a0 b1 c2") == []
    assert found("SELECT ?b2.id SEQ (?a, NOT ?b, ?c)", "a0 c2 b3") == ["b3 a0 c2 @3"]


# S6


def test_S6_all_in_any_order_equal_times_allowed() -> None:
    assert found("SEQ (ALL(?a, ?b))", "b1 a2") == ["a2 b1 @2"]
    assert found("SEQ (ALL(?a, ?b))", "a1 b1") == ["a1 b1 @1"]
    assert found("SEQ (ALL(?a, ?b))", "a1") == []


def test_S6_all_binds_distinct_events() -> None:
    assert found("SEQ (ALL(?a, ?a2))", "a1 a2") == ["a1 a2 @2", "a2 a1 @2"]


def test_S6_any_one_match_for_each_alternative_and_event() -> None:
    assert found("SEQ (?a, ANY(?b, ?c))", "a0 b1 c2 b3") == ["a0 b1 - @1", "a0 - c2 @2", "a0 b3 - @3"]
    assert found("SEQ (?a, ANY(?b, ?b2))", "a0 b1") == ["a0 - b1 @1", "a0 b1 - @1"]


def test_S6_the_other_alternatives_are_unbound() -> None:
    text = "SELECT ?b.x AS b, ?c.x AS c SEQ (?a, ANY(?b, ?c)) JOIN (?a.k = ?c.k)"
    assert [m.select for m in matches(text, "a0(k=1) b1(x=7) c2(k=2)")] == [{"b": 7, "c": None}]


# S7


def test_S7_equal_attributes_are_the_key() -> None:
    given = "a0(k=1) b1(k=2) b2(k=1)"
    assert found("SEQ (?a, ?b) JOIN (?a.k = ?b.k) MATCH STRICT", given) == ["a0 b2 @2"]


def test_S7_conjuncts_of_and_count_and_those_of_or_dont() -> None:
    given = "a0(k=1,x=0) b1(k=2,x=5) b2(k=1,x=5)"
    assert found("SEQ (?a, ?b) JOIN (?a.x < ?b.x AND ?a.k = ?b.k) MATCH STRICT", given) == ["a0 b2 @2"]
    assert found("SEQ (?a, ?b) JOIN (?a.k = ?b.k OR ?a.x > ?b.x) MATCH STRICT", given) == []


def test_S7_several_classes_make_one_key() -> None:
    text = "SEQ (?a, ?b) JOIN (?a.k = ?b.k) JOIN (?a.j = ?b.j) MATCH STRICT"
    assert found(text, "a0(k=1,j=1) b1(k=1,j=2) b2(k=1,j=1)") == ["a0 b2 @2"]


def test_S7_a_class_touches_every_variable() -> None:
    text = "SEQ (?a, ?b, ?c) JOIN (?a.k = ?b.k) MATCH STRICT"
    assert found(text, "a0(k=1) b1(k=1) c2(k=9)") == ["a0 b1 c2 @2"]
    assert found(text, "a0(k=1) a1(k=2) b2(k=1) c3(k=1)") == []  # one partition: a1 is in it
    text = "SEQ (?a, ?b, ?c) JOIN (?a.k = ?b.k) JOIN (?b.k = ?c.k) MATCH STRICT"
    assert found(text, "a0(k=1) a1(k=2) b2(k=1) c3(k=1)") == ["a0 b2 c3 @3"]


def test_S7_links_through_a_variable_that_may_be_unbound_dont_count() -> None:
    given = "a0(k=1) a1(k=2) c2(k=1)"
    for step in ("?b?", "?b{0,2}"):
        through = f"SELECT ?a.id AS a SEQ (?a, {step}, ?c) JOIN (?a.k = ?b.k) JOIN (?b.k = ?c.k) MATCH STRICT"
        assert selected(through, given) == ["a1"]  # one partition: a1 and c2 are neighbours
        direct = f"SELECT ?a.id AS a SEQ (?a, {step}, ?c) JOIN (?a.k = ?c.k) JOIN (?a.k = ?b.k) MATCH STRICT"
        assert selected(direct, given) == ["a0"]


def test_S7_links_through_a_not_variable_dont_count() -> None:
    given = "a0(k=1) a1(k=2) c2(k=1)"
    assert found("SEQ (?a, NOT ?b, ?c) JOIN (?a.k = ?b.k) JOIN (?b.k = ?c.k) MATCH STRICT", given) == ["a1 c2 @2"]


def test_S7_an_event_with_a_null_in_its_key_breaks_no_adjacency() -> None:
    assert found("SEQ (?a, ?b) JOIN (?a.k = ?b.k) MATCH STRICT", "a0(k=1) b1(k=None) b2(k=1)") == ["a0 b2 @2"]


def test_S7_the_stream_of_a_not_variable_has_a_key_if_a_join_gives_it_one() -> None:
    text = "SEQ (?a, NOT ?n, ?b) FILTER (?n.x > 0) JOIN (?a.k = ?b.k) MATCH STRICT"
    assert found(text, "a0(k=1) n1(x=0,k=1) b2(k=1)") == ["a0 b2 @2"]
    text += " JOIN (?n.k = ?a.k)"
    assert found(text, "a0(k=1) n1(x=0,k=1) b2(k=1)") == []
    assert found(text, "a0(k=1) n1(x=0,k=2) b2(k=1)") == ["a0 b2 @2"]


def test_S7_strict_and_after_match_need_one_attribute_in_each_stream() -> None:
    for clause in ("MATCH STRICT", "AFTER MATCH CONSUME"):
        with pytest.raises(Refused, match="S7"):
            found(f"SEQ (?a, ?a2) JOIN (?a.k = ?a2.j) {clause}", "a0(k=1,j=2) a1(k=2,j=1)")


# S8


def test_S8_every_combination() -> None:
    assert found("SEQ (?a, ?b)", "a0 a1 b2 b3") == ["a0 b2 @2", "a1 b2 @2", "a0 b3 @3", "a1 b3 @3"]


def test_S8_with_those_of_variables_outside_seq() -> None:
    assert found("SEQ (?a, ?b) WINDOW (?a, ?c, 5s)", "a0 b1 c0 c5 c6") == ["a0 b1 c0 @1", "a0 b1 c5 @5"]


def test_S8_a_list_leaves_out_what_a_variable_outside_binds() -> None:
    text = "SELECT ?b2.id SEQ (?a, ?b+, ?c)"
    assert found(text, "a0 b1 b2 c3") == ["b1 a0 [b2] c3 @3", "b2 a0 [b1] c3 @3"]


# S9


def test_S9_each_further_step_takes_the_first_event() -> None:
    assert found("SEQ (?a, ?b) MATCH NEXT", "a0 b1x b1 b2") == ["a0 b1 @1"]
    assert found("SEQ (?a, ?b) MATCH NEXT", "a1 b1 b2") == ["a1 b2 @2"]


def test_S9_for_each_event_that_qualifies_for_the_first_step() -> None:
    assert found("SEQ (?a, ?b) MATCH NEXT", "a0 a1 b2") == ["a0 b2 @2", "a1 b2 @2"]


def test_S9_that_qualifies_with_what_is_bound_so_far() -> None:
    assert found("SEQ (?a, ?b) JOIN (?a.k = ?b.k) MATCH NEXT", "a0(k=1) b1(k=2) b2(k=1)") == ["a0 b2 @2"]
    assert found("SEQ (?a, ?b) WINDOW (?a, ?b, 1s) MATCH NEXT", "a0 b2") == []


def test_S9_no_backtracking() -> None:
    text = "SEQ (?a, ?b, ?c) JOIN (?c.k = ?b.k) MATCH NEXT"
    assert found(text, "a0 b1(k=1) b2(k=2) c3(k=2)") == []
    assert found(text, "a0 b1(k=1) b2(k=2) c3(k=2) c4(k=1)") == ["a0 b1 c4 @4"]


def test_S9_not_is_judged_on_what_was_taken() -> None:
    assert found("SEQ (?a, NOT ?n, ?b) MATCH NEXT", "a0 n1 b2 a3 b4") == ["a3 b4 @4"]


def test_S9_a_step_after_plus_takes_the_first_event_once_one_is_there() -> None:
    assert found("SEQ (?a, ?b+, ?c) MATCH NEXT", "a0 c1 b2 c2 b3 c4 c5") == ["a0 [b2 b3] c4 @4"]


def test_S9_a_step_after_a_range_takes_the_first_event_once_n_are_there() -> None:
    assert found("SEQ (?a, ?b{2,}, ?c) MATCH NEXT", "a0 b1 c2 b3 c4 b5 c6") == ["a0 [b1 b3] c4 @4"]


def test_S9_counted_by_their_joins_with_earlier_steps() -> None:
    text = "SEQ (?a, ?b+, ?c) JOIN (?b.k = ?a.k) MATCH NEXT"
    assert found(text, "a0(k=1) b1(k=2) c2 b3(k=1) c4") == ["a0 [b3] c4 @4"]


def test_S9_what_it_binds_is_then_judged_with_all_joins_and_its_number_again() -> None:
    text = "SEQ (?a, ?b+, ?c) JOIN (?b.k = ?c.k) MATCH NEXT"
    assert found(text, "a0 b1(k=1) c2(k=2) b3(k=2) c4(k=2)") == []
    assert found(text, "a0 b1(k=1) b2(k=2) c3(k=2)") == ["a0 [b2] c3 @3"]
    assert found("SEQ (?a, ?b{1,1}, ?c) MATCH NEXT", "a0 b1 b2 c3") == []


def test_S9_maybe_and_a_range_from_0_do_not_delay_the_next_step() -> None:
    assert found("SEQ (?a, ?b?, ?c) MATCH NEXT", "a0 c1 b2 c3") == ["a0 - c1 @1"]
    assert found("SEQ (?a, ?b{0,2}, ?c) MATCH NEXT", "a0 c1 b2 c3") == ["a0 [] c1 @1"]


def test_S9_maybe_then_takes_the_first_before_that_steps_event() -> None:
    assert found("SEQ (?a, ?b?, ?c) MATCH NEXT", "a0 b1 b2 c3") == ["a0 b1 c3 @3"]


def test_S9_that_qualifies_with_all_that_is_bound() -> None:
    text = "SEQ (?a, ?b?, ?c) JOIN (?b.k = ?c.k) MATCH NEXT"
    assert found(text, "a0 b1(k=1) b2(k=2) c3(k=2)") == ["a0 b2 c3 @3"]
    assert found(text, "a0 b1(k=1) c3(k=2) c4(k=1)") == ["a0 - c3 @3"]
    # It has its event before a later step takes one, which then has to qualify with it.
    text = "SEQ (?a, ?b?, ?c, ?d) JOIN (?b.k = ?d.k) MATCH NEXT"
    assert found(text, "a0 b1(k=1) c2 d3(k=2) d4(k=1)") == ["a0 b1 c2 d4 @4"]


def test_S9_maybe_beside_a_list() -> None:
    assert found("SEQ (?a, ?b+, ?c?, ?d) MATCH NEXT", "a0 c1 b2 c3 b4 c5 d6") == ["a0 [b2] c3 d6 @6"]
    assert found("SEQ (?a, ?c?, ?b+, ?d) MATCH NEXT", "a0 b1 c2 b3 d4") == ["a0 - [b1 b3] d4 @4"]
    assert found("SEQ (?a, ?c?, ?b+, ?d) MATCH NEXT", "a0 c1 c2 b3 d4") == ["a0 c1 [b3] d4 @4"]


def test_S9_two_maybes_take_in_the_order_written() -> None:
    assert found("SEQ (?a, ?b?, ?c?, ?d) MATCH NEXT", "a0 c1 b2 c3 d4") == ["a0 b2 c3 d4 @4"]


def test_S9_all_each_takes_its_first() -> None:
    assert found("SEQ (?a, ALL(?b, ?c)) MATCH NEXT", "a0 c1 c2 b3 b4") == ["a0 b3 c1 @3"]
    assert found("SEQ (?a, ALL(?b, ?b2)) MATCH NEXT", "a0 b1 b2 b3") == ["a0 b1 b2 @2"]
    # As the events come: c1 is taken, and b has to join it.
    text = "SEQ (?a, ALL(?b, ?c)) JOIN (?b.k = ?c.k) MATCH NEXT"
    assert found(text, "a0 c1(k=1) b2(k=2) c3(k=2) b4(k=1)") == ["a0 b4 c1 @4"]


def test_S9_all_as_the_first_step_each_event_that_qualifies_for_a_member_starts_a_run() -> None:
    assert found("SEQ (ALL(?a, ?b)) MATCH NEXT", "a0 b1 a2 b3") == ["a0 b1 @1", "a2 b1 @2", "a2 b3 @3"]
    assert found("SEQ (ALL(?a, ?b), ?c) MATCH NEXT", "a0 a1 b2 c3") == ["a0 b2 c3 @3", "a1 b2 c3 @3"]
    assert found("SEQ (ALL(?a, ?a2)) MATCH NEXT", "a0 a1") == ["a0 a1 @1", "a1 a0 @1"]
    assert found("SEQ (ALL(?a, ?b)) MATCH NEXT", "a1 b1") == ["a1 b1 @1"]


def test_S9_any_takes_the_first_event_for_the_member_written_first() -> None:
    assert found("SEQ (?a, ANY(?b, ?c)) MATCH NEXT", "a0 c1 b2") == ["a0 - c1 @1"]
    assert found("SEQ (?a, ANY(?b, ?b2)) MATCH NEXT", "a0 b1") == ["a0 b1 - @1"]
    assert found("SEQ (ANY(?a, ?b), ?c) MATCH NEXT", "b0 a1 c2") == ["- b0 c2 @2", "a1 - c2 @2"]


def test_S9_a_first_list_begins_runs_and_reaches_back() -> None:
    assert found("SEQ (?b+, ?a) WINDOW (?a, ?b, 5s) MATCH NEXT", "b0 b1 a2 a3 b7 a8") == [
        "[b0 b1] a2 @2",
        "[b7] a8 @8",
    ]


def test_S9_a_first_step_that_may_bind_nothing_delays_nothing() -> None:
    assert found("SEQ (?b?, ?a) WINDOW (?a, ?b, 5s) MATCH NEXT", "b0 b1 a2 a9") == ["b0 a2 @2", "- a9 @9"]
    assert found("SEQ (?b{0,}, ?a) WINDOW (?a, ?b, 5s) MATCH NEXT", "b0 a2 a9") == ["[b0] a2 @2", "[] a9 @9"]
    assert found("SEQ (NOT ?b, ?a, ?c) WINDOW (?a, ?b, 5s) MATCH NEXT", "b0 a2 a9 c10") == ["a9 c10 @10"]


def test_S9_last_steps_reach_to_the_deadline() -> None:
    assert found("SEQ (?a, ?b?) WINDOW (?a, ?b, 5s) MATCH NEXT", "a0 b1 b2") == ["a0 b1 @1"]
    assert found("SEQ (?a, ?b?) WINDOW (?a, ?b, 5s) MATCH NEXT", "a0 b6") == ["a0 - @5"]
    assert found("SEQ (?a, ?b+) WINDOW (?a, ?b, 5s) MATCH NEXT", "a0 b1 b2 b6") == ["a0 [b1 b2] @5"]
    assert found("SEQ (?a, NOT ?b) WINDOW (?a, ?b, 5s) MATCH NEXT", "a0 b6") == ["a0 @5"]


# S10


def test_S10_the_bound_events_are_neighbours() -> None:
    assert found("SEQ (?a, ?b) MATCH STRICT", "a0 a1 b2 b3") == ["a1 b2 @2"]
    assert found("SEQ (?a, ?b+, ?c) MATCH STRICT", "a0 b1 a2 b3 b4 c5") == ["a2 [b3 b4] c5 @5"]


def test_S10_among_all_events_of_the_from_streams() -> None:
    assert found("SEQ (?a, ?b) MATCH STRICT", "a0 z1 b2") == ["a0 b2 @2"]
    assert found("SELECT ?a.id FROM (?a, a | z), (?b, b) SEQ (?a, ?b) MATCH STRICT", "a0 z1 b2") == ["z1 b2 @2"]


def test_S10_qualifying_or_not() -> None:
    assert found("SEQ (?a, ?b) FILTER (?b.x > 0) MATCH STRICT", "a0 b1(x=0) b2(x=1)") == []


def test_S10_in_E2s_order_so_an_event_of_equal_time_can_stand_between() -> None:
    assert found("SELECT ?a.id FROM (?a, a | b), (?c, c) SEQ (?a, ?c) MATCH STRICT", "a1 b2 c2") == []
    assert found("SELECT ?a.id FROM (?a, a | d), (?c, c) SEQ (?a, ?c) MATCH STRICT", "a1 c2 d2") == ["a1 c2 @2"]


def test_S10_does_not_change_what_qualifies() -> None:
    # b2 qualifies with a0, so a0 without it is no match; and it is no neighbour of a0.
    assert found("SEQ (?a, ?b?) WINDOW (?a, ?b, 5s) MATCH STRICT", "a0 a1 b2") == ["a1 b2 @2"]
    assert found("SEQ (?a, ?b+) WINDOW (?a, ?b, 5s) MATCH STRICT", "a0 b1 a2 b3") == ["a2 [b3] @7"]


# S11


def test_S11_consume_takes_those_none_of_whose_events_was_taken() -> None:
    assert found("SEQ (?a, ?b) AFTER MATCH CONSUME", "a0 a1 b2 b3") == ["a0 b2 @2", "a1 b3 @3"]
    assert found("SEQ (?a, ?b+, ?c) AFTER MATCH CONSUME", "a0 a1 b2 c3 c4") == ["a0 [b2] c3 @3"]


def test_S11_skip_past_last() -> None:
    assert found("SEQ (?a, ?b) AFTER MATCH SKIP PAST LAST", "a0 a1 b2 b3 a4 b5") == ["a0 b2 @2", "a4 b5 @5"]


def test_S11_skip_to_next() -> None:
    assert found("SEQ (?a, ?b) AFTER MATCH SKIP TO NEXT", "a0 a1 b2 b3") == ["a0 b2 @2", "a1 b2 @2"]


def test_S11_keep_is_the_default() -> None:
    given = "a0 a1 b2 b3"
    assert found("SEQ (?a, ?b) AFTER MATCH KEEP", given) == found("SEQ (?a, ?b)", given)


def test_S11_per_partition() -> None:
    given = "a0(k=1) a1(k=2) b2(k=1) b3(k=2)"
    assert found("SEQ (?a, ?b) JOIN (?a.k = ?b.k) AFTER MATCH SKIP PAST LAST", given) == ["a0 b2 @2", "a1 b3 @3"]
    assert found("SEQ (?a, ?b) AFTER MATCH SKIP PAST LAST", given) == ["a0 b2 @2"]


def test_S11_on_the_matches_that_keep_would_give_and_creates_none() -> None:
    assert found("SEQ (?a, ?b) MATCH NEXT AFTER MATCH CONSUME", "a0 a1 b2 b3") == ["a0 b2 @2"]
    text = "SEQ (?a, ?b+, ?c) HAVING (COUNT(?b) > 1) AFTER MATCH CONSUME"
    assert found(text, "a0 b1 c2 b3 c4") == ["a0 [b1 b3] c4 @4"]


def test_S11_ordered_by_match_time_then_last_event_then_events_in_step_order() -> None:
    # (a0, b3) has time 5 and (a1, b2), whose last event comes before, time 6.
    text = "SEQ (?a, ?b, NOT ?n) WINDOW (?a, ?n, 5s) JOIN (?a.k < ?b.k) AFTER MATCH SKIP PAST LAST"
    assert found(text, "a0(k=2) a1(k=0) b2(k=1) b3(k=3)") == ["a0 b3 @5"]
    # (a0, b1) and (a0, b2) both have time 5.
    assert found("SEQ (?a, ?b, NOT ?n) WINDOW (?a, ?n, 5s) AFTER MATCH CONSUME", "a0 b2 b1") == ["a0 b1 @5"]
    # (a0, b2) and (a1, b2) share the last event.
    assert found("SEQ (?a, ?b) AFTER MATCH CONSUME", "a1 a0 b2") == ["a0 b2 @2"]
    # Of (a0, c2) and (b1, c2) the one whose first event is the earlier, whichever variable has it.
    for one, other in ("ab", "ba"):
        text = f"SEQ (ANY(?{one}, ?{other}), ?c) AFTER MATCH CONSUME"
        bound = found(text, "a0 b1 c2 c3")
        assert [sorted(set(line.split()) - {"-"}) for line in bound] == [["@2", "a0", "c2"], ["@3", "b1", "c3"]]


def test_S11_first_and_last_are_under_E2() -> None:
    # (a1, b0): its first event is b0.
    text = "SEQ (ALL(?a, ?b)) AFTER MATCH SKIP PAST LAST"
    assert found(text, "b0 a1 b2 a3") == ["a1 b0 @1", "a3 b2 @3"]
    text = "SEQ (ALL(?a, ?b)) AFTER MATCH SKIP TO NEXT"
    assert found(text, "b0 a1 b2 a3") == ["a1 b0 @1", "a1 b2 @2", "a3 b2 @3"]


# W


def test_W1_sliding_over_events_in_t_minus_w_to_t() -> None:
    assert selected("SELECT SUM(?e.x) AS v WINDOW (?e, sliding, 5s)", "e0(x=1) e4(x=2) e5(x=4)") == [1, 3, 6]


def test_W1_events_of_equal_time_see_the_same_window() -> None:
    assert selected("SELECT COUNT(?e) AS v WINDOW (?e, sliding, 5s)", "e1 e1x e2") == [2, 2, 3]


def test_W1_its_groups_qualifying_events() -> None:
    text = "SELECT SUM(?e.x) AS v WINDOW (?e, sliding, 9s) FILTER (?e.x > 0) GROUP BY ?e.k"
    assert selected(text, "e0(k=1,x=1) e1(k=2,x=2) e2(k=1,x=-5) e3(k=1,x=4)") == [1, 2, 5]


def test_W1_a_match_has_the_event_and_its_time() -> None:
    (match,) = matches("SELECT ?e.x, COUNT(?e) AS n WINDOW (?e, sliding, 5s)", "e3(x=7)")
    assert match == Match(3 * SECOND, {"e": ("e", "e3")}, {"x": 7, "n": 1}, None, None)


def test_W2_batch_from_the_epoch() -> None:
    assert matches("SELECT COUNT(?e) AS n WINDOW (?e, batch, 10s)", "e-1 e0 e9 e30") == [
        Match(0, {}, {"n": 1}, (-10 * SECOND, 0), {}),
        Match(10 * SECOND, {}, {"n": 2}, (0, 10 * SECOND), {}),
        Match(40 * SECOND, {}, {"n": 1}, (30 * SECOND, 40 * SECOND), {}),
    ]


def test_W2_one_result_for_each_group_with_an_event_in_it() -> None:
    text = "SELECT ?e.k, SUM(?e.x) AS v WINDOW (?e, batch, 10s) GROUP BY ?e.k"
    got = matches(text, "e1(k='b',x=1) e2(k='a',x=2) e11(k='b',x=4)")
    assert [(m.time // SECOND, m.select, m.group) for m in got] == [
        (10, {"k": "a", "v": 2}, {"k": "a"}),
        (10, {"k": "b", "v": 1}, {"k": "b"}),
        (20, {"k": "b", "v": 4}, {"k": "b"}),
    ]


def test_W3_session_a_run_with_gaps_less_than_g() -> None:
    assert matches("SELECT COUNT(?e) AS n WINDOW (?e, session, 5s)", "e0 e4 e9") == [
        Match(9 * SECOND, {}, {"n": 2}, (0, 9 * SECOND), {}),
        Match(14 * SECOND, {}, {"n": 1}, (9 * SECOND, 14 * SECOND), {}),
    ]


def test_W3_a_groups_run() -> None:
    text = "SELECT COUNT(?e) AS n WINDOW (?e, session, 5s) GROUP BY ?e.k"
    got = matches(text, "e0(k=1) e3(k=2) e6(k=1)")
    assert [(m.time // SECOND, m.select["n"], m.group) for m in got] == [
        (5, 1, {"k": 1}),
        (8, 1, {"k": 2}),
        (11, 1, {"k": 1}),
    ]


def test_W4_length_the_last_n_the_current_one_included() -> None:
    text = "SELECT SUM(?e.x) AS v WINDOW (?e, length, 2)"
    assert selected(text, "e0(x=1) e1(x=2) e1x(x=4) e2(x=8)") == [1, 3, 6, 12]


def test_W4_of_the_group_and_one_result_an_event() -> None:
    text = "SELECT SUM(?e.x) AS v WINDOW (?e, length, 2) GROUP BY ?e.k"
    given = "e0(k=1,x=1) e1(k=2,x=2) e2(k=1,x=4) e3(k=1,x=8)"
    assert selected(text, given) == [1, 2, 5, 12]
    assert [shown(m) for m in matches(text, given)] == ["e0 @0", "e1 @1", "e2 @2", "e3 @3"]


def test_W5_having_filters() -> None:
    text = "SELECT COUNT(?e) AS n WINDOW (?e, sliding, 5s) HAVING (COUNT(?e) > 1)"
    assert found(text, "e0 e3 e9") == ["e3 @3"]
    text = "SELECT COUNT(?e) AS n WINDOW (?e, batch, 10s) GROUP BY ?e.k HAVING (?e.k > 1 AND SUM(?e.x) > 1)"
    assert selected(text, "e0(k=1,x=5) e1(k=2,x=5) e2(k=3,x=1) e3(k=4)") == [1]


def test_W5_a_comparison_with_an_aggregate_on_its_left_filters_and_yields_the_aggregate() -> None:
    assert selected("SELECT MAX(?e.x) >= 4 AS m WINDOW (?e, sliding, 2s)", "e0(x=1) e1(x=4) e2(x=2) e5(x=3)") == [4, 4]
    # Not so with it on the right, or inside something else.
    assert selected("SELECT 4 <= MAX(?e.x) AS m WINDOW (?e, length, 1)", "e0(x=1) e1(x=4)") == [False, True]
    assert selected("SELECT MAX(?e.x) + 0 > 3 AS m WINDOW (?e, length, 1)", "e0(x=1) e1(x=4)") == [False, True]


def test_W5_batch_and_session_matches_carry_window_and_group() -> None:
    text = "SELECT COUNT(?e) AS n WINDOW (?e, session, 5s) GROUP BY ?e.sensorID"
    (match,) = matches(text, "e1(sensorID='D105VOL')")
    assert (match.window, match.group) == ((SECOND, 6 * SECOND), {"sensorID": "D105VOL"})


def test_W6_with_seq_aggregates_range_over_a_list_per_match() -> None:
    text = "SELECT SUM(?b.x) AS v SEQ (?a, ?b+, ?c)"
    assert selected(text, "a0 b1(x=1) a2 b3(x=4) c4") == [5, 4]


def test_W6_having_filters_matches() -> None:
    text = "SEQ (?a, ?b+, ?c) HAVING (SUM(?b.x) > ?a.x)"
    assert found(text, "a0(x=4) b1(x=1) a2(x=4) b3(x=4) c4") == ["a0 [b1 b3] c4 @4"]
    assert selected("SELECT SUM(?b.x) > 4 AS v SEQ (?a, ?b+, ?c)", "a0 b1(x=1) a2 b3(x=4) c4") == [5]


# O


def test_O1_lists_unbound_ones_and_not_variables() -> None:
    (match,) = matches("SELECT ?a.id SEQ (?a, ?b+, ?c?, NOT ?d, ?e)", "a0 b1 b2 e3")
    assert match.events == {"a": ("a", "a0"), "b": [("b", "b1"), ("b", "b2")], "c": None, "e": ("e", "e3")}


def test_O2_by_time_then_by_the_bound_events_in_the_order_of_from() -> None:
    text = "SELECT ?a.id FROM (?b, b), (?a, a), (?c, c) SEQ (?a, ?b, ?c)"
    assert found(text, "a0 a1 b2 b3 c4") == ["b2 a0 c4 @4", "b2 a1 c4 @4", "b3 a0 c4 @4", "b3 a1 c4 @4"]


def test_O2_unbound_before_bound_and_lists_element_by_element() -> None:
    assert found("SEQ (ANY(?a, ?b), ?c)", "a0 b0 c1") == ["- b0 c1 @1", "a0 - c1 @1"]
    text = "SEQ (?a, ?b{0,}, ?c) JOIN (?b.k <= ?c.k AND ?b.j >= ?c.j)"
    given = "a0 b1(k=1,j=1) b2(k=2,j=2) c3(k=2,j=2) c3x(k=2,j=1) c3y(k=1,j=1) c3z(k=0,j=0)"
    assert found(text, given) == ["a0 [] c3z @3", "a0 [b1] c3y @3", "a0 [b1 b2] c3x @3", "a0 [b2] c3 @3"]


def test_O2_rows_of_one_time_by_group_values_null_first() -> None:
    text = "SELECT COUNT(?e) AS n WINDOW (?e, batch, 10s) GROUP BY ?e.k, ?e.j"
    got = matches(text, "e0(k='b',j=1) e1(k='a',j=2) e2(k=None,j=3) e3(k='a',j=None) e4(k='B',j=0)")
    assert [tuple((m.group or {}).values()) for m in got] == [(None, 3), ("B", 0), ("a", None), ("a", 2), ("b", 1)]


def test_O3_names_are_AS_else_the_attributes() -> None:
    (match,) = matches("SELECT ?e.x, ?e.x + 1 AS y, ?e.id, ?e.time", "e2(x=1)")
    assert match.select == {"x": 1, "y": 2, "id": "e2", "time": 2 * SECOND}
    with pytest.raises(Refused, match="O3"):
        matches("SELECT ?e.x + 1", "e2(x=1)")
