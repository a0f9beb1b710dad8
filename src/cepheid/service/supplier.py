"""Suppliers: they send events to the intake, blocking or with asyncio, and again what a broken connection lost."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.service.session import MAX_BATCH, MAX_RECORD, Refusal, Renumber, Session, SupplierError
from cepheid.service.wire import Frames, Kind, connect, frame, parse_address, send_parts

if TYPE_CHECKING:
    import numpy as np

    from cepheid.service.arrays import RecordLayout

__all__ = ["AsyncSupplier", "Refusal", "Supplier", "SupplierError"]

_PAUSES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class _Common:
    """What both suppliers have."""

    def __init__(
        self,
        address: str,
        streams: Iterable[Stream] | None,
        token: str | None,
        default_stream: str | None,
        session: str | None,
        window: int,
        patience: float,
        on_refusal: Callable[[Refusal], None] | None,
    ) -> None:
        parse_address(address)
        self._address = address
        self._window = window
        self._patience = patience
        self._session = Session(
            streams, token=token, default_stream=default_stream, fixed=session, on_refusal=on_refusal
        )

    @property
    def acknowledged(self) -> int:
        """Events that the intake has made safe, by its durability."""
        return self._session.acknowledged

    @property
    def pending(self) -> int:
        """Events that were pushed and are not acknowledged yet."""
        return self._session.pending

    @property
    def offset(self) -> int | None:
        """The log's offset after what was acknowledged last."""
        return self._session.offset

    @property
    def resumed(self) -> int | None:
        """The number that comes next in the session, as the log knew it at the last connection; None: it did not."""
        return self._session.resumed

    @property
    def refusals(self) -> list[Refusal]:
        """The last refusals, at most a thousand: records that became dead letters, and a full disk."""
        return list(self._session.refusals)

    @property
    def streams(self) -> Mapping[str, Stream]:
        """The intake's streams, by name."""
        return self._session.streams

    def layout(self, stream: str, widths: Mapping[str, int] | None = None) -> RecordLayout:
        """How numpy rows of a stream lie in memory; see `push_rows`."""
        from cepheid.service.arrays import RecordLayout

        return RecordLayout(self._session.numbers[stream], self._session.streams[stream], widths or {})

    def _encode(self, events: Iterable[Event]) -> Iterable[tuple[bytes, int]]:
        parts: list[bytes] = []
        size = 0
        for event in events:
            record = self._session.encode(event)
            if parts and size + len(record) > MAX_BATCH:
                yield b"".join(parts), len(parts)
                parts, size = [], 0
            parts.append(record)
            size += len(record)
        if parts:
            yield b"".join(parts), len(parts)

    @staticmethod
    def _lines(records: Iterable[bytes]) -> Iterable[tuple[bytes, int]]:
        lines: list[bytes] = []
        size = 0
        for record in records:
            if record.isspace() or not record:
                record = b"null"  # no record, and to be kept as such; a blank line would not be seen
            if b"\n" in record:
                raise ValueError("a record of JSON has a line end in it")
            if len(record) > MAX_RECORD:
                raise ValueError(f"a record of {len(record)} bytes is longer than any that is taken")
            if lines and size + len(record) + 1 > MAX_RECORD:
                yield _padded(lines), len(lines)
                lines, size = [], 0
            lines.append(record)
            size += len(record) + 1
        if lines:
            yield _padded(lines), len(lines)

    @staticmethod
    def _slices(rows: np.ndarray[Any, Any]) -> Iterable[tuple[memoryview, int]]:
        from cepheid.service.arrays import row_bytes

        data = row_bytes(rows)
        step = max(1, MAX_BATCH // rows.itemsize)
        for start in range(0, len(rows), step):
            count = min(step, len(rows) - start)
            yield data[start * rows.itemsize : (start + count) * rows.itemsize], count

    def _gave_up(self, what: str, error: Exception | None = None) -> SupplierError:
        notice = self._session.notice
        reason = f": {notice.reason}" if notice is not None else f": {error}" if error is not None else ""
        pending = self._session.pending
        return SupplierError(f"{self._address}: {what} for {self._patience:g} s, {pending} events wait{reason}")


def _padded(lines: list[bytes]) -> bytes:
    text = b"\n".join(lines)
    return text + b"\n" * (-len(text) % 8)


class Supplier(_Common):
    """Sends events to an intake; use it as a context manager, from one thread.

    `push` returns when the event is on its way, `flush` when all are safe. At most `window` bytes are on their way:
    then `push` waits. After a break it connects again and sends what was not acknowledged; the intake recognises what
    it had. If the intake can't be reached, or takes nothing, for `patience` seconds, there is a SupplierError: then
    `push` has not taken its event; what was pushed before is kept, and the next call tries again. `streams`, if given,
    are compared with the intake's. `session`, 16 hex digits, is for numbers that come from elsewhere: see `push_json`.
    """

    def __init__(
        self,
        address: str,
        streams: Iterable[Stream] | None = None,
        *,
        token: str | None = None,
        default_stream: str | None = None,
        session: str | None = None,
        window: int = 8 * 1024 * 1024,
        patience: float = 30.0,
        on_refusal: Callable[[Refusal], None] | None = None,
    ) -> None:
        super().__init__(address, streams, token, default_stream, session, window, patience, on_refusal)
        self._socket: socket.socket | None = None
        self._frames = Frames()
        self._connect(time.monotonic() + patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def push(self, event: Event, *, valid_until: int | None = None, marks: Collection[str] = ()) -> None:
        """Sends one event. One that another service made has its end of validity and its marks: see `forward`."""
        self._push(self._session.encode(event, valid_until, marks), 1)

    def push_many(self, events: Iterable[Event]) -> None:
        """Sends events together, which is faster."""
        for payload, count in self._encode(events):
            self._push(payload, count)

    def push_rows(self, rows: np.ndarray[Any, Any]) -> None:
        """Sends rows of a `layout` as they lie in memory, uncopied: they must not change until `flush` returns."""
        for payload, count in self._slices(rows):
            self._push(payload, count)

    def push_json(self, records: Iterable[bytes], first: int | None = None) -> None:
        """Sends records as they came, each a text of JSON without line ends; the intake judges them.

        One that names no stream is of `default_stream`. Those that don't fit are kept as dead letters. `first` is the
        number of the first in a `session` of one's own, which may leave out numbers but not go back.
        """
        for payload, count in self._lines(records):
            self._push(payload, count, Kind.LINES, first)
            first = None

    def push_columns(self, stream: str, id: object, time: object, **columns: object) -> None:
        """Sends events given as columns, each an array or one value for all; they are copied into rows, once."""
        from cepheid.service.arrays import rows_of

        session = self._session
        self.push_rows(rows_of(session.numbers[stream], session.streams[stream], id, time, columns))

    def flush(self) -> None:
        """Waits until everything that was pushed is acknowledged."""
        if self._session.held:
            self._until(lambda: self._session.held == 0, "nothing was acknowledged")

    def refresh(self) -> None:
        """Connects again, and so learns of streams that were added."""
        self.close()
        self._connect(time.monotonic() + self._patience)

    def counters(self) -> Mapping[str, Any]:
        """What the intake counts."""
        self._session.counters = None
        if self._socket is None:
            self._connect(time.monotonic() + self._patience)
        assert self._socket is not None
        self._socket.sendall(frame(Kind.STATUS, 0))
        self._until(lambda: self._session.counters is not None, "no counters came")
        assert self._session.counters is not None
        return self._session.counters

    def close(self) -> None:
        """Ends the connection; what is not acknowledged may be lost, so `flush` first."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _push(self, payload: bytes | memoryview, count: int, kind: Kind = Kind.BATCH, first: int | None = None) -> None:
        if self._socket is None or self._session.held > self._window:
            self._until(lambda: self._session.held <= self._window, "the window was full")
        parts = self._session.queue(payload, count, kind, first)
        try:
            self._send(parts)
            self._receive(0)
        except OSError as error:
            self._broken(error)  # the next call connects again, and sends again

    def _send(self, parts: tuple[bytes, bytes | memoryview]) -> None:
        assert self._socket is not None
        send_parts(self._socket, parts)

    def _until(self, done: Callable[[], bool], what: str) -> None:
        """Receives until something is so; progress renews the patience."""
        seen = self._session.acknowledged
        deadline = time.monotonic() + self._patience
        failure: Exception | None = None
        while True:
            if self._socket is None:
                self._connect(deadline)
            try:
                self._receive(0)
                if done():
                    return
                self._receive(min(1.0, max(0.0, deadline - time.monotonic())))
            except OSError as error:
                failure = error
                self._broken(error)
            if self._session.acknowledged > seen:
                seen = self._session.acknowledged
                deadline = time.monotonic() + self._patience
            elif time.monotonic() >= deadline:
                raise self._gave_up(what, failure)

    def _receive(self, timeout: float) -> None:
        """Takes what the intake has sent, waiting so long for something."""
        assert self._socket is not None
        ready = select.poll()  # which takes any descriptor, unlike select
        ready.register(self._socket, select.POLLIN)
        while ready.poll(timeout * 1000):
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the intake has closed the connection")
            for found in self._frames.feed(data):
                for parts in self._session.received(found):
                    self._send(parts)
            timeout = 0

    def _broken(self, error: Exception) -> None:
        # The intake may have said why before it closed the connection.
        if self._socket is not None and not isinstance(error, Renumber):
            with contextlib.suppress(OSError):
                self._receive(0)
        self.close()
        if isinstance(error, Renumber):
            self._session.renumber(error.left)

    def _connect(self, deadline: float) -> None:
        """Connects and is welcomed; sends again what was not acknowledged."""
        for attempt in range(1_000_000):
            try:
                self._frames = Frames()
                self._socket = connect(self._address, timeout=min(5.0, self._patience))
                # A socket that takes nothing for so long is given up; what it was sent comes again.
                self._socket.settimeout(self._patience)
                self._socket.sendall(self._session.hello())
                while True:
                    self._receive(max(0.0, deadline - time.monotonic()))
                    if self._session.welcomed:
                        return
                    if time.monotonic() >= deadline:
                        raise TimeoutError("no welcome came")
            except SupplierError:
                self.close()
                raise
            except OSError as error:
                self._broken(error)
                pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
                if time.monotonic() + pause >= deadline:
                    raise self._gave_up("it could not be reached", error) from None
                time.sleep(pause)


class AsyncSupplier(_Common):
    """The same with asyncio: `async with AsyncSupplier(...) as supplier: await supplier.push(event)`."""

    def __init__(
        self,
        address: str,
        streams: Iterable[Stream] | None = None,
        *,
        token: str | None = None,
        default_stream: str | None = None,
        session: str | None = None,
        window: int = 8 * 1024 * 1024,
        patience: float = 30.0,
        on_refusal: Callable[[Refusal], None] | None = None,
    ) -> None:
        super().__init__(address, streams, token, default_stream, session, window, patience, on_refusal)
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._failure: SupplierError | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        await self._until(lambda: self._session.welcomed, "it could not be reached")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self.close()

    async def push(self, event: Event, *, valid_until: int | None = None, marks: Collection[str] = ()) -> None:
        """Sends one event. One that another service made has its end of validity and its marks."""
        await self._push(self._session.encode(event, valid_until, marks), 1)

    async def push_many(self, events: Iterable[Event]) -> None:
        """Sends events together, which is faster."""
        for payload, count in self._encode(events):
            await self._push(payload, count)

    async def push_rows(self, rows: np.ndarray[Any, Any]) -> None:
        """Sends rows of a `layout`, which must not change until `flush`. asyncio copies what it can't send at once."""
        for payload, count in self._slices(rows):
            await self._push(payload, count)

    async def flush(self) -> None:
        """Waits until everything that was pushed is acknowledged."""
        await self._until(lambda: self._session.held == 0, "nothing was acknowledged")

    async def close(self) -> None:
        """Ends the connection; what is not acknowledged may be lost, so `flush` first."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _push(self, payload: bytes | memoryview, count: int) -> None:
        if self._session.held > self._window:
            await self._until(lambda: self._session.held <= self._window, "the window was full")
        self._check()
        parts = self._session.queue(payload, count)
        if self._writer is not None and self._session.welcomed:
            self._writer.writelines(parts)
            # The reading task sees a break too, connects again and sends what was not acknowledged.
            with contextlib.suppress(OSError):
                await self._writer.drain()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _until(self, done: Callable[[], bool], what: str) -> None:
        seen = self._session.acknowledged
        deadline = time.monotonic() + self._patience
        while not done():
            self._check()
            self._changed.clear()
            left = deadline - time.monotonic()
            try:
                await asyncio.wait_for(self._changed.wait(), max(0.0, left))
            except TimeoutError:
                raise self._gave_up(what) from None
            if self._session.acknowledged > seen:
                seen = self._session.acknowledged
                deadline = time.monotonic() + self._patience

    async def _run(self) -> None:
        """Keeps a connection: reads from it, and makes a new one when it breaks."""
        attempt = 0
        while True:
            try:
                await self._converse()
            except SupplierError as error:
                self._failure = error
                self._changed.set()
                return
            except Renumber as error:
                self._session.renumber(error.left)
            except OSError:
                pass
            finally:
                attempt = 0 if self._session.welcomed else attempt + 1
                self._session.welcomed = False
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
            await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])

    async def _converse(self) -> None:
        target = parse_address(self._address)
        if isinstance(target, tuple):
            reader, self._writer = await asyncio.open_connection(*target)
        else:
            reader, self._writer = await asyncio.open_unix_connection(target)
        self._writer.write(self._session.hello())
        frames = Frames()
        while data := await reader.read(1 << 16):
            for found in frames.feed(data):
                for parts in self._session.received(found):
                    self._writer.writelines(parts)
            self._changed.set()
        raise ConnectionResetError("the intake has closed the connection")
