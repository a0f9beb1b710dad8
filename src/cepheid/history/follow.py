"""Past, present and future: the answer to a query, and then what comes, in one stream of matches.

The boundary is a time: the query's watermark W when the past is asked. What is before W is final, because the log marks
everything that comes too late for it: those matches are the archive's. The others, from W on, are found live, by a
matcher that is seeded with the last window of events that may matter (the paper's boundary window), and goes on with
the log from the offset where the past ended. So nothing is missing and nothing there twice.
"""

from __future__ import annotations

import json
import time as clock
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import functions as sf

from cepheid.app.question import ask
from cepheid.history.answer import Answer
from cepheid.history.frames import Layout, filtered, in_times, selected
from cepheid.history.times import Times
from cepheid.language import syntax
from cepheid.language.output import MatchPrinter
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.model.time import MIN_INSTANT, format_instant
from cepheid.plan.matcher import Matcher
from cepheid.service.log import LogReader
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
        mark = None if stream not in self.greatest else self.greatest[stream] - self.lateness[stream]
        idle = self.idle[stream]
        if idle is not None and now - self.heard.setdefault(stream, now) >= idle:
            return now - idle if mark is None else max(mark, now - idle)
        return mark


def follow(
    answer: Answer,
    on_line: Callable[[str], object],
    *,
    on_mark: Callable[[int], object] = lambda mark: None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Calls `on_line` for each match, those of the past first, then as they come; ends where WITHIN does, or never.

    `on_mark` is told the time up to which the matches are complete. Raises NothingToFollow.
    """
    past, asked = answer.past, answer.asked
    from_files = {s.name for given in file_inputs(asked.app) for s in given.streams}
    if past.tail is None or from_files & set(asked.streams):
        raise NothingToFollow(
            f"--follow goes on with the log of '{asked.app.name}'; "
            + (f"{', '.join(asked.streams)} come from files" if past.tail is not None else "it has none yet: start it")
        )
    streams = asked.streams.values()
    marks = Marks({s.name: s.lateness for s in streams}, {s.name: s.idle for s in streams})
    now = _now()
    for stream in streams:
        last = past.events(stream).agg(sf.unix_micros(sf.max("time"))).collect()[0][0]
        if last is not None:
            marks.note(stream.name, last, now)
    boundary = marks.watermark(now)
    boundary = MIN_INSTANT if boundary is None else boundary
    for line in _before(answer, boundary):
        on_line(line)
    on_mark(boundary)
    _live(answer, marks, boundary, on_line, on_mark, stopped)


def _now() -> int:
    return clock.time_ns() // 1000


def _before(answer: Answer, boundary: int) -> Iterator[str]:
    """The matches of the past that are final."""
    if boundary == MIN_INSTANT:
        return
    end = format_instant(boundary)
    for line in answer.lines():
        if json.loads(line)["time"] >= end:
            return
        yield line


def _live(
    answer: Answer,
    marks: Marks,
    boundary: int,
    on_line: Callable[[str], object],
    on_mark: Callable[[int], object],
    stopped: Callable[[], bool],
) -> None:
    asked, tail = answer.asked, answer.past.tail
    assert tail is not None
    # Lowered anew: what the archive's events were looked up by is not all that can come.
    question = ask(asked.question.original, asked.question.known)
    matcher = Matcher(question.checked, asked.now, eager=True, semantic=question.filter())
    printer = MatchPrinter(question.checked)

    def show(found: list[Match]) -> None:
        for match in found:
            if match.time >= boundary:
                on_line(json.dumps(printer.as_json(match), ensure_ascii=False))

    matcher.push(_seeds(answer, boundary))
    show(matcher.advance(boundary))
    last = boundary
    with LogReader(tail.log, tail.end, durable_only=True) as reader:
        while not stopped():
            logged = reader.read(_PATIENCE)
            now = _now()
            for one in logged:
                if one.event.stream in marks.lateness and not one.late and not one.duplicate:
                    matcher.push([one.event])
                    marks.note(one.event.stream, one.event.time, now)
            mark = marks.watermark(now)
            if mark is not None and mark > last:
                show(matcher.advance(mark))
                on_mark(mark)
                last = mark
            if last > asked.times.high:
                break
    if last > asked.times.high:
        show(matcher.advance(None))


def _seeds(answer: Answer, boundary: int) -> list[Event]:
    """The events that a match from the boundary on can have, in order: the last window of those that may matter."""
    asked, layout = answer.asked, answer.layout
    low = asked.times.low if boundary == MIN_INSTANT else max(asked.times.low, boundary - reach(asked.checked.query))
    times = Times(max(low, MIN_INSTANT), asked.times.high)
    if times.is_empty:
        return []
    found: list[Event] = []
    for name in layout.names:
        events = selected(in_times(answer.past.events(layout.streams[name]), times), layout, name)
        rows = filtered(events, asked, layout, name)
        found += [_event(layout, name, row.asDict()) for row in rows.toLocalIterator()]
    return sorted(found, key=lambda event: event.order)


def reach(query: syntax.Query) -> int:
    """How long before its time a match can have events; as far as times go where state has no such bound."""
    moving = [w for w in query.windows if isinstance(w, syntax.EventWindow)]
    if query.after != "KEEP" or any(w.kind in ("length", "session") for w in moving):
        return -MIN_INSTANT * 10
    return 2 * sum(w.size if isinstance(w, syntax.EventWindow) else w.width for w in query.windows) + 1


def _event(layout: Layout, stream: str, row: dict[str, object]) -> Event:
    event_id = row["name"] if layout.checked.id_kinds[stream] == "string" else row["number"]
    values = {name: _value(row[layout.column(stream, name)]) for name in layout.attributes[stream]}
    return Event(stream, event_id, row["time"], values)  # type: ignore[arg-type]


def _value(value: object) -> object:
    return bytes(value) if isinstance(value, bytearray) else tuple(value) if isinstance(value, list) else value
