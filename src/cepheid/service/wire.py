"""The frames that suppliers and readers exchange with the intake, as docs/wire.md describes them."""

from __future__ import annotations

import ipaddress
import json
import socket
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

GREETING: Final = b"CEPHEID1"
VERSION: Final = 1
HEAD: Final = struct.Struct("<IB3xQ")
#: The longest frame that the intake takes.
MAX_FRAME: Final = 4 * 1024 * 1024
#: The longest that it sends: an answer to a reader, with a record of the longest.
MAX_ANSWER: Final = 64 * 1024 * 1024


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 1
    WELCOME = 2
    BATCH = 3
    ACK = 4
    ERROR = 5
    READ = 6
    DATA = 7
    SCHEMA = 8
    COMMIT = 9
    DONE = 10
    STATUS = 11
    COUNTERS = 12
    LINES = 13


class Frame(NamedTuple):
    """A frame that came."""

    kind: Kind
    number: int
    payload: bytes

    def json(self) -> Any:
        return json.loads(self.payload)


class WireError(ConnectionError):
    """What came is not what the wire's description says."""


def head(kind: Kind, number: int, length: int) -> bytes:
    """The head of a frame with a payload of so many bytes, a multiple of 8."""
    return HEAD.pack(HEAD.size + length, kind, number)


def frame(kind: Kind, number: int, payload: bytes = b"", pad: bytes = b"\0") -> bytes:
    """A whole frame."""
    payload += pad * (-len(payload) % 8)
    return head(kind, number, len(payload)) + payload


def json_frame(kind: Kind, content: object, number: int = 0) -> bytes:
    """A frame of JSON."""
    return frame(kind, number, json.dumps(content).encode(), b" ")


class Frames:
    """Cuts what comes from a socket into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole with these bytes."""
        self._buffer += data
        while len(self._buffer) >= HEAD.size:
            length, kind, number = HEAD.unpack_from(self._buffer)
            if not HEAD.size <= length <= MAX_ANSWER or kind not in Kind._value2member_map_:
                raise WireError(f"a frame of kind {kind} and {length} bytes came: there is no intake at this address")
            if len(self._buffer) < length:
                return
            payload = bytes(self._buffer[HEAD.size : length])
            del self._buffer[:length]
            yield Frame(Kind(kind), number, payload)


def parse_address(address: str) -> tuple[str, int] | str:
    """Host and port of `tcp:host:port`, or the path of `unix:path`."""
    scheme, _, rest = address.partition(":")
    if scheme == "unix" and rest:
        return rest
    host, _, port = rest.rpartition(":")
    if scheme == "tcp" and host and port.isdecimal():
        return host.strip("[]"), int(port)
    raise ValueError(f"'{address}' is no address; write unix:path or tcp:host:port")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def connect(address: str, timeout: float) -> socket.socket:
    """A socket that is connected."""
    target = parse_address(address)
    if isinstance(target, tuple):
        stream = socket.create_connection(target, timeout)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(stream)
        return stream
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(timeout)
    try:
        stream.connect(target)
    except BaseException:
        stream.close()
        raise
    return stream


def keep_alive(stream: socket.socket) -> None:
    """Has the other side asked after a silence, so that a machine that is gone is noticed within half a minute."""
    if stream.family in (socket.AF_INET, socket.AF_INET6):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def send_parts(stream: socket.socket, parts: Sequence[bytes | memoryview]) -> None:
    """Sends parts as they lie in memory, one behind another."""
    rest = [memoryview(part) for part in parts]
    while rest:
        sent = stream.sendmsg(rest)
        while rest and sent >= len(rest[0]):
            sent -= len(rest.pop(0))
        if sent:
            rest[0] = rest[0][sent:]
