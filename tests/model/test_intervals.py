"""Temporal validity (rules G1 and G2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.model.intervals import Validity, holds_together, most_valid_at_once

validities = st.builds(Validity, st.integers(0, 50), st.none() | st.integers(0, 100))


def test_g1_a_supplier_event_is_valid_from_its_creation() -> None:
    assert Validity.of_supplier_event(100, 10) == Validity(100, 110)
    assert Validity.of_supplier_event(100, None) == Validity(100, None)


def test_g1_an_output_is_valid_while_all_its_inputs_are() -> None:
    inputs = [Validity(1, 9), Validity(3, None), Validity(2, 7)]
    assert Validity.of_output(inputs) == Validity(3, 7)
    assert Validity.of_output([Validity(1), Validity(2)]) == Validity(2, None)


def test_g1_the_end_is_excluded() -> None:
    assert not Validity(0, 10).is_stale(9)
    assert Validity(0, 10).is_stale(10)
    assert not Validity(0).is_stale(10**18)


@given(st.lists(validities, min_size=1), st.integers(0, 100))
def test_g1_an_output_is_stale_when_any_input_is(inputs: list[Validity], now: int) -> None:
    assert Validity.of_output(inputs).is_stale(now) == any(each.is_stale(now) for each in inputs)


@pytest.mark.parametrize(
    ("begins", "within", "holds"), [([5, 10], 5, True), ([5, 11], 5, False), ([7], 0, True), ([], 0, True)]
)
def test_g2_relative_intervals_include_their_border(begins: list[int], within: int, holds: bool) -> None:
    assert holds_together(begins, within) is holds


@given(st.integers(1, 40), st.integers(1, 40))
def test_the_bound_on_a_ring_is_exact(valid_for: int, period: int) -> None:
    stream = [Validity.of_supplier_event(number * period, valid_for) for number in range(100)]
    counts = [sum(event.begin <= now and not event.is_stale(now) for event in stream) for now in range(40 * period)]
    assert most_valid_at_once(valid_for, period) == max(counts)
