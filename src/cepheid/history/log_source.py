"""The event log as a data source of Spark: `spark.readStream.format("cepheid").option("path", "data/log")`.

Register it once a session: `register(spark)`. Rows have stream, id, time, the attributes of the streams that are read,
and what the log knows: the offset, and whether the event is late or a duplicate (rule E4). Each offset is read exactly
once, by several tasks; over TCP where the executors are elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from cepheid.model.names import suggestion
from cepheid.model.streams import Stream
from cepheid.model.time import parse_duration
from cepheid.service.log import DUPLICATE, LATE, Extent, LogReader, OffsetGone, Row, commit, extent
from cepheid.spark.archive import LOG_ARRIVAL, LOG_END, LOG_LATE, LOG_MARKS, LOG_OFFSET, logged_schema
from cepheid.spark.clocks import LOG_COLUMNS, METADATA
from cepheid.spark.recovered import CAME
from cepheid.spark.validate import check_columns, event_column, event_schema

NAME: Final = "cepheid"
#: How many offsets a task reads.
_PER_TASK: Final = 100_000
#: How many offsets a batch of a stream has at most.
_PER_BATCH: Final = 1_000_000
#: How many rows are handed over at once.
_ROWS: Final = 20_000
#: How long a reader waits for what the log is known to have.
_PATIENCE: Final = 30.0
#: Held while a session's environment is another.
_REGISTERING: Final = Lock()

_OPTIONS: Final = (
    "path",
    "address",
    "token",
    "stream",
    "ids",
    "lateness",
    "idle",
    "from",
    "to",
    "consumer",
    "cut",
    "eventsPerBatch",
    "eventsPerTask",
)


class LogOptions(ValueError):
    """Options that don't say which log, or which part of it."""


class LogChanged(RuntimeError):
    """The log has other streams or attributes than the DataFrame, or no longer what is to be read."""


def register(spark: SparkSession) -> None:
    """Makes the format "cepheid" known to a session.

    All streams of a source share the environment of its workers, one Java map: each adds to it on its own thread when
    it starts, and it goes into every task. Spark makes it a HashMap. Streams that start together may leave that with
    fewer entries than it counts, and then no task can be read any more until the process ends. So it gets one for
    several threads. With Spark Connect the map is the server's own.
    """
    context: Any = getattr(spark, "sparkContext", None)
    if context is None:
        spark.dataSource.register(LogSource)
        return
    with _REGISTERING:
        plain = context.environment
        context.environment = context._jvm.java.util.concurrent.ConcurrentHashMap(plain)
        try:
            spark.dataSource.register(LogSource)
        finally:
            context.environment = plain


@dataclass(frozen=True)
class _Log:
    """Where a log is, and what is wanted of it."""

    source: str
    token: str | None
    streams: tuple[str, ...]
    text_ids: bool
    per_batch: int
    per_task: int
    start: str
    end: int | None
    consumer: str | None
    cut: int

    def extent(self) -> Extent:
        return extent(self.source, token=self.token)

    def tasks(self, start: int, end: int) -> list[Span]:
        cuts = [*range(start, end, self.per_task), end]
        return [Span(first, after) for first, after in pairwise(cuts)]

    def read(self, span: Span, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The events of some offsets that are of the streams, as columns."""
        held: list[dict[str, Any]] = []
        begun = span.start
        try:
            with LogReader(self.source, span.start, durable_only=True, token=self.token) as reader:
                while reader.offset < span.end:
                    rows, streams = reader.rows(_PATIENCE)
                    if not rows and reader.offset < span.end:
                        raise LogChanged(
                            f"the log {self.source} has nothing at offset {reader.offset}, and had up to {span.end}; "
                            "it is not the log that the checkpoint was begun with"
                        )
                    held += self._rows(rows, streams, span.end, apart="stream" not in schema.names)
                    if len(held) >= _ROWS:
                        yield self._batch(held, schema, Span(begun, reader.offset))
                        held, begun = [], reader.offset
        except OffsetGone as gone:
            raise LogChanged(
                f"the log {self.source} no longer has offset {span.start}: {gone}. Its events are lost to this query; "
                'keep them longer (`retain`), or name a consumer, for whom they are kept: option("consumer", ...)'
            ) from gone
        if held:
            yield self._batch(held, schema, Span(begun, span.end))

    def _rows(self, rows: list[Row], streams: list[Stream], end: int, *, apart: bool) -> Iterator[dict[str, Any]]:
        """Rows of `log_schema`, or, each stream apart from the others, of `apart_schema`."""
        if not apart:
            yield from self._events(rows, streams, end)
            return
        columns = [event_column(stream) for stream in streams]
        for offset, flags, number, event_id, time, values, arrival, valid_until, marks in rows:
            if offset < end and streams[number].name in self.streams:
                event = dict(zip(streams[number].attributes, values, strict=True))
                event |= {"id": event_id, "time": time, LOG_OFFSET: offset, LOG_LATE: bool(flags & LATE)}
                event |= {LOG_ARRIVAL: arrival, LOG_END: valid_until, LOG_MARKS: marks or None}
                yield {columns[number]: None if flags & DUPLICATE else event}

    def _events(self, rows: list[Row], streams: list[Stream], end: int) -> Iterator[dict[str, Any]]:
        wanted = {number: stream for number, stream in enumerate(streams) if stream.name in self.streams}
        for offset, flags, number, event_id, time, values, arrival, *_ in rows:
            if number in wanted and offset < end:
                if isinstance(event_id, str) is not self.text_ids:
                    found, other = ("text", "string") if isinstance(event_id, str) else ("a number", "int")
                    raise LogChanged(
                        f"the id {event_id!r} of stream '{wanted[number].name}' at offset {offset} is {found}; write "
                        f'option("ids", "{other}")'
                    )
                yield {
                    **dict(zip(wanted[number].attributes, values, strict=True)),
                    "stream": wanted[number].name,
                    "id": event_id,
                    "time": time,
                    "offset": offset,
                    "late": bool(flags & LATE),
                    "duplicate": bool(flags & DUPLICATE),
                    CAME: arrival,  # if the schema has it
                }

    def _batch(self, events: list[dict[str, Any]], schema: pa.Schema, span: Span) -> pa.RecordBatch:
        try:
            return pa.RecordBatch.from_pylist(events, schema=schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise LogChanged(
                f"an attribute of {', '.join(self.streams)} has another type in the log than in the DataFrame, between "
                f"offsets {span.start} and {span.end - 1}: {error}. Start the query again, with the log's schema of "
                "today"
            ) from error


@dataclass
class Span(InputPartition):
    """Offsets, the last not included."""

    start: int
    end: int


class LogSource(DataSource):
    """The data source. Options:

    `path` or `address` (tcp:host:port) of the log, `token` for the latter; `stream`: the streams to read, by comma;
    `ids` string where their ids are text; `lateness` and `idle` of the streams, as durations, which a query on the
    stream needs to know; `from`: first (default), last, or an offset to begin with; `to`: an offset that a batch ends
    before; `consumer`: the name under which the log keeps what was not read; `cut`: an offset that
    no batch of a stream goes across; `eventsPerBatch`, `eventsPerTask`.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._log = _log_of(options)
        self._clocks = {key: _duration(options, key) for key in ("lateness", "idle")}

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> st.StructType:
        known = {stream.name: stream for stream in self._log.extent().streams}
        if not known:
            raise LogOptions(
                f"the log {self._log.source} has no events yet, and so no schema; give one: "
                ".schema(log_schema(streams))"
            )
        for name in self._log.streams:
            if name not in known:
                hint = suggestion(name, known)
                raise LogOptions(
                    f"the log {self._log.source} has no stream '{name}'; it has {', '.join(known)}"
                    + (f"; {hint}" if hint else "")
                )
        kind = "string" if self._log.text_ids else "int"
        streams = [Stream(n, known[n].attributes, id_kind=kind) for n in self._log.streams]  # type: ignore[arg-type]
        clocks = {key: dict.fromkeys(self._log.streams, t) for key, t in self._clocks.items() if t is not None}
        return log_schema(streams, clocks)

    def reader(self, schema: st.StructType) -> DataSourceReader:
        return _Batch(self._log, schema)

    def streamReader(self, schema: st.StructType) -> DataSourceStreamReader:
        return _Stream(self._log, schema)


def log_schema(streams: Sequence[Stream], clocks: Mapping[str, Mapping[str, int]] | None = None) -> st.StructType:
    """The columns of the log's events of these streams; their time says the streams' lateness and idle time."""
    check_columns(streams, reserved=["stream", *LOG_COLUMNS])
    if clocks is None:
        clocks = {
            "lateness": {s.name: s.lateness for s in streams},
            "idle": {s.name: s.idle for s in streams if s.idle is not None},
        }
    fields = {"stream": st.StructField("stream", st.StringType())}
    for stream in streams:
        for field in event_schema(stream).fields:
            if fields.setdefault(field.name, field).dataType != field.dataType:
                raise LogOptions(
                    f"'{field.name}' is {fields[field.name].dataType.simpleString()} in one stream and "
                    f"{field.dataType.simpleString()} in '{stream.name}'; a DataFrame has one type a column: read them "
                    "apart"
                )
    fields["time"] = st.StructField(
        "time", st.TimestampType(), metadata={METADATA: {k: dict(v) for k, v in clocks.items()}}
    )
    fields["offset"] = st.StructField("offset", st.LongType())
    for name in ("late", "duplicate"):
        fields[name] = st.StructField(name, st.BooleanType())
    return st.StructType(list(fields.values()))


def apart_schema(streams: Sequence[Stream]) -> st.StructType:
    """A column for each stream, as `validate` has them; a duplicate is null in all of them."""
    return st.StructType([st.StructField(event_column(stream), logged_schema(stream)) for stream in streams])


class _Batch(DataSourceReader):
    """What the log has now, once."""

    def __init__(self, log: _Log, schema: st.StructType) -> None:
        self._log, self._schema = log, schema

    def partitions(self) -> Sequence[InputPartition]:
        found = self._log.extent()
        end = found.end if self._log.end is None else min(found.end, self._log.end)
        return self._log.tasks(min(_start(self._log, found), end), end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        return self._log.read(partition, to_arrow_schema(self._schema, timezone="UTC"))


class _Stream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What the log has and will have, each offset once."""

    def __init__(self, log: _Log, schema: st.StructType) -> None:
        self._log, self._schema = log, schema
        self._last: int | None = None

    # ruff: noqa: N802 -- the names are Spark's.
    def initialOffset(self) -> dict[str, int]:
        return {"offset": _start(self._log, self._log.extent())}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._log.per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._log.extent().end

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        end = self._log.extent().end if self._last is None else self._last
        if end < start["offset"]:
            if self._last is not None:
                return start
            raise LogChanged(
                f"the log {self._log.source} ends at offset {end}, and {start['offset']} of it were read: it is not "
                "the log that the checkpoint was begun with. Begin again with a new checkpointLocation"
            )
        most = end if isinstance(limit, ReadAllAvailable) else start["offset"] + self._log.per_batch
        if start["offset"] < self._log.cut < end:
            most = min(most, self._log.cut)
        return {"offset": min(end, most)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._log.tasks(start["offset"], end["offset"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span)
        return self._log.read(partition, to_arrow_schema(self._schema, timezone="UTC"))

    def commit(self, end: dict[str, int]) -> None:
        if self._log.consumer is not None:
            commit(self._log.source, self._log.consumer, end["offset"], token=self._log.token)


def _log_of(options: Mapping[str, str]) -> _Log:
    lower = {name.lower(): name for name in _OPTIONS}
    for key in options:
        if key.lower() not in lower:
            hint = suggestion(key, _OPTIONS)
            raise LogOptions(f"'{key}' is no option of the log" + (f"; {hint}" if hint else ""))
    given = {lower[key.lower()]: value for key, value in options.items()}
    if ("path" in given) == ("address" in given):
        raise LogOptions('say which log: option("path", "data/log"), or option("address", "tcp:host:port")')
    if "address" in given and not given["address"].startswith(("tcp:", "unix:")):
        raise LogOptions(f"address: expected tcp:host:port or unix:path, found '{given['address']}'")
    streams = tuple(name.strip() for name in given.get("stream", "").split(",") if name.strip())
    if not streams:
        raise LogOptions('say which streams of the log: option("stream", "air") or option("stream", "air, water")')
    if (ids := given.get("ids", "int")) not in ("int", "string"):
        raise LogOptions(f"ids: expected int or string, found '{ids}'")
    start = given.get("from", "first")
    if start not in ("first", "last") and not start.isdigit():
        raise LogOptions(f"from: expected first, last or an offset, found '{start}'")
    return _Log(
        given.get("path") or given["address"],
        given.get("token"),
        streams,
        ids == "string",
        _number(given, "eventsPerBatch", _PER_BATCH),
        _number(given, "eventsPerTask", _PER_TASK),
        start,
        _number(given, "to", 0) if "to" in given else None,
        given.get("consumer"),
        _number(given, "cut", 0) if "cut" in given else 0,
    )


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not text.isdigit() or int(text) == 0:
        raise LogOptions(f"{name}: expected a number of events, found '{text}'")
    return int(text)


def _duration(options: Mapping[str, str], name: str) -> int | None:
    text = next((value for key, value in options.items() if key.lower() == name), None)
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise LogOptions(f"{name}: {error}") from None


def _start(log: _Log, found: Extent) -> int:
    return found.first if log.start == "first" else found.end if log.start == "last" else int(log.start)
