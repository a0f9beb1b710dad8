"""What is found does not depend on how the input comes: in which order, in which batches, with which interruptions.

Of small inputs every permutation, split and place of an interruption is tried; of larger ones some.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.plan.matcher import Matcher
from tests.plan.kept_cases import left_if_failing
from tests.plan.query_strategies import NOW, Case, cases
from tests.plan.running import EXAMPLES, Storage, matcher, run_in_batches, run_interrupted, shown

some = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False
)
few = settings(some, max_examples=EXAMPLES // 4)


def smaller(case: Case, most: int) -> Case:
    """The case with so many of its events, those of matches first."""
    bound = [
        ref
        for match in matcher(case).matches(case.events)
        for one in match.events.values()
        for ref in (one if isinstance(one, list) else [one])
    ]
    events = sorted(case.events, key=lambda e: (e.stream, e.id) not in bound)[:most]
    return replace(case, events=tuple(e for e in case.events if e in events))


def splits(count: int) -> Iterator[list[int]]:
    """Every way to divide so many events into batches, as the sizes of these."""
    if count == 0:
        yield []
    for first in range(1, count + 1):
        for rest in splits(count - first):
            yield [first, *rest]


def test_splits_are_all() -> None:
    assert list(splits(3)) == [[1, 1, 1], [1, 2], [2, 1], [3]]
    assert len(list(splits(6))) == 32


@settings(some, max_examples=EXAMPLES // 8)  # 120 permutations each
@given(cases())
def test_every_permutation(case: Case) -> None:
    case = smaller(case, 5)
    whole = shown(matcher(case).matches(case.events))
    with left_if_failing(case):
        for arrival in permutations(case.events):
            at_once = matcher(case)
            at_once.push(arrival)
            assert shown(at_once.advance(None)) == whole
            assert shown(run_in_batches(case, arrival, [1])) == whole


@few
@given(cases(), st.data())
def test_every_split_into_batches(case: Case, data: st.DataObject) -> None:
    case = smaller(case, 6)
    whole = shown(matcher(case).matches(case.events))
    in_time = sorted(case.events, key=lambda e: e.time)
    with left_if_failing(case):
        for arrival in (in_time, data.draw(st.permutations(case.events))):
            for sizes in splits(len(arrival)):
                assert shown(run_in_batches(case, arrival, sizes)) == whole
                assert shown(run_in_batches(case, arrival, sizes, restoring=True)) == whole


@few
@given(cases(), st.data())
def test_save_and_restore_after_any_event(case: Case, data: st.DataObject) -> None:
    whole = shown(matcher(case).matches(case.events))
    in_time = sorted(case.events, key=lambda e: e.time)
    with left_if_failing(case):
        for arrival in (in_time, data.draw(st.permutations(case.events))):
            for after in range(1, len(arrival) + 1):
                for waiting in (True, False):
                    assert shown(run_interrupted(case, arrival, after, waiting=waiting)) == whole


@some
@given(cases(), st.data())
def test_division_order_and_interruption_change_nothing(case: Case, data: st.DataObject) -> None:
    whole = shown(matcher(case).matches(case.events))
    arrival = data.draw(st.permutations(case.events))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    in_time = sorted(case.events, key=lambda e: e.time)
    with left_if_failing(case):
        assert shown(run_in_batches(case, arrival, sizes)) == whole
        assert shown(run_in_batches(case, in_time, [1])) == whole
        assert shown(run_in_batches(case, arrival, [1], restoring=True)) == whole
        assert shown(run_in_batches(case, in_time, sizes, restoring=True)) == whole


@settings(some, max_examples=EXAMPLES // 2)
@given(cases(), st.data())
def test_an_eager_matcher_finds_the_same(case: Case, data: st.DataObject) -> None:
    whole = matcher(case).matches(case.events)
    found = run_eagerly(case, data.draw(st.permutations(case.events)), data)
    with left_if_failing(case):
        assert [m.time for m in found] == [m.time for m in whole]
        assert sorted(found, key=lambda m: m.id) == sorted(whole, key=lambda m: m.id)


def run_eagerly(case: Case, arrival: list[Event], data: st.DataObject) -> list[Match]:
    eager, storage = Matcher(case.checked, NOW, eager=True), Storage()
    found: list[Match] = []
    for one in sorted(arrival, key=lambda e: e.time):
        eager.push([one])
        found += eager.advance(one.time)
        if data.draw(st.booleans()):
            eager = storage.restored(eager, Matcher(case.checked, NOW, eager=True))
    return found + eager.advance(None)
