"""Raw records become events or dead letters, in the executors (rule E3).

Whether a record fits is decided by `cepheid.model` alone; this carries records to it and the verdicts back as Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from cepheid.model.columns import Columns
from cepheid.model.events import Event
from cepheid.model.files import Format, UnreadableFile, event_file
from cepheid.model.lines import without_end
from cepheid.model.parquet_rows import row_text
from cepheid.model.records import MAX_RECORD_BYTES, RecordDecoder, parse_json_line
from cepheid.model.rows import form, rows
from cepheid.model.streams import Stream
from cepheid.model.types import Misfit, Raw, Type
from cepheid.spark.places import shown

Transform: TypeAlias = Callable[[DataFrame], DataFrame]

#: How each type is held by Spark, and by Arrow on the way there.
_TYPES: Final[Mapping[Type, tuple[st.DataType, pa.DataType]]] = {
    Type.BOOL: (st.BooleanType(), pa.bool_()),
    Type.INT: (st.LongType(), pa.int64()),
    Type.FLOAT: (st.DoubleType(), pa.float64()),
    Type.STRING: (st.StringType(), pa.string()),
    Type.TIMESTAMP: (st.TimestampType(), pa.timestamp("us", tz="UTC")),
    Type.BYTES: (st.BinaryType(), pa.binary()),
    Type.UINT8_ARRAY: (st.BinaryType(), pa.binary()),
    Type.FLOAT_ARRAY: (st.ArrayType(st.DoubleType()), pa.list_(pa.float64())),
}
_LETTER: Final = (
    ("stream", Type.STRING),
    ("code", Type.STRING),
    ("reason", Type.STRING),
    ("raw", Type.BYTES),
    ("source", Type.STRING),
    ("line", Type.INT),
)
#: The column that tells in which order records came: when, in which part of the input, and its number there; and what
#: `validate` adds, for records that have all of that in common. The archive has no attribute of that name.
PLACE: Final = "log_place"
_PLACE_TYPE: Final = (
    st.StructType()
    .add("came", st.TimestampType())
    .add("part", st.StringType())
    .add("number", st.LongType())
    .add("row", st.LongType())
)
#: The code of a file that can't be read at all: the others go on without it, and the books have it as one record.
UNREADABLE: Final = "unreadable-file"
#: Records decoded at a time: enough to pay for building arrays, few enough to be small as Python objects.
_CHUNK_ROWS: Final = 8192
#: Spark bounds the bytes of a batch of lines, in a session with OF_ANY_LENGTH; a batch of files has to be cut here.
_CHUNK_BYTES: Final = 64 * 1024 * 1024


class ColumnClash(ValueError):
    """Names that are different to Cepheid and the same to Spark, which does not tell capitals apart."""


def validate(streams: Sequence[Stream], file_format: Format = "jsonl") -> Transform:
    """What `sources` reads, to one row for each record, with either an event or a dead letter.

    The columns are a struct for each stream, `event_<stream>`, null but for that stream's events, and those of a dead
    letter, null for events: stream (where it is known), code, reason, raw (cut at 4 MiB), source and line (not of JSON
    Lines, which are read from their middle too). Where records come with a PLACE, so do the verdicts.

    Executors count nothing together, so a record without an id is a dead letter, and ids are ints unless the stream
    says `string`.
    """
    declared = [declared_for_spark(stream) for stream in streams]
    check_columns(declared)
    columns = [st.StructField(event_column(stream), event_schema(stream)) for stream in declared]
    columns += [st.StructField(name, _TYPES[kind][0]) for name, kind in _LETTER]

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = RecordDecoder(declared, count_ids=False)
        verdicts = _Verdicts(declared)
        for batch in batches:
            verdicts.places = batch.column(PLACE) if PLACE in batch.schema.names else None
            if file_format == "jsonl":
                yield from _judge_lines(batch, decoder, verdicts)
            else:
                yield from _judge_files(batch, file_format, Columns(declared), decoder, verdicts)

    def transform(records: DataFrame) -> DataFrame:
        place = [st.StructField(PLACE, _PLACE_TYPE)] if PLACE in records.columns else []
        return records.mapInArrow(in_executor, st.StructType([*columns, *place]))

    return transform


def events_of(stream: Stream) -> Transform:
    """The events of a stream, of what `validate` gives: id, time and the attributes."""
    column = event_column(stream)
    return lambda validated: validated.where(sf.col(column).isNotNull()).select(f"{column}.*")


def dead_letters() -> Transform:
    """The dead letters, of what `validate` gives: stream, code, reason, raw, source, line."""
    return lambda validated: validated.where(sf.col("code").isNotNull()).select(*(name for name, _ in _LETTER))


def event_column(stream: Stream) -> str:
    """The column of `validate`'s output that holds the events of a stream."""
    return f"event_{stream.name}"


def event_schema(stream: Stream) -> st.StructType:
    """The columns of a stream's events."""
    return st.StructType([st.StructField(name, _TYPES[kind][0]) for name, kind in _columns(stream)])


def _columns(stream: Stream) -> list[tuple[str, Type]]:
    id_type = Type.STRING if stream.id_kind == "string" else Type.INT
    return [("id", id_type), ("time", Type.TIMESTAMP), *stream.attributes.items()]


def declared_for_spark(stream: Stream) -> Stream:
    """The stream with what a first event would have shown decided beforehand, and fit to be sent to executors."""
    spellings = {name: tuple(others) for name, others in stream.spellings.items()}
    return replace(stream, id_kind=stream.id_kind or "int", attributes=dict(stream.attributes), spellings=spellings)


def check_columns(streams: Sequence[Stream], reserved: Sequence[str] = ()) -> None:
    """Raises ColumnClash where two streams, or two columns of one, have names that Spark can't tell apart."""
    if clash := _clash(stream.name for stream in streams):
        raise ColumnClash(f"Spark can't tell streams '{clash[0]}' and '{clash[1]}' apart; rename one of them")
    for stream in streams:
        if clash := _clash(["id", "time", *reserved, *stream.attributes]):
            raise ColumnClash(
                f"Spark can't tell the columns '{clash[0]}' and '{clash[1]}' of stream '{stream.name}' apart; rename "
                f"the attribute, and keep what records call it as a spelling: `spellings: {{newName: [{clash[1]}]}}`"
            )


def _clash(names: Iterable[str]) -> tuple[str, str] | None:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            return seen[name.lower()], name
        seen[name.lower()] = name
    return None


def _judge_lines(batch: pa.RecordBatch, decoder: RecordDecoder, verdicts: _Verdicts) -> Iterator[pa.RecordBatch]:
    decode = decoder.decode
    for start in range(0, batch.num_rows, _CHUNK_ROWS):
        chunk = batch.slice(start, _CHUNK_ROWS)
        sources = chunk.column("source")
        for place, raw in enumerate(chunk.column("raw").to_pylist()):
            record: Mapping[str, Raw] | None = None
            verdicts.at = start + place
            try:
                record = parse_json_line(raw)
                verdicts.add_event(decode(record))
            except Misfit as misfit:
                stream = None if record is None else decoder.stream_of(record)
                verdicts.add_letter(stream, misfit, without_end(raw), sources[place].as_py(), None)
        yield verdicts.taken()


def _judge_files(
    batch: pa.RecordBatch, file_format: Format, columns: Columns, decoder: RecordDecoder, verdicts: _Verdicts
) -> Iterator[pa.RecordBatch]:
    size = 0
    for at, source in enumerate(batch.column("source").to_pylist()):
        verdicts.at = at
        try:
            file = event_file(shown(source), file_format)
            decode = decoder.in_form(form(file)).decode
            for number, record, raw in rows(file, columns):
                if isinstance(record, Misfit):
                    verdicts.add_letter(None, record, raw or b"", source, number)
                else:
                    try:
                        verdicts.add_event(decode(record))
                    except Misfit as misfit:
                        kept = row_text(record) if raw is None else without_end(raw)
                        verdicts.add_letter(decoder.stream_of(record), misfit, kept, source, number)
                size += _size(record) if raw is None else len(raw)
                if len(verdicts) == _CHUNK_ROWS or size > _CHUNK_BYTES:
                    yield verdicts.taken()
                    size = 0
        except UnreadableFile as error:
            verdicts.add_letter(None, Misfit(UNREADABLE, str(error)), b"", source, None)
    yield verdicts.taken()


def _size(record: Mapping[str, Raw] | Misfit) -> int:
    """About the bytes of a record that has no raw bytes."""
    return (
        0
        if isinstance(record, Misfit)
        else sum(len(raw) for raw in record.values() if isinstance(raw, str | bytes | list))
    )


class _Verdicts:
    """Gathers what was decided about records, in their order, and lays it out as Arrow columns."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._columns = {stream.name: _columns(stream) for stream in streams}
        self._names = [event_column(stream) for stream in streams] + [name for name, _ in _LETTER]
        #: The PLACEs of what is judged, and which of it is being judged.
        self.places: pa.StructArray | None = None
        self.at = 0
        #: How many were judged before.
        self._before = 0
        self._clear()

    def _clear(self) -> None:
        self._rows = 0
        self._events: dict[str, list[Event]] = {name: [] for name in self._columns}
        self._letters: list[tuple[str | None, str, str, bytes, str, int | None]] = []
        #: The row of each event, by stream, and of each dead letter.
        self._places: dict[str, list[int]] = {name: [] for name in self._columns}
        self._letter_places: list[int] = []
        #: What each row was made of.
        self._origins: list[int] = []

    def __len__(self) -> int:
        return self._rows

    def add_event(self, event: Event) -> None:
        self._events[event.stream].append(event)
        self._places[event.stream].append(self._rows)
        self._origins.append(self.at)
        self._rows += 1

    def add_letter(self, stream: str | None, misfit: Misfit, raw: bytes, source: str, line: int | None) -> None:
        kept = raw[:MAX_RECORD_BYTES]
        self._letters.append((stream, misfit.code, _storable(str(misfit)), kept, shown(source), line))
        self._letter_places.append(self._rows)
        self._origins.append(self.at)
        self._rows += 1

    def taken(self) -> pa.RecordBatch:
        """What was gathered, which is forgotten here."""
        arrays = [_spread(self._structs(name), self._places[name], self._rows) for name in self._columns]
        for column, (_, kind) in enumerate(_LETTER):
            values = pa.array([letter[column] for letter in self._letters], _TYPES[kind][1])
            arrays.append(_spread(values, self._letter_places, self._rows))
        names = self._names
        if self.places is not None:
            own = self.places.take(pa.array(self._origins, pa.int32())).flatten()
            own.append(pa.array(range(self._before, self._before + self._rows), pa.int64()))
            arrays.append(pa.StructArray.from_arrays(own, _PLACE_TYPE.names))
            names = [*names, PLACE]
        self._before += self._rows
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, names)

    def _structs(self, stream: str) -> pa.StructArray:
        events, columns = self._events[stream], self._columns[stream]
        values: list[list[object]] = [[event.id for event in events], [event.time for event in events]]
        values += [[event.attributes[name] for event in events] for name, _ in columns[2:]]
        return pa.StructArray.from_arrays(
            [pa.array(column, _TYPES[kind][1]) for column, (_, kind) in zip(values, columns, strict=True)],
            [name for name, _ in columns],
        )


def _spread(values: pa.Array, places: list[int], rows: int) -> pa.Array:
    """An array of `rows`, with the values at their places and null elsewhere."""
    if len(places) == rows:
        return values
    if not places:
        return pa.nulls(rows, values.type)
    indices: list[int | None] = [None] * rows
    for index, place in enumerate(places):
        indices[place] = index
    return values.take(pa.array(indices, pa.int32()))


def _storable(reason: str) -> str:
    """A reason may quote what no text can hold, a lone surrogate; that must not stop the others of its batch."""
    return reason if reason.isascii() else reason.encode("utf-8", "backslashreplace").decode()
