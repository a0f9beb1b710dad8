"""A case run: by the reference, and by the native matcher whole, in pieces, shuffled and interrupted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeAlias

from cepheid.cli.engines import find_matches
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.plan.matcher import Matcher
from tests.plan.path_strategies import PathCase
from tests.plan.query_strategies import NOW, Case

#: How many cases a random test tries; CEPHEID_EXAMPLES=10000 for a long run.
EXAMPLES: Final = int(os.environ.get("CEPHEID_EXAMPLES", "200"))

Plain: TypeAlias = tuple[int, object, object, object, object]


def expected(case: Case) -> list[Plain]:
    """What the reference finds."""
    return [plain(match) for match in find_matches("reference", case.checked, case.events, NOW)]


def plain(match: Match) -> Plain:
    window = None if match.window is None else (match.window.start, match.window.end)
    return (match.time, dict(match.events), dict(match.select), window, match.group)


def shown(matches: Sequence[Match]) -> list[str]:
    """The matches as text, for 0.0 and -0.0 are equal and don't look so."""
    return [f"{match.id} {plain(match)!r}" for match in matches]


def matcher(case: Case | PathCase) -> Matcher:
    return Matcher(case.checked, NOW)


class Storage:
    """Where the chunks of a state are kept from one save to the next."""

    def __init__(self) -> None:
        self.chunks: dict[str, bytes] = {}

    def restored(self, running: Matcher, fresh: Matcher) -> Matcher:
        """A new matcher that goes on where this one stopped."""
        state = running.save(self.chunks)
        self.chunks = state.chunks(self.chunks)
        fresh.restore(state.head, self.chunks)
        return fresh


def run_in_batches(
    case: Case | PathCase, arrival: Sequence[Event], sizes: Sequence[int], *, restoring: bool = False
) -> list[Match]:
    """Feeds events as they arrive, each batch with the highest watermark that makes none of the rest late.

    Of `sizes` each batch takes the next, and after the last the first again. With `restoring` the matcher is saved and
    another goes on, before and after each watermark.
    """
    found: list[Match] = []
    running, storage = matcher(case), Storage()
    start = batch = 0
    while start < len(arrival):
        size = sizes[batch % len(sizes)]
        running.push(arrival[start : start + size])
        start, batch = start + size, batch + 1
        if restoring:
            running = storage.restored(running, matcher(case))
        if start < len(arrival):
            found += running.advance(min(e.time for e in arrival[start:]))
        if restoring:
            running = storage.restored(running, matcher(case))
    return found + running.advance(None)


def run_interrupted(case: Case, arrival: Sequence[Event], after: int, *, waiting: bool) -> list[Match]:
    """Feeds events one by one, and saves and restores once: after so many events, before the watermark or behind it."""
    found: list[Match] = []
    running, storage = matcher(case), Storage()
    for number, event in enumerate(arrival, 1):
        running.push([event])
        if number == after and waiting:
            running = storage.restored(running, matcher(case))
        if number < len(arrival):
            found += running.advance(min(e.time for e in arrival[number:]))
        if number == after and not waiting:
            running = storage.restored(running, matcher(case))
    return found + running.advance(None)
