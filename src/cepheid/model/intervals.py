"""Temporal validity: absolute intervals and relative sets (rules G1 and G2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Validity:
    """The interval [begin, end) in which an event may be used; `end` None is forever. Microseconds."""

    begin: int
    end: int | None = None

    @classmethod
    def of_supplier_event(cls, time: int, valid_for: int | None) -> Validity:
        """A supplier event's interval: from its creation, for the stream's `valid_for`."""
        return cls(time, None if valid_for is None else time + valid_for)

    @classmethod
    def of_output(cls, inputs: Iterable[Validity]) -> Validity:
        """An operator output's interval: the overlap of its inputs'. It may be empty, and is stale then."""
        intervals = list(inputs)
        ends = [interval.end for interval in intervals if interval.end is not None]
        return cls(max(interval.begin for interval in intervals), min(ends, default=None))

    def is_stale(self, now: int) -> bool:
        return self.end is not None and now >= self.end


def holds_together(begins: Iterable[int], within: int) -> bool:
    """Whether events that began at these times keep a relative interval: the extremes are at most `within` apart."""
    times = list(begins)
    return not times or max(times) - min(times) <= within


def most_valid_at_once(valid_for: int, period: int) -> int:
    """How many events of one type can be valid at one instant, the paper's bound on a ring (section 4.2).

    Events `period` apart, each valid for a half-open `valid_for`: one if the interval does not outlast the period.
    """
    return max(1, -(-valid_for // period))
