"""Suggest the name a user most likely meant, of a thing or of a file."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to `name`, or None when nothing is close: `nearest("flowrat", ["flowrate"])`."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """A hint for an unknown name: the nearest known one, else the known ones if they are few, else None."""
    names = sorted(set(known))
    close = nearest(name, names)
    if close is not None:
        return f"did you mean '{close}'?"
    if names and len(names) <= 12:
        return "known: " + ", ".join(names)
    return None


#: What to think of when a path in a file leads nowhere.
RELATIVE: Final = "a path is relative to the file that it is written in"


def near_file(path: Path, endings: Collection[str], otherwise: str = RELATIVE) -> str:
    """A hint for a file that is not there: the one of these endings beside it with the nearest name, or what is there.

    A folder without any is most likely the wrong one.
    """
    try:
        there = sorted(p.name for p in path.parent.iterdir() if p.suffix.lower() in endings)
    except OSError:
        return f"there is no folder {path.parent}"
    close = nearest(path.stem, (Path(name).stem for name in there))
    if close is not None:
        return f"did you mean '{next(name for name in there if Path(name).stem == close)}'?"
    if not there:
        return otherwise
    return "here: " + ", ".join(there[:8]) + (f" and {len(there) - 8} more" if len(there) > 8 else "")
