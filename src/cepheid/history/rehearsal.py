"""What a query would have found, before it is put live: matches a day, and what it cost to find them."""

from __future__ import annotations

import time as clock
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from cepheid.history.answer import Answer
from cepheid.history.asked import parsed
from cepheid.language import syntax
from cepheid.language.syntax import Instant, Within
from cepheid.model.time import UNITS, TimeError, format_instant, parse_duration, parse_instant


def since_of(text: str, now: int) -> int:
    """The time that `-7d`, `now - 7d` or ISO 8601 means. Raises TimeError."""
    if text.startswith("-"):
        return now - parse_duration(text[1:])
    found = parse_instant(text, now=now)
    if found >= now:
        raise TimeError(f"{format_instant(found)} is not before now, {format_instant(now)}; write -7d for seven days")
    return found


def rehearsed(query: str | syntax.Query, since: int) -> syntax.Query:
    """The query from a time on until now, whatever its own WITHIN is."""
    return replace(parsed(query), within=Within(Instant(since), Instant(0, now=True), True, False))


def report(answer: Answer) -> Iterator[str]:
    """How many matches there were on each day, in UTC, and what finding them took."""
    began = clock.monotonic()
    days: Counter[str] = Counter()
    for match in answer:
        days[match["time"][:10]] += 1
    taken = clock.monotonic() - began
    yield "day            matches"
    for day, count in sorted(days.items()):
        yield f"{day}  {count:>12,}"
    asked = answer.asked.times
    span = (asked.high + 1 - asked.low) / UNITS["d"]
    total = days.total()
    yield f"{total:,} matches since {format_instant(asked.low)}: {total / span:,.1f} a day"
    best = next(e for e in answer.choice.estimates if e.strategy == answer.strategy)
    yield (
        f"about {best.events:,} events were read and {best.related:,} related to others, {best.events / span:,.0f} and "
        f"{best.related / span:,.0f} a day; {answer.strategy} took {taken:.1f} s"
    )
