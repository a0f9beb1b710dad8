"""Numbers of versions that outlive a process: what each stands for is written down beside the journal.

So a number in a match says by which knowledge its events were judged, whoever found it and however often that was
started again. A line a version: {"version": 3, "digest": "91f2...", "time": "..."}.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from pathlib import Path
from typing import Any, Final

from cepheid.model.time import format_instant

_log: Final = logging.getLogger("cepheid.knowledge")


class Versions:
    """The versions that were in force, in a file that several processes may write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def first(self, digest: str) -> int:
        """The number of contents that someone begins with: the last one, if they are the same, or the next."""
        return self._numbered(digest, None)

    def after(self, version: int, digest: str) -> int:
        """The number of contents that follow a version: as another has numbered them since, or the next."""
        return self._numbered(digest, version)

    def known(self, digest: str) -> int | None:
        """The number that contents had last; None if nobody has numbered them."""
        try:
            lines = [_line(text) for text in self._path.read_bytes().splitlines()]
        except OSError:
            return None
        return next((line["version"] for line in reversed(lines) if line and line["digest"] == digest), None)

    def _numbered(self, digest: str, since: int | None) -> int:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                known = [line for text in file.read().splitlines() if (line := _line(text)) is not None]
                for line in known[-1:] if since is None else known:
                    if line["digest"] == digest and line["version"] > (since or 0):
                        return int(line["version"])
                version = max([int(line["version"]) for line in known] + [since or 0]) + 1
                said = {"version": version, "digest": digest, "time": format_instant(time.time_ns() // 1000)}
                file.write(json.dumps(said).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
                return version
        except OSError as error:
            _log.warning("versions of the knowledge are not written down: %s: %s", self._path, error.strerror or error)
            return (since or 0) + 1


def _line(text: bytes) -> dict[str, Any] | None:
    """A line of the file; None for one that was cut off."""
    try:
        line = json.loads(text)
        return line if {"version", "digest"} <= line.keys() else None
    except (ValueError, AttributeError):
        return None
