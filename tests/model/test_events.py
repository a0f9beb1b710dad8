"""An event and the total order of events (rules E1 and E2), and duplicates (rule E4)."""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from cepheid.model.events import Event
from cepheid.model.readers import without_duplicates

ids = st.integers(-2, 2)
events = st.builds(Event, st.sampled_from("ab"), ids, st.integers(0, 3))


@given(st.lists(events))
def test_e2_the_order_is_total(some: list[Event]) -> None:
    ordered = sorted(some, key=attrgetter("order"))
    some.reverse()
    assert ordered == sorted(some, key=attrgetter("order"))
    for one, other in pairwise(ordered):
        assert (one.time, one.stream, one.id) <= (other.time, other.stream, other.id)


@given(events, events)
def test_e2_events_of_equal_order_are_one_event(one: Event, other: Event) -> None:
    assert (one.order == other.order) == (one == other)


def test_e2_time_then_stream_then_id() -> None:
    assert Event("b", 9, 1).order < Event("a", 1, 2).order
    assert Event("a", 9, 1).order < Event("b", 1, 1).order
    assert Event("a", 2, 1).order < Event("a", 10, 1).order


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_e1_text_ids_are_compared_bytewise(one: str, other: str) -> None:
    assert (Event("s", one, 0).order < Event("s", other, 0).order) == (one.encode() < other.encode())


def test_events_can_be_members_of_sets() -> None:
    assert len({Event("s", 1, 0, {"x": 1}), Event("s", 1, 0, {"x": 1}), Event("s", 2, 0)}) == 2


def test_e4_the_first_of_duplicates_wins() -> None:
    first, second, third = Event("s", 1, 5, {"x": 1}), Event("s", 1, 4, {"x": 2}), Event("t", 1, 5)
    later: list[Event] = []
    assert list(without_duplicates([first, second, third, first], later.append)) == [first, third]
    assert later == [second, first]


def test_e4_an_int_and_a_text_id_are_different() -> None:
    assert len(list(without_duplicates([Event("s", 1, 0), Event("s", "1", 0)]))) == 2


@given(st.lists(events))
def test_e4_nothing_is_lost_or_doubled(some: list[Event]) -> None:
    later: list[Event] = []
    kept = list(without_duplicates(some, later.append))
    assert len({(event.stream, event.id) for event in kept}) == len(kept)
    assert sorted(kept + later, key=attrgetter("order")) == sorted(some, key=attrgetter("order"))
