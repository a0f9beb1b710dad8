"""Changes that outlive a process: `cepheid knowledge apply` appends to a file, and whoever runs follows it.

A line an entry: {"added": [...], "removed": [...]}, triples as N-Triples. The last word on a triple counts.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pyoxigraph import Triple

from cepheid.knowledge.errors import KnowledgeError


def journal_of(folder: Path) -> Path:
    """The journal of an application in this folder."""
    return folder / "data" / "knowledge" / "changes.jsonl"


@dataclass(slots=True)
class Entries:
    """The lines that are to be there and those that are not, and how far the journal was read."""

    added: dict[str, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    offset: int = 0
    skipped: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)

    def say(self, added: Iterable[str], removed: Iterable[str]) -> None:
        """Takes up an entry."""
        for text in removed:
            self.added.pop(text, None)
            self.removed[text] = None
        for text in added:
            self.removed.pop(text, None)
            self.added[text] = None

    def followed_by(self, added: Iterable[str], removed: Iterable[str]) -> Entries:
        """These, and then an entry."""
        both = Entries(dict(self.added), dict(self.removed))
        both.say(added, removed)
        return both


def append(path: Path, added: Iterable[Triple], removed: Iterable[Triple]) -> None:
    """Append an entry; it is on disk when this returns."""
    entry = {"added": [f"{triple} ." for triple in added], "removed": [f"{triple} ." for triple in removed]}
    line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
                if file.read(1) != b"\n":  # of a process that was killed while it wrote
                    line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise KnowledgeError(f"{path}: {error.strerror or error}") from None


def read(path: Path, offset: int = 0) -> Entries:
    """The entries from an offset on, as far as they are complete; lines that are none are skipped and counted."""
    entries = Entries(offset=offset)
    try:
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read()
    except FileNotFoundError:
        return entries
    complete = content[: content.rfind(b"\n") + 1]
    entries.offset += len(complete)
    for line in complete.splitlines():
        try:
            entry = json.loads(line)
            added, removed = [*map(str, entry["added"])], [*map(str, entry["removed"])]
        except (ValueError, KeyError, TypeError):
            entries.skipped += bool(line.strip())
            continue
        entries.say(added, removed)
    return entries
