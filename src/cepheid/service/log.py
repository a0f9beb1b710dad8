"""The event log as Python reads it: from any offset, from disk or over a socket."""

from __future__ import annotations

import json
import struct
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

from cepheid._native import LogFollower, RecordCodec, log_commit, log_committed
from cepheid.model.events import Event, EventId
from cepheid.model.streams import Stream
from cepheid.model.types import Value
from cepheid.service import schemas
from cepheid.service.wire import GREETING, VERSION, Frame, Frames, Kind, connect, frame, json_frame

__all__ = [
    "Extent",
    "LogReader",
    "Logged",
    "OffsetGone",
    "Row",
    "extent",
    "forget_consumers",
    "log_commit",
    "log_committed",
]

LATE: Final = 1
DUPLICATE: Final = 2
#: Of `LogReader`: not from an offset, but from what comes next.
END: Final = -1

#: offset, flags, number of the stream, id, time, values, arrival, end of validity, marks that it came with
Row: TypeAlias = tuple[int, int, int, EventId, int, tuple[Value, ...], int, int | None, int]
_READ: Final = struct.Struct("<IIII")
#: Behind an address, as it is the folder in that of the log.
_DEAD: Final = "/dead"


class OffsetGone(LookupError):
    """The log does not go back to the offset; `first` is the first there is, where it is known."""

    def __init__(self, message: str, first: int | None = None) -> None:
        super().__init__(message)
        self.first = first


@dataclass(frozen=True, slots=True)
class Logged:
    """An event in the log: its offset, what was decided about it when it came (rule E4), and when that was.

    `valid_until` is the end of its validity, if it came with one, as those of another service do.
    """

    offset: int
    event: Event
    late: bool
    duplicate: bool
    arrival: int
    valid_until: int | None = None


@dataclass(frozen=True, slots=True)
class Extent:
    """The first offset that a log keeps, the one after the last that is safe, and its streams at the end."""

    first: int
    end: int
    streams: list[Stream]


class _Source(Protocol):
    @property
    def offset(self) -> int: ...
    def read(self, timeout: float) -> list[Row]: ...
    def streams(self) -> list[Stream]: ...
    def close(self) -> None: ...


class LogReader:
    """Reads a log from an offset on: `for logged in LogReader("data/log")`, which ends where the log does now.

    `source` is the log's folder, or the address of its intake (`tcp:host:port`, `unix:path`; with `/dead` behind the
    port, its dead letters). `offset` None is the first that is kept, -1 what comes next. Only what is safe is read from
    an address; from disk also what is not safe yet, unless `durable_only`.
    """

    def __init__(
        self,
        source: str | Path,
        offset: int | None = None,
        *,
        durable_only: bool = False,
        token: str | None = None,
    ) -> None:
        text = str(source)
        self._source: _Source
        if text.startswith(("tcp:", "unix:")):
            self._source = _Remote(text, offset, token)
        else:
            try:
                self._source = _Local(Path(source), offset, durable_only)
            except ValueError as error:
                raise OffsetGone(str(error)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._source.close()

    def __iter__(self) -> Iterator[Logged]:
        """What there is."""
        while found := self.read():
            yield from found

    def read(self, timeout: float = 0.0) -> list[Logged]:
        """The next batch of events, waiting so long for one; empty if there is none."""
        rows = self._source.read(timeout)
        streams = self._source.streams() if rows else []
        return [_logged(row, streams) for row in rows]

    def rows(self, timeout: float = 0.0) -> tuple[list[Row], list[Stream]]:
        """As `read`, for many events: their bare values, and the streams that they give the numbers of."""
        rows = self._source.read(timeout)
        return rows, self._source.streams()

    @property
    def offset(self) -> int:
        """The offset of what is read next; from an address it is known once something was read."""
        return self._source.offset

    def follow(self, seconds: float) -> Iterator[Logged]:
        """What there is and what comes, until nothing came for so long."""
        while found := self.read(seconds):
            yield from found


def _logged(row: Row, streams: list[Stream]) -> Logged:
    offset, flags, number, event_id, time, values, arrival, valid_until, _ = row
    stream = streams[number]
    event = Event(stream.name, event_id, time, dict(zip(stream.attributes, values, strict=True)))
    return Logged(offset, event, bool(flags & LATE), bool(flags & DUPLICATE), arrival, valid_until)


class _Local:
    """A log of this machine."""

    def __init__(self, folder: Path, offset: int | None, durable_only: bool) -> None:
        self._follower = LogFollower(folder, offset, durable_only)
        self._described = ""
        self._streams: list[Stream] = []

    def read(self, timeout: float) -> list[Row]:
        deadline = time.monotonic() + timeout
        while (rows := self._follower.next()) is None:
            left = deadline - time.monotonic()
            # In short steps, so that an interrupt from the keyboard is heard.
            if left <= 0 or not (self._follower.wait(min(left, 0.2)) or left > 0):
                return []
        return rows

    @property
    def offset(self) -> int:
        return self._follower.offset

    def streams(self) -> list[Stream]:
        described = self._follower.streams()
        if described != self._described:
            self._described = described
            self._streams = [schemas.stream_of(stream) for stream in json.loads(described)]
        return self._streams

    def close(self) -> None:
        """Nothing is open but memory."""


class _Remote:
    """A log at an address, by requests and answers."""

    def __init__(self, address: str, offset: int | None, token: str | None) -> None:
        is_dead = address.startswith("tcp:") and address.endswith(_DEAD)
        self._socket = connect(address.removesuffix(_DEAD) if is_dead else address, 10.0)
        self._frames = Frames()
        self._came: deque[Frame] = deque()
        self._offset = offset or 0
        self._any = offset is None
        self._streams: list[Stream] = []
        self._codec: RecordCodec | None = None
        content: dict[str, object] = {"version": VERSION, "role": "dead-letters" if is_dead else "reader"}
        if token is not None:
            content["token"] = token
        self._socket.sendall(GREETING + json_frame(Kind.HELLO, content))

    def read(self, timeout: float) -> list[Row]:
        payload = _READ.pack(1 << 20, int(timeout * 1000), 0, 0)
        self._socket.settimeout(timeout + 30)
        while True:
            self._socket.sendall(frame(Kind.READ, self._offset % (1 << 64), payload))
            try:
                return self._answer()
            except OffsetGone as gone:
                # Whoever asked for no offset in particular begins with the first there is.
                if not self._any or gone.first is None:
                    raise
                self._offset = gone.first

    def _answer(self) -> list[Row]:
        while True:
            answer = self._next()
            if answer.kind is Kind.SCHEMA:
                self._streams = [schemas.stream_of(stream) for stream in answer.json()["streams"]]
                self._codec = schemas.codec(self._streams)
            elif answer.kind is Kind.DATA:
                self._offset, self._any = answer.number, False
                return self._codec.decode(answer.payload) if self._codec is not None else []
            elif answer.kind is Kind.ERROR:
                _raise(answer.json())

    @property
    def offset(self) -> int:
        return self._offset

    def commit(self, consumer: str, offset: int) -> None:
        self._socket.sendall(frame(Kind.COMMIT, offset, consumer.encode()))
        answer = self._next()
        if answer.kind is Kind.ERROR:
            _raise(answer.json())

    def _next(self) -> Frame:
        while not self._came:
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionResetError("the intake has closed the connection")
            self._came.extend(self._frames.feed(data))
        return self._came.popleft()

    def streams(self) -> list[Stream]:
        return self._streams

    def close(self) -> None:
        self._socket.close()


def _raise(content: dict[str, Any]) -> None:
    if content["code"] == "gone":
        raise OffsetGone(content["reason"], content.get("first"))
    raise ConnectionError(f"{content['reason']} ({content['code']})")


def extent(source: str | Path, *, token: str | None = None) -> Extent:
    """From where to where a log goes now."""
    with LogReader(source, END, durable_only=True, token=token) as reader:
        reader.rows()
        end = reader.offset
    with LogReader(source, None, durable_only=True, token=token) as reader:
        first = reader.offset
        rows, streams = reader.rows()  # an address says where it begins with the first answer
        first = rows[0][0] if rows else first
    if end > first:
        with LogReader(source, end - 1, durable_only=True, token=token) as reader:
            _, streams = reader.rows()
    return Extent(first, end, streams)


def commit(source: str | Path, consumer: str, offset: int, *, token: str | None = None) -> None:
    """Says, in a log's folder or to its intake, that a consumer needs nothing before an offset any more."""
    text = str(source)
    if not text.startswith(("tcp:", "unix:")):
        log_commit(Path(source), consumer, offset)
        return
    remote = _Remote(text, None, token)
    try:
        remote.commit(consumer, offset)
    finally:
        remote.close()


def forget_consumers(log: Path, prefix: str, but: Collection[str]) -> None:
    """Has the log wait no longer for consumers of these names, but for some."""
    for file in (log / "consumers").glob(f"{prefix}*"):
        if file.name not in but:
            file.unlink(missing_ok=True)
