"""Follows what is known, for queries that run in lanes: what a change makes of them, as an engine learns it.

Where the planner is, not where the engine is. A change is found in the journal or the files (knowledge/follow.py), the
rows and plans that are others by it are found here (app/renewal.py), and the lanes take them up together, all from one
offset of the log on (native/src/service/knowing.rs).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from cepheid.app.application import Application
from cepheid.plan.compile import learned, tables
from cepheid.plan.planner import Plan
from cepheid.service.lanes import fast_queries, query_of

if TYPE_CHECKING:
    from cepheid.app.known import Known
    from cepheid.app.renewal import Renewal
    from cepheid.knowledge.follow import Follower
    from cepheid.knowledge.store import Change

#: A query, its plan if that is another, and by table what is known of keys, as JSON.
Learned: TypeAlias = "tuple[str, str | None, list[tuple[int, str]]]"

_log: Final = logging.getLogger("cepheid.knowledge")


class Knowing:
    """The knowledge behind a service's queries. `plan` is how they are judged now.

    `learn` is called, one change after the other, with the version of the knowledge and what each query learns by it.
    Whoever holds `lock` sees the plan and what was learned in accord.
    """

    def __init__(self, learn: Callable[[int, list[Learned]], object], lock: AbstractContextManager[object]) -> None:
        self.plan: Plan
        self._learn = learn
        self._lock = lock
        self._app: Application | None = None
        self._known: Known | None = None
        self._log: Path | None = None
        self._follower: Follower | None = None
        self._changes: queue.SimpleQueue[tuple[Known, Change] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def plan_of(self, app: Application) -> Plan:
        """Plans an application by what is known now; from here on it is the one whose knowledge matters."""
        with self._lock:
            known = self._known_of(app)
            self.plan = app.plan(known)
            self._app, self._known = app, known
            if self._thread is not None:
                self._follow()
            return self.plan

    def _known_of(self, app: Application) -> Known | None:
        """What an application knows: with the knowledge that is here already, if it is the same."""
        if not app.asks:
            return None
        before, known = self._app, self._known
        if before is None or known is None or not _is_of_same(before, app):
            return app.known()
        from cepheid.app.known import known as known_of

        return known_of(app, knowledge=known.knowledge)

    def start(self, log: Path) -> None:
        """Begins to follow, for queries over the log in a folder."""
        self._log = log
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)
        self._thread.start()
        self._follow()

    def close(self) -> None:
        """Ends it."""
        if self._follower is not None:
            self._follower.close()
        if self._thread is not None:
            self._changes.put(None)
            self._thread.join()

    def _follow(self) -> None:
        """Follows the knowledge of the application that is planned, and no other."""
        from cepheid.knowledge.follow import Follower

        known = self._known
        if self._follower is not None and (known is None or self._follower.knowledge is not known.knowledge):
            self._follower.close()
            self._follower = None
        if self._follower is None and known is not None:
            knowledge = known.knowledge
            knowledge.listen(lambda change: self._changes.put((known, change)))
            self._follower = Follower(knowledge)

    def _run(self) -> None:
        while (first := self._changes.get()) is not None:
            changes = [first]
            while not self._changes.empty() and (more := self._changes.get()) is not None:
                changes.append(more)
            try:
                with self._lock:
                    self._take_up([change for whose, change in changes if self._is_ours(whose)])
            except Exception:
                _log.exception("the queries of the service stay with the knowledge that they have")

    def _is_ours(self, whose: Known) -> bool:
        return self._known is not None and whose.knowledge is self._known.knowledge

    def _take_up(self, changes: list[Change]) -> None:
        known = self._known
        if known is None or not changes:
            return
        from cepheid.app.renewal import Renewals

        renewals = Renewals(known, changes)
        with known.knowledge.reading() as version:
            # Those that run elsewhere follow by themselves.
            names = [name for name in fast_queries(self.plan) if name in self.plan.semantic]
            found = {name: renewals.of(self.plan.semantic[name]) for name in names}
            self.plan = replace(
                self.plan,
                semantic={**self.plan.semantic, **{name: renewal.semantic for name, renewal in found.items()}},
                queries={**self.plan.queries, **{name: renewal.semantic.checked for name, renewal in found.items()}},
            )
        if found:
            self._learn(version, [self._learned(name, renewal) for name, renewal in found.items()])

    def _learned(self, name: str, renewal: Renewal) -> Learned:
        if renewal.is_lowered:
            assert self._log is not None
            plan: str = query_of(self.plan, name, self._log)["spec"]["plan"]
            return name, plan, []
        places = {id(table): place for place, table in enumerate(tables(renewal.semantic.checked))}
        rows = {places[id(lookup.table)]: learned(rows) for lookup, rows in renewal.rows if rows}
        return name, None, list(rows.items())


def _is_of_same(one: Application, other: Application) -> bool:
    """Whether two applications have the same knowledge; how it is asked may differ."""
    first, second = one.sections.knowledge, other.sections.knowledge
    if first is None or second is None or one.folder != other.folder:
        return False
    return first.model_copy(update={"semantics": second.semantics}) == second
