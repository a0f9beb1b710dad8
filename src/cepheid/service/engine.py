"""The engine in this process: suppliers push, native threads run the graph, consumers read.

    with Engine(load("app.yaml")) as engine:
        engine.push("vibration1", {"samples": samples})
        for received in engine.consumer("plant"):
            ...

`push` never waits, and no worker waits for a consumer: one that does not read loses its oldest events, counted.
"""

from __future__ import annotations

import json
import logging
import threading
import time as clock
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from cepheid import _native
from cepheid.app.application import Application
from cepheid.model.events import Event
from cepheid.plan.planner import Plan
from cepheid.service.changes import Changes
from cepheid.service.histograms import Histograms
from cepheid.service.job import graph_job, log_job
from cepheid.service.lanes import Found, match_of
from cepheid.service.received import Received
from cepheid.service.running.engine import Running

if TYPE_CHECKING:
    from cepheid.service.knowing import Knowing, Learned
    from cepheid.service.running.functions import Function

_log: Final = logging.getLogger(__name__)

Outcome: TypeAlias = Literal["accepted", "duplicate", "unread", "full", "closed"]

OUTCOMES: Final[tuple[Outcome, ...]] = ("accepted", "duplicate", "unread", "full", "closed")


class Consumer:
    """The reading end of a consumer's queue. An iterator that ends when the engine is closed or the consumer removed,
    and the queue empty."""

    def __init__(self, consumer: _native.Consumer, name: str) -> None:
        self.name = name
        self._consumer = consumer

    def get(self, timeout: float | None = None) -> Received | None:
        """The next event; None if none came within so many seconds, or nothing more will."""
        found = self._consumer.read(timeout)
        if found is None:
            return None
        return Received.of(found)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come: the engine was closed or the consumer removed, and all is read."""
        return self._consumer.is_over()

    def __iter__(self) -> Iterator[Received]:
        while (received := self.get()) is not None:
            yield received

    def call(self, function: Callable[[Received], object]) -> threading.Thread:
        """Calls a function with each event, on a thread that ends with the engine."""

        def read() -> None:
            for received in self:
                try:
                    function(received)
                except Exception:
                    _log.exception("the callback of consumer '%s' failed; the next event goes on", self.name)

        thread = threading.Thread(target=read, name=f"consumer {self.name}", daemon=True)
        thread.start()
        return thread


class MatchConsumer:
    """The matches of a query in the fast lane. An iterator that ends when the engine is closed."""

    def __init__(self, running: Running, query: str) -> None:
        self.query = query
        self._running = running
        self._engine = running.native

    def get(self, timeout: float | None = None) -> Found | None:
        """The next match; None if none came within so many seconds, or the engine was closed."""
        try:
            found = self._engine.read_match(self.query, timeout)
        except KeyError:
            return None
        return None if found is None else match_of(self.query, found)

    @property
    def is_over(self) -> bool:
        """Whether the query was removed."""
        return self.query not in self._running.queries()

    def __iter__(self) -> Iterator[Found]:
        while (found := self.get()) is not None:
            yield found


class Engine:
    """A graph at work. `functions` gives operators of the kinds python and native theirs, by the operators' names."""

    def __init__(
        self,
        application: Application | Plan,
        *,
        functions: Mapping[str, Function] | None = None,
        cores: int | None = None,
        prioritised: bool | None = None,
        replace: bool | None = None,
    ) -> None:
        self._options = (cores, prioritised, replace)
        self._changing = threading.RLock()
        self._knowing: Knowing | None = None
        self._log: Path | None = None
        self._archived = False
        self._plan, job = self._prepared(application)
        self._running = Running(job, functions)
        self._engine = self._running.native
        # Threads that run Python operators must not outlive the interpreter.
        weakref.finalize(self, self._engine.stop, 1.0)
        self._numbers = count(1)
        for notice in self._engine.notices():
            _log.warning("%s", notice)

    def _prepared(self, application: Application | Plan) -> tuple[Plan, dict[str, Any]]:
        """The plan and the graph's job of an application, with the options that were given or it has itself."""
        name, section = "application", None
        if isinstance(application, Application):
            name, section, plan = application.name, application.sections.service, self._planned(application)
            self._archived = application.sections.archive is not None
        else:
            plan = application
        cores, prioritised, replace = self._options
        if section is not None:
            cores = section.cores if cores is None else cores
            prioritised = section.prioritised if prioritised is None else prioritised
            replace = section.replace if replace is None else replace
        return plan, graph_job(plan, name, cores, prioritised=prioritised is not False, replace=replace is True)

    def _planned(self, application: Application) -> Plan:
        """Its plan; while the engine runs, its queries follow what the application knows."""
        if self._knowing is None and not application.asks:
            return application.plan()
        from cepheid.service.knowing import Knowing

        if self._knowing is None:
            self._knowing = Knowing(self._running_learn, self._changing)
            if self._log is not None:
                self._knowing.start(self._log)
        return self._knowing.plan_of(application)

    def _running_learn(self, version: int, learned: list[Learned]) -> None:
        self._running.learn(version, learned)
        if self._knowing is not None:
            self._plan = self._knowing.plan

    def apply(self, application: Application | Plan, *, functions: Mapping[str, Function] | None = None) -> Changes:
        """Goes on with another application: what both have stays as it is, with its state, and never stops.

        A stream, operator or query that means something else is removed, and the new one added; what was removed runs
        to the end of what it holds. ValueError if it can't be done while the engine runs; then nothing has changed.
        """
        with self._changing:
            plan, job = self._prepared(application)
            if self._log is not None:
                job |= log_job(plan, self._log, archived=self._archived)
            changed = self._running.change(job, functions)
            self._plan = plan
        return Changes.named(changed)

    def push(self, stream: str, event: Event | Mapping[str, Any]) -> Outcome:
        """A supplier's event: an Event, or attributes, with `id` (else counted) and `time` (else now) among them.

        What became of it: `accepted`; `unread`, as nothing in the graph reads the stream; `full`, as too many of its
        events wait (push it again later); `closed`; `duplicate` is for events that were flagged so.
        """
        if isinstance(event, Event):
            return self._engine.push(stream, event.id, event.time, event.attributes)
        attributes = dict(event)
        number = attributes.pop("id", None)
        time = attributes.pop("time", None)
        if number is None:
            number = next(self._numbers)
        return self._engine.push(stream, number, clock.time_ns() // 1000 if time is None else time, attributes)

    def push_records(self, records: bytes | bytearray | memoryview) -> dict[Outcome, int]:
        """Records one behind another, as `arrays.row_bytes` or the log gives them: how many became what.

        Streams have the numbers of the log: their places in the order of names. A record that does not fit is a
        ValueError with its place; those before it are pushed.
        """
        counts = self._engine.push_records(records)
        return dict(zip(OUTCOMES, counts, strict=True))

    def follow(self, log: str | Path, *, intake: str | None = None, token: str | None = None) -> None:
        """Takes events from the log in a folder as they come, beginning where an engine last came to.

        The queries in the fast lane follow it too; they need a log. Where a query reads an operator, or something reads
        a query, what comes of it goes into the log through the intake at an address.
        """
        folder = Path(log)
        with self._changing:
            job = log_job(self._plan, folder, archived=self._archived)
            self._running.follow(job, str(folder), intake, token)
            self._log = folder
            if self._knowing is not None:
                self._knowing.start(folder)

    def matches(self, query: str) -> MatchConsumer:
        """The reading end of a query in the fast lane, by the query's name."""
        if query not in self._running.queries():
            raise KeyError(f"the service runs no query '{query}'")
        return MatchConsumer(self._running, query)

    def consumer(self, name: str) -> Consumer:
        """The reading end of a consumer. Two readers of one consumer share its events."""
        return Consumer(self._engine.consumer(name), name)

    @property
    def native(self) -> _native.Engine:
        """The engine of the native core, for who serves it elsewhere."""
        return self._engine

    @property
    def notices(self) -> list[str]:
        """What the engine has to say of the machine, such as that it may not use real-time priorities."""
        return self._engine.notices()

    def stats(self) -> dict[str, Any]:
        """The books (every event's fate, at every reader and in all) and the latencies; see docs/service.md."""
        return self._running.stats()

    def histograms(self) -> Histograms:
        """Latencies of consumers, levels and queries and run times of operators, whole (service/histograms.py)."""
        found: Histograms = json.loads(self._engine.histograms())
        return found

    def write_trace(self, path: str | Path) -> None:
        """Writes the last moments of scheduling, as https://ui.perfetto.dev and chrome://tracing read them."""
        Path(path).write_text(self._engine.trace(), encoding="utf-8")

    def again(self, query: str) -> bool:
        """A query finds again what was not kept for who acknowledges its matches; False if there is no such thing."""
        with self._changing:
            return self._running.again(query)

    def settle(self, timeout: float = 10.0) -> bool:
        """Waits until all that was pushed is processed; False if that took longer. For tests and orderly ends."""
        return self._engine.settle(timeout)

    def close(self, timeout: float = 5.0) -> bool:
        """Ends the threads; False if one did not end in time, because an operator does not return."""
        if self._knowing is not None:
            self._knowing.close()
        return self._running.close(timeout)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
