"""`match --follow`: events as they come, on standard input or in files that grow; a match as soon as it is complete."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cepheid.app.question import Question
from cepheid.model.events import Event, EventId
from cepheid.model.matches import Match
from cepheid.model.records import MAX_RECORD_BYTES, DeadLetter, RecordDecoder, parse_json_line
from cepheid.model.streams import Stream
from cepheid.model.types import Misfit
from cepheid.plan.matcher import Matcher

if TYPE_CHECKING:
    from cepheid.app.live import LiveMatcher

_POLL_SECONDS: Final = 0.05
_CHUNK: Final = 65_536
_MOST_IDS: Final = 1_000_000


@dataclass
class Watermarks:
    """Per stream the greatest time seen, and when; rules E4 and E5."""

    streams: dict[str, Stream]
    clock: Callable[[], int]
    greatest: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    #: The ids of the last events, in order of arrival: a duplicate that comes later than a million events is not known.
    seen: dict[tuple[str, EventId], None] = field(default_factory=dict)

    def admits(self, event: Event) -> bool:
        """Whether an event is neither late nor a duplicate; an event that is admitted moves its stream on."""
        stream = self.streams[event.stream]
        greatest = self.greatest.get(event.stream)
        key = (event.stream, event.id)
        if key in self.seen or (greatest is not None and event.time < greatest - stream.lateness):
            return False
        self.seen[key] = None
        if len(self.seen) > _MOST_IDS:
            del self.seen[next(iter(self.seen))]
        self.greatest[event.stream] = event.time if greatest is None else max(greatest, event.time)
        self.heard[event.stream] = self.clock()
        return True

    def of_query(self, names: Sequence[str]) -> int | None:
        """The least watermark of these streams; None while one of them has none."""
        marks = [self._of(name) for name in names]
        return None if any(mark is None for mark in marks) else min(mark for mark in marks if mark is not None)

    def _of(self, name: str) -> int | None:
        stream, now = self.streams[name], self.clock()
        mark = None if name not in self.greatest else self.greatest[name] - stream.lateness
        if stream.idle is not None and now - self.heard.setdefault(name, now) >= stream.idle:
            return now if mark is None else max(mark, now)
        return mark


class _Tail:
    """The complete lines of a file that grows, or of standard input."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = False
        self._fd = sys.stdin.fileno() if name == "-" else os.open(Path(name), os.O_RDONLY)
        self._rest = b""
        self._line = 0

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Those that are there now; an unfinished one waits for its end."""
        while not self.ended:
            if self.name == "-" and not select.select([self._fd], [], [], 0)[0]:
                return
            chunk = os.read(self._fd, _CHUNK)
            if not chunk:
                if self.name != "-":
                    return  # a file may grow
                self.ended = True
                chunk = b"\n" if self._rest else b""
            *complete, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[: MAX_RECORD_BYTES + 1]  # a longer record is refused, however it goes on
            for line in complete:
                self._line += 1
                if line.strip():
                    yield self._line, line


def follow(
    question: Question,
    streams: Sequence[Stream],
    default_stream: str | None,
    files: Sequence[str],
    now: int,
    on_match: Callable[[Match], None],
    on_letter: Callable[[DeadLetter], None],
    on_event: Callable[[], None],
) -> None:
    """Reads until standard input ends, or for ever; calls `on_match` for each match as soon as it is complete.

    Where a buffering filter judges PATHs, events are gathered for its interval first.

    `on_event` is called for each record that was read and is an event, late ones and duplicates included. With PATHs
    the knowledge is followed too: its files, and `cepheid knowledge apply`.
    """
    with ExitStack() as running:
        _follow(
            question, _matcher(question, now, running), streams, default_stream, files, on_match, on_letter, on_event
        )


def _matcher(question: Question, now: int, running: ExitStack) -> Matcher | LiveMatcher:
    if question.semantic is None or question.known is None:
        return Matcher(question.checked, now, eager=True)
    from cepheid.app.live import LiveMatcher
    from cepheid.knowledge.follow import Follower

    running.enter_context(Follower(question.known.knowledge))
    return LiveMatcher(question.original, question.known, now, eager=True)


def _follow(
    question: Question,
    matcher: Matcher | LiveMatcher,
    streams: Sequence[Stream],
    default_stream: str | None,
    files: Sequence[str],
    on_match: Callable[[Match], None],
    on_letter: Callable[[DeadLetter], None],
    on_event: Callable[[], None],
) -> None:
    checked = question.checked
    marks = Watermarks({stream.name: stream for stream in streams}, lambda: time.time_ns() // 1000)
    decoder = RecordDecoder(streams, default_stream=default_stream)
    tails = [_Tail(name) for name in files]
    gathered: list[Event] = []
    since = 0.0
    interval = _interval(question)

    def push() -> None:
        if gathered:
            matcher.push(gathered)
            gathered.clear()
            _emit(matcher, marks.of_query(checked.streams), on_match)

    reading = True
    while reading:
        quiet = True
        for tail in tails:
            for number, line in tail.lines():
                quiet = False
                try:
                    event = decoder.decode(parse_json_line(line))
                except Misfit as misfit:
                    on_letter(DeadLetter(misfit.code, str(misfit), line, tail.name, number))
                    continue
                on_event()
                if marks.admits(event):
                    since = since if gathered else time.monotonic()
                    gathered.append(event)
                    if time.monotonic() - since >= interval:
                        push()
        reading = not all(tail.ended for tail in tails)
        if quiet and reading:
            if time.monotonic() - since >= interval:
                push()
            if not gathered:
                _emit(matcher, marks.of_query(checked.streams), on_match)
            time.sleep(_POLL_SECONDS)
    push()
    for match in matcher.advance(None):
        on_match(match)


def _interval(question: Question) -> float:
    """How long events are gathered, in seconds: 0 unless something is judged by a buffer."""
    semantic = question.filter()
    if semantic is None or question.known is None or "buffer" not in semantic.mode:
        return 0.0
    return question.known.interval / 1_000_000


def _emit(matcher: Matcher | LiveMatcher, watermark: int | None, on_match: Callable[[Match], None]) -> None:
    if watermark is not None:
        for match in matcher.advance(watermark):
            on_match(match)
