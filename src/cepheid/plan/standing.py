"""Many queries that stand together over the same events; what they have in common is done once.

An event is looked up, not offered: all comparisons of an attribute with constants, of whatever number of queries, are
one table. So a thousand queries that differ in a constant cost little more than one (`cepheid bench matcher`). What is
left of the FILTERs is judged once an event, however many queries ask it; equal patterns are one, and those that begin
alike go on from one under MATCH NEXT, and hold their events together under MATCH ANY (`explain` shows which).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cepheid import _native
from cepheid.language.checker import Checked
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.plan.matcher import Budget, compiled, limits, match_of


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern, moving window or plain filter that runs once, for these queries.

    `begun_by` is the place of the one that does its first steps, if it is another. One that is only that for others has
    no queries; if it `holds_events`, that is all it does, and they put them together by themselves.
    """

    queries: tuple[str, ...]
    steps: int
    begun_by: int | None
    holds_events: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What queries that stand together have done: different conditions, how often one was judged, and events held."""

    conditions: int
    judged: int
    kept: int


class Standing:
    """Finds the matches of several queries, each as a Matcher of its own would.

    A query whose `budget` is used up, and that is to fail then, gets no more events; the others go on.
    """

    def __init__(self, queries: Mapping[str, Checked], now: int = 0, budget: Budget | None = None) -> None:
        self.names = tuple(queries)
        self._native = _native.Standing([compiled(checked, now) for checked in queries.values()], *limits(budget))

    def push(self, events: Iterable[Event]) -> None:
        """Takes events, none of them late or a duplicate; those of streams that no query reads don't matter."""
        self._native.push(events)

    def push_batch(self, batch: _native.ArrowBatch, stream: str | None = None) -> None:
        """Takes a batch of columns, as `Matcher.push_batch` does."""
        self._native.push_batch(batch, stream)

    def advance(self, watermark: int | None) -> dict[str, list[Match]]:
        """By query the matches that are complete when no event before the watermark can come any more, in order."""
        found = self._native.advance(watermark)
        return {self.names[query]: [match_of(*row) for row in rows] for query, rows in found}

    def advance_batches(self, watermark: int | None) -> dict[str, list[_native.MatchBatch]]:
        """As `advance`, the matches as batches of columns."""
        return {self.names[query]: batches for query, batches in self._native.advance_batches(watermark)}

    @property
    def failed(self) -> dict[str, str]:
        """The queries that failed, and why."""
        return {self.names[query]: reason for query, reason in self._native.failed()}

    @property
    def kept(self) -> int:
        """How many events are in memory, over all queries; where patterns share their beginning, its matches too."""
        return self._native.kept()

    @property
    def patterns(self) -> list[Pattern]:
        """What runs, each once for all its queries; those that others go on from first."""
        return [
            Pattern(tuple(self.names[query] for query in queries), steps, begun_by, holds_events)
            for queries, steps, begun_by, holds_events in self._native.patterns()
        ]

    @property
    def counters(self) -> Work:
        """What was done so far, and what is held now."""
        return Work(*self._native.judged(), self._native.kept())
