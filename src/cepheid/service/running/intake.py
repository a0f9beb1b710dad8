"""An intake inside the process, on a thread of its own; all it does is native."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os

from cepheid._native import run_intake
from cepheid.service.running.threads import Event, start

TYPE_CHECKING = False

if TYPE_CHECKING:
    from cepheid._native import Engine


class Intake:
    """An intake by its configuration, which is JSON (native/src/intake/config.rs). ValueError if it can't start.

    An engine that follows its log from then on is given what comes on the intake's own thread.
    """

    def __init__(self, config: str, engine: Engine | None = None) -> None:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._ready = Event()
        self._failure: str | None = None
        #: The addresses it listens on.
        self.listening: list[str] = []
        self._ended = Event()
        start(self._run, config, engine)
        self._ready.wait()
        if self._failure is not None:
            self.stop()
            raise ValueError(self._failure)

    def wake(self) -> None:
        """Makes it read its streams again, from the file that its configuration names."""
        os.write(self._writing, bytes([signal.SIGHUP]))

    def stop(self) -> None:
        """Ends it in order: everything that was acknowledged is synced."""
        if self._writing < 0:
            return
        os.write(self._writing, bytes([signal.SIGTERM]))
        self._ended.wait()
        os.close(self._writing)
        os.close(self._reading)
        self._writing = -1

    def _run(self, config: str, engine: Engine | None) -> None:
        def ready(listening: list[str], _realtime: bool | None) -> None:
            self.listening = listening
            self._ready.set()

        try:
            run_intake(config, self._reading, ready, engine)
        except (OSError, ValueError) as error:
            self._failure = str(error)
        finally:
            self._ready.set()
            self._ended.set()
