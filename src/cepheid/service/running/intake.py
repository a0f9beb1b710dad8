"""An intake inside the process, on a thread of its own; all it does is native."""

from __future__ import annotations

import os
import signal
import threading

from cepheid._native import run_intake


class Intake:
    """An intake by its configuration, which is JSON (native/src/intake/config.rs). ValueError if it can't start."""

    def __init__(self, config: str) -> None:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._ready = threading.Event()
        self._failure: str | None = None
        #: The addresses it listens on.
        self.listening: list[str] = []
        self._thread = threading.Thread(target=self._run, args=(config,), name="intake", daemon=True)
        self._thread.start()
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
        self._thread.join()
        os.close(self._writing)
        os.close(self._reading)
        self._writing = -1

    def _run(self, config: str) -> None:
        def ready(listening: list[str], _realtime: bool | None) -> None:
            self.listening = listening
            self._ready.set()

        try:
            run_intake(config, self._reading, ready)
        except (OSError, ValueError) as error:
            self._failure = str(error)
        finally:
            self._ready.set()
