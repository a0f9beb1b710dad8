"""The native matcher finds what the reference finds, in order, however the input is divided, shuffled or interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from cepheid.language.printer import normal_form
from cepheid.language.syntax import Query
from cepheid.model.events import Event
from cepheid.model.matches import Match, MatchIds
from cepheid.plan.compile import conjuncts
from cepheid.plan.matcher import Matcher
from tests.plan.query_strategies import SECOND, Case, cases
from tests.reference.events import Event as ReferenceEvent
from tests.reference.events import Refused
from tests.reference.matcher import find_matches

NOW = 2 * SECOND


def split(query: Query) -> Query:
    """Each conjunct of a JOIN as a JOIN: only where it names an unbound variable it says nothing (rule S2)."""
    return replace(query, joins=tuple(part for join in query.joins for part in conjuncts(join)))


Plain = tuple[int, object, object, object, object]


def expected(case: Case) -> list[Plain]:
    events = [ReferenceEvent(e.stream, e.id, e.time, e.attributes) for e in case.events]
    found = find_matches(split(case.checked.query), events, NOW)
    return [(m.time, m.events, m.select, m.window, m.group) for m in found]


def plain(match: Match) -> Plain:
    window = None if match.window is None else (match.window.start, match.window.end)
    return (match.time, dict(match.events), dict(match.select), window, match.group)


def matcher(case: Case) -> Matcher:
    return Matcher(case.checked, NOW)


def run_in_batches(case: Case, arrival: Sequence[Event], sizes: Sequence[int], *, restoring: bool) -> list[Match]:
    """Feeds events as they arrive, each batch with the highest watermark that makes none of the rest late."""
    found: list[Match] = []
    running = matcher(case)
    start = 0
    while start < len(arrival):
        size = sizes[start % len(sizes)]
        running.push(arrival[start : start + size])
        start += size
        if start < len(arrival):
            found += running.advance(min(e.time for e in arrival[start:]))
        if restoring:
            state = running.save()
            running = matcher(case)
            running.restore(state)
    return found + running.advance(None)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_native_is_reference(case: Case) -> None:
    note(repr(case))
    try:
        wanted = expected(case)
    except Refused:
        return
    found = matcher(case).matches(case.events)
    assert [plain(m) for m in found] == wanted


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(), st.data())
def test_division_order_and_interruption_change_nothing(case: Case, data: st.DataObject) -> None:
    note(repr(case))
    whole = matcher(case).matches(case.events)
    arrival = data.draw(st.permutations(case.events))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    assert run_in_batches(case, arrival, sizes, restoring=False) == whole
    in_time = sorted(case.events, key=lambda e: e.time)
    assert run_in_batches(case, in_time, [1], restoring=False) == whole
    assert run_in_batches(case, arrival, [1], restoring=True) == whole
    assert run_in_batches(case, in_time, sizes, restoring=True) == whole


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_ids_are_the_models(case: Case) -> None:
    ids = MatchIds(normal_form(case.checked.query))
    found = matcher(case).matches(case.events)
    for match in found:
        if match.window is None:
            assert match.id == ids.of_events(match.events)
        else:
            assert match.group is not None
            assert match.id == ids.of_window(list(match.group.values()), match.window.start)
    assert len({m.id for m in found}) == len(found)


_ = Phase
