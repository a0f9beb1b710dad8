"""Events and dead letters to files and standard output: JSON Lines, CSV and Parquet.

    with event_writer("out.parquet", streams) as writer:
        writer.write(event)

A file appears under its name only when all of it is written: a crash leaves an old file as it was and no half one.

What was written reads back as equal events, given the same streams. CSV is weaker: an empty string, or empty bytes, is
an empty cell and so null; and ids that are text but look like numbers need a stream with `id_kind` "string".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import BinaryIO, Final, Protocol, Self

from cepheid.model.events import Event
from cepheid.model.files import STANDARD_STREAM, Format, Source, event_file
from cepheid.model.outputs import UnwritableFile, replacing
from cepheid.model.parquet_writer import ParquetWriter
from cepheid.model.records import DeadLetter, encode_event
from cepheid.model.streams import IMPLIED, Stream
from cepheid.model.types import Json

__all__ = ["DeadLetterWriter", "EventWriter", "UnwritableFile", "event_writer"]

_to_json: Final[Callable[[Json], str]] = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class EventWriter(Protocol):
    """Writes events to one file."""

    def write(self, event: Event) -> None:
        """Write an event; ValueError if it is of a stream that the writer was not given."""


@contextmanager
def event_writer(target: Source, streams: Iterable[Stream], file_format: Format | None = None) -> Iterator[EventWriter]:
    """A writer of events of these streams; the format follows from the extension, "-" is standard output.

    Leaving the block by an exception discards the file.
    """
    file = event_file(target, file_format)
    if file.format == "parquet" and file.path == STANDARD_STREAM:
        raise UnwritableFile("standard output: Parquet is for files; name one")
    with replacing(file) as output:
        if file.format == "parquet":
            parquet = ParquetWriter(output, streams)
            try:
                yield parquet
                parquet.finish()
            finally:
                parquet.close()
        else:
            yield _JsonLinesWriter(output, streams) if file.format == "jsonl" else _CsvWriter(output, streams)


class _JsonLinesWriter:
    def __init__(self, output: BinaryIO, streams: Iterable[Stream]) -> None:
        self._write = output.write
        self._encode = _Encoder(streams)

    def write(self, event: Event) -> None:
        self._write(_to_json(self._encode(event)).encode() + b"\n")


class _CsvWriter:
    """Writes a header of stream, id, time and the attributes of all streams, then a row an event."""

    def __init__(self, output: BinaryIO, streams: Iterable[Stream]) -> None:
        given = list(streams)
        self._write = output.write
        self._encode = _Encoder(given)
        self._names = list(dict.fromkeys([*IMPLIED, *(name for stream in given for name in stream.attributes)]))
        self._write_row(self._names)

    def write(self, event: Event) -> None:
        if event.id == "":
            raise ValueError("an empty id cannot be written to CSV, where an empty cell is none")
        record = self._encode(event)
        self._write_row([_cell(record.get(name)) for name in self._names])

    def _write_row(self, cells: Iterable[str]) -> None:
        self._write(",".join(map(_quoted, cells)).encode() + b"\n")


class _Encoder:
    """Makes records of events."""

    def __init__(self, streams: Iterable[Stream]) -> None:
        self._types = {stream.name: stream.attributes for stream in streams}

    def __call__(self, event: Event) -> dict[str, Json]:
        if event.stream not in self._types:
            raise ValueError(f"the writer was given no stream '{event.stream}'")
        return encode_event(event, self._types[event.stream])


def _cell(value: Json) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else _to_json(value)


def _quoted(cell: str) -> str:
    if any(character in cell for character in ',"\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


class DeadLetterWriter:
    """Writes dead letters as JSON Lines; use it as a context manager. "-" is standard output.

    The record stands under `raw` if it is text, else under `raw_base64`.
    """

    def __init__(self, target: Source) -> None:
        self._file = replacing(event_file(target, "jsonl"))

    def __enter__(self) -> Self:
        self._output = self._file.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, trace)

    def write(self, letter: DeadLetter) -> None:
        record: dict[str, Json] = {
            "source": letter.source,
            "line": letter.line,
            "stream": letter.stream,
            "code": letter.code,
            "reason": letter.reason,
        }
        try:
            record["raw"] = letter.raw.decode()
        except UnicodeDecodeError:
            record["raw_base64"] = base64.b64encode(letter.raw).decode()
        self._output.write(_to_json(record).encode() + b"\n")
