"""Texts to trees and back: the paper's queries, every clause, every fault with its place, and no crash on anything."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cepheid.language import syntax
from cepheid.language.errors import Rejected, Source
from cepheid.language.parser import examine, parse
from cepheid.language.printer import normal_form, print_query
from cepheid.language.syntax import Arithmetic, Attribute, Compare, Constant, Kind, Logical, Not
from tests.golden_files import GOLDEN, assert_golden
from tests.language.strategies import queries

FOLDER = GOLDEN / "language"
PAPER = sorted((FOLDER / "paper").glob("*.chi"))
FAULTY = sorted((FOLDER / "syntax").glob("*.chi"))


def where(text: str) -> syntax.Expression:
    return parse(f"SELECT ?e.x FILTER ({text})").filters[0]


@given(queries)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_parse_is_the_inverse_of_print(query: syntax.Query) -> None:
    text = print_query(query)
    assert parse(text) == query
    assert print_query(parse(text)) == text


@pytest.mark.parametrize("case", PAPER, ids=lambda case: case.stem)
def test_the_papers_queries_as_printed(case: Path) -> None:
    query = parse(case.read_text(), case.name)
    assert_golden(case.with_suffix(".txt"), print_query(query))
    assert parse(print_query(query)) == query


def test_there_are_seven() -> None:
    assert len(PAPER) == 7


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.stem)
def test_faults(case: Path) -> None:
    query, problems = examine(Source(case.name, case.read_text()))
    assert query is None
    assert_golden(case.with_suffix(".txt"), "\n\n".join(p.render() for p in problems))


def test_clauses_in_any_order_and_words_in_any_case() -> None:
    one = parse("SELECT ?a.x FROM (?a, s), (?b, t) SEQ (?a, ?b) WINDOW (?a, ?b, 5min) JOIN (?a.k = ?b.k)")
    other = parse("window (?a, ?b, 300 S) Join (?a.k = ?b.k) seq(?a,?b) from (?a, s), (?b, t) WHERE select ?a.x")
    assert one == other


def test_precedence() -> None:
    x, one, two = Attribute("e", "x"), Constant(Kind.INT, 1), Constant(Kind.INT, 2)
    assert where("?e.x + 1 * 2 = 2") == Compare("=", Arithmetic("+", x, Arithmetic("*", one, two)), two)
    assert where("?e.x - 1 - 2 = 2") == Compare("=", Arithmetic("-", Arithmetic("-", x, one), two), two)
    less = Compare("<", x, one)
    assert where("?e.x<1 OR ?e.x<1 AND NOT ?e.x<1") == Logical("OR", (less, Logical("AND", (less, Not(less)))))


def test_what_begins_with_less_than() -> None:
    """`<` compares behind a value and begins an IRI elsewhere."""
    assert where("?a.x<?b.x AND ?c.x>1") == Logical(
        "AND",
        (
            Compare("<", Attribute("a", "x"), Attribute("b", "x")),
            Compare(">", Attribute("c", "x"), Constant(Kind.INT, 1)),
        ),
    )
    assert where("?e.x=<http://x#y>") == Compare("=", Attribute("e", "x"), Constant(Kind.NAME, "<http://x#y>"))


def test_comments_and_minus() -> None:
    query = parse('# one\nSELECT ?e.x -- two\nFILTER (?e.x-1 > 2 AND ?e.s = "# no -- comment")')
    assert query.filters[0] == Logical(
        "AND",
        (
            Compare(">", Arithmetic("-", Attribute("e", "x"), Constant(Kind.INT, 1)), Constant(Kind.INT, 2)),
            Compare("=", Attribute("e", "s"), Constant(Kind.STRING, "# no -- comment")),
        ),
    )


def test_attributes_may_have_the_names_of_words() -> None:
    query = parse("SELECT ?e.select, ?e.from, ?e.time, ?e.priority AS last FROM (?e, session | batch)")
    assert [s.expression for s in query.select] == [Attribute("e", n) for n in ("select", "from", "time", "priority")]
    assert query.ranges[0].streams == ("session", "batch")


def test_normal_form_is_about_what_is_found() -> None:
    one = parse("SELECT ?e.x FILTER (?e.x > 1) FILTER (?e.y > 2) PRIORITY high VALID 5ms STALE SHED")
    other = parse("FILTER (?e.y > 2) FILTER (?e.x > 1) SELECT ?e.x")
    assert normal_form(one) == normal_form(other)
    assert normal_form(one) != normal_form(parse("SELECT ?e.x FILTER (?e.x > 1)"))


@given(st.text(st.characters(codec="utf-8"), max_size=200))
@example("SELECT ?e.x FILTER ('")
@example("PATH {{{")
@example("SELECT \ud7ff\x00\x1b[31m")
def test_no_text_is_a_crash(text: str) -> None:
    query, problems = examine(Source("q", text))
    assert (query is None) == bool(problems)
    assert all(p.span is not None and p.span.line >= 1 and p.span.column >= 1 for p in problems)
    assert all(p.render() for p in problems)


@given(queries, st.data())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_no_mutated_query_is_a_crash(query: syntax.Query, data: st.DataObject) -> None:
    text = print_query(query)
    for _ in range(3):
        i = data.draw(st.integers(0, len(text)))
        j = data.draw(st.integers(i, min(len(text), i + 12)))
        text = (
            text[:i]
            + data.draw(st.sampled_from(["", "(", ")", "?", "'", "{", "SEQ", " ", "\u2028", "9" * 30]))
            + text[j:]
        )
    found, problems = examine(Source("q", text))
    assert (found is None) == bool(problems)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?e.x FILTER (" + "(" * 100_000,
        "SELECT ?e.x FILTER (" + "NOT " * 100_000 + "?e.x)",
        "SELECT ?e.x FILTER (?e.x > " + "-" * 1 + "- " * 100_000 + "1)",
        "SELECT ?e.x FILTER (" + "?e.x + " * 100_000 + "1 > 2)",
        "SELECT ?e.x FILTER (" + "CASE WHEN " * 100_000,
        "SELECT ?e.x FILTER (" + "ABS(" * 100_000,
        "PATH " + "{" * 1_000_000,
        "SELECT " + "?e.x, " * 100_000,
        '"' * 1_000_001,
        "SEQ (" * 50_000,
    ],
    ids=lambda text: text[:24],
)
def test_monsters_are_refused_in_little_time(text: str) -> None:
    began = time.process_time()
    query, problems = examine(Source("q", text))
    assert query is None
    assert problems
    assert len(problems[0].render()) < 1000
    assert time.process_time() - began < 30


def test_ten_thousand_clauses() -> None:
    query = parse("SELECT ?e.x\n" + "\n".join(f"FILTER (?e.x > {i})" for i in range(10_000)))
    assert len(query.filters) == 10_000


def test_a_query_of_a_megabyte() -> None:
    query = parse("SELECT ?e.x FILTER (?e.s IN (" + ", ".join(f"'{i:09}'" for i in range(80_000)) + "))")
    assert isinstance(query.filters[0], syntax.In)
    assert len(query.filters[0].items) == 80_000


def test_too_long() -> None:
    with pytest.raises(Rejected, match="more than 16,777,216 characters"):
        parse("#" * (16 * 2**20 + 1))
