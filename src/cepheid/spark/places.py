"""Where data lies: a local path, or a URI that only Spark can open (s3a://, hdfs://)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_MARKS = re.compile(r"[\\*?\[\]{}]")


def local(place: str | Path) -> Path | None:
    """The absolute path of a local place, None of a remote one."""
    text = str(place)
    if not _URI.match(text):
        return Path(text).expanduser().absolute()
    return Path(unquote(urlsplit(text).path)) if text.startswith("file:") else None


def shown(uri: str) -> str:
    """The place of a file that Spark read, as people write it: a local one as a path."""
    path = local(uri)
    return uri if path is None else str(path)


def normal(place: str | Path) -> str:
    """The place as text that means the same in whatever folder Spark runs."""
    path = local(place)
    return str(place).rstrip("/") if path is None else str(path)


def exists(path: Path) -> bool:
    """Whether there is something that can be seen; Path.exists would raise where a folder may not be entered."""
    return os.path.exists(path)  # noqa: PTH110


def is_pattern(place: str) -> bool:
    """Whether a place has the marks of a pattern, such as `data/*.jsonl`, and no file has that very name."""
    path = local(place)
    return _MARKS.search(place) is not None and not (path is not None and exists(path))


def is_plain(place: str) -> bool:
    """Whether Spark takes a place for what it is, because nothing in it could be a mark of a pattern."""
    return _MARKS.search(place) is None


def literal(place: str) -> str:
    """The pattern that means this place only: Spark takes every path that it reads for a pattern.

    A name without marks gets one, `[a]irflow.jsonl`: a stream reads a single file only if a pattern gives it.
    """
    escaped = _MARKS.sub(r"\\\g<0>", place)
    folder, slash, name = escaped.rpartition("/")
    if escaped != place or not slash or folder.endswith("/"):
        return escaped
    return f"{folder}/" + re.sub(r"\w", r"[\g<0>]", name, count=1)
