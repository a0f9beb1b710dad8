"""What is said never to match finds nothing; and where constants alone decide, that is said of every such query."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cepheid.cli.engines import find_matches
from cepheid.language.checker import check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type

STREAM = Stream("s", {"v": Type.FLOAT, "k": Type.STRING}, id_kind="int")
#: Constants are whole numbers, so between and beside them halves stand for all others.
VALUES = [None, *(half / 2 for half in range(-1, 8))]
ROWS = [{"v": v, "k": k} for v in VALUES for k in (None, "a", "b")]
EVENTS = [Event("s", i, i, row) for i, row in enumerate(ROWS)]
NUMBER = st.integers(0, 3)
CONDITIONS = st.one_of(
    st.builds("?e.v {} {}".format, st.sampled_from(["<", "<=", ">", ">=", "="]), NUMBER),
    st.builds("{} {} ?e.v".format, NUMBER, st.sampled_from(["<", "<=", ">", ">=", "="])),
    st.builds("?e.v BETWEEN {} AND {}".format, NUMBER, NUMBER),
    st.builds("?e.v IN ({}, {})".format, NUMBER, NUMBER),
    st.builds("?e.k = '{}'".format, st.sampled_from("ab")),
    st.builds("?e.k IN ('a', '{}')".format, st.sampled_from("ab")),
    st.sampled_from(["?e.v IS NULL", "?e.k IS NULL", "?e.v IS NOT NULL"]),
)


def is_said(text: str) -> bool:
    query, problems = check(parse(text), Catalogue({"s": STREAM}))
    assert query is not None, problems
    return any(problem.code == "never" for problem in problems)


def matches(text: str, events: list[Event]) -> int:
    query, _ = check(parse(text), Catalogue({"s": STREAM}))
    assert query is not None
    return len(find_matches("native", query, events, 0))


@settings(max_examples=200, deadline=None)
@given(st.lists(CONDITIONS, min_size=1, max_size=4), st.booleans())
def test_conditions(conditions: list[str], is_one: bool) -> None:
    filters = f"FILTER ({' AND '.join(conditions)})" if is_one else " ".join(f"FILTER ({c})" for c in conditions)
    text = f"SELECT ?e.id FROM (?e, s) {filters}"
    # NOT NULL beside NULL is the one thing that is not seen.
    if not {"?e.v IS NULL", "?e.v IS NOT NULL"}.issubset(conditions):
        assert is_said(text) == (matches(text, EVENTS) == 0)


TIMES = st.one_of(
    st.builds("WINDOW (?{}, ?{}, {}us)".format, st.just("a"), st.sampled_from("bc"), st.integers(0, 3)),
    st.builds("WINDOW (?b, ?c, {}us)".format, st.integers(0, 3)),
    st.builds("JOIN (?{0[0]}.time {1} ?{0[1]}.time)".format, st.permutations("abc"), st.sampled_from(["<", ">=", "="])),
    st.builds(
        "JOIN (?{0[0]}.time - ?{0[1]}.time {1} {2}us)".format,
        st.permutations("abc"),
        st.sampled_from(["<", "<=", ">", "="]),
        st.integers(0, 3),
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(TIMES, max_size=3), st.sampled_from(["SEQ (?a, ?b, ?c)", "SEQ (ALL(?a, ?b), ?c)", ""]))
def test_times(conditions: list[str], seq: str) -> None:
    text = f"SELECT ?a.id FROM (?a, s), (?b, s), (?c, s) {seq} {' '.join(conditions)} WINDOW (?a, ?b, ?c, 9us)"
    # Three of each time, because they are distinct events.
    events = [Event("s", 3 * time + i, time, {}) for time in range(10) for i in range(3)]
    assert is_said(text) == (matches(text, events) == 0)
