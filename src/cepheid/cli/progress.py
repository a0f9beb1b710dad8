"""How far a long command is, on one line of standard error; nothing where that is not a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self, TextIO, TypeVar

T = TypeVar("T")

#: Between two looks at the clock, so many items: a look costs as much as an item.
_ITEMS: Final = 256
_SECONDS: Final = 0.1
#: Back to the line's start, and what is on it gone.
_ERASE: Final = "\r\x1b[K"


class Progress:
    """A line that is written anew as things go on, and gone at the end, or when something else is to be written.

    with Progress() as progress:
        for event in progress.counted("events read", events): ...
    """

    def __init__(self, output: TextIO | None = None, *, shown: bool = True) -> None:
        self._output = sys.stderr if output is None else output
        self.is_shown = shown and self._output.isatty()
        self._drawn = 0.0
        self._is_there = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.erase()

    def counted(self, what: str, items: Iterable[T]) -> Iterable[T]:
        """The items; while they are taken the line says how many there were and how many a second."""
        return self._counted(what, items) if self.is_shown else items

    def _counted(self, what: str, items: Iterable[T]) -> Iterator[T]:
        began, count = time.monotonic(), 0
        for count, item in enumerate(items, 1):
            if count % _ITEMS == 0:
                self.show(f"{count:,} {what}{rate(count, began)}")
            yield item
        self.show(f"{count:,} {what}{rate(count, began)}", now=True)

    def show(self, text: str, *, now: bool = False) -> None:
        """Write the line, if the last time is long enough ago or it must be `now`."""
        moment = time.monotonic()
        if self.is_shown and (now or moment - self._drawn >= _SECONDS):
            self._drawn, self._is_there = moment, True
            self._output.write(_ERASE + text[: self._width() - 1])
            self._output.flush()

    def erase(self) -> None:
        """Make room for other output; the next `show` writes the line again."""
        if self._is_there:
            self._is_there = False
            self._output.write(_ERASE)
            self._output.flush()

    def _width(self) -> int:
        """A line that is longer than the terminal is wide could not be written over."""
        return os.get_terminal_size(self._output.fileno()).columns or 80


def rate(count: int, began: float) -> str:
    """`, 310,000/s`; nothing while that would say little."""
    elapsed = time.monotonic() - began
    return f", {count / elapsed:,.0f}/s" if elapsed >= _SECONDS else ""
