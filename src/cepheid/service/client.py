"""A consumer elsewhere: it connects to a service by its address, and again when the connection is lost.

for event in ConsumerClient("unix:data/consumers.sock", "plant"):
    ...

async with AsyncConsumer("unix:data/consumers.sock", "plant") as events:
    async for event in events:
        ...
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from cepheid.service.place import Place
from cepheid.service.received import Received
from cepheid.service.subscription import RefusedByService, Subscription
from cepheid.service.wire import connect, keep_alive, parse_address

if TYPE_CHECKING:
    from cepheid.app.application import Application

__all__ = ["AsyncConsumer", "ConsumerClient", "RefusedByService", "consumers_address", "read_stats"]

_log: Final = logging.getLogger(__name__)
_PAUSES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_CHUNK: Final = 1 << 16


def _pause(attempt: int) -> float:
    return _PAUSES[min(attempt, len(_PAUSES) - 1)]


class ConsumerClient:
    """An iterator of what a consumer, or a query in the fast lane, receives; it ends when it is closed.

    While there is no connection it tries again, up to `patience` seconds, then raises the last error. What the
    service delivered meanwhile is not seen by this client. Of what it does not read, the service keeps the newest:
    `lost` is how many went.

    With `place`, a file of its own, it acknowledges the matches of a query: one is handled when the next is asked for,
    or the callback has returned. What is not handled comes again, to this client or the next with its place, whoever
    was killed; what is handled does not.
    """

    def __init__(
        self,
        address: str,
        consumer: str,
        *,
        token: str | None = None,
        patience: float = 60.0,
        place: str | Path | None = None,
    ) -> None:
        parse_address(address)
        self.consumer = consumer
        self._address = address
        self._subscription = Subscription(consumer, token, None if place is None else Place(place))
        self._patience = patience
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def lost(self) -> int:
        """Events that the service let go of because this client did not read them in time."""
        return self._subscription.lost

    def close(self) -> None:
        """Ends it, also from another thread."""
        with self._lock:
            self._closed.set()
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
            self._let_go()

    def _let_go(self) -> None:
        """Lets go of the place of one that is closed, and whose last match nobody handles any more."""
        if self._closed.is_set() and self._connection is None:
            self._subscription.close()

    def __iter__(self) -> Iterator[Received]:
        deadline = time.monotonic() + self._patience
        attempt = 0
        while not self._closed.is_set():
            try:
                for received in self._connected():
                    yield received
                    attempt, deadline = 0, time.monotonic() + self._patience
            except OSError:
                if time.monotonic() > deadline and not self._closed.is_set():
                    raise
            if self._subscription.is_welcome:
                # It was there until just now, however little it had to say.
                attempt, deadline = 0, time.monotonic() + self._patience
            self._closed.wait(_pause(attempt))
            attempt += 1

    def call(self, function: Callable[[Received], object]) -> threading.Thread:
        """Calls a function with each event, on a thread that ends when this is closed. What it raises is logged."""

        def read() -> None:
            for received in self:
                try:
                    function(received)
                except Exception:
                    _log.exception("the callback of consumer '%s' failed; the next event goes on", self.consumer)

        thread = threading.Thread(target=read, name=f"consumer {self.consumer}", daemon=True)
        thread.start()
        return thread

    def _connected(self) -> Iterator[Received]:
        """What comes by one connection, until it is lost."""
        hello = self._subscription.begin()
        with connect(self._address, 10.0) as connection:
            with self._lock:
                if self._closed.is_set():
                    return
                self._connection = connection
            try:
                connection.sendall(hello)
                while data := connection.recv(_CHUNK):
                    for received in self._subscription.feed(data):
                        yield received
                        connection.sendall(self._subscription.handled())
                    connection.sendall(self._subscription.handled())
                    if self._subscription.is_welcome and connection.gettimeout() is not None:
                        connection.settimeout(None)
            finally:
                with self._lock:
                    self._connection = None
                    self._let_go()
        if not self._subscription.is_welcome and not self._closed.is_set():
            raise ConnectionResetError("the service has closed the connection")


class AsyncConsumer:
    """The same with asyncio: `async for` over it, from one task. `close`, or the end of `async with`, ends it."""

    def __init__(
        self,
        address: str,
        consumer: str,
        *,
        token: str | None = None,
        patience: float = 60.0,
        place: str | Path | None = None,
    ) -> None:
        self._target = parse_address(address)
        self.consumer = consumer
        self._subscription = Subscription(consumer, token, None if place is None else Place(place))
        self._patience = patience
        self._closed = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def lost(self) -> int:
        """Events that the service let go of because this client did not read them in time."""
        return self._subscription.lost

    def close(self) -> None:
        """Ends it: the iteration stops."""
        self._closed.set()
        if self._writer is not None:
            self._writer.close()
        else:
            self._subscription.close()

    async def __aiter__(self) -> AsyncIterator[Received]:
        deadline = time.monotonic() + self._patience
        attempt = 0
        while not self._closed.is_set():
            try:
                async for received in self._connected():
                    yield received
                    attempt, deadline = 0, time.monotonic() + self._patience
            except OSError:
                if time.monotonic() > deadline and not self._closed.is_set():
                    raise
            if self._subscription.is_welcome:
                attempt, deadline = 0, time.monotonic() + self._patience
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), _pause(attempt))
            attempt += 1

    async def _connected(self) -> AsyncIterator[Received]:
        hello = self._subscription.begin()
        if isinstance(self._target, tuple):
            opening = asyncio.open_connection(*self._target)
        else:
            opening = asyncio.open_unix_connection(self._target)
        reader, writer = await asyncio.wait_for(opening, 10)
        keep_alive(writer.get_extra_info("socket"))
        self._writer = writer
        try:
            writer.write(hello)
            while not self._closed.is_set():
                patience = None if self._subscription.is_welcome else 10.0
                data = await asyncio.wait_for(reader.read(_CHUNK), patience)
                if not data:
                    break
                for received in self._subscription.feed(data):
                    yield received
                    writer.write(self._subscription.handled())
                writer.write(self._subscription.handled())
        finally:
            self._writer = None
            writer.close()
            if self._closed.is_set():
                self._subscription.close()
        if not self._subscription.is_welcome and not self._closed.is_set():
            raise ConnectionResetError("the service has closed the connection")


def consumers_address(app: Application) -> str:
    """Where consumers of an application's service connect."""
    service = app.sections.service
    given = "unix:data/consumers.sock" if service is None else service.deliver
    scheme, _, path = given.partition(":")
    return f"unix:{app.folder / path}" if scheme == "unix" else given


def read_stats(address: str, token: str | None = None) -> dict[str, Any]:
    """The books of the service at an address."""
    return ask(address, {"stats": True}, token)


def ask(address: str, request: dict[str, Any], token: str | None = None, patience: float = 10.0) -> dict[str, Any]:
    """The answer of the service at an address to a request, waited for at most so many seconds."""
    answer: dict[str, Any] = json.loads(ask_line(address, request, token, patience))
    if "error" in answer:
        raise RefusedByService(answer["error"])
    return answer


def ask_line(address: str, request: dict[str, Any], token: str | None = None, patience: float = 10.0) -> bytearray:
    """The same as the service gives it: a line of JSON."""
    hello = request | ({} if token is None else {"token": token})
    with connect(address, patience) as connection:
        connection.sendall(json.dumps(hello).encode() + b"\n")
        data = bytearray()
        while not data.endswith(b"\n"):
            part = connection.recv(_CHUNK)
            if not part:
                raise ConnectionResetError("the service has closed the connection")
            data += part
    return data
