"""Consumers over a socket: who connects names a consumer, and gets its events as lines of JSON.

    {"consumer": "plant"}             what the client says first, with a "token" if need be; the same is the answer
    {"id": 7, "time": 1336381200000000, "end": null, "marks": [], "attributes": {"samples": "AAEC"}}

`{"stats": true}` is answered with one line, the engine's books; `{"apply": "app.yaml"}` with what changed when the
service went on with that file, or with its errors. No worker of the engine ever waits for a client: each
has a queue of its own, of which the oldest events go when it does not read.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import ipaddress
import json
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cepheid.model.types import Value
from cepheid.service.derived import PREFIX
from cepheid.service.engine import Consumer, Engine, MatchConsumer
from cepheid.service.lanes import Found
from cepheid.service.received import Received
from cepheid.service.wire import parse_address

#: How many events wait for a client that does not read; then its oldest go.
WAITING: Final = 1024
#: How many clients there can be.
CLIENTS: Final = 1024
#: A first line is no longer than this.
_HELLO: Final = 4096


class NeedsToken(ValueError):
    """An address that others can reach, and no token to keep them out."""


def line_of(received: Received | Found) -> bytes:
    """An event, or a match of a query, as a line."""
    if isinstance(received, Found):
        match = received.match
        content: dict[str, object] = {
            "id": match.id,
            "time": match.time,
            "end": received.end,
            "marks": ["stale"] if received.stale else [],
            "attributes": {name: _plain(value) for name, value in match.select.items()},
            "events": match.events,
        }
    else:
        content = {
            "id": received.id,
            "time": received.time,
            "end": received.end,
            "marks": sorted(received.marks),
            "attributes": {name: _plain(value) for name, value in received.attributes.items()},
        }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _plain(value: Value) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return list(value) if isinstance(value, tuple) else value


class _Client:
    """A connection, and the lines that wait for it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.lost = 0
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._is_over = False

    def put(self, line: bytes) -> None:
        with self._changed:
            if len(self._lines) >= WAITING:
                self._lines.popleft()
                self.lost += 1
            self._lines.append(line)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def finish(self) -> None:
        """Nothing more comes: the connection ends when what waits is sent."""
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def send(self) -> None:
        """Sends what there is and what comes, until the client is gone."""
        with contextlib.suppress(OSError):
            while True:
                with self._changed:
                    while not self._lines and not self._is_over:
                        self._changed.wait()
                    if not self._lines:
                        return
                    lines = b"".join(self._lines)
                    self._lines.clear()
                self.connection.sendall(lines)


class Outlet:
    """Serves the consumers of an engine at an address; a context manager."""

    def __init__(
        self,
        engine: Engine,
        address: str,
        token: str | None = None,
        apply: Callable[[str], dict[str, Any]] | None = None,
    ) -> None:
        self._engine = engine
        self._apply = apply
        self._token = token
        self._clients: dict[str, set[_Client]] = {}
        self._read_now: set[str] = set()
        self._lock = threading.Lock()
        self._socket = _listening(address, token)
        self.address = _address(self._socket)
        self._start("outlet", self._accept)

    def __enter__(self) -> Outlet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections; the address is free again."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self.address.startswith("unix:"):
            with contextlib.suppress(OSError):
                Path(self.address.removeprefix("unix:")).unlink()
        with self._lock:
            clients = [client for clients in self._clients.values() for client in clients]
        for client in clients:
            client.close()

    def _start(self, name: str, run: Callable[[], None]) -> None:
        threading.Thread(target=run, name=name, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._start("client", lambda connection=connection: self._serve(connection))  # type: ignore[misc]

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError):
            connection.settimeout(10)
            try:
                hello = _first_line(connection)
                self._admit(hello)
            except ValueError as refused:
                connection.sendall(json.dumps({"error": str(refused)}).encode() + b"\n")
                return
            connection.settimeout(None)
            if "stats" in hello:
                connection.sendall(json.dumps(self._engine.stats()).encode() + b"\n")
                return
            if "apply" in hello and self._apply is not None:
                connection.sendall(json.dumps(self._apply(str(hello["apply"]))).encode() + b"\n")
                return
            self._deliver(str(hello["consumer"]), connection)

    def _admit(self, hello: dict[str, Any]) -> None:
        given = hello.get("token")
        if self._token is not None and not (isinstance(given, str) and hmac.compare_digest(given, self._token)):
            raise ValueError("the token is missing or wrong")
        if "stats" in hello or ("apply" in hello and self._apply is not None):
            return
        stats = self._engine.stats()
        known = [name for name in [*stats["consumers"], *stats["queries"]] if not name.startswith(PREFIX)]
        if hello.get("consumer") not in known:
            raise ValueError(f"there is no consumer '{hello.get('consumer')}'; there are: {', '.join(known) or 'none'}")
        with self._lock:
            if sum(map(len, self._clients.values())) >= CLIENTS:
                raise ValueError(f"{CLIENTS} clients are connected, which is the most")

    def _deliver(self, consumer: str, connection: socket.socket) -> None:
        client = _Client(connection)
        with self._lock:
            clients = self._clients.setdefault(consumer, set())
            clients.add(client)
            is_read = consumer in self._read_now
            self._read_now.add(consumer)
        if not is_read:
            self._start(f"consumer {consumer}", lambda: self._read(consumer))
        connection.sendall(json.dumps({"consumer": consumer}).encode() + b"\n")
        self._start("watch", lambda: _watch(client))
        try:
            client.send()
        finally:
            with self._lock:
                clients.discard(client)

    def _read(self, consumer: str) -> None:
        """Hands a consumer's events to its clients, as long as there are any."""
        reader = self._reader(consumer)
        while True:
            received = None if reader is None else reader.get(timeout=0.2)
            if received is None and (reader is None or reader.is_over):
                # It was removed; one that was changed has another of its name in its place.
                reader = self._reader(consumer)
                if reader is None or reader.is_over:
                    self._end(consumer)
                    return
            with self._lock:
                clients = list(self._clients[consumer])
                if not clients or self._socket.fileno() < 0:
                    self._read_now.discard(consumer)
                    return
            if received is not None:
                line = line_of(received)
                for client in clients:
                    client.put(line)

    def _reader(self, consumer: str) -> Consumer | MatchConsumer | None:
        for find in (self._engine.matches, self._engine.consumer):
            with contextlib.suppress(KeyError):
                return find(consumer)
        return None

    def _end(self, consumer: str) -> None:
        """Nothing more comes for a consumer."""
        with self._lock:
            self._read_now.discard(consumer)
            clients = list(self._clients[consumer])
        for client in clients:
            client.finish()


def _watch(client: _Client) -> None:
    """Notices that a client has gone, who has nothing more to say."""
    with contextlib.suppress(OSError):
        while client.connection.recv(4096):
            pass
    client.close()


def _first_line(connection: socket.socket) -> dict[str, Any]:
    data = b""
    while not data.endswith(b"\n"):
        more = connection.recv(_HELLO - len(data))
        if not more:
            raise ValueError('the first line is to name a consumer, such as {"consumer": "plant"}')
        data += more
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("the first line is to be an object of JSON")
    return content


def _listening(address: str, token: str | None) -> socket.socket:
    target = parse_address(address)
    if isinstance(target, tuple):
        if token is None and not is_loopback(target[0]):
            raise NeedsToken(
                f"{address} can be reached from elsewhere: give a token, or listen on loopback or unix:path"
            )
        return socket.create_server(target)
    listening = socket.socket(socket.AF_UNIX)
    Path(target).unlink(missing_ok=True)
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    # Only this user's programs can connect.
    before = os.umask(0o177)
    try:
        listening.bind(target)
    finally:
        os.umask(before)
    listening.listen(128)
    return listening


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address(listening: socket.socket) -> str:
    name = listening.getsockname()
    return f"unix:{name}" if isinstance(name, str) else f"tcp:{name[0]}:{name[1]}"
