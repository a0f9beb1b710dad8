"""Histograms as the engine gives them: what came between two of them, and what they say of it.

One is `{"sum_ns": ..., "buckets": [[2047, 5], [2111, 1]]}`: five took at most 2,047 ns, and one more than that, but at
most 2,111. Buckets are 3.2% wide, and those with nothing in them are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: The greatest nanoseconds of a bucket, and how many are in it; in order.
Buckets = Sequence[tuple[int, int]]
#: By kind of part and name, as `Engine.histograms` gives them.
Histograms = Mapping[str, Mapping[str, Mapping[str, Any]]]


def since(before: Buckets, after: Buckets) -> Buckets:
    """What came after an earlier look; all there is, if counting began anew meanwhile."""
    counts = dict(before)
    came = [(top, count - counts.pop(top, 0)) for top, count in after]
    if counts or any(count < 0 for _, count in came):
        return after
    return [(top, count) for top, count in came if count]


def percentile(buckets: Buckets, percent: float) -> int | None:
    """The nanoseconds that so many of a hundred did not exceed; None of none."""
    wanted = sum(count for _, count in buckets) * percent / 100
    for top, count in buckets:
        wanted -= count
        if wanted <= 0:
            return top
    return None


def within(buckets: Buckets, bounds: Sequence[int]) -> list[int]:
    """For each of these bounds, which are in order, how many are surely at most that."""
    found, seen, place = [], 0, 0
    for bound in bounds:
        while place < len(buckets) and buckets[place][0] <= bound:
            seen += buckets[place][1]
            place += 1
        found.append(seen)
    return found
