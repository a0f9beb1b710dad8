"""The events that a live query on Spark reads: from the log, or straight from files and Kafka, as one DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from cepheid.history import log_source
from cepheid.history.log_place import LogPlace
from cepheid.history.log_source import log_schema
from cepheid.history.times import times_of
from cepheid.knowledge.tables import Lookup
from cepheid.language.checker import Checked
from cepheid.model.names import suggestion
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.real_time import why_not
from cepheid.service.log import LogReader
from cepheid.service.running.lanes import begins_before
from cepheid.spark.application import FileInput, TopicInput
from cepheid.spark.clocks import LOG_COLUMNS, METADATA
from cepheid.spark.columns import fits, wanted_of
from cepheid.spark.jvm_records import events_in_jvm
from cepheid.spark.matching import tables
from cepheid.spark.recovered import CAME
from cepheid.spark.sources import read_file_stream, read_topic
from cepheid.spark.validate import PLACE, declared_for_spark, event_column, validate


@dataclass(frozen=True)
class FrameInput:
    """A streaming DataFrame, and the stream whose events are its rows."""

    frame: DataFrame
    streams: tuple[Stream, ...]


Input: TypeAlias = FileInput | TopicInput | FrameInput

#: For so many milliseconds of a stream's time, and its lateness, the ids of its events are remembered.
_REMEMBERED: Final = 600_000
#: Two thousand years, in microseconds; and columns that no attribute is.
_LATER: Final = 2_000 * 366 * 86_400_000_000
_SEEN: Final = "time seen"
#: The most bytes of files in a batch of a query: one task brings it into order.
_BYTES: Final = 256 << 20
#: How many rows are handed over at once.
_ROWS: Final = 20_000
#: Seconds that are given to a log elsewhere to say what it has.
_PATIENCE: Final = 5.0
#: Tells in which order the events of a stream came; not of those that come from the log alone.
ARRIVAL: Final = "place of arrival"


class NotOnSpark(ValueError):
    """Something that the pipeline can't run."""


def read_events(
    spark: SparkSession,
    checked: Checked,
    streams: Mapping[str, Stream],
    log: LogPlace | None,
    inputs: Sequence[Input],
    consumer: str,
    missed: int = 0,
    begins: int | None = None,
) -> DataFrame:
    """The events of a query's streams: stream, id, time and what it reads; and ARRIVAL, or LOG_COLUMNS and CAME.

    The log keeps for `consumer` what was not read yet. No batch goes across the offset `missed`. It begins with the
    offset `begins`, or else with the first that the log has.
    """
    wanted, logged = check_readable(checked, streams, log, inputs)
    parts = [_from_input(spark, given, wanted) for given in inputs if wanted.keys() & {s.name for s in given.streams}]
    if logged:
        assert log is not None
        events = _from_log(spark, log, logged, consumer, missed, begins)
        if not parts:
            return events
        events = events.where("NOT late AND NOT duplicate").withColumn(ARRIVAL, sf.col("offset"))
        parts.append(events.drop(*LOG_COLUMNS, CAME))
    events = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    clocks = log_schema(list(wanted.values()))["time"].metadata[METADATA]
    return events.withMetadata("time", {METADATA: clocks})


def check_readable(
    checked: Checked, streams: Mapping[str, Stream], log: LogPlace | None, inputs: Sequence[Input]
) -> tuple[dict[str, Stream], list[Stream]]:
    """A query's streams as it reads them, by name, and those of them that come from the log.

    Raises NotOnSpark, LogOptions and ColumnClash if they can't be read as one DataFrame.
    """
    wanted = {name: _as_read(checked, streams[name]) for name in checked.streams}
    kinds = {stream.id_kind for stream in wanted.values()}
    if len(kinds) > 1:
        raise NotOnSpark(
            f"the ids of {', '.join(wanted)} are numbers in one stream and text in another, and a DataFrame has one "
            "type a column: give the streams `id: string`, or the query `engine: service`"
        )
    elsewhere = {s.name for given in inputs for s in given.streams}
    logged = [stream for name, stream in wanted.items() if name not in elsewhere]
    if logged and log is None:
        raise NotOnSpark(
            f"{', '.join(s.name for s in logged)}: a live query reads its events from the log, files or Kafka; give "
            "the stream `source: {kind: files, path: ...}`, or the application a `service` with a log"
        )
    log_schema(list(wanted.values()))
    return wanted, logged


def lost(name: str, checked: Checked, log: LogPlace, now: int) -> str | None:
    """What a query that is new to a log does not find there, though one may expect it; None if that is nothing."""
    if log.address is None and not (log.folder.is_dir() and any(log.folder.iterdir())):
        return None
    with LogReader(log.source, durable_only=True, token=log.token) as reader:
        came = next(iter(reader.read(_PATIENCE if log.address is not None else 0.0)), None)
        first, arrival = (reader.offset, now) if came is None else (came.offset, came.arrival)
    return begins_before(name, first) if first > 0 and times_of(checked, now).low < arrival else None


def read_in_jvm(
    spark: SparkSession, checked: Checked, streams: Mapping[str, Stream], inputs: Sequence[Input]
) -> DataFrame:
    """The events of a query's only stream, straight from its topic, judged in the JVM: for Real-Time Mode."""
    given, stream = check_readable_in_jvm(checked, streams, inputs)
    records = read_topic(spark, given.brokers, given.topic, given.options)
    events = records.transform(events_in_jvm(stream, alone=len(given.streams) == 1))
    return events.withColumn("stream", sf.lit(stream.name))


def check_readable_in_jvm(
    checked: Checked, streams: Mapping[str, Stream], inputs: Sequence[Input]
) -> tuple[TopicInput, Stream]:
    """The topic of a query's only stream, and the stream; NotOnSpark if it can't be read in the JVM."""
    (name,) = checked.streams
    given = next((g for g in inputs if isinstance(g, TopicInput) and name in {s.name for s in g.streams}), None)
    if given is None:
        raise NotOnSpark(
            f"Real-Time Mode reads a topic of Kafka, and '{name}' comes from elsewhere: give the stream `source: "
            "{kind: kafka, ...}`, in an application without a log of its own, or the query no `real_time`"
        )
    stream = declared_for_spark(streams[name])
    if reason := why_not(stream):
        raise NotOnSpark(f"Real-Time Mode can't read '{name}', because {reason}")
    return given, stream


def _as_read(checked: Checked, stream: Stream) -> Stream:
    """The stream with the attributes that a query reads: others may have types that clash in a DataFrame."""
    names = {r.names[stream.name] for r in checked.attributes.values() if stream.name in r.names}
    for lookup in checked.lookups:
        if isinstance(lookup, Lookup) and lookup.stream == stream.name:
            names.update(lookup.key)
    declared = declared_for_spark(stream)
    attributes = {name: kind for name, kind in declared.attributes.items() if name in names}
    return replace(declared, attributes=attributes, spellings={})


def _from_log(
    spark: SparkSession, log: LogPlace, streams: Sequence[Stream], consumer: str, missed: int, begins: int | None
) -> DataFrame:
    options = {**log.options, "stream": ",".join(stream.name for stream in streams), "consumer": consumer}
    if streams[0].id_kind == "string":
        options["ids"] = "string"
    if missed > 0:
        options["cut"] = str(missed)
    if begins is not None:
        options["from"] = str(begins)
    schema = log_schema(streams).add(CAME, st.LongType())
    return spark.readStream.format(log_source.NAME).options(**options).schema(schema).load()


def records_of(spark: SparkSession, given: Input, bytes_per_batch: int | None = None) -> DataFrame:
    """What an input brings, judged: events and dead letters, as `validate` gives them."""
    if isinstance(given, FileInput):
        records = read_file_stream(spark, given.path, given.format, bytes_per_batch=bytes_per_batch)
        return records.transform(validate(given.streams, given.format))
    if isinstance(given, TopicInput):
        return read_topic(spark, given.brokers, given.topic, given.options).transform(validate(given.streams))
    return _rows_of(given.frame, given.streams[0]).transform(validate(given.streams))


def frame_input(streams: Mapping[str, Stream], name: str, frame: DataFrame) -> FrameInput:
    """A DataFrame as the source of a stream; NotOnSpark if it can't be: no row of it would be an event."""
    if name not in streams:
        hint = suggestion(name, streams)
        raise NotOnSpark(
            f"the application has no stream '{name}' to come from a DataFrame" + (f"; {hint}" if hint else "")
        )
    if not frame.isStreaming:
        raise NotOnSpark(f"'{name}': the pipeline reads streaming DataFrames (spark.readStream); this one is a batch")
    if lacking := {"id", "time"} - set(frame.columns):
        raise NotOnSpark(
            f"'{name}': the DataFrame has no column '{min(lacking)}'; rename the one that says it: "
            f'frame.withColumnRenamed(..., "{min(lacking)}")'
        )
    _check_columns(streams[name], frame)
    return FrameInput(frame, (streams[name],))


def _check_columns(stream: Stream, frame: DataFrame) -> None:
    """Raises NotOnSpark if an attribute has no column, by its name or a spelling, or one of values that never fit."""
    fields = {field.name: field.dataType for field in frame.schema.fields}
    id_type = Type.STRING if stream.id_kind == "string" else Type.INT
    expected = [("id", id_type, "the id of events"), ("time", Type.TIMESTAMP, "the time of events")]
    for name, kind in stream.attributes.items():
        spellings = [spelling for spelling in (name, *stream.spellings.get(name, ())) if spelling in fields]
        if not spellings:
            hint, wanted = suggestion(name, fields), wanted_of(kind)
            raise NotOnSpark(
                f"'{stream.name}': the DataFrame has no column '{name}', an attribute of the stream: expected "
                f'{wanted}; rename the one that has it, or say that none does: frame.withColumn("{name}", '
                f'lit(None).cast("{wanted}"))' + (f"; {hint}" if hint else "")
            )
        expected += [(spelling, kind, f"attribute '{name}' of the stream") for spelling in spellings]
    for name, kind, what in expected:
        if not fits(fields[name], kind) and not _is_written(fields[name], kind):
            raise NotOnSpark(
                f"'{stream.name}': column '{name}', {what}: expected {wanted_of(kind)}, found "
                f'{fields[name].simpleString()}; cast it: frame.withColumn("{name}", frame["{name}"].cast('
                f'"{wanted_of(kind)}"))'
                + (", or give the stream `id: string`" if name == "id" and kind is Type.INT else "")
            )


def _is_written(held: st.DataType, kind: Type) -> bool:
    """Whether records have such values for a type, besides those that are of it (rule E3)."""
    if isinstance(held, st.DecimalType):
        return kind is Type.FLOAT or (kind is Type.INT and held.scale == 0)
    if isinstance(held, st.ArrayType):
        return kind.is_array and fits(held.elementType, Type.INT)
    written = isinstance(held, st.StringType | st.TimestampNTZType | st.DateType) and kind is Type.TIMESTAMP
    return written or (isinstance(held, st.StringType) and kind in (Type.BYTES, Type.UINT8_ARRAY))


def _rows_of(frame: DataFrame, stream: Stream) -> DataFrame:
    """Rows as records, which are judged like any others. Nothing says in which order those of a batch came."""
    spelled = (spelling for name in stream.attributes for spelling in (name, *stream.spellings.get(name, ())))
    names = [name for name in ("id", "time", *spelled) if name in frame.columns]
    columns = {name: sf.col("`" + name.replace("`", "``") + "`") for name in names}
    values = (
        (sf.unix_micros(column) if isinstance(frame.schema[name].dataType, st.TimestampType) else column).alias(name)
        for name, column in columns.items()
    )
    record = sf.to_json(sf.struct(sf.lit(stream.name).alias("stream"), *values), {"ignoreNullFields": "false"})
    place = sf.struct(
        sf.current_timestamp().alias("came"), sf.lit("").alias("part"), sf.lit(0).cast("long").alias("number")
    )
    return frame.select(
        record.cast("binary").alias("raw"), sf.lit(f"DataFrame of {stream.name}").alias("source"), place.alias(PLACE)
    )


def _from_input(spark: SparkSession, given: Input, wanted: Mapping[str, Stream]) -> DataFrame:
    records, whole = records_of(spark, given, _BYTES), not isinstance(given, TopicInput)
    return reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True),
        (_events(records, s, wanted[s.name], whole=whole) for s in given.streams if s.name in wanted),
    )


def _events(records: DataFrame, stream: Stream, wanted: Stream, *, whole: bool) -> DataFrame:
    column = event_column(stream)
    own = (sf.col(f"{column}.`{name}`").alias(name) for name in ("id", "time", *wanted.attributes))
    events = records.where(sf.col(column).isNotNull()).select(sf.lit(stream.name).alias("stream"), *own, PLACE)
    return _once(_in_order(events, whole=whole), wanted)


def _in_order(events: DataFrame, *, whole: bool) -> DataFrame:
    """The events of each batch in the order in which they came, with ARRIVAL instead of PLACE.

    One task does it, because Spark sorts no streams. `whole`: what is in one file came side by side, since nothing in a
    file is late (rule E4); and so did the rows of a DataFrame, which don't say more.
    """
    schema = st.StructType([f for f in events.schema.fields if f.name != PLACE]).add(ARRIVAL, st.LongType())

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in tables(batches, None):
            places = pa.Table.from_struct_array(rows.column(PLACE).combine_chunks())
            order = places.append_column("at", pa.array(np.arange(len(places)))).sort_by(
                [(name, "ascending") for name in places.column_names]
            )
            arrival = np.arange(len(order))
            if whole:
                file = (order.column(name).combine_chunks() for name in ("came", "part"))
                is_new = reduce(
                    np.logical_or, (pc.not_equal(f[1:], f[:-1]).to_numpy(zero_copy_only=False) for f in file)
                )
                arrival = np.concatenate([[0], np.cumsum(is_new)])
            own = rows.drop_columns(PLACE).take(order.column("at"))
            yield from own.append_column(ARRIVAL, pa.array(arrival, pa.int64())).to_batches(_ROWS)

    return events.repartition(1).mapInArrow(in_executor, schema)


def _once(events: DataFrame, stream: Stream) -> DataFrame:
    """The events of a stream without those whose id came before (rule E4), as far back as ids are remembered.

    Spark forgets an id, and drops what is older than that, when the streams' greatest times are past by the delay: more
    than the lateness, so that whatever it drops is late to the query anyway. Its watermark begins at 1970, and with it
    all before would be late: so it is shown times that are two thousand years later.
    """
    delay = -(-stream.lateness // 1000) + _REMEMBERED
    later = sf.timestamp_micros(sf.unix_micros("time") + sf.lit(_LATER))
    known = events.withColumn(_SEEN, later).withWatermark(f"`{_SEEN}`", f"{delay} milliseconds")
    return known.dropDuplicatesWithinWatermark(["id"]).drop(_SEEN)
