"""The times that a query asks about, and what has to be said of them before it is answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cepheid.language.checker import Checked
from cepheid.language.errors import Diagnostic, Rejected
from cepheid.language.syntax import Instant
from cepheid.model.time import MAX_INSTANT, MIN_INSTANT, format_duration, format_instant
from cepheid.plan.compile import within


@dataclass(frozen=True, slots=True)
class Times:
    """From when to when, both included, in microseconds; of an end that is open, as far as times go."""

    low: int
    high: int

    @property
    def is_empty(self) -> bool:
        return self.low > self.high


def times_of(checked: Checked, now: int) -> Times:
    """The times of WITHIN; without it, all (rule Q5)."""
    low, high = within(checked.query, now)
    return Times(max(low, MIN_INSTANT), min(high, MAX_INSTANT))


def judge_times(checked: Checked, now: int, retain: int | None, *, follows: bool = False) -> list[Diagnostic]:
    """What the user should know of the times of a query, so that no answer is partial in silence.

    Raises Rejected if WITHIN ends before it begins.
    """
    return list(_judged(checked, now, retain, follows))


def _judged(checked: Checked, now: int, retain: int | None, follows: bool) -> Iterator[Diagnostic]:
    given = checked.query.within
    if given is None:
        return
    low, high = _moment(given.low, now), _moment(given.high, now)
    if low is not None and high is not None and low > high:
        message = f"WITHIN ends before it begins: {format_instant(low)} is after {format_instant(high)}"
        raise Rejected([Diagnostic("error", "reversed-range", message, given.span, "exchange its ends")])
    times = times_of(checked, now)

    def warning(code: str, message: str, hint: str | None = None) -> Diagnostic:
        return Diagnostic("warning", code, message, given.span, hint)

    if times.is_empty:
        yield warning("empty-range", "no time lies in WITHIN, so nothing matches", "'[' and ']' include their ends")
        return
    if low is not None and retain is not None and low < now - retain:
        yield warning(
            "before-retention",
            f"events before {format_instant(now - retain)} need not be kept any more (retain: "
            f"{format_duration(retain)}); what those that are gone would have matched is missing",
        )
    if follows:
        return
    if low is not None and low > now:
        yield warning(
            "future-range",
            f"WITHIN begins in the future, at {format_instant(low)}; now it is {format_instant(now)}",
            "--follow waits for what comes",
        )
    elif high is not None and high > now:
        yield warning(
            "unfinished-range",
            f"WITHIN ends in the future, at {format_instant(high)}; this is the answer as of {format_instant(now)}",
            "--follow goes on until the end",
        )


def _moment(given: Instant | None, now: int) -> int | None:
    return None if given is None else given.microseconds + (now if given.now else 0)
