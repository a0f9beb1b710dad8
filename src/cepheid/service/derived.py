"""What is derived and read by queries: outputs of operators, matches of other queries, as streams of the log.

Rule G7: such an output is a stream like any other, logged and archived. So the engine is a supplier of its own intake:
a thread for each derived stream takes what was produced, pushes it, and lets go of a match only when the intake has
acknowledged it. A match keeps its id, so that one that is found again after a crash is a duplicate. An operator's
output counts from the engine's start in microseconds, because operators begin anew then.

Such a stream never follows the clock: what is derived may be long on its way, after a crash above all. Its watermark is
announced to the lanes, once all that came before is in the log: a query's own watermark; for an operator, that of the
streams it comes from, when the engine has done with their events.

A graph that reads a query gets its matches from the log too, as a stream.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.plan.planner import Plan

if TYPE_CHECKING:
    from cepheid import _native
    from cepheid.service.supplier import Supplier

_log: Final = logging.getLogger(__name__)

#: Before the name of an operator, the name of the consumer whose events go into the log.
PREFIX: Final = "log:"
#: How many events of an operator wait for the intake; then the oldest is lost, and counted. No worker waits for it.
CAPACITY: Final = 16_384
#: How many are pushed at once, and how long a thread waits before it looks at the time and whether the engine stops.
_MOST: Final = 1024
_PATIENCE: Final = 0.02
#: Seconds.
_FOR_THE_INTAKE: Final = 86_400.0


def derived_streams(plan: Plan) -> dict[str, Stream]:
    """The streams of the log that the service itself supplies, by name."""
    graph = plan.graph
    read = {stream for checked in plan.queries.values() for stream in checked.streams} - set(graph.streams)
    by_graph = {given for operator in graph.operators.values() for given in operator.inputs}
    by_graph |= {consumer.input for consumer in graph.consumers.values()}
    read |= by_graph & set(graph.queries)
    return {name: _stream(plan, name) for name in sorted(read)}


def streams_of(plan: Plan) -> list[Stream]:
    """All streams of the log: suppliers' and derived ones."""
    return [*plan.graph.streams.values(), *derived_streams(plan).values()]


def operator_of(plan: Plan, name: str) -> str | None:
    """The operator that produces a derived stream, which may bear the name of an equal one; None for a query's."""
    if name in plan.graph.operators:
        return name
    return next((kept for kept, others in plan.shared.items() if name in others), None)


def is_derived_here(plan: Plan, name: str) -> bool:
    """Whether the service derives it, and not Spark."""
    return operator_of(plan, name) is not None or plan.placement[name].engine == "service"


def _stream(plan: Plan, name: str) -> Stream:
    sources = [plan.graph.streams[source] for source in _sources(plan, name)]
    operator = operator_of(plan, name)
    idle = [source.idle for source in sources if source.idle is not None]
    return Stream(
        name,
        plan.schemas[name],
        id_kind="string" if operator is None else "int",
        valid_for=plan.queries[name].query.valid if operator is None else plan.temporal[operator].valid_for,
        lateness=max((source.lateness for source in sources), default=0),
        idle=max(idle) if len(idle) == len(sources) and idle else None,
    )


def _sources(plan: Plan, name: str) -> Iterator[str]:
    """The suppliers' streams that a derived one comes from."""
    seen, unexplored = {name}, [name]
    while unexplored:
        node = unexplored.pop()
        if node in plan.graph.streams:
            yield node
        for given in plan.logical.inputs_of(node):
            if given not in seen:
                seen.add(given)
                unexplored.append(given)


class Derived:
    """The threads that bring what an engine derives into the log, from its start to its stop."""

    def __init__(self, engine: _native.Engine, plan: Plan, intake: str, token: str | None = None) -> None:
        self._engine = engine
        self._intake = intake
        self._token = token
        self._began = time.time_ns() // 1000
        self._closing = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self.go_on(plan)

    def go_on(self, plan: Plan) -> None:
        """Starts a thread for each derived stream of a plan that has none; those of removed ones end by themselves."""
        self._plan = plan
        for name in derived_streams(plan):
            if not is_derived_here(plan, name):
                continue  # found by Spark, which supplies it
            if name in self._threads and self._threads[name].is_alive():
                continue
            supply = self._matches if operator_of(plan, name) is None else self._outputs
            thread = threading.Thread(target=self._run, args=(name, supply), name=f"{PREFIX}{name}", daemon=True)
            thread.start()
            self._threads[name] = thread

    def close(self) -> None:
        """Tells the threads that the engine stops: they end once the log has what there is."""
        self._closing.set()

    def join(self, timeout: float) -> None:
        """Waits until they have."""
        deadline = time.monotonic() + timeout
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, name: str, supply: Callable[[str, Supplier], None]) -> None:
        # Not at the top: an engine without derived streams needs no supplier, nor the asyncio that comes with it.
        from cepheid.service.supplier import Supplier, SupplierError

        try:
            # An intake that is away comes back: what was derived waits for it.
            with Supplier(self._intake, token=self._token, patience=_FOR_THE_INTAKE) as supplier:
                supply(name, supplier)
        except KeyError:
            return  # it was removed, and what it produced is in the log
        except SupplierError:
            _log.exception("what '%s' produces does not go into the log any more", name)

    def _outputs(self, name: str, supplier: Supplier) -> None:
        sources = [self._plan.graph.streams[source] for source in _sources(self._plan, name)]
        announced: int | None = None
        while not self._closing.is_set():
            if self._push(name, supplier, _PATIENCE):
                continue
            # What the streams have come to first; then, if all that came of it is logged, this one has come there too.
            watermark = self._watermark(sources)
            if watermark is None or watermark == announced or not self._engine.settle(_PATIENCE):
                continue
            while self._push(name, supplier, 0.0):
                pass
            supplier.flush()
            self._engine.announce(name, watermark, supplier.offset or 0)
            announced = watermark

    def _push(self, name: str, supplier: Supplier, patience: float) -> int:
        """Pushes what an operator has produced, waiting so long for the first of it; how many events there were."""
        events: list[Event] = []
        while len(events) < _MOST and (found := self._engine.read(f"{PREFIX}{name}", patience)) is not None:
            _, number, at, attributes, _, _ = found
            assert isinstance(number, int)
            events.append(Event(name, self._began + number, at, attributes))
            patience = 0.0
        supplier.push_many(events)
        return len(events)

    def _watermark(self, sources: Iterable[Stream]) -> int | None:
        """The least watermark of streams (rule E5); None while one of them has none."""
        now, heard = time.time_ns() // 1000, self._engine.heard()
        found = []
        for stream in sources:
            greatest, silence = heard.get(stream.name, (None, now - self._began))
            if stream.idle is not None and silence >= stream.idle:
                greatest = now - stream.idle if greatest is None else max(greatest, now - stream.idle)
            if greatest is None:
                return None
            found.append(greatest - stream.lateness)
        return min(found, default=None)

    def _matches(self, name: str, supplier: Supplier) -> None:
        while (found := self._engine.unlogged(name, _MOST, _PATIENCE)) is not None:
            rows, watermark = found
            if rows:
                supplier.push_many(Event(name, number, at, select) for number, at, _, select, _, _ in rows)
                supplier.flush()
                self._engine.logged(name, len(rows))
            if watermark is not None:
                self._engine.announce(name, watermark, supplier.offset or 0)
