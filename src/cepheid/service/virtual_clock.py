"""A graph on the virtual clock: one thread, the time that it is told, always the same outcome (rule G6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from cepheid import _native
from cepheid.app.application import Application
from cepheid.plan.planner import Plan
from cepheid.service.job import graph_job
from cepheid.service.received import Received
from cepheid.service.running.functions import Functions

if TYPE_CHECKING:
    from cepheid.service.running.functions import Function


class VirtualClock:
    """For tests of one's own graphs. Supplier events wait until `run`, which takes them in the order of arrival."""

    def __init__(
        self, application: Application | Plan, *, functions: Mapping[str, Function] | None = None, replace: bool = False
    ) -> None:
        plan = application.plan() if isinstance(application, Application) else application
        job = graph_job(plan, "application", replace=replace)
        self._functions = Functions(job["functions"], functions or {})
        self._clock = _native.VirtualClock(job["spec"], self._functions.python, self._functions.addresses)
        self._numbers = count(1)

    def push(self, stream: str, time: int, attributes: Mapping[str, Any], id: int | str | None = None) -> bool:
        """A supplier's event, created at `time` (microseconds), arrives. False if it was refused."""
        return self._clock.push(stream, next(self._numbers) if id is None else id, time, attributes)

    def run(self, now: int) -> list[Received]:
        """The clock says `now`, and everything that can run does: what consumers receive, in order."""
        return [Received.of(delivered) for delivered in self._clock.run(now)]

    def stats(self) -> dict[str, Any]:
        """The books, as those of an Engine."""
        found: dict[str, Any] = json.loads(self._clock.stats())
        return found
