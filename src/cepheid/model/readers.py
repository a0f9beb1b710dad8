"""Events from files and standard input, one by one: JSON Lines, CSV and Parquet (rules E3 and E4).

    for item in read_events(["airflow.jsonl", "rooms.csv.gz"], streams):
        ...  # an Event, or a DeadLetter that says what is wrong with which line

Where no streams are declared, `cepheid.model.inference` finds them in the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cepheid.model.columns import Columns
from cepheid.model.events import Event, EventId
from cepheid.model.files import EventFile, Format, Source, UnreadableFile, event_file, rereadable
from cepheid.model.lines import without_end
from cepheid.model.parquet_rows import row_text
from cepheid.model.records import DeadLetter, RecordDecoder
from cepheid.model.rows import form, rows
from cepheid.model.streams import Stream
from cepheid.model.types import Misfit

__all__ = ["EventFile", "Format", "Source", "UnreadableFile", "read_events", "rereadable", "without_duplicates"]


def read_events(
    sources: Iterable[Source],
    streams: Iterable[Stream],
    file_format: Format | None = None,
    *,
    default_stream: str | None = None,
) -> Iterator[Event | DeadLetter]:
    """The events and dead letters of files, in the order of files and records; "-" is standard input.

    The format follows from a file's extension, or is `file_format` for all. Memory is bounded by one record, or in
    Parquet by a row group. A file that cannot be read is an UnreadableFile, raised when its turn comes. A record that
    names no stream is of `default_stream`, or of the only one.
    """
    declared = list(streams)
    columns = Columns(declared)
    decoder = RecordDecoder(declared, default_stream=default_stream)
    for source in sources:
        file = event_file(source, file_format)
        yield from _read_file(file, columns, decoder.in_form(form(file)))


def _read_file(file: EventFile, columns: Columns, decoder: RecordDecoder) -> Iterator[Event | DeadLetter]:
    decode = decoder.decode
    item: Event | DeadLetter
    for number, record, raw in rows(file, columns):
        if isinstance(record, Misfit):
            item = DeadLetter(record.code, str(record), raw or b"", file.name, number)
        else:
            try:
                item = decode(record)
            except Misfit as misfit:
                kept = row_text(record) if raw is None else without_end(raw)
                item = DeadLetter(misfit.code, str(misfit), kept, file.name, number, decoder.stream_of(record))
        yield item


def without_duplicates(
    events: Iterable[Event], on_duplicate: Callable[[Event], object] = lambda event: None
) -> Iterator[Event]:
    """The first event of each (stream, id), in the order they come (rule E4); each later one goes to `on_duplicate`.

    All (stream, id) pairs are kept in memory: in a file a duplicate may come at any distance.
    """
    seen: set[tuple[str, EventId]] = set()
    for event in events:
        key = (event.stream, event.id)
        if key in seen:
            on_duplicate(event)
        else:
            seen.add(key)
            yield event
