"""The outline of a χ-CEP query: which streams it reads and which clauses ask for the fast lane.

Reads tokens only, so it works for any query that a person may be in the middle of writing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: The clauses that place a query in the real-time service.
FAST_CLAUSES: Final = ("PRIORITY", "VALID", "ALIGN")

_TOKEN = re.compile(
    r"""(?P<comment>(?:\#|--)[^\n]*)
      | (?P<string>"(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*')
      | (?P<iri><[^<>\s]*>)
      | (?P<variable>\?\w+)
      | (?P<word>[^\W\d]\w*)
      | (?P<symbol>\S)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Outline:
    """`streams` are those of FROM, each once and in order; `priority` is the level that PRIORITY names."""

    streams: tuple[str, ...]
    fast_clauses: tuple[str, ...]
    priority: str | None


def outline(text: str) -> Outline:
    """The outline of a query's text."""
    tokens = list(_clause_tokens(text))
    streams: dict[str, None] = {}
    fast: dict[str, None] = {}
    priority = None
    i = 0
    while i < len(tokens):
        word = tokens[i].upper()
        if word == "FROM":
            i = _read_from(tokens, i + 1, streams)
            continue
        if word in FAST_CLAUSES:
            fast[word] = None
        if word == "PRIORITY" and i + 1 < len(tokens):
            priority = tokens[i + 1]
            i += 1
        i += 1
    return Outline(tuple(streams), tuple(fast), priority)


def _clause_tokens(text: str) -> Iterator[str]:
    """Words and symbols outside of strings, comments, IRIs and PATH groups, less the names behind a dot or colon."""
    depth = 0
    behind = ""
    for found in _TOKEN.finditer(text):
        kind, word = found.lastgroup, found.group()
        if kind in ("comment", "string", "iri"):
            continue
        if word in "{}":
            depth = max(0, depth + (1 if word == "{" else -1))
        elif depth == 0 and not (kind == "word" and behind in (".", ":")):
            yield word
        behind = word


def _read_from(tokens: list[str], i: int, streams: dict[str, None]) -> int:
    """Reads `(?e, a | b), (?f, c)` from position i on; returns the position behind it."""
    while i < len(tokens) and tokens[i] == "(":
        i += 1
        while i < len(tokens) and tokens[i] != ")":
            if re.match(r"[^\W\d]", tokens[i]):
                streams[tokens[i]] = None
            i += 1
        i += 1
        if i < len(tokens) and tokens[i] == ",":
            i += 1
    return i
