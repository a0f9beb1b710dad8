"""Errors that say what was wrong, where (file:line:column and a caret), and what to do."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning"]

#: The hint for whoever names a file that is no query.
QUERY_FILE: Final = "a query is a text file: SELECT ?e.id FROM (?e, stream)"
#: An excerpt of a longer line shows this many columns around the error.
_EXCERPT: Final = 120


@dataclass(frozen=True, slots=True)
class Source:
    """A text that a user wrote, and the name it goes by in messages."""

    name: str
    text: str
    _lines: list[str] = field(default_factory=list, repr=False, compare=False)

    def line(self, number: int) -> str:
        """The line of that number, from 1; empty past the end."""
        if not self._lines:
            self._lines.extend(line.rstrip("\r") for line in self.text.split("\n"))
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a source: from line and column up to, not including, the end; both count from 1."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing to tell the user. `code` is stable, for editors and tests; `hint` says what to do."""

    severity: Severity
    code: str
    message: str
    span: Span | None = None
    hint: str | None = None

    def as_json(self) -> dict[str, object]:
        """The form of `check --format json`."""
        span = self.span
        return {
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "file": span.source.name if span else None,
            "line": span.line if span else None,
            "column": span.column if span else None,
            "end_line": span.end_line if span else None,
            "end_column": span.end_column if span else None,
        }

    def render(self, color: bool = False) -> str:
        """The text form: place, message, the line with a caret under the fault, and the hint."""
        paint = _paint if color else _plain
        tone = "31;1" if self.severity == "error" else "33;1"
        place = f"{self.span}: " if self.span else ""
        lines = [f"{paint('1', place)}{paint(tone, self.severity + ':')} {paint('1', self.message)}"]
        if self.span:
            lines += _excerpt(self.span, paint, tone)
        if self.hint:
            lines.append(f"  {paint('36', 'hint:')} {self.hint}")
        return "\n".join(lines)


class Rejected(ValueError):
    """What a user wrote can't be used. Holds every diagnostic, so that all can be mended at once."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = list(diagnostics)
        super().__init__("\n".join(diagnostic.render() for diagnostic in self.diagnostics))


def _plain(_tone: str, text: str) -> str:
    return text


def _paint(tone: str, text: str) -> str:
    return f"\x1b[{tone}m{text}\x1b[0m" if text else ""


def _excerpt(span: Span, paint: Callable[[str, str], str], tone: str) -> list[str]:
    raw = span.source.line(span.line)
    end = span.end_column if span.end_line == span.line else len(raw) + 1
    start, end = span.column - 1, max(min(end - 1, len(raw)), span.column)
    if len(raw) > _EXCERPT:
        cut = max(0, min(start - _EXCERPT // 3, len(raw) - _EXCERPT))
        raw = ("…" if cut else "") + raw[cut : cut + _EXCERPT] + ("…" if cut + _EXCERPT < len(raw) else "")
        start, end = start - cut + (cut > 0), min(end - cut + (cut > 0), len(raw))
    lead = _printable(raw[:start])
    marked = _printable(raw[start:end])
    number = str(span.line)
    gutter = " " * len(number)
    carets = "^" * max(1, _width(marked))
    return [
        f"  {number} | {lead}{marked}{_printable(raw[end:])}".rstrip(),
        f"  {gutter} | {' ' * _width(lead)}{paint(tone, carets)}",
    ]


def _printable(text: str) -> str:
    """Tabs as four spaces; control characters, which could confuse a terminal, as a dot."""
    return "".join(c if c.isprintable() else "    " if c == "\t" else "·" for c in text)


def _width(text: str) -> int:
    """Columns that a text takes in a terminal: wide characters two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
