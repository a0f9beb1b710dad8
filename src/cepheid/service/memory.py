"""A folder in memory, for the log of a service that keeps none; what services left that were killed is removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_SHARED: Final = Path("/dev/shm")  # noqa: S108 - a folder there is made as safely as in /tmp
_PREFIX: Final = "cepheid-log-"
#: A folder that is younger, in seconds, may be somebody's who has not locked it yet.
_YOUNG: Final = 10.0


class MemoryFolder:
    """The folder, locked as long as this process lives."""

    def __init__(self) -> None:
        _remove_left()
        self._folder = tempfile.TemporaryDirectory(dir=_SHARED, prefix=_PREFIX)
        self.path = Path(self._folder.name)
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Removes it, with all that is in it."""
        self._folder.cleanup()
        os.close(self._lock)


def _remove_left() -> None:
    for folder in _SHARED.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody else's, or somebody else removes it
            if time.time() - folder.stat().st_mtime < _YOUNG:
                continue
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)
