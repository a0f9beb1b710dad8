"""The paper's pipeline: annotate, semantic filter and CEP as asynchronous stages, each in a thread of its own.

Between two stages is a queue of bounded length, so a slow stage holds up those before it and nothing grows. With a
buffering filter the events of an interval are one portion; else each call's are. How long each stage works for an event
is measured apart, as in Figure 8b.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cepheid.knowledge.modes import SemanticFilter
from cepheid.language.checker import Checked
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.plan.matcher import Matcher

#: So many portions wait between two stages.
WAITING: Final = 64


@dataclass
class Work:
    """What a stage did: how many events, and how long it worked for them."""

    events: int = 0
    seconds: float = 0.0

    @property
    def each(self) -> float:
        """Seconds an event."""
        return self.seconds / self.events if self.events else 0.0


class Pipeline:
    """Runs a query whose PATHs a SemanticFilter judges. Events come in order of time; `on_matches` gets what is found.

    `work` has what each stage did. The first fault of a stage is raised by `close`.
    """

    def __init__(
        self,
        checked: Checked,
        semantic: SemanticFilter,
        on_matches: Callable[[list[Match]], None],
        *,
        now: int = 0,
        interval: float = 0.0,
    ) -> None:
        """`interval` is that of a buffering filter, in seconds."""
        self.work = {"annotate": Work(), "semantic filter": Work(), "CEP": Work()}
        self._semantic = semantic
        self._matcher = Matcher(checked, now, semantic=semantic)
        self._on_matches = on_matches
        self._interval = interval if "buffer" in semantic.mode else 0.0
        self._raw: queue.Queue[Any] = queue.Queue(WAITING)
        self._annotated: queue.Queue[Any] = queue.Queue(WAITING)
        self._judged: queue.Queue[Any] = queue.Queue(WAITING)
        self._fault: BaseException | None = None
        stages = (self._annotate, self._filter, self._match)
        self._threads = [threading.Thread(target=self._guarded, args=(stage,), daemon=True) for stage in stages]
        for thread in self._threads:
            thread.start()

    def push(self, events: Sequence[Event]) -> None:
        """Takes events; waits while the first queue is full."""
        self._raw.put(events)

    def close(self) -> None:
        """The input is complete: waits until everything is through."""
        self._raw.put(None)
        for thread in self._threads:
            thread.join()
        if self._fault is not None:
            raise self._fault

    def _guarded(self, stage: Callable[[], None]) -> None:
        try:
            stage()
        except BaseException as fault:
            self._fault = self._fault or fault
            following = {self._annotate: self._annotated, self._filter: self._judged}.get(stage)
            if following is not None:
                following.put(None)
            self._drain({self._annotate: self._raw, self._filter: self._annotated}.get(stage, self._judged))

    def _drain(self, waiting: queue.Queue[Any]) -> None:
        """After a fault: lets those before go on to their end."""
        while waiting.get() is not None:
            pass

    def _annotate(self) -> None:
        while (events := self._portion()) is not None:
            with _measured(self.work["annotate"], len(events)):
                keys = self._semantic.annotate(events)
            self._annotated.put((events, keys))
        self._annotated.put(None)

    def _portion(self) -> list[Event] | None:
        """The events of a call, or of an interval; None at the end."""
        first = self._raw.get()
        if first is None:
            return None
        events = list(first)
        deadline = time.monotonic() + self._interval
        while self._interval and (left := deadline - time.monotonic()) > 0:
            try:
                more = self._raw.get(timeout=left)
            except queue.Empty:
                break
            if more is None:
                self._raw.put(None)  # for the next call
                break
            events += more
        return events

    def _filter(self) -> None:
        while (portion := self._annotated.get()) is not None:
            events, keys = portion
            judging = self._semantic.judge_annotated(events, keys)
            while True:
                with _measured(self.work["semantic filter"], 0) as work:
                    judged = next(judging, None)
                    work.events += len(judged.events) if judged is not None else 0
                if judged is None:
                    break
                self._judged.put(judged)
        self._judged.put(None)

    def _match(self) -> None:
        while (judged := self._judged.get()) is not None:
            with _measured(self.work["CEP"], len(judged.events)):
                self._matcher.push_judged(judged)
                found = self._matcher.advance(judged.events[-1].time)
            if found:
                self._on_matches(found)
        self._on_matches(self._matcher.advance(None))


class _measured:  # noqa: N801 - used like a function
    """Adds the time of a block, and its events, to what a stage did."""

    def __init__(self, work: Work, events: int) -> None:
        self._work, self._events = work, events

    def __enter__(self) -> Work:
        self._start = time.perf_counter()
        return self._work

    def __exit__(self, *_: object) -> None:
        self._work.seconds += time.perf_counter() - self._start
        self._work.events += self._events
