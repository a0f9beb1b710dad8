"""A consumer elsewhere: it connects to a service by its address, and again when the connection is lost.

for event in ConsumerClient("unix:data/consumers.sock", "plant"):
    ...
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from cepheid.service.received import Received
from cepheid.service.wire import connect

_PAUSES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class RefusedByService(ValueError):
    """The service does not have the consumer, or wants another token."""


class ConsumerClient:
    """An iterator of what a consumer receives; it ends when it is closed. bytes come as base64 text, arrays as lists.

    While there is no connection it tries again, up to `patience` seconds, then raises the last error. What the
    service delivered meanwhile is not seen by this client.
    """

    def __init__(self, address: str, consumer: str, *, token: str | None = None, patience: float = 60.0) -> None:
        self.consumer = consumer
        self._address = address
        self._hello = {"consumer": consumer} | ({} if token is None else {"token": token})
        self._patience = patience
        self._closed = False
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it, also from another thread."""
        self._closed = True
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    def __iter__(self) -> Iterator[Received]:
        while not self._closed:
            connection = self._connected()
            if connection is None:
                return
            with connection, connection.makefile("rb") as lines:
                try:
                    yield from (_received(self.consumer, json.loads(line)) for line in lines)
                except OSError:
                    continue

    def call(self, function: Callable[[Received], object]) -> threading.Thread:
        """Calls a function with each event, on a thread that ends when this is closed."""
        thread = threading.Thread(target=lambda: [function(one) for one in self], daemon=True)
        thread.start()
        return thread

    def _connected(self) -> socket.socket | None:
        deadline = time.monotonic() + self._patience
        for attempt in range(1_000_000):
            if self._closed:
                return None
            try:
                return self._try()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
        return None

    def _try(self) -> socket.socket:
        connection = connect(self._address, 10.0)
        try:
            connection.sendall(json.dumps(self._hello).encode() + b"\n")
            answer = _line(connection)
            if "error" in answer:
                raise RefusedByService(answer["error"])
            connection.settimeout(None)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._connection = connection
        return connection


def read_stats(address: str, token: str | None = None) -> dict[str, Any]:
    """The books of the service at an address."""
    hello = {"stats": True} | ({} if token is None else {"token": token})
    with connect(address, 10.0) as connection:
        connection.sendall(json.dumps(hello).encode() + b"\n")
        answer = _line(connection)
    if "error" in answer:
        raise RefusedByService(answer["error"])
    return answer


def _line(connection: socket.socket) -> dict[str, Any]:
    """The next line and no byte more, because what follows is read otherwise."""
    data = bytearray()
    while not data.endswith(b"\n"):
        byte = connection.recv(1 if len(data) < 4096 else 65536)
        if not byte:
            raise ConnectionResetError("the service has closed the connection")
        data += byte
    content: dict[str, Any] = json.loads(data)
    return content


def _received(consumer: str, content: Mapping[str, Any]) -> Received:
    return Received(
        consumer,
        content["id"],
        content["time"],
        content["attributes"],
        content["end"],
        frozenset(content["marks"]),
    )
