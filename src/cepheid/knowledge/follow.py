"""Following changes while a program runs: the journal that `cepheid knowledge apply` writes, and the source files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cepheid.knowledge.errors import KnowledgeError
from cepheid.knowledge.store import Knowledge
from cepheid.language.errors import Rejected

#: How often the journal is looked at, and how many of these looks go by until the files are.
_PAUSE_SECONDS: Final = 0.05
_LOOKS: Final = 10

_log: Final = logging.getLogger("cepheid.knowledge")


def _tell(fault: Exception) -> None:
    _log.error("the knowledge stays as it was: %s", fault)


class Follower:
    """Keeps knowledge up to date in a thread of its own until it is closed.

    A file or an entry that is broken, or would contradict the rest, is told to `on_fault` and changes nothing.
    """

    def __init__(self, knowledge: Knowledge, on_fault: Callable[[Exception], None] = _tell) -> None:
        self.knowledge = knowledge
        self._on_fault = on_fault
        self._ended = threading.Event()
        #: As the files were when they were last read, if that is known: they may have changed since they were loaded.
        self._seen: dict[Path, tuple[int, int]] | None = None
        self._thread = threading.Thread(target=self._run, name="knowledge", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following; waits for a change that is being made."""
        self._ended.set()
        self._thread.join()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        self._guarded(self.knowledge.prepare)
        looks = 0
        while not self._ended.wait(_PAUSE_SECONDS):
            self._guarded(self.knowledge.read_journal)
            looks += 1
            if looks % _LOOKS == 0 and (now := self._states()) != self._seen:
                self._seen = now
                self._guarded(self.knowledge.reload)

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (KnowledgeError, Rejected, OSError) as fault:
            self._on_fault(fault)

    def _states(self) -> dict[Path, tuple[int, int]]:
        """When each file was last written, and its size."""
        states = {}
        for _, path in self.knowledge.files:
            try:
                about = path.stat()
            except OSError:
                continue
            states[path] = (about.st_mtime_ns, about.st_size)
        return states
