"""The helpers for users' own tests."""

from __future__ import annotations

import pytest

from cepheid.language.build import Q, event
from cepheid.language.errors import Rejected
from cepheid.testing import Clock, EventsOf, assert_matches, matches_of

RISING = """
SELECT ?e2.flowrate - ?e1.flowrate AS rise
JOIN (?e1.sensorID = ?e2.sensorID)
SEQ (?e1, ?e2) WINDOW (?e1, ?e2, 5min)
"""


def flow() -> EventsOf:
    events = EventsOf("airflow")
    events.at("09:00", sensorID="D105", flowrate=510)
    events.at("09:01", sensorID="D105", flowrate=580.5)
    events.at("09:02", sensorID="D106", flowrate=None)
    return events


def test_what_is_found() -> None:
    assert_matches(RISING, flow(), [{"e1": 1, "e2": 2, "rise": 70.5}])
    assert_matches(RISING, flow(), [{"rise": 70.5}])
    e = event("e")
    assert_matches(Q.select(e.flowrate).filter(e.flowrate > 550), flow(), [{"e": 2, "flowrate": 580.5}])


@pytest.mark.parametrize("expected", [[], [{"e1": 2, "e2": 1}], [{"e1": 1}, {"e1": 1}]])
def test_what_is_not_found_is_shown_beside_what_is(expected: list[dict[str, object]]) -> None:
    with pytest.raises(AssertionError, match=r"(?s)expected:.*found:\n  \{'e2': 2, 'e1': 1, 'rise': 70.5\}"):
        assert_matches(RISING, flow(), expected)


def test_a_name_that_the_query_does_not_have() -> None:
    with pytest.raises(AssertionError, match="no variable or selected value called e3"):
        assert_matches(RISING, flow(), [{"e3": 1}])


def test_a_faulty_query() -> None:
    with pytest.raises(Rejected, match="no attribute 'flowrat'"):
        matches_of("SELECT ?e.flowrat", flow())


def test_several_streams_and_now() -> None:
    door = EventsOf("door", types={"open": "bool"})
    door.at("09:00:30", id="d1", open=None)
    query = "SELECT ?d.open FROM (?a, airflow), (?d, door) SEQ (?a, ?d) WINDOW (?a, ?d, 1min) WITHIN [now - 1min, ]"
    assert_matches(query, [flow(), door], [{"a": 1, "d": "d1", "open": None}], now="09:01")
    assert_matches(query, [flow(), door], [], now="09:02")


def test_types_are_what_the_values_show() -> None:
    events = EventsOf("s")
    events.at(0, a=True, b=1, c=1.5, d="x", e=b"x", f=[1, 2.5], g=None, h=1)
    events.at(1, h=2.5)
    types = {name: kind.value for name, kind in events.stream.attributes.items()}
    assert types == {
        "a": "bool", "b": "int", "c": "float", "d": "string", "e": "bytes", "f": "array<float>", "h": "float",
        "g": "string",
    }  # fmt: skip
    events.at(2, a="yes")
    with pytest.raises(TypeError, match="attribute 'a' is bool in one event and string in another"):
        _ = events.stream


def test_the_clock() -> None:
    clock = Clock("09:00")
    clock.advance("90s")
    assert str(clock) == "2012-05-07T09:01:30.000000Z"
    clock.set("2012-05-08T00:00")
    assert clock() == clock.now
    clock.set(0)
    assert clock() == 0
