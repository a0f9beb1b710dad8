"""The engine as a process, which its supervisor tells what to run: `python -m cepheid.service.process`.

The two speak in lines of JSON, on standard input and output. The first line is the order (supervisor.py): a job, where
the log is, and the addresses; the answer says that it is ready, or `error`. Then each line has a `number` and what to
do, and is answered by a line with that number as `reply`; and what someone asks at the consumers' socket that the
engine can't answer goes up with a number as `ask`, and comes back with it as `answer`. It ends on SIGTERM or SIGINT, or
when its supervisor is gone.

The process is to be small: it loads and plans nothing, and imports as little as it can (running/).
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # without the names that `signal` gives its numbers
import _thread
import os
import select
import sys

from cepheid._native import read_json, write_json
from cepheid.service.outlet import Outlet
from cepheid.service.running.engine import Running
from cepheid.service.running.intake import Intake
from cepheid.service.running.threads import Event, start

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, TypeAlias

    Message: TypeAlias = Mapping[str, Any]

#: How long who asks waits for the supervisor, seconds.
_PATIENCE = 120.0


class Process:
    """An engine that does what an order says; `say` sends a message up."""

    def __init__(self, order: Message, say: Callable[[Message], None]) -> None:
        self._say = say
        self._asked: dict[int, _Asked] = {}
        self._number = 0
        self._lock = _thread.allocate_lock()
        self._is_ready = Event()
        self._inside: Intake | None = None
        self._running = Running(order["job"])
        self._ready: dict[str, object] = {"pid": os.getpid(), "notices": self._running.native.notices()}
        suppliers = order["suppliers"]
        if order["intake"] is not None:
            self._inside = Intake(order["intake"], self._running.native)
            suppliers = self._inside.listening[0]
            self._ready["suppliers"] = self._inside.listening
        self._running.follow(order["job"], order["log"], suppliers, order["token"])
        requests = {"apply": self._ask, "trace": lambda _: self._running.native.trace()}
        self._outlet = Outlet(self._running, order["deliver"], order["token"], requests)
        self._ready["consumers"] = self._outlet.address

    def begin(self) -> None:
        """Says that it is ready; nothing else is said before."""
        self._say(self._ready)
        self._is_ready.set()

    def close(self) -> None:
        """Ends it in order."""
        self._is_ready.set()
        for asked in list(self._asked.values()):
            asked.come.set()
        self._outlet.close()
        self._running.close()
        if self._inside is not None:
            self._inside.stop()

    def do(self, message: Message) -> dict[str, Any]:
        """What came of what the supervisor says."""
        if "change" in message:
            try:
                return {"changed": self._running.change(message["change"])}
            except (ValueError, OSError, ImportError, AttributeError) as error:
                return {"error": str(error)}
        if "learn" in message:
            return {"from": self._running.learn(*message["learn"])}
        if "wake" in message and self._inside is not None:
            self._inside.wake()
            return {}
        return {"stats": self._outlet.stats(), "histograms": self._running.native.histograms()}

    def answered(self, message: Message) -> None:
        """The supervisor has answered what was asked."""
        asked = self._asked.get(message["answer"])
        if asked is not None:
            asked.answer = message["given"]
            asked.come.set()

    def _ask(self, request: Message) -> object:
        self._is_ready.wait(_PATIENCE)
        with self._lock:
            self._number += 1
            number = self._number
            asked = self._asked[number] = _Asked()
        try:
            self._say({"ask": number, "request": {key: value for key, value in request.items() if key != "token"}})
            asked.come.wait(_PATIENCE)
        finally:
            del self._asked[number]
        if asked.answer is None:
            raise ValueError("the service did not answer; ask again, what is done already is not done twice")
        return asked.answer


class _Asked:
    """What waits for an answer from above."""

    def __init__(self) -> None:
        self.come = Event()
        self.answer: object = None


def main() -> int:
    """Runs what standard input says."""
    above, below = os.dup(0), os.dup(1)
    # What an operator reads or prints is no part of the conversation.
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    writing = _thread.allocate_lock()

    def say(message: Message) -> None:
        data = write_json(message).encode() + b"\n"
        with writing:
            while data:
                data = data[os.write(below, data) :]

    messages = _messages(above, _stops())
    order = next(messages, None)
    if order is None:
        return 0
    try:
        process = Process(order, say)
    except Exception as error:
        say({"error": f"{error}" if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {error}"})
        return 1
    try:
        process.begin()
        for message in messages:
            if "answer" in message:
                process.answered(message)
            else:
                say({"reply": message["number"], **process.do(message)})
    except BrokenPipeError:
        pass  # nobody is above any more
    finally:
        process.close()
    return 0


def _stops() -> int:
    """A descriptor that can be read once the process is to end. No other thread is disturbed by signals."""
    numbers = {signal.SIGTERM, signal.SIGINT}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # that is for who is above
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    reading, writing = os.pipe2(os.O_CLOEXEC)

    def wait() -> None:
        signal.sigwait(numbers)
        os.close(writing)

    start(wait)
    return reading


def _messages(source: int, stop: int) -> Iterator[Message]:
    """What comes from above, until it ends or `stop` can be read."""
    poll = select.poll()
    for descriptor in (source, stop):
        poll.register(descriptor, select.POLLIN)
    parts: list[bytes] = []
    while all(descriptor != stop for descriptor, _ in poll.poll()):
        data = os.read(source, 1 << 16)
        if not data:
            return
        *whole, rest = data.split(b"\n")
        for line in whole:
            yield read_json(b"".join((*parts, line)))
            parts = []
        parts.append(rest)


if __name__ == "__main__":
    sys.exit(main())
