"""What was read and concluded, kept on disk: an unchanged file is not parsed again, nor a conclusion drawn twice.

    parts/<key>.json, .nt    what a file says; the key is made of its contents and place
    closures/<key>/          facts.nt, and ruled.nt with what rules in SPARQL added; store/, where there are many facts

Several processes may share a folder: things appear in it complete, by renaming. The least recently used are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyoxigraph import RdfFormat, Store, parse

from cepheid.knowledge.sources import Part

#: So many are kept; a closure of 50,000 sensors has about 100 MB.
_PARTS: Final = 64
_CLOSURES: Final = 8
#: Facts of more bytes are also kept as a store on disk: about 150,000 triples, which take a third of a second to load.
_MANY_BYTES: Final = 20_000_000
#: Nobody writes for so long.
_ABANDONED_SECONDS: Final = 3600


def default_cache() -> Path:
    """Under $CEPHEID_HOME, or else ~/.cache/cepheid."""
    home = os.environ.get("CEPHEID_HOME") or "~/.cache/cepheid"
    return Path(home).expanduser().absolute() / "knowledge"


@dataclass(frozen=True, slots=True)
class Closure:
    """Where the conclusions of some parts are kept."""

    folder: Path

    @property
    def facts(self) -> Path:
        return self.folder / "facts.nt"

    @property
    def ruled(self) -> Path:
        return self.folder / "ruled.nt"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def open(self) -> Store:
        """The facts: in memory, or where they are many on disk, which is open at once and slower to ask."""
        if self.store.is_dir():
            return Store.read_only(str(self.store))
        return self.in_memory()

    def in_memory(self) -> Store:
        """The facts in memory."""
        store = Store()
        store.bulk_extend(parse(path=self.facts, format=RdfFormat.N_TRIPLES, lenient=True))
        return store


class Cache:
    """A folder of parts and closures. What can't be written or read is as if it had not been kept."""

    def __init__(self, folder: Path) -> None:
        self._parts = folder / "parts"
        self._closures = folder / "closures"

    def part(self, key: str) -> Part | None:
        """The part of that key, if it is kept."""
        file = self._parts / f"{key}.nt"
        try:
            about = json.loads((self._parts / f"{key}.json").read_bytes())
            own = (about["hash"], file, tuple(about["ontologies"]), tuple(about["imports"]), about["text"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not file.is_file():
            return None
        _touch(self._parts / f"{key}.json")
        return Part(key, *own)

    def keep(self, part: Part) -> None:
        """Keep a part."""
        about = {
            "hash": part.hash,
            "text": part.text_hash,
            "ontologies": part.ontologies,
            "imports": part.imports,
        }
        with contextlib.suppress(OSError):
            with _appearing(self._parts / f"{part.key}.nt") as file:
                file.write_text(part.text, encoding="utf-8")
            with _appearing(self._parts / f"{part.key}.json") as file:
                file.write_text(json.dumps(about), encoding="utf-8")
            for old in _least_recent(self._parts, "*.json", _PARTS):
                old.unlink(missing_ok=True)
                old.with_suffix(".nt").unlink(missing_ok=True)

    def closure(self, key: str) -> Closure | None:
        """The closure of that key, if it is kept."""
        found = Closure(self._closures / key)
        if not found.facts.is_file() or not found.ruled.is_file():
            return None
        _touch(found.folder)
        return found

    def keep_closure(self, key: str, facts: str, ruled: str) -> None:
        """Keep conclusions."""
        with contextlib.suppress(OSError):
            with _appearing(self._closures / key) as folder:
                folder.mkdir()
                Closure(folder).facts.write_text(facts, encoding="utf-8")
                Closure(folder).ruled.write_text(ruled, encoding="utf-8")
                if len(facts) > _MANY_BYTES:
                    _write_store(Closure(folder))
            for old in _least_recent(self._closures, "*", _CLOSURES):
                shutil.rmtree(old, ignore_errors=True)


def _write_store(closure: Closure) -> None:
    store = Store(str(closure.store))
    store.bulk_extend(parse(path=closure.facts, format=RdfFormat.N_TRIPLES, lenient=True))
    store.flush()


@contextlib.contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """A path to write to, which becomes `path` when all is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(".new-*"):  # of a process that was killed
        if time.time() - leftover.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=path.parent) as work:
        new = Path(work) / path.name
        yield new
        with contextlib.suppress(FileExistsError, OSError):  # another process was faster with the same
            new.rename(path)


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(path)


def _least_recent(folder: Path, pattern: str, kept: int) -> list[Path]:
    found = [path for path in folder.glob(pattern) if not path.name.startswith(".")]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[kept:]
