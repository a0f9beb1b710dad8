"""A query that stands while the knowledge changes: each event is judged by exactly one version of it.

A change is taken up between two pushes (renewal.py). What was judged before stays as it was judged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from cepheid.app.known import Known
from cepheid.app.renewal import Renewals
from cepheid.knowledge.store import Change
from cepheid.language.checker import Checked
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.plan.matcher import Budget, Matcher

_log: Final = logging.getLogger("cepheid.knowledge")


class LiveMatcher:
    """A Matcher of a query with PATHs that follows its knowledge.

    `refreshed` counts the keys that changes had asked for again, `renewed` how often the query was lowered anew, and
    `begun` how often what was held did not fit it then, and was let go of.
    """

    def __init__(
        self, checked: Checked, known: Known, now: int = 0, budget: Budget | None = None, *, eager: bool = False
    ) -> None:
        self._known, self._now, self._budget, self._eager = known, now, budget, eager
        self._changes: list[Change] = []
        self._lock = threading.Lock()
        known.knowledge.prepare()
        with known.knowledge.reading() as version:
            known.knowledge.listen(self._note)
            self.version = version
            self._semantic = known.lower(checked)
            self._begin()
        self.refreshed = self.renewed = self.begun = 0

    def _begin(self) -> None:
        self.checked = self._semantic.checked
        self._filter = self._known.filter(self._semantic)
        self._matcher = Matcher(self.checked, self._now, self._budget, eager=self._eager, semantic=self._filter)

    def _note(self, change: Change) -> None:
        with self._lock:
            self._changes.append(change)

    def push(self, events: Iterable[Event]) -> None:
        """Takes events, which are judged by the knowledge as it is now."""
        with self._known.knowledge.reading():
            self.renew()
            self._matcher.push(events)

    def advance(self, watermark: int | None) -> list[Match]:
        """As `Matcher.advance`; a match says which version of the knowledge was in force when it came out."""
        return [replace(match, knowledge=self.version) for match in self._matcher.advance(watermark)]

    def renew(self) -> None:
        """Take up the changes that were made since the last time."""
        with self._lock:
            changes, self._changes = self._changes, []
        if not changes:
            return
        renewal = Renewals(self._known, changes).of(self._semantic)
        self._semantic = renewal.semantic
        if renewal.is_lowered:
            self._go_on()
        for lookup, rows in renewal.rows:
            self._matcher.refresh(lookup, rows)
            self.refreshed += len(rows)
        self.version = renewal.semantic.version

    def _go_on(self) -> None:
        state = self._matcher.save()
        self._begin()
        self.renewed += 1
        try:
            self._matcher.restore(state.head, state.changed)
        except ValueError:
            self.begun += 1
            _log.warning("the query begins anew, without what it held: the knowledge changed what is kept of events")
