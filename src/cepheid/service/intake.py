"""The intake as a process: what it is told, how it is started and ended.

`python -m cepheid.service.intake` reads its configuration from a line of standard input, says in a line of JSON on
standard output where it listens, and runs until SIGTERM or SIGINT, or until its standard input ends because who started
it is gone; SIGHUP makes it read its streams again, from `intake.json` in its log's folder. All it does is native;
Python only holds the process.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cepheid._native import run_intake
from cepheid.model.streams import Stream
from cepheid.model.time import parse_duration
from cepheid.service import schemas
from cepheid.service.running.intake import Intake
from cepheid.service.running.threads import when_left

if TYPE_CHECKING:
    from cepheid.app.application import Application
    from cepheid.plan.planner import Plan


#: The real-time priority of an intake whose engine has levels: that of the thread which feeds the engine, above all
#: workers (native/src/service/scheduling.rs). What does not come in can't be judged.
PRIORITY: Final = 81


class IntakeError(Exception):
    """The intake did not start."""


@dataclass(frozen=True, slots=True)
class IntakeConfig:
    """What an intake is told. `listen` has addresses such as `unix:path` and `tcp:host:port` (port 0: any).

    Retention removes what is older than `retain_age` (microseconds) or more than `retain_bytes`, but nothing that one
    of `consumers` has not committed, nor others that commit, nor, with `lanes`, what queries would read again after a
    crash (docs/log.md). `duplicates`: for so many events an id is remembered, at most for twice as many. `priority`,
    1 to 99, is a real-time one, for machines whose cores may all be busy.
    """

    streams: Sequence[Stream]
    log: Path
    listen: Sequence[str]
    durability: str = "interval 10ms"
    token: str | None = None
    default_stream: str | None = None
    segment_bytes: int | None = None
    retain_bytes: int | None = None
    retain_age: int | None = None
    consumers: Sequence[str] = field(default_factory=tuple)
    lanes: bool = True
    connections: int = 4096
    duplicates: int = 1 << 19
    priority: int | None = None
    #: Streams whose events can wait a moment, to be taken together.
    patient: frozenset[str] = frozenset()

    @property
    def reload_path(self) -> Path:
        """The file that SIGHUP makes the intake read its streams from."""
        return self.log / "intake.json"

    def to_json(self) -> str:
        """For the native core (native/src/intake/config.rs)."""
        word, _, interval = self.durability.partition(" ")
        durability = f"{word} {parse_duration(interval)}" if interval else word
        content = {
            "listen": list(self.listen),
            "token": self.token,
            "log": {
                "path": str(self.log),
                "durability": durability,
                "segment_bytes": self.segment_bytes,
                "retain_bytes": self.retain_bytes,
                "retain_age": self.retain_age,
                "consumers": list(self.consumers),
                "lanes": self.lanes,
            },
            "streams": [
                {**_stream(stream), "patient": stream.name in self.patient} for stream in in_order(self.streams)
            ],
            "default_stream": self.default_stream,
            "reload": str(self.reload_path),
            "connections": self.connections,
            "duplicates": self.duplicates,
            "priority": self.priority,
        }
        return json.dumps(content)


def in_order(streams: Iterable[Stream]) -> list[Stream]:
    """Streams in the order of their names, bytewise: a stream's place is its number in records."""
    return sorted(streams, key=lambda stream: stream.name.encode())


def _stream(stream: Stream) -> dict[str, object]:
    return {
        **schemas.describe(stream),
        "spellings": [[name, list(spellings)] for name, spellings in stream.spellings.items()],
        "id": stream.id_kind,
        "extras": stream.extras,
        "lateness": stream.lateness,
    }


def suppliers_address(app: Application) -> str:
    """Where suppliers connect."""
    service = app.sections.service
    given = "unix:data/cepheid.sock" if service is None else service.listen
    scheme, _, path = given.partition(":")
    return f"unix:{app.folder / path}" if scheme == "unix" else given


def config_of(
    app: Application, *, plan: Plan | None = None, token: str | None = None, memory: Path | None = None
) -> IntakeConfig:
    """What an application says about its intake; its archive is a consumer that retention waits for.

    With `log: none` the log is short, and in a folder of the memory.
    """
    # Not at the top: the intake's own process plans nothing.
    from cepheid.service.derived import streams_of

    service = app.sections.service
    log = None if service is None else service.log
    if log is None and memory is None:
        raise IntakeError(f"application '{app.name}' has no log: give it a section 'service'")
    plan = app.plan() if plan is None else plan
    streams = streams_of(plan)
    config = IntakeConfig(
        streams=streams,
        log=Path() if memory is None else memory,
        listen=[suppliers_address(app)],
        durability="none",
        token=token,
        default_stream=app.sections.default_stream,
        priority=PRIORITY if service is None or service.prioritised else None,
        patient=_patient(plan, [stream.name for stream in streams]),
    )
    if log is None:
        # In the engine's process, which is to be small, and in memory.
        return replace(config, segment_bytes=16 << 20, retain_bytes=48 << 20, lanes=False, duplicates=1 << 13)
    return replace(
        config,
        log=app.folder / log.path,
        durability=log.durability,
        retain_bytes=log.retain_size,
        retain_age=log.retain,
        consumers=["archive"] if app.sections.archive is not None else [],
    )


def _patient(plan: Plan, streams: Sequence[str]) -> frozenset[str]:
    """Streams that nothing of the highest level reads."""
    lowest = len(plan.graph.levels) - 1
    ranks = {name: plan.ranks.get(name, lowest) for name in streams}
    return frozenset(name for name, rank in ranks.items() if rank > min(ranks.values()))


def counted(address: str, token: str | None) -> Mapping[str, Any]:
    """What the intake at an address has counted since it began; nothing if it does not answer."""
    from cepheid.service.supplier import Supplier, SupplierError

    try:
        with Supplier(address, token=token, patience=1.0) as supplier:
            counters: Mapping[str, Any] = supplier.counters()["counters"]
            return counters
    except (OSError, SupplierError):
        return {}


def reload(config: IntakeConfig, address: str, wake: Callable[[], object], timeout: float = 30.0) -> None:
    """Makes the intake at an address read its streams again, which `wake` tells it to. IntakeError if it can't."""
    # Not at the top: the intake's own process needs no supplier, nor the asyncio that comes with it.
    from cepheid.service.supplier import Supplier

    with Supplier(address, token=config.token, patience=timeout) as supplier:
        before = supplier.counters()["counters"]["reloads"]
        written = config.reload_path.with_suffix(".new")
        written.write_text(config.to_json(), encoding="utf-8")
        written.replace(config.reload_path)
        wake()
        turns = 0
        deadline = time.monotonic() + timeout
        while (counters := supplier.counters()["counters"])["reloads"] == before:
            if time.monotonic() > deadline:
                raise IntakeError("the intake did not read its configuration again")
            time.sleep(0.01)
            turns += 1
            if turns % 100 == 0:
                wake()  # it may be another one by now
    if counters["reload_error"] is not None:
        raise IntakeError(counters["reload_error"])


class IntakeProcess:
    """An intake that was started; use it as a context manager. It ends with the program that started it."""

    def __init__(self, process: subprocess.Popen[bytes], listening: Sequence[str], realtime: bool | None) -> None:
        self.process = process
        self.listening = tuple(listening)
        #: Whether it has the real-time priority that was asked for; None: none was.
        self.realtime = realtime

    @property
    def address(self) -> str:
        """The first address it listens on."""
        return self.listening[0]

    def __enter__(self) -> IntakeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reload(self, config: IntakeConfig, timeout: float = 30.0) -> None:
        """Goes on with the streams of another configuration; no connection ends for it. IntakeError if it can't."""
        reload(config, self.address, lambda: self.process.send_signal(signal.SIGHUP), timeout)

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        self.process.kill()
        self._wait()

    def stop(self) -> None:
        """Ends it in order: everything that was acknowledged is synced."""
        if self.process.poll() is None:
            self.process.terminate()
        self._wait()

    def _wait(self) -> None:
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class IntakeThread:
    """An intake inside this process, for programs that want no other; use it as a context manager.

    It ends with the program, so suppliers elsewhere are better served by a process of its own.
    """

    def __init__(self, config: IntakeConfig) -> None:
        try:
            self._intake = Intake(config.to_json())
        except ValueError as refused:
            raise IntakeError(str(refused)) from None
        self.listening = tuple(self._intake.listening)

    @property
    def address(self) -> str:
        """The first address it listens on."""
        return self.listening[0]

    def __enter__(self) -> IntakeThread:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends it in order: everything that was acknowledged is synced."""
        self._intake.stop()

    def reload(self, config: IntakeConfig, timeout: float = 30.0) -> None:
        """Goes on with the streams of another configuration; no connection ends for it. IntakeError if it can't."""
        reload(config, self.address, self._intake.wake, timeout)


def start(config: IntakeConfig) -> IntakeProcess:
    """Starts an intake and waits until it listens; IntakeError with its own words if it does not."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cepheid.service.intake"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(config.to_json().encode() + b"\n")
    process.stdin.flush()
    line = process.stdout.readline()
    answer: dict[str, Any] = json.loads(line) if line else {"error": f"the intake ended with code {process.wait()}"}
    if "error" in answer:
        process.wait()
        process.stdin.close()
        process.stdout.close()
        raise IntakeError(answer["error"])
    return IntakeProcess(process, answer["listening"], answer["realtime"])


def main() -> int:
    """Runs an intake in this process."""
    config = sys.stdin.buffer.readline().decode()
    # Python's handler in C writes a byte here, which the native loop reads: no Python code has to run for it.
    reading, writing = socket.socketpair()
    reading.setblocking(False)
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    when_left(lambda: writing.send(bytes([signal.SIGTERM])))

    def ready(listening: list[str], realtime: bool | None) -> None:
        if realtime is False:
            print(
                "cepheid intake: no right to a real-time priority; it runs with a nice level instead", file=sys.stderr
            )
        print(json.dumps({"listening": listening, "realtime": realtime, "pid": os.getpid()}), flush=True)

    try:
        run_intake(config, reading.fileno(), ready)
    except (OSError, ValueError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        print(f"cepheid intake: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
