"""A long range in portions by time, the first a short one: its matches come soon, and in order with all others.

A match is its portion's in which its time lies. A portion reads so much of what was before it as its matches may depend
on (spark/slices.py); a query whose matches depend on all that was before is asked in one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cepheid.history.cost import Extent
from cepheid.history.times import Times
from cepheid.language.checker import Checked
from cepheid.plan.division import reach

#: The first portion should take about so many seconds; each other is so many times as long as the one before.
_SOON: Final = 0.3
_GROWTH: Final = 6
#: What takes less is asked at once: a portion more is a job more.
_WORTH: Final = 1.5
#: A portion is at least so many times as long as what it reads of the one before.
_LENGTH: Final = 4
#: Where less is archived, cutting would read the log, or files, several times for nothing.
_ARCHIVED: Final = 0.8


@dataclass(frozen=True)
class Portion:
    """The events to read, and the times of the matches that are given, the last not included; None is open."""

    times: Times
    since: int | None = None
    until: int | None = None


def portions(checked: Checked, times: Times, extents: Iterable[Extent], seconds: float) -> list[Portion]:
    """How a range is asked that should take so many seconds as a whole."""
    found = list(extents)
    most = reach(checked)
    firsts = [e.first for e in found if e.first is not None]
    lasts = [e.last for e in found if e.last is not None]
    total = sum(e.rows for e in found)
    whole = [Portion(times)]
    if isinstance(most, str) or seconds < _WORTH or not firsts or sum(e.archived for e in found) < _ARCHIVED * total:
        return whole
    first, last = max(min(firsts), times.low), min(max(lasts), times.high)
    cuts, length = [first], max(int((last - first) * _SOON / seconds), _LENGTH * most, 1)
    while cuts[-1] + 2 * length < last:
        cuts.append(cuts[-1] + length)
        length *= _GROWTH
    ends = [None, *cuts[1:], None]
    if len(ends) == 2:
        return whole
    return [_portion(times, since, until, most) for since, until in pairwise(ends)]


def _portion(times: Times, since: int | None, until: int | None, most: int) -> Portion:
    low = times.low if since is None else max(times.low, since - most)
    high = times.high if until is None else min(times.high, until - 1)
    return Portion(Times(low, high), since, until)
