"""The raw records of an event file, whichever its format."""

from __future__ import annotations

from collections.abc import Iterator

from cepheid.model.columns import Columns
from cepheid.model.csv_rows import csv_rows
from cepheid.model.files import EventFile
from cepheid.model.lines import lines, without_end
from cepheid.model.parquet_rows import parquet_rows
from cepheid.model.records import RawRecord, parse_json_line, too_long
from cepheid.model.types import Form, Misfit


def rows(file: EventFile, columns: Columns) -> Iterator[RawRecord]:
    """The records of a file, in its order; UnreadableFile if it cannot be read, or not with these columns."""
    if file.format == "csv":
        return csv_rows(file, columns)
    if file.format == "parquet":
        return parquet_rows(file, columns)
    return _json_rows(file)


def form(file: EventFile) -> Form:
    """How the values of a file's records are written."""
    return "text" if file.format == "csv" else "json"


def _json_rows(file: EventFile) -> Iterator[RawRecord]:
    for number, line, length in lines(file):
        if length:
            yield number, too_long(length), line
        elif line and not line.isspace():
            try:
                record = parse_json_line(line)
            except Misfit as misfit:
                yield number, misfit, without_end(line)
            else:
                yield number, record, line
