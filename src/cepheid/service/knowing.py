"""Follows what is known, for queries that run in lanes: what a change makes of them, as an engine learns it.

Where the planner is, not where the engine is. The rows and plans that are others by a change are found here
(app/following.py), and the lanes take them up together, all from one offset of the log on
(native/src/service/knowing.rs).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from cepheid.app.application import Application
from cepheid.app.following import Following
from cepheid.plan.compile import learned, tables
from cepheid.plan.planner import Plan
from cepheid.service.lanes import fast_queries, query_of

if TYPE_CHECKING:
    from cepheid.app.renewal import Renewal

#: A query, its plan if that is another, and by table what is known of keys, as JSON.
Learned: TypeAlias = "tuple[str, str | None, list[tuple[int, str]]]"

_log: Final = logging.getLogger("cepheid.knowledge")


class Knowing:
    """The knowledge behind a service's queries. `plan` is how they are judged now.

    `learn` is called, one change after the other, with the version of the knowledge and what each query learns by it.
    Whoever holds `lock` sees the plan and what was learned in accord.
    """

    def __init__(self, learn: Callable[[int, list[Learned]], object], lock: AbstractContextManager[object]) -> None:
        self._learn = learn
        self._lock = lock
        self._following = Following()
        self._log: Path | None = None
        self._thread: threading.Thread | None = None

    @property
    def plan(self) -> Plan:
        """How queries are judged now."""
        return self._following.plan

    def plan_of(self, app: Application) -> Plan:
        """Plans an application by what is known now; from here on it is the one whose knowledge matters."""
        with self._lock:
            return self._following.plan_of(app)

    def start(self, log: Path) -> None:
        """Begins to follow, for queries over the log in a folder."""
        self._log = log
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)
        self._thread.start()
        self._following.start()

    def close(self) -> None:
        """Ends it."""
        self._following.close()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._following.wait():
            try:
                with self._lock:
                    self._take_up()
            except Exception:
                _log.exception("the queries of the service stay with the knowledge that they have")

    def _take_up(self) -> None:
        # Those that run elsewhere follow by themselves.
        found = self._following.take_up(fast_queries(self.plan))
        if found:
            learned_by = [self._learned(name, renewal) for name, renewal in found.items()]
            self._learn(self._following.version, learned_by)

    def _learned(self, name: str, renewal: Renewal) -> Learned:
        if renewal.is_lowered:
            assert self._log is not None
            plan: str = query_of(self.plan, name, self._log)["spec"]["plan"]
            return name, plan, []
        places = {id(table): place for place, table in enumerate(tables(renewal.semantic.checked))}
        rows = {places[id(lookup.table)]: learned(rows) for lookup, rows in renewal.rows if rows}
        return name, None, list(rows.items())
