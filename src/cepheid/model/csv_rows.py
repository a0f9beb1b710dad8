"""Records of a CSV file, by RFC 4180: a header row, commas, cells that may be quoted and then hold line ends.

A quote that is never closed costs its own line only: the lines after it are read again as records.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Final, TypeAlias

from cepheid.model.columns import Columns
from cepheid.model.files import EventFile, UnreadableFile
from cepheid.model.lines import Line, lines, without_end
from cepheid.model.records import MAX_RECORD_BYTES, RawRecord, decode_utf8, too_long
from cepheid.model.types import Misfit

_CELL: Final = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^",]*))(,|\Z)')

#: The number of the line where a record starts, its cells or why it has none, and its bytes.
_Cells: TypeAlias = tuple[int, list[str] | Misfit, bytes]


def csv_rows(file: EventFile, columns: Columns) -> Iterator[RawRecord]:
    """The records of a CSV file by column name; an empty cell is null, and means nothing in a stream that lacks it."""
    records = _Records(lines(file))
    names = _header(file, records, columns)
    for number, cells, raw in records:
        if isinstance(cells, Misfit):
            yield number, cells, raw
        elif len(cells) != len(names):
            yield number, Misfit("not-csv", f"the row has {len(cells)} cells, the header {len(names)}"), raw
        else:
            yield number, dict(zip(names, cells, strict=True)), raw


def _header(file: EventFile, records: Iterator[_Cells], columns: Columns) -> list[str]:
    number, cells, _ = next(records, (1, Misfit("not-csv", "the file is empty"), b""))
    where = f"{file.name}:{number}"
    if isinstance(cells, Misfit):
        raise UnreadableFile(f"{where}: no header row that names the columns: {cells}")
    names = [cell.strip() for cell in cells]
    columns.check(names, where)
    return names


class _Records:
    """Puts the physical lines of a CSV file together to records and splits these into cells."""

    def __init__(self, source: Iterator[Line]) -> None:
        self._source = source
        self._given_back: deque[Line] = deque()

    def __iter__(self) -> Iterator[_Cells]:
        return self

    def __next__(self) -> _Cells:
        while (line := self._next_line()) is not None:
            number, raw, length = line
            if length:
                return number, too_long(length), raw
            if not raw or raw.isspace():
                continue
            if b'"' in raw:
                return self._quoted_record(number, raw)
            content = without_end(raw)
            try:
                return number, decode_utf8(content).split(","), content
            except Misfit as misfit:
                return number, misfit, content
        raise StopIteration

    def _next_line(self) -> Line | None:
        return self._given_back.popleft() if self._given_back else next(self._source, None)

    def _quoted_record(self, number: int, first: bytes) -> _Cells:
        """The record that starts with this line, which has quotes; as long as their number is odd, one is open."""
        more: list[Line] = []
        size, is_open = len(first), first.count(b'"') % 2 == 1
        while is_open and size <= MAX_RECORD_BYTES and (line := self._next_line()) is not None:
            more.append(line)
            _, raw, length = line
            size += length or len(raw)
            is_open = raw.count(b'"') % 2 == 0
        content = without_end(first + b"".join(raw for _, raw, _ in more))
        try:
            if is_open or size > MAX_RECORD_BYTES + len(b"\r\n"):
                raise _Malformed(f"a quote is opened and not closed within {MAX_RECORD_BYTES:,} bytes")
            return number, _split(decode_utf8(content)), content
        except _Malformed as malformed:
            self._given_back.extendleft(reversed(more))
            return number, malformed, without_end(first)
        except Misfit as misfit:
            return number, misfit, content


class _Malformed(Misfit):
    """The quotes in a line make no cells."""

    def __init__(self, message: str) -> None:
        super().__init__("not-csv", message)


def _split(text: str) -> list[str]:
    cells: list[str] = []
    position, separator = 0, ","
    while separator:
        cell = _CELL.match(text, position)
        if cell is None:
            raise _Malformed(f"cell {len(cells) + 1} has a quote in its middle; write it twice, in a quoted cell")
        quoted, plain, separator = cell.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        position = cell.end()
    return cells
