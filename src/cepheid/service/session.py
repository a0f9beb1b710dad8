"""A supplier's session without its socket: numbers, what is not acknowledged, and what to send again after a break.

Both suppliers, blocking and asyncio, are shells around this.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cepheid._native import RecordCodec
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.service import schemas
from cepheid.service.wire import GREETING, HEAD, MAX_FRAME, VERSION, Frame, Kind, head, json_frame

#: Refusals that connecting again can't mend.
_FINAL: Final = frozenset({"token", "version", "schema", "unknown-stream", "session-taken", "malformed-hello"})
#: Payload, count and kind of batches.
Left: TypeAlias = list[tuple[bytes | memoryview, int, Kind]]
#: Rows of at most so many bytes make a frame.
MAX_BATCH: Final = MAX_FRAME - HEAD.size
#: The longest record of JSON, with its line end and what fills the frame up.
MAX_RECORD: Final = MAX_BATCH - 8


_MARKS: Final = {"stale": 1, "relative": 2}


class SupplierError(Exception):
    """The intake does not take what this supplier sends, or can't be reached."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that the intake refused; `number` counts this supplier's events from 0.

    Of code "disk-full" nothing is lost: the intake has no room, and takes up again what was sent when it has.
    """

    code: str
    reason: str
    number: int


@dataclass(slots=True)
class _Batch:
    first: int
    count: int
    payload: bytes | memoryview
    kind: Kind

    @property
    def end(self) -> int:
        return self.first + self.count


class Session:
    """What a supplier has sent, and what of it is safe.

    A `fixed` session, by 16 hex digits, is one whose numbers come from elsewhere, such as the offsets of a topic: they
    may have gaps, and `resumed` says which one the log has come to.
    """

    def __init__(
        self,
        streams: Iterable[Stream] | None = None,
        *,
        token: str | None = None,
        default_stream: str | None = None,
        fixed: str | None = None,
        on_refusal: Callable[[Refusal], None] | None = None,
    ) -> None:
        self._token = token
        self._default_stream = default_stream
        self._expected = {} if streams is None else {stream.name: stream for stream in streams}
        self._on_refusal = on_refusal
        self._fixed = fixed
        self._begin()
        self.welcomed = False
        self.resumed: int | None = None
        self.acknowledged = 0
        self.offset: int | None = None
        self.dead_letters = 0
        self.refusals: deque[Refusal] = deque(maxlen=1000)
        self.notice: Refusal | None = None
        self.counters: Mapping[str, Any] | None = None
        self.streams: dict[str, Stream] = {}
        self.numbers: dict[str, int] = {}
        self.codec: RecordCodec | None = None

    def _begin(self) -> None:
        self.id = self._fixed or f"{secrets.randbits(63) + 1:016x}"
        self._next = 0
        self._waiting: deque[_Batch] = deque()
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes that were queued and are not acknowledged."""
        return self._held

    @property
    def pending(self) -> int:
        """Events that were queued and are not acknowledged."""
        return sum(batch.count for batch in self._waiting)

    def hello(self) -> bytes:
        """What a connection begins with."""
        self.welcomed = False
        fingerprints = {name: schemas.fingerprint(stream) for name, stream in self._expected.items()}
        content: dict[str, object] = {"version": VERSION, "role": "supplier", "session": self.id}
        if fingerprints:
            content["streams"] = fingerprints
        if self.streams:
            # What was queued has the numbers of the first connection; the intake's may be others by now.
            content["numbers"] = [[name, schemas.fingerprint(stream)] for name, stream in self.streams.items()]
        if self._fixed is not None:
            content["sparse"] = True
        if self._default_stream is not None:
            content["default_stream"] = self._default_stream
        if self._token is not None:
            content["token"] = self._token
        return GREETING + json_frame(Kind.HELLO, content)

    def encode(self, event: Event, valid_until: int | None = None, marks: Collection[str] = ()) -> bytes:
        """The record of an event; ValueError if it does not fit its stream."""
        assert self.codec is not None
        stream = self.streams.get(event.stream)
        if stream is None:
            raise ValueError(f"the intake has no stream '{event.stream}'; it has {', '.join(sorted(self.streams))}")
        unknown = event.attributes.keys() - stream.attributes.keys()
        if unknown:
            raise ValueError(f"stream '{event.stream}' has no attribute '{min(unknown)}'")
        values = tuple(event.attributes.get(name) for name in stream.attributes)
        try:
            bits = sum(_MARKS[mark] for mark in set(marks))
            return self.codec.encode(self.numbers[event.stream], event.id, event.time, values, (valid_until, bits))
        except ValueError as error:
            raise ValueError(f"event {event.id!r} of stream '{event.stream}': {error}") from None

    def queue(
        self, payload: bytes | memoryview, count: int, kind: Kind = Kind.BATCH, first: int | None = None
    ) -> tuple[bytes, bytes | memoryview]:
        """Takes records to be sent, or lines of JSON; the parts of their frame. `first`: the number of the first."""
        batch = _Batch(self._next if first is None else first, count, payload, kind)
        self._next = batch.end
        self._waiting.append(batch)
        self._held += len(payload)
        return self._parts(batch)

    @staticmethod
    def _parts(batch: _Batch) -> tuple[bytes, bytes | memoryview]:
        return head(batch.kind, batch.first, len(batch.payload)), batch.payload

    def received(self, frame: Frame) -> list[tuple[bytes, bytes | memoryview]]:
        """Takes a frame of the intake; what is to be sent (again) because of it. SupplierError if it is the end."""
        match frame.kind:
            case Kind.WELCOME:
                return self._resume(frame.json())
            case Kind.ACK:
                self._acknowledge(frame)
            case Kind.ERROR:
                self._refused(frame)
            case Kind.COUNTERS:
                self.counters = frame.json()
        return []

    def _resume(self, welcome: Mapping[str, Any]) -> list[tuple[bytes, bytes | memoryview]]:
        self.welcomed = True
        # New ones come behind those that have numbers already; the intake counts them likewise.
        for described in welcome["streams"]:
            self.streams.setdefault(described["name"], schemas.stream_of(described))
        self.numbers = {name: number for number, name in enumerate(self.streams)}
        self.codec = schemas.codec(self.streams.values())
        sequence: int = welcome["sequence"]
        self.resumed = sequence if welcome["known"] else None
        is_behind = welcome["known"] and self._waiting and sequence < self._waiting[0].first
        if is_behind and self._fixed is None:
            # The log is not the one that acknowledged what came before. What is left begins a session of its own.
            left = self._waiting
            self._begin()
            raise Renumber([(batch.payload, batch.count, batch.kind) for batch in left])
        known = sequence if welcome["known"] else 0
        return [self._parts(batch) for batch in self._waiting if batch.end > known]

    def renumber(self, left: Left) -> None:
        """Queues what was left of an earlier session."""
        for payload, count, kind in left:
            self.queue(payload, count, kind)

    def _acknowledge(self, frame: Frame) -> None:
        while self._waiting and self._waiting[0].end <= frame.number:
            batch = self._waiting.popleft()
            self._held -= len(batch.payload)
            self.acknowledged += batch.count
        self.offset = int.from_bytes(frame.payload[:8], "little")
        self.dead_letters = int.from_bytes(frame.payload[8:16], "little")
        self.notice = None

    def _refused(self, frame: Frame) -> None:
        content = frame.json()
        refusal = Refusal(content["code"], content["reason"], frame.number)
        if content["fatal"]:
            if refusal.code in _FINAL:
                raise SupplierError(f"the intake refuses this supplier: {refusal.reason} ({refusal.code})")
            raise ConnectionResetError(f"{refusal.reason} ({refusal.code})")
        if refusal.code == "disk-full":
            self.notice = refusal
        self.refusals.append(refusal)
        if self._on_refusal is not None:
            self._on_refusal(refusal)


class Renumber(ConnectionResetError):
    """The session can't go on; `left` has to be sent in a new one."""

    def __init__(self, left: Left) -> None:
        super().__init__("the log does not know this session's beginning")
        self.left = left
