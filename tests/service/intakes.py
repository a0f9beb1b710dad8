"""What the tests of the service share: an application's streams, and intakes that are ended when a test is."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from cepheid._native import LogFollower
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.service.intake import IntakeConfig, IntakeProcess, start
from cepheid.service.log import Logged, LogReader

AIR = Stream("air", {"sensor": Type.STRING, "flow": Type.FLOAT}, spellings={"flow": ("airflow",)}, lateness=10)
VIBRATION = Stream("vibration", {"samples": Type.UINT8_ARRAY, "axis": Type.INT})
STREAMS = (AIR, VIBRATION)

Start: TypeAlias = Callable[..., IntakeProcess]


def air(id: int | str, time: int = 0, sensor: str | None = "D105", flow: float | None = 1.5) -> Event:
    return Event("air", id, time, {"sensor": sensor, "flow": flow})


@contextmanager
def starting(folder: Path) -> Iterator[Start]:
    """A function that starts an intake with its log and socket in a folder; all of them are stopped in the end."""
    with ExitStack() as stack:

        def begin(**options: Any) -> IntakeProcess:
            settings: dict[str, Any] = {
                "streams": STREAMS,
                "log": folder / "log",
                "listen": [f"unix:{folder / 'intake.sock'}"],
                "durability": "each",
                **options,
            }
            return stack.enter_context(start(IntakeConfig(**settings)))

        yield begin
    for log in (folder / "log", folder / "log" / "dead"):
        tail_of(log).unlink(missing_ok=True)


def tail_of(log: Path) -> Path:
    """The page of shared memory of a log, by the rule of native/src/log/tail.rs."""
    about = log.stat() if log.exists() else Path("/").stat()
    return Path(f"/dev/shm/cepheid-{about.st_uid}-{about.st_dev:x}-{about.st_ino:x}")


def logged(folder: Path, offset: int | None = None) -> list[Logged]:
    return read(folder / "log", offset)


def read(source: str | Path, offset: int | None = None, **options: Any) -> list[Logged]:
    with LogReader(source, offset, **options) as reader:
        return list(reader)


def dead_letters(folder: Path) -> list[dict[str, Any]]:
    return [dict(each.event.attributes) for each in read(folder / "log" / "dead")]


def end_of(folder: Path) -> int:
    return LogFollower(folder / "log").end


def connected(intake: IntakeProcess) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(30)
    stream.connect(intake.address.removeprefix("unix:"))
    return stream


def everything(stream: socket.socket) -> bytes:
    """What comes until the other side ends."""
    parts = []
    while True:
        try:
            part = stream.recv(1 << 16)
        except ConnectionResetError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def say(intake: IntakeProcess, lines: bytes) -> list[str]:
    """Sends lines of JSON as a person with a terminal would; the answers."""
    with connected(intake) as stream:
        stream.sendall(lines)
        stream.shutdown(socket.SHUT_WR)
        return everything(stream).decode().splitlines()
