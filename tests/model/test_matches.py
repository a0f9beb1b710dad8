"""The ids of matches (rule Q6)."""

from __future__ import annotations

from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from cepheid.model.matches import Bound, MatchIds
from cepheid.model.types import Value
from tests.model.strategies import int64s, texts

Parts: TypeAlias = tuple[str, dict[str, Bound], dict[str, str]]

refs = st.tuples(texts, int64s | texts)
bounds: st.SearchStrategy[Bound] = st.none() | refs | st.lists(refs, max_size=3)
parts: st.SearchStrategy[Parts] = st.tuples(
    texts, st.dictionaries(texts, bounds, max_size=3), st.dictionaries(texts, texts, max_size=2)
)
group_values: st.SearchStrategy[Value] = (
    st.none()
    | st.booleans()
    | int64s
    | texts
    | st.binary(max_size=5)
    | st.floats(allow_nan=False).filter(lambda value: value != 0)
    | st.lists(st.floats(1, 2), max_size=3).map(tuple)
)


def event_id(match: Parts) -> str:
    query, events, bindings = match
    return MatchIds(query).of_events(events, bindings)


def test_q6_the_form_of_ids_never_changes() -> None:
    ids = MatchIds("SELECT ?e.x FROM (?e, s)")
    events: dict[str, Bound] = {"e1": ("s", 7), "e2": [("s", 8), ("t", "a")], "e3": None}
    assert ids.of_events(events, {"room": "http://x#R1"}) == "5ef602a98d2e4e7c59e22edcfac26ea9"
    group = ["D105VOL", None, True, 5, 0.5, b"\x00", (1.0,)]
    assert ids.of_window(group, 1_336_381_200_000_000) == "94b8fb41656ade14aade6c1033dbf4b7"


@given(parts, parts)
def test_q6_ids_differ_when_anything_differs(one: Parts, other: Parts) -> None:
    assert (event_id(one) == event_id(other)) == (one == other)


@given(parts)
def test_q6_ids_do_not_depend_on_the_order_of_variables(match: Parts) -> None:
    query, events, bindings = match
    turned = (query, dict(reversed(events.items())), dict(reversed(bindings.items())))
    assert event_id(turned) == event_id(match)


def test_q6_near_misses_differ() -> None:
    ids = MatchIds("q")
    near: list[dict[str, Bound]] = [
        {"e": ("s", 1)},
        {"e": ("s", "1")},
        {"e": ("s1", 1)},
        {"e": [("s", 1)]},
        {"e": [("s", 1), ("s", 1)]},
        {"e": []},
        {"e": None},
        {"f": ("s", 1)},
        {"e": ("s", 1), "f": None},
        {},
    ]
    assert len({ids.of_events(events) for events in near}) == len(near)
    assert ids.of_events({"e": ("s", 1)}, {}) == ids.of_events({"e": ("s", 1)})
    assert ids.of_events({}) != ids.of_window([], 0)


@given(
    st.tuples(st.lists(group_values, max_size=3), int64s),
    st.tuples(st.lists(group_values, max_size=3), int64s),
)
def test_q6_window_ids_differ_when_anything_differs(
    one: tuple[list[Value], int], other: tuple[list[Value], int]
) -> None:
    ids = MatchIds("q")
    same = [(type(value), value) for value in one[0]] == [(type(value), value) for value in other[0]]
    assert (ids.of_window(*one) == ids.of_window(*other)) == (same and one[1] == other[1])


def test_q6_both_zeros_are_one_group() -> None:
    assert MatchIds("q").of_window([0.0], 0) == MatchIds("q").of_window([-0.0], 0)


def test_q6_an_id_is_32_hexadecimal_digits() -> None:
    assert len(bytes.fromhex(MatchIds("q").of_events({}))) == 16
