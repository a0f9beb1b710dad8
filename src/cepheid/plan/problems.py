"""What a rule finds wrong in a graph, at a path that the front end can point to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cepheid.language.errors import Severity, Span

#: Where in the application a problem is, as keys and positions: ("graph", "fused", "inputs", 1).
Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault or a doubt about a graph.

    `at_key` points to the name at the path rather than to its value; `inside` to a place in the text at the path.
    """

    severity: Severity
    code: str
    message: str
    where: Path
    hint: str | None = None
    at_key: bool = False
    inside: Span | None = None


def error(code: str, message: str, where: Path, hint: str | None = None, *, at_key: bool = False) -> Problem:
    return Problem("error", code, message, where, hint, at_key)


def warning(code: str, message: str, where: Path, hint: str | None = None, *, at_key: bool = False) -> Problem:
    return Problem("warning", code, message, where, hint, at_key)
