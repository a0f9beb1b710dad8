"""What a query would have found, before it is put live: matches a day, and what it cost to find them."""

from __future__ import annotations

import json
import time as clock
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Final

from cepheid.history.answer import Answer, Done
from cepheid.history.asked import parsed
from cepheid.history.cost import Estimate
from cepheid.history.times import Times
from cepheid.language import syntax
from cepheid.language.syntax import Instant, Within
from cepheid.model.time import (
    UNITS,
    TimeError,
    days_before,
    format_instant,
    in_zone,
    parse_duration,
    parse_instant,
    parse_local,
    with_zone,
)
from cepheid.plan.division import is_alone

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_SECONDS: Final = 86_400
#: Days are shown one by one up to so many; beyond, only those with matches.
_MOST_DAYS: Final = 400


def since_of(text: str, now: int, zone: ZoneInfo | None = None) -> int:
    """The time that `-7d`, `now - 7d` or ISO 8601 means. Raises TimeError.

    With a zone, whole days are those of its clocks, of 23 or 25 hours where these are changed.
    """
    ago = text.strip().removeprefix("now").lstrip()
    if ago.startswith("-"):
        length = parse_duration(ago[1:])
        days, rest = divmod(length, UNITS["d"])
        return now - length if zone is None or rest else days_before(now, days, zone)
    found = parse_local(text if zone is None else with_zone(text, zone), now=now)
    if found >= now:
        raise TimeError(f"{format_instant(found)} is not before now, {format_instant(now)}; write -7d for seven days")
    return found


def rehearsed(query: str | syntax.Query, since: int) -> syntax.Query:
    """The query from a time on until now, whatever its own WITHIN is."""
    return replace(parsed(query), within=Within(Instant(since), Instant(0, now=True), True, False))


def report(
    answer: Answer, zone: ZoneInfo | None = None, on_part: Callable[[Done], object] = lambda done: None
) -> Iterator[str]:
    """How many matches there were on each day, by the clocks of a zone or in UTC, and what finding them took."""
    began = clock.monotonic()
    asked = answer.asked.times
    days = Counter(dict.fromkeys(_days(asked, zone), 0))
    days.update(_day(json.loads(line)["time"], zone) for line in answer.lines(on_part))
    taken = clock.monotonic() - began
    yield f"day ({'UTC' if zone is None else zone.key})  matches"
    for day, count in sorted(days.items()):
        yield f"{day}  {count:,}"
    span = (asked.high + 1 - asked.low) / UNITS["d"]
    total = days.total()
    yield f"{total:,} matches since {format_instant(asked.low)}: {total / span:,.1f} a day"
    best = next(e for e in answer.choice.estimates if e.strategy == answer.strategy)
    yield (
        f"about {best.events:,} events were read and {best.related:,} related to others, {best.events / span:,.0f} and "
        f"{best.related / span:,.0f} a day; {answer.strategy} took {taken:.1f} s"
    )
    yield _live_cost(answer, best, span)


def _live_cost(answer: Answer, best: Estimate, span: float) -> str:
    """What it would be to keep such a query standing."""
    rate, widths = best.events / span / _SECONDS, [_width(w) for w in answer.asked.checked.query.windows]
    text = f"live it would read {rate:,.3g} events a second"
    if is_alone(answer.asked.checked):
        return text + ", and hold none of them"
    if not widths or None in widths:
        return text + "; how many it would hold has no bound in time"
    held = best.related / span * max(w for w in widths if w is not None) / UNITS["d"]
    return text + f", and hold about {max(1, round(held)):,} at a time"


def _width(window: syntax.Window) -> int | None:
    """How long a window holds events; None if that is not said in time."""
    if isinstance(window, syntax.SpanWindow):
        return window.width
    return window.size if window.kind in ("sliding", "batch") else None


def _days(times: Times, zone: ZoneInfo | None) -> Iterator[str]:
    """The days of a range, also those without a match; none if they are more than anyone reads."""
    first, last = (in_zone(moment, zone or UTC).date() for moment in (times.low, times.high))
    if (last - first).days < _MOST_DAYS:
        yield from ((first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1))


def _day(time: str, zone: ZoneInfo | None) -> str:
    return time[:10] if zone is None else in_zone(parse_instant(time), zone).date().isoformat()
