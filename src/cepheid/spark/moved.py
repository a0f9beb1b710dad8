"""Checkpoints that were moved, with the files that they have read: to another folder, or another machine.

Spark knows files by their whole paths, and elsewhere it would read them all again. So beside the checkpoints it is
written down where they lie, and when they lie elsewhere, the files that went with them are given their new paths.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from cepheid.spark.places import local

_NOTE: Final = "place"
_FILE: Final = "file://"
#: What Hadoop leaves as it is in the URI of a path, besides letters, digits and all that is not ASCII.
_PLAIN: Final = "/-_.~!$&'()*+,;=:@"


def follow_move(checkpoints: str) -> None:
    """Before checkpoints in a folder are used: makes them those of where the folder is now."""
    folder = local(checkpoints)
    if folder is None:
        return
    note = folder / _NOTE
    before = Path(note.read_text(encoding="utf-8")) if note.exists() else folder
    if before != folder:
        moved = _moved(before, folder)
        for log in folder.glob("*/sources/*/*"):
            if log.name[0] != "." and log.is_file():
                _rewrite(log, moved)
    if before != folder or not note.exists():
        folder.mkdir(parents=True, exist_ok=True)
        note.write_text(str(folder), encoding="utf-8")


def _moved(before: Path, now: Path) -> Callable[[str], str]:
    """The new URI of a file that went from where one folder was to where it is, and its old one if it did not."""
    old, new = list(before.parts), list(now.parts)
    while len(old) > 1 and len(new) > 1 and old[-1] == new[-1]:  # what is the same behind was moved as a whole
        old.pop()
        new.pop()

    def moved(uri: str) -> str:
        path = local(uri) if uri.startswith(_FILE) else None
        if path is None or list(path.parts[: len(old)]) != old or not Path(*new, *path.parts[len(old) :]).exists():
            return uri
        rest = uri.removeprefix(_FILE).split("/")[len(old) :]  # as Spark wrote it
        root = "".join(c if ord(c) > 127 else quote(c, safe=_PLAIN) for c in str(Path(*new)).rstrip("/"))
        return "/".join([_FILE + root, *rest])

    return moved


def _rewrite(log: Path, moved: Callable[[str], str]) -> None:
    """Gives the files of a batch, a line of JSON each behind the version, their new paths."""
    version, *lines = log.read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    if not entries or not all("path" in entry for entry in entries):
        return  # of another kind of source
    content = [json.dumps(entry | {"path": moved(entry["path"])}, separators=(",", ":")) for entry in entries]
    log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    log.write_text("\n".join([version, *content]), encoding="utf-8")
