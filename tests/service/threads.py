"""The threads of a process, which may come and go while they are looked at."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def of_threads(process: int | str, file: str) -> dict[int, str]:
    """By thread, what a file of it in /proc says; of those that are still there."""
    found: dict[int, str] = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found[int(task.name)] = (task / file).read_text()
    return found
