"""The processes of an application that runs, as a person would start them: `cepheid service` and `cepheid pipeline`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

#: How long a part has to start, and to end in order, in seconds.
_START: Final = 120.0
_END: Final = 60.0


class PartFailed(RuntimeError):
    """A part that did not start, or ended by itself. The message has the last that it said."""


class Part:
    """A command of Cepheid's about an application, at work until this is left. What it says goes to a file."""

    def __init__(self, name: str, app: Path) -> None:
        self.name = name
        self._said = app.parent / f"{name}.log"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cepheid.cli.main", name, str(app)],
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # an interrupt from the keyboard is not for it: it is ended in order
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_for(self, word: str) -> None:
        """Waits until it says something. Raises PartFailed."""
        deadline = time.monotonic() + _START
        while word not in self._said.read_text(errors="replace"):
            self.check()
            if time.monotonic() > deadline:
                raise PartFailed(f"cepheid {self.name} is not ready after {_START:.0f} s; {self._last_words()}")
            time.sleep(0.1)

    def check(self) -> None:
        """Raises PartFailed if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise PartFailed(f"cepheid {self.name} has ended with code {code}; {self._last_words()}")

    def _last_words(self) -> str:
        return f"it said, in {self._said}:\n" + "\n".join(self._said.read_text(errors="replace").splitlines()[-15:])

    def child(self, module: str) -> int:
        """The process among its own that runs a module. Raises ProcessLookupError."""
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            for pid in (task / "children").read_text().split():
                if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    return int(pid)
        raise ProcessLookupError(f"cepheid {self.name} has no process {module}")

    def kill(self, module: str) -> None:
        """Kills the process among its own that runs a module, with SIGKILL."""
        os.kill(self.child(module), signal.SIGKILL)

    def stop(self) -> None:
        """Ends it, in order if it can be."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
