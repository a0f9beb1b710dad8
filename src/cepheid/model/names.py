"""Suggest the name a user most likely meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
