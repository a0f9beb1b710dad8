"""Means with their 95% confidence intervals, as lines of plots and words of tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

from common import Series

#: Student's t at 97.5%, by degrees of freedom; beyond the table the normal distribution's is near enough.
_T: Final = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_T_MANY: Final = ((20, 2.086), (30, 2.042), (40, 2.021), (60, 2.0), (120, 1.98))


def student(freedom: int) -> float:
    """Student's t for a two-sided interval of 95%."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    # Of the entries at or below it the last, which errs on the wide side.
    below = [t for most, t in _T_MANY if most <= freedom]
    return below[-1] if below else _T[-1]


def mean_and_half(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its interval (not a number from a single run)."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan, math.nan
    if len(known) == 1:
        return known[0], math.nan
    half = student(len(known) - 1) * statistics.stdev(known) / math.sqrt(len(known))
    return statistics.fmean(known), half


def words(values: Sequence[float], digits: int = 2) -> str:
    """`0.71 ± 0.02`."""
    mean, half = mean_and_half(values)
    if math.isnan(mean):
        return "none"
    return f"{mean:.{digits}f}" if math.isnan(half) else f"{mean:.{digits}f} ± {half:.{digits}f}"


def line(name: str, x: Sequence[float], samples: Sequence[Sequence[float]]) -> Series:
    """A line through the means, with the intervals as its spread; places without a value are left out."""
    found = [(place, *mean_and_half(values)) for place, values in zip(x, samples, strict=True)]
    known = [(place, mean, 0.0 if math.isnan(half) else half) for place, mean, half in found if not math.isnan(mean)]
    return Series(
        name,
        [place for place, _, _ in known],
        [mean for _, mean, _ in known],
        [mean - half for _, mean, half in known],
        [mean + half for _, mean, half in known],
    )


def in_nine_of_ten(values: Sequence[float]) -> float:
    """What nine of ten runs do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(0.9 * len(ordered)) - 1)]
