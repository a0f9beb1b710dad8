"""Threads, and what they wait for: as those of `threading`, without the megabyte that comes with it."""

from __future__ import annotations

import _thread
import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable


class Event:
    """Something that happens once."""

    def __init__(self) -> None:
        self._has_happened = False
        self._setting = _thread.allocate_lock()
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        """It has happened, if it had not before."""
        with self._setting:
            if not self._has_happened:
                self._has_happened = True
                self._lock.release()

    def wait(self, timeout: float = -1) -> bool:
        """Waits until it has happened, at most so many seconds; whether it has."""
        if not self._lock.acquire(timeout=timeout):
            return False
        self._lock.release()
        return True


def start(function: Callable[..., object], *arguments: object) -> None:
    """Runs a function on a thread that ends with the process."""
    _thread.start_new_thread(function, arguments)


def when_left(then: Callable[[], object]) -> None:
    """Calls a function when standard input ends: who started this process is gone, however that was."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        then()

    start(wait)
