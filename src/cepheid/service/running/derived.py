"""The threads that bring what an engine derives into the log (service/derived.py says what that is).

A thread for each derived stream takes what was produced, pushes it, and lets go of a match only when the intake has
acknowledged it.
"""

from __future__ import annotations

import sys
import threading
import time

from cepheid.model.events import Event
from cepheid.service.supplier import Supplier, SupplierError

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeAlias

    from cepheid import _native

    #: `operator`: whether one produces it, or a query; `sources`: name, lateness and idle of the streams it comes from.
    Job: TypeAlias = Mapping[str, Any]

#: Before the name of an operator, the name of the consumer whose events go into the log.
PREFIX = "log:"
#: How many are pushed at once, and how long a thread waits before it looks at the time and whether the engine stops.
_MOST = 1024
_PATIENCE = 0.02
#: Seconds.
_FOR_THE_INTAKE = 86_400.0


class Derived:
    """The threads, from an engine's start to its stop."""

    def __init__(self, engine: _native.Engine, intake: str, token: str | None = None) -> None:
        self._engine = engine
        self._intake = intake
        self._token = token
        self._began = time.time_ns() // 1000
        self._closing = threading.Event()
        self._threads: dict[str, threading.Thread] = {}

    def go_on(self, streams: Mapping[str, Job]) -> None:
        """Starts a thread for each derived stream that has none; those of removed ones end by themselves."""
        for name, job in streams.items():
            if name in self._threads and self._threads[name].is_alive():
                continue
            supply = self._outputs if job["operator"] else self._matches
            thread = threading.Thread(target=self._run, args=(name, job, supply), name=f"{PREFIX}{name}", daemon=True)
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

    def _run(self, name: str, job: Job, supply: Callable[[str, Job, Supplier], None]) -> None:
        try:
            # An intake that is away comes back: what was derived waits for it.
            with Supplier(self._intake, token=self._token, patience=_FOR_THE_INTAKE) as supplier:
                supply(name, job, supplier)
        except KeyError:
            return  # it was removed, and what it produced is in the log
        except SupplierError as error:
            print(f"cepheid: what '{name}' produces does not go into the log any more: {error}", file=sys.stderr)

    def _outputs(self, name: str, job: Job, supplier: Supplier) -> None:
        announced: int | None = None
        while not self._closing.is_set():
            if self._push(name, supplier, _PATIENCE):
                continue
            # What the streams have come to first; then, if all that came of it is logged, this one has come there too.
            watermark = self._watermark(job["sources"])
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

    def _watermark(self, sources: Iterable[Mapping[str, Any]]) -> int | None:
        """The least watermark of streams (rule E5); None while one of them has none."""
        now, heard = time.time_ns() // 1000, self._engine.heard()
        found = []
        for stream in sources:
            idle = stream["idle"]
            greatest, silence = heard.get(stream["name"], (None, now - self._began))
            if idle is not None and silence >= idle:
                greatest = now - idle if greatest is None else max(greatest, now - idle)
            if greatest is None:
                return None
            found.append(greatest - stream["lateness"])
        return min(found, default=None)

    def _matches(self, name: str, _: Job, supplier: Supplier) -> None:
        while (found := self._engine.unlogged(name, _MOST, _PATIENCE)) is not None:
            rows, watermark = found
            if rows:
                supplier.push_many(Event(name, number, at, select) for number, at, _, select, _, _ in rows)
                supplier.flush()
                self._engine.logged(name, len(rows))
            if watermark is not None:
                self._engine.announce(name, watermark, supplier.offset or 0)
