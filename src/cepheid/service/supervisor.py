"""Starts intake and engine, each a process of its own, and starts again what dies.

The intake outlives the engine: events are taken, flagged, logged and acknowledged while there is none, and the next
engine goes on where the last one came to.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cepheid.app.application import Application
from cepheid.service.control import Applied
from cepheid.service.intake import IntakeConfig, config_of

#: A process that died so often within `_WINDOW` seconds is not started again: it would die again.
_DEATHS: Final = 10
_WINDOW: Final = 10.0


class ServiceFailed(Exception):
    """A part of the service can't be kept alive."""


@dataclass
class Part:
    """A process of the service: how it is started, and when it died."""

    name: str
    command: list[str]
    given: bytes = b""
    process: subprocess.Popen[bytes] | None = None
    ready: dict[str, Any] = field(default_factory=dict)
    deaths: list[float] = field(default_factory=list)

    def start(self) -> None:
        """Starts it and waits until it says that it is ready."""
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with self.process.stdin as stdin:
            stdin.write(self.given)
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"it ended with code {self.process.wait()}"}
        if "error" in answer:
            raise ServiceFailed(f"{self.name}: {answer['error']}")
        self.ready = answer

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
        if self.process.stdout is not None:
            self.process.stdout.close()


class Supervisor:
    """Keeps an application's intake and engine alive; a context manager."""

    def __init__(self, app: Application, path: Path, *, token: str | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cepheid-")
        self._applied = Applied(Path(self._folder.name))
        engine = Part("engine", [sys.executable, "-m", "cepheid.service.process", str(path), self._folder.name])
        service = app.sections.service
        self.parts = [engine]
        if service is not None and service.log is not None:
            config: IntakeConfig = config_of(app, token=token)
            given = config.to_json().encode()
            # First, because the engine follows its log.
            self.parts.insert(0, Part("intake", [sys.executable, "-m", "cepheid.service.intake"], given))

    def __enter__(self) -> Supervisor:
        try:
            for part in self.parts:
                self._start(part)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the engine, then the intake."""
        for part in reversed(self.parts):
            part.stop()
        self._folder.cleanup()

    def _start(self, part: Part) -> None:
        """Starts a part with what was last applied."""
        if part.name == "intake":
            part.given = self._applied.intake() or part.given
        part.start()
        if part.name == "intake" and part.process is not None:
            self._applied.intake_started(part.process.pid)

    @property
    def suppliers(self) -> list[str]:
        """Where suppliers connect."""
        for part in self.parts:
            found = part.ready.get("listening") or part.ready.get("suppliers")
            if found:
                return list(found)
        return []

    @property
    def consumers(self) -> str:
        """Where consumers connect."""
        return str(self.parts[-1].ready["consumers"])

    def watch(self, stop: int, say: Callable[[str], object]) -> None:
        """Starts again what dies, until the file descriptor `stop` brings a signal; SIGHUP goes on to the engine."""
        while True:
            watched = {os.pidfd_open(part.process.pid): part for part in self.parts if part.process is not None}
            try:
                readable, _, _ = select.select([stop, *watched], [], [])
            finally:
                for descriptor in watched:
                    os.close(descriptor)
            if stop in readable:
                if set(os.read(stop, 64)) != {signal.SIGHUP}:
                    return
                engine = self.parts[-1].process
                if engine is not None and engine.poll() is None:
                    engine.send_signal(signal.SIGHUP)
            for descriptor in readable:
                if descriptor != stop:
                    self._revive(watched[descriptor], say)

    def _revive(self, part: Part, say: Callable[[str], object]) -> None:
        assert part.process is not None
        code = part.process.wait()
        part.stop()
        now = time.monotonic()
        part.deaths = [*(death for death in part.deaths if now - death < _WINDOW), now]
        if len(part.deaths) >= _DEATHS:
            raise ServiceFailed(f"the {part.name} died {_DEATHS} times in {_WINDOW:.0f} s, last with code {code}")
        self._start(part)
        say(f"the {part.name} died with code {code}, and was started again in {time.monotonic() - now:.2f} s")
