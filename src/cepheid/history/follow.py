"""Past, present and future: the answer to a query, and then what comes, in one stream of matches.

R = R_D + R_boundary + R_S. The boundary is a time: the query's watermark W when the past is asked. What is before W is
final, because the log marks everything that comes too late for it: those matches are the archive's. The others, from W
on, are found live, by a matcher that goes on with the log from the offset where the past ended; what they need of the
past, boundary.py says. So nothing is missing and nothing there twice, whatever gap lies between archive and log.

The live matcher is in the process that asks, also where a query of the application is asked that runs in the service or
on Spark. What comes from there is in the order in which it is found, without a word on how far it is complete; it may
be shed, and it ends with its engine. From the log it is what `cepheid match` gives, whatever else is down. PATHs are
judged by what is known when an event comes, as they are there.
"""

from __future__ import annotations

import heapq
import json
import time as clock
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from cepheid.app.live import LiveMatcher
from cepheid.app.question import ask
from cepheid.history.answer import Answer, Done
from cepheid.history.archiving import CONSUMER
from cepheid.history.boundary import Boundary, check_lazy, reach, seeds, since
from cepheid.history.past import past_of
from cepheid.history.tail import Tail
from cepheid.history.times import Times
from cepheid.knowledge.follow import Follower
from cepheid.language.output import MatchPrinter
from cepheid.model.matches import Match
from cepheid.model.time import MIN_INSTANT, format_instant
from cepheid.plan.matcher import Matcher
from cepheid.service.log import LogReader, log_committed
from cepheid.spark.application import file_inputs

#: Seconds to wait for events before the clock is looked at again.
_PATIENCE: Final = 0.2


class NothingToFollow(ValueError):
    """There is no log where further events would come."""


@dataclass
class Marks:
    """How far each stream has come (rule E5)."""

    lateness: dict[str, int]
    idle: dict[str, int | None]
    greatest: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)

    def note(self, stream: str, moment: int, now: int) -> None:
        self.greatest[stream] = max(moment, self.greatest.get(stream, moment))
        self.heard[stream] = now

    def watermark(self, now: int) -> int | None:
        """The least of the streams'; None while one has none."""
        found = [self._of(stream, now) for stream in self.lateness]
        return None if None in found else min(mark for mark in found if mark is not None)

    def _of(self, stream: str, now: int) -> int | None:
        lateness, idle = self.lateness[stream], self.idle[stream]
        mark = None if stream not in self.greatest else self.greatest[stream] - lateness
        if idle is not None and now - self.heard.setdefault(stream, now) >= idle:
            # At that distance, as the service has it: what is on its way may be as late as its stream allows.
            passed = now - idle - lateness
            return passed if mark is None else max(mark, passed)
        return mark


def follow(
    answer: Answer,
    on_line: Callable[[str], object],
    *,
    boundary: Boundary = "seeded",
    gap: int = 0,
    on_mark: Callable[[int], object] = lambda mark: None,
    on_part: Callable[[Done], object] = lambda done: None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Calls `on_line` for each match, those of the past first, then as they come; ends where WITHIN does, or never.

    `on_part` is told how far the past is asked, and `on_mark` the time up to which the matches are complete.
    `boundary` says how matches that span past and live are found; with `lazy`, `gap` is for how many microseconds the
    archive is given time. Raises NothingToFollow, and NotLazy.
    """
    past, asked = answer.past, answer.asked
    hindrance = hindrance_of(answer)
    if hindrance is not None:
        raise NothingToFollow(f"--follow goes on with the log of '{asked.app.name}'; {hindrance}")
    assert past.tail is not None
    if boundary == "lazy":
        check_lazy(asked.checked.query)
        if past.archive is None:
            raise NothingToFollow("--boundary lazy asks the archive, and there is none; use seeded")
    streams = asked.streams.values()
    marks = Marks({s.name: s.lateness for s in streams}, {s.name: s.idle for s in streams})
    now = _now()
    for stream in streams:
        last = past.last_time(stream)
        if last is not None:
            marks.note(stream.name, last, now)
    found = marks.watermark(now)
    split = MIN_INSTANT if found is None else found
    for line in _before(answer, split, on_part):
        on_line(line)
    on_mark(split)
    way: _Way = Seeded(answer, split) if boundary == "seeded" else Lazy(answer, past.tail, split, gap)
    _live(answer, past.tail, marks, way, on_line, on_mark, stopped)


def hindrance_of(answer: Answer) -> str | None:
    """Why an answer can't go on with what comes; None if it can."""
    app, streams = answer.asked.app, answer.asked.streams
    from_files = {s.name for given in file_inputs(app) for s in given.streams}
    if from_files & set(streams):
        return f"{', '.join(streams)} come from files"
    if answer.past.tail is not None:
        return None
    service = app.sections.service
    if service is None or service.log is None:
        return "it has none: add `service: {log: {path: data/log}}`"
    return "it has none yet: start `cepheid service`"


def _now() -> int:
    return clock.time_ns() // 1000


def _before(answer: Answer, split: int, on_part: Callable[[Done], object]) -> Iterator[str]:
    """The matches of the past that are final: R_D."""
    if split == MIN_INSTANT:
        return
    end = format_instant(split)
    for line in answer.lines(on_part):
        if json.loads(line)["time"] >= end:
            return
        yield line


class _Way(Protocol):
    """How what spans the boundary comes to what is live."""

    #: From when on matches are live.
    split: int

    def primed(self, matcher: Matcher | LiveMatcher) -> None:
        """Gives a matcher the events that it begins with."""

    def passed(self, lines: Iterable[str], mark: int | None, offset: int) -> tuple[list[str], int | None]:
        """What is to be shown, in order, and up to when that is complete; None: no further than before.

        `lines` were found live since the last call, with the watermark `mark` (None: nothing more comes), once the log
        was read up to `offset`.
        """


class Seeded:
    """The matcher begins with the last window, and finds what spans the boundary itself."""

    def __init__(self, answer: Answer, split: int) -> None:
        self.split = split
        self._answer = answer

    def primed(self, matcher: Matcher | LiveMatcher) -> None:
        matcher.push(seeds(self._answer, self.split))

    def passed(self, lines: Iterable[str], mark: int | None, offset: int) -> tuple[list[str], int | None]:
        return list(lines), mark


class Lazy:
    """The matcher begins with what is live. What spans the boundary is asked of the archive, when that has it all."""

    def __init__(self, answer: Answer, tail: Tail, split: int, gap: int) -> None:
        self.split = split
        self._answer, self._log, self._gap = answer, tail.log.folder, gap
        self._end = split + reach(answer.asked.checked.query)
        #: What was found live before the boundary was asked.
        self._held: list[str] | None = []
        #: What the archive must have, and from when on it is asked.
        self._wanted: tuple[int, int] | None = None

    def primed(self, matcher: Matcher | LiveMatcher) -> None:
        matcher.push(since(self._answer, self.split))

    def passed(self, lines: Iterable[str], mark: int | None, offset: int) -> tuple[list[str], int | None]:
        if self._held is None:
            return list(lines), mark
        self._held += lines
        if self._wanted is None and (mark is None or mark > self._end):
            self._wanted = offset, _now() + self._gap
        if self._wanted is None:
            return [], None
        if mark is None:
            while not self._is_archived():  # there is no other time to wait
                clock.sleep(_PATIENCE)
        elif not self._is_archived():
            return [], None
        live, self._held = self._held, None
        known = {_id_and_time(line)[0] for line in live}
        across = [line for line in self._across() if _id_and_time(line)[0] not in known]
        return list(heapq.merge(across, live, key=lambda line: _id_and_time(line)[1])), mark

    def _is_archived(self) -> bool:
        assert self._wanted is not None
        offset, moment = self._wanted
        return _now() >= moment and (log_committed(self._log, CONSUMER) or 0) >= offset

    def _across(self) -> Iterator[str]:
        """The matches from the boundary on of both boundary windows: R_boundary, and what is live there anyway."""
        asked = self._answer.asked
        low, high = 2 * self.split - self._end, self._end
        times = Times(max(asked.times.low, low), min(asked.times.high, high))
        if times.is_empty or self.split == MIN_INSTANT:
            return
        past = past_of(self._answer.past.spark, asked.app)
        begin, end = format_instant(self.split), format_instant(self._end)
        for line in replace(self._answer, past=past, asked=replace(asked, times=times)).lines():
            if begin <= _id_and_time(line)[1] <= end:
                yield line


def _id_and_time(line: str) -> tuple[str, str]:
    match: dict[str, Any] = json.loads(line)
    return match["id"], match["time"]


def _live(
    answer: Answer,
    tail: Tail,
    marks: Marks,
    way: _Way,
    on_line: Callable[[str], object],
    on_mark: Callable[[int], object],
    stopped: Callable[[], bool],
) -> None:
    asked = answer.asked
    original, known = asked.question.original, asked.question.known
    # Lowered anew: what the archive's events were looked up by is not all that can come.
    question = ask(original, known)
    matcher: Matcher | LiveMatcher
    if known is None or question.semantic is None:
        matcher = Matcher(question.checked, asked.now, eager=True)
    else:
        matcher = LiveMatcher(original, known, asked.now, eager=True)
    printer = MatchPrinter(question.checked)

    told = way.split

    def show(found: list[Match], mark: int | None, offset: int) -> None:
        nonlocal told
        lines = (json.dumps(printer.as_json(m), ensure_ascii=False) for m in found if m.time >= way.split)
        ready, complete = way.passed(lines, mark, offset)
        for line in ready:
            on_line(line)
        if complete is not None and complete > told:
            told = complete
            on_mark(complete)

    way.primed(matcher)
    last = way.split
    show(matcher.advance(last), last, tail.end)
    with ExitStack() as running:
        reader = running.enter_context(LogReader(tail.log.folder, tail.end, durable_only=True))
        if known is not None and isinstance(matcher, LiveMatcher):  # the past was judged by what was known before
            running.enter_context(Follower(known.knowledge))
        while last <= asked.times.high and not stopped():
            logged = reader.read(_PATIENCE)
            now = _now()
            events = [o.event for o in logged if o.event.stream in marks.lateness and not o.late and not o.duplicate]
            matcher.push(events)
            for event in events:
                marks.note(event.stream, event.time, now)
            mark = marks.watermark(now)
            last = last if mark is None else max(last, mark)
            show(matcher.advance(last), last, reader.offset)
        if last > asked.times.high:
            show(matcher.advance(None), None, reader.offset)
