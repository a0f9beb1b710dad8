"""The processes of a service, as their supervisor sees them: started, spoken with, and ended."""

from __future__ import annotations

import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

#: How long an engine that died may take to come back before who waits for it gives up, seconds.
_PATIENCE: Final = 30.0


class ServiceFailed(Exception):
    """A part of the service can't be kept alive."""


class EngineDied(OSError):
    """The engine ended before it had answered."""


class Part:
    """A process of the service: how it is started, what it is told then, and when it died."""

    def __init__(self, name: str, module: str, given: bytes) -> None:
        self.name = name
        #: What it is told when it is started.
        self.given = given
        self.process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}
        #: When it said that it is ready, of the monotonic clock.
        self.ready_since = math.inf
        #: How often it died in a row, soon after that.
        self.deaths = 0
        #: How often it was started again, in all.
        self.restarts = 0
        #: Held by who starts another process in place of the one that there was.
        self.renewing = threading.Lock()
        self._command = [sys.executable, "-m", module]

    def start(self) -> None:
        """Starts it and waits until it says that it is ready."""
        self.ready_since = math.inf
        # Small: an arena of the C library's memory for each thread holds more than all of them use.
        environment = {"MALLOC_ARENA_MAX": "2", **os.environ}
        self.process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        # The pipe stays open: when it ends, who started the process is gone, and the process ends too.
        with suppress(BrokenPipeError):  # what it has to say is on its way already, or it died
            self.process.stdin.write(self.given + b"\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise ServiceFailed(f"the {self.name} died with code {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise ServiceFailed(f"the {self.name} can't start: {answer['error']}")
        self.ready = answer
        self.ready_since = time.monotonic()

    def stop(self) -> None:
        """Ends it in order."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what it was told last it has not read
                    pipe.close()

    def book(self) -> dict[str, int]:
        """Whether it lives, how often it was started again, and the bytes of memory that it has."""
        process = self.process
        try:
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) if process is not None else 0
        except OSError:
            pages = 0
        memory = pages * os.sysconf("SC_PAGE_SIZE")
        return {"up": int(pages > 0), "restarts": self.restarts, "resident_memory_bytes": memory}


class Engine(Part):
    """The engine's process (process.py). `answer` is for what is asked at its socket and it can't answer itself."""

    def __init__(self, order: bytes, answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        super().__init__("engine", "cepheid.service.process", order)
        self._answer = answer
        self._numbers = count(1)
        self._replies: dict[int, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self._writing = threading.Lock()
        #: The process that can be spoken with, if there is one.
        self._up: subprocess.Popen[bytes] | None = None
        self._changed = threading.Condition()
        self._listening: threading.Thread | None = None

    def start(self) -> None:
        super().start()
        assert self.process is not None
        self._listening = threading.Thread(target=self._listen, args=(self.process,), name="engine", daemon=True)
        self._listening.start()
        with self._changed:
            self._up = self.process
            self._changed.notify_all()

    def stop(self) -> None:
        process = self.process
        if process is not None and process.stdin is not None:
            # It may be gone, with something unread.
            with self._writing, suppress(BrokenPipeError):
                process.stdin.close()
        if process is not None and self._listening is not None:
            self._terminate(process)
            self._listening.join()
            self._listening = None
        super().stop()

    @staticmethod
    def _terminate(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()

    def call(self, request: Mapping[str, Any], patience: float | None = None) -> dict[str, Any]:
        """The engine's answer to a request; of the next engine, if this one dies before. EngineDied if none comes.

        An answer is waited for as long as the engine lives, or for `patience` seconds in all.
        """
        deadline = time.monotonic() + (_PATIENCE if patience is None else patience)
        last = None
        while (process := self._another(last, deadline)) is not None:
            number = next(self._numbers)
            replies = self._replies[number] = queue.SimpleQueue()
            try:
                self._say(process, {"number": number, **request})
                reply = replies.get(timeout=None if patience is None else max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise EngineDied("the engine does not answer") from None
            except (OSError, ValueError):
                reply = None
            finally:
                del self._replies[number]
            if reply is not None:
                return reply
            last = process
        raise EngineDied("the engine is not there")

    def _another(self, last: subprocess.Popen[bytes] | None, deadline: float) -> subprocess.Popen[bytes] | None:
        """A process that can be spoken with, and is not the last; None if there was none until the deadline."""
        with self._changed:
            self._changed.wait_for(lambda: self._up not in (None, last), max(0.0, deadline - time.monotonic()))
            return None if self._up is last else self._up

    def _say(self, process: subprocess.Popen[bytes], message: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        with self._writing:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            if "ask" in message:
                threading.Thread(target=self._asked, args=(process, message), daemon=True).start()
            elif (replies := self._replies.get(message["reply"])) is not None:
                replies.put(message)
        with self._changed:
            self._up = None
        for replies in list(self._replies.values()):
            replies.put(None)

    def _asked(self, process: subprocess.Popen[bytes], message: Mapping[str, Any]) -> None:
        given = self._answer(message["request"])
        # It may have died meanwhile, and who asked knows.
        with suppress(OSError, ValueError):
            self._say(process, {"answer": message["ask"], "given": given})
