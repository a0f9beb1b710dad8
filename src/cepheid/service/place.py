"""Where a consumer is that acknowledges: the matches it has handled that the service may send again, in a file.

One id a line. Each is written when the match was handled, before that is acknowledged, so a consumer that is killed
anywhere and started again knows what it had. The service says how far its own place is safe; what is before that never
comes again, and is forgotten here.
"""

from __future__ import annotations

import fcntl
import os
from itertools import takewhile
from pathlib import Path
from typing import Final

#: Of what came from engines before this one, so many are known. What they had not written down is far less.
_OLD: Final = 1 << 16
#: So many lines of the file may be of no use before it is written anew.
_USELESS: Final = 1 << 12


class Place:
    """The place of one consumer; a file that only one process has at a time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = _opened(self.path)
        with open(self._file, "rb", closefd=False) as file:
            lines = file.read().decode(errors="replace").splitlines()
        #: Handled in an earlier life, or while there was another engine.
        self._old: dict[str, None] = dict.fromkeys(lines)
        #: Handled since, with their numbers, which rise.
        self._numbers: dict[str, int] = {}
        self._began: int | None = None
        self._done = 0
        self._lines = len(lines)

    def begin(self, began: int) -> None:
        """The service numbers from here on; if that is another beginning, so are the numbers."""
        if began != self._began:
            self._began = began
            self._old |= dict.fromkeys(self._numbers)
            self._numbers.clear()
            for identity in list(self._old)[:-_OLD]:
                del self._old[identity]

    def had(self, identity: str, number: int) -> bool:
        """Whether a match that came was handled before."""
        if identity in self._old:
            del self._old[identity]
            self._numbers[identity] = number
        return identity in self._numbers

    def handled(self, identity: str, number: int) -> None:
        """A match was handled. OSError if that can't be written; it is known for as long as this process lives."""
        self._numbers[identity] = number
        os.write(self._file, f"{identity}\n".encode())
        self._lines += 1
        if self._lines > len(self._old) + len(self._numbers) + _USELESS:
            self._write_anew()

    def done(self, number: int) -> None:
        """What is before a number never comes again."""
        if number != self._done:
            self._done = number
            for identity in list(takewhile(lambda known: self._numbers[known] < number, self._numbers)):
                del self._numbers[identity]

    def close(self) -> None:
        """Lets another process have it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write_anew(self) -> None:
        known = [*self._old, *self._numbers]
        beside = self.path.with_name(f"{self.path.name}.new")
        beside.unlink(missing_ok=True)
        file = _opened(beside)
        with open(file, "wb", closefd=False) as writing:
            writing.write("".join(f"{identity}\n" for identity in known).encode())
        beside.replace(self.path)
        os.close(self._file)
        self._file, self._lines = file, len(known)


def _opened(path: Path) -> int:
    """A descriptor of a file that nobody else has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise ValueError(f"{path} is the place of another consumer that runs; give each its own") from None
    return file
