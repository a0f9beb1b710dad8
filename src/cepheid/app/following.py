"""An application's plan by what is known, and what changes of that make of it.

Changes are found in the journal and the files (knowledge/follow.py), on a thread of its own, and wait here until
whoever runs queries takes them up. Versions have numbers that outlive a process (knowledge/versions.py).
"""

from __future__ import annotations

import queue
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cepheid.app.application import Application
from cepheid.plan.planner import Plan

if TYPE_CHECKING:
    from cepheid.app.known import Known
    from cepheid.app.renewal import Renewal
    from cepheid.knowledge.follow import Follower
    from cepheid.knowledge.store import Change


@dataclass(frozen=True)
class Planned:
    """An application, what it knows, and its plan by that."""

    app: Application
    known: Known | None
    plan: Plan


class Following:
    """The plan of an application, as it is judged now. One thread calls at a time, but for `wait` and `close`."""

    def __init__(self, *, enriching: bool = False) -> None:
        """`enriching`: what is known is needed, too, where columns of the archive are to be taken from it."""
        self._is_enriching = enriching
        self.plan: Plan
        #: The version of the knowledge that the plan goes by; 0: nothing is asked of any.
        self.version = 0
        self._app: Application | None = None
        self._known: Known | None = None
        self._is_following = False
        self._follower: Follower | None = None
        self._heard: queue.SimpleQueue[tuple[Known, Change] | None] = queue.SimpleQueue()
        self._waiting: list[tuple[Known, Change]] = []

    def plan_of(self, app: Application) -> Plan:
        """Plans an application by what is known now; from here on it is the one whose knowledge matters."""
        planned = self.planned(app)
        self.adopt(planned)
        return planned.plan

    def planned(self, app: Application) -> Planned:
        """An application by what is known now, which nothing goes by yet."""
        known = self._known_of(app)
        return Planned(app, known, app.plan(known))

    def adopt(self, planned: Planned) -> None:
        """From here on this application is the one whose knowledge matters."""
        self._app, self._known, self.plan = planned.app, planned.known, planned.plan
        self.version = 0 if planned.known is None else planned.known.knowledge.version
        if self._is_following:
            self._follow()

    @property
    def known(self) -> Known | None:
        """What the application knows, as it is now; None if it is not asked."""
        return self._known

    def _known_of(self, app: Application) -> Known | None:
        """What an application knows: with the knowledge that is here already, if it is the same."""
        if not app.asks and not (self._is_enriching and app.enriched):
            return None
        before, known = self._app, self._known
        if before is None or known is None or not _is_of_same(before, app):
            found = app.known()
            if found is not None:
                found.knowledge.keep_versions()
                found.knowledge.prepare()
            return found
        from cepheid.app.known import known as known_of

        return known_of(app, knowledge=known.knowledge)

    def start(self) -> None:
        """Begins to follow."""
        self._is_following = True
        self._follow()

    def close(self) -> None:
        """Follows no longer; who waits need not."""
        if self._follower is not None:
            self._follower.close()
        self._heard.put(None)

    def _follow(self) -> None:
        """Follows the knowledge of the application that is planned, and no other."""
        from cepheid.knowledge.follow import Follower

        known = self._known
        if self._follower is not None and (known is None or self._follower.knowledge is not known.knowledge):
            self._follower.close()
            self._follower = None
        if self._follower is None and known is not None:
            knowledge = known.knowledge
            knowledge.listen(lambda change: self._heard.put((known, change)))
            self._follower = Follower(knowledge)

    def wait(self) -> bool:
        """Waits for a change; False if there will be none."""
        found = self._heard.get()
        if found is not None:
            self._waiting.append(found)
        return found is not None

    def take_up(self, names: Iterable[str]) -> dict[str, Renewal]:
        """What the changes so far make of queries, those of them with PATHs; none if there was no change."""
        while not self._heard.empty():
            if (found := self._heard.get()) is None:
                self._heard.put(None)  # for who waits
                break
            self._waiting.append(found)
        waiting, self._waiting = self._waiting, []
        known = self._known
        changes = [change for whose, change in waiting if known is not None and whose.knowledge is known.knowledge]
        if known is None or not changes:
            return {}
        from cepheid.app.renewal import Renewals

        renewals = Renewals(known, changes)
        with known.knowledge.reading() as version:
            renewed = {name: renewals.of(self.plan.semantic[name]) for name in names if name in self.plan.semantic}
            self.plan = replace(
                self.plan,
                semantic={**self.plan.semantic, **{name: found.semantic for name, found in renewed.items()}},
                queries={**self.plan.queries, **{name: found.semantic.checked for name, found in renewed.items()}},
            )
            self.version = version
        return renewed


def _is_of_same(one: Application, other: Application) -> bool:
    """Whether two applications have the same knowledge; how it is asked may differ."""
    first, second = one.sections.knowledge, other.sections.knowledge
    if first is None or second is None or one.folder != other.folder:
        return False
    return first.model_copy(update={"semantics": second.semantics}) == second
