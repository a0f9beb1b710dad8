"""The native virtual clock gives what the reference gives: deliveries, counts, and the fate of every event."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import event, given, settings

from cepheid._native import VirtualClock as Native
from tests.reference.graph import FATES, Delivery, Graph, Operator, Stream, VirtualClock
from tests.service.graphs import Case, cases, spec_of


def run_native(case: Case, moves: bool = False) -> tuple[list[Delivery], Native]:
    """What consumers receive; `moves`: after each run another clock goes on with the state."""
    clock = Native(spec_of(case.graph))
    found = []
    number = 0
    for action in case.actions:
        if isinstance(action, tuple):
            stream, time = action
            assert clock.push(stream, number, time, {"parts": bytes([number])})
            number += 1
        else:
            for consumer, made, time, attributes, end, marks in clock.run(action):
                parts = attributes["parts"]
                assert isinstance(parts, bytes)
                assert isinstance(made, int)
                found.append(Delivery(consumer, made, time, end, frozenset(marks), tuple(parts)))
            if moves:
                saved, clock = clock.save(), Native(spec_of(case.graph))
                clock.restore(saved)
                assert clock.save() == saved
    return found, clock


def run_reference(case: Case) -> VirtualClock:
    clock = VirtualClock(case.graph)
    number = 0
    for action in case.actions:
        if isinstance(action, tuple):
            clock.push(action[0], number, action[1])
            number += 1
        else:
            clock.run(action)
    return clock


@settings(max_examples=600, deadline=None)
@given(cases())
def test_the_native_clock_is_the_reference(case: Case) -> None:
    reference = run_reference(case)
    deliveries, native = run_native(case)
    assert deliveries == reference.deliveries
    stats = json.loads(native.stats())

    for operator in case.graph.operators:
        counted = stats["operators"][operator.name]
        for what in ("invoked", "fired", "stale", "relative"):
            assert counted[what] == reference.counts[operator.name, what], (operator.name, what)
        assert counted["emitted"] == counted["fired"]
        for source, book in counted["inputs"].items():
            expected = {f: reference.books[operator.name, source, f] for f in FATES[:-1]}
            expected["held"] = reference.held()[operator.name, source]
            assert {f: book[f] for f in FATES} == expected, (operator.name, source)
    for consumer in case.graph.consumers:
        counted = stats["consumers"][consumer.name]
        assert counted["stale"] == reference.counts[consumer.name, "stale"]
        assert counted["used"] == reference.books[consumer.name, consumer.input, "used"]
        assert counted["expired"] == reference.books[consumer.name, consumer.input, "expired"]
    for name, fates in reference.fates().items():
        section = "streams" if name in stats["streams"] else "operators"
        events = stats[section][name]["events"]
        assert Counter({f: events[f] for f in FATES if events[f]}) == fates, name
        assert events["created"] == sum(fates.values())
    for fate in {fate for fates in reference.fates().values() for fate in fates}:
        event(f"some events were {fate}")


@settings(max_examples=200, deadline=None)
@given(cases())
def test_a_clock_goes_on_with_the_state_of_another(case: Case) -> None:
    assert run_native(case, moves=True)[0] == run_native(case)[0]


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ("{", "not JSON"),
        ('[["other", null, []]]', "a graph of other operators: other"),
        ('[["o", null, [[7, 0, 0, 0, ""]]]]', "input 7, which there is not"),
        ('[["o", null, [[0, 0, 0, 0, "AAAA"]]]]', "record"),
        ('[["o", null, [[0, 0, 0, 0, "?"]]]]', "no record"),
        ('[["o", null, [["first", 0, 0, 0, ""]]]]', "expected an int64"),
    ],
)
def test_a_state_that_is_not_of_the_graph_is_refused(saved: str, message: str) -> None:
    graph = Graph((Stream("s"), Stream("t")), (Operator("o", ("s", "t")),), ())
    with pytest.raises(ValueError, match=message):
        Native(spec_of(graph)).restore(saved)


def test_what_was_not_taken_is_not_saved() -> None:
    clock = Native(spec_of(Graph((Stream("s"),), (), ())))
    clock.push("s", 1, 1, {"parts": b""})
    with pytest.raises(ValueError, match="run the clock first"):
        clock.save()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{", "not JSON"),
        (json.dumps({"streams": []}), "no 'operators'"),
        (spec_of(Graph((Stream("s"),), (Operator("o", ("s",)),), ())).replace('"cat"', '"dog"'), "unknown kind"),
        (
            spec_of(Graph((Stream("s"),), (Operator("a", ("b",)), Operator("b", ("a",))), ())),
            "circle",
        ),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Native(spec)


def test_an_event_that_does_not_fit_is_refused_by_name() -> None:
    clock = Native(spec_of(Graph((Stream("s"),), (), ())))
    with pytest.raises(KeyError, match="no stream 't'"):
        clock.push("t", 1, 1, {})
    with pytest.raises(ValueError, match="'parts' has another type"):
        clock.push("s", 1, 1, {"parts": 3})
    with pytest.raises(ValueError, match="unknown attribute 'part'; there are parts"):
        clock.push("s", 1, 1, {"part": b""})
