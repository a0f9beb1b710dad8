"""The archive: every event, in a table for each stream, and every dead letter, each exactly once.

    <archive>/<stream>/        id, time, the attributes, and day, the day of `time` in UTC, which it is partitioned by;
                               of what came through the log, log_offset, log_late, log_arrival, and what it came with:
                               log_end, the end of its validity, and log_marks; log_late of what Spark read from a
                               topic; log_duplicate, where files or topics had an event of the same id before; what
                               the stream's `enrich` names, as it was known when the event was archived
    <archive>/_dead_letters/   received, stream, code, reason, raw, source, line, and day, the day of `received`
    <archive>/_matches/<query>/  what a live query has found, as the pipeline's sinks write it
    <archive>/_checkpoints/    what the pipelines into this archive have read
    <archive>/_tables/         a file for each table that was written, so that one that is gone is missed

Everything is written in numbered batches, each by a named writer. A batch that was interrupted is written again under
its number:

- delta: a table that already has the batch ignores it, and a reader sees all of it or nothing.
- parquet: a batch is a folder of its own, replaced as a whole. Once the batch is through, its rows are there exactly
  once; a reader that looks while it is being written may see a part of it.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from cepheid.model.streams import Stream
from cepheid.spark.delta_log import log_properties
from cepheid.spark.notes import is_there, write_note
from cepheid.spark.places import exists, literal, local, normal
from cepheid.spark.session import explaining_delta
from cepheid.spark.validate import (
    PLACE,
    Transform,
    check_columns,
    dead_letters,
    declared_for_spark,
    event_column,
    event_schema,
    events_of,
)

ArchiveFormat: TypeAlias = Literal["delta", "parquet"]

DEAD_LETTERS: Final = "_dead_letters"
CHECKPOINTS: Final = "_checkpoints"
TABLES: Final = "_tables"
#: The column that tables are partitioned by.
DAY: Final = "day"
#: Where an event stands in the log that it came through, and whether it was late there (rule E4).
LOG_OFFSET: Final = "log_offset"
LOG_LATE: Final = "log_late"
#: When it came there, and with which end of its validity and which marks, if it had some.
LOG_ARRIVAL: Final = "log_arrival"
LOG_END: Final = "log_end"
LOG_MARKS: Final = "log_marks"
_LOGGED: Final[Mapping[str, st.DataType]] = {
    LOG_OFFSET: st.LongType(),
    LOG_LATE: st.BooleanType(),
    LOG_ARRIVAL: st.TimestampType(),
    LOG_END: st.TimestampType(),
    LOG_MARKS: st.ByteType(),
}
#: Whether an event of the same id had come before, from files; the log's archive has the first only.
LOG_DUPLICATE: Final = "log_duplicate"
#: The property of a Delta table that says before which time, in microseconds, events were removed from it.
REMOVED: Final = "cepheid.removedBefore"
#: Where no stream gets columns from what is known.
_PLAIN: Final[Mapping[str, Transform]] = {}
#: What Delta says to all but one of those who make a table at the same time, or add a column to it.
_CONFLICTS: Final = ("DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED")
_ATTEMPTS: Final = 5
#: What Spark and Delta say where there is no table.
_NO_TABLE: Final = ("PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE")
#: Stands for rows of a commit beyond those that were announced; there should never be any.
_UNEXPLAINED: Final = "unexplained"
_DEAD_LETTER_SCHEMA: Final = (
    "received timestamp, stream string, code string, reason string, raw binary, source string, line bigint, day date"
)


class ArchiveUnwritable(OSError):
    """The archive can't be written where it should be."""


class TableLost(FileNotFoundError):
    """A table that was written is not there any more: without it an answer would be partial."""


@dataclass(frozen=True)
class Archive:
    """Where an archive lies, and what its tables are."""

    path: str
    format: ArchiveFormat = "delta"

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", normal(self.path))

    def table(self, name: str) -> str:
        """The folder of a stream's table, of DEAD_LETTERS, or of a query's matches."""
        return f"{self.path}/{name}"

    def mark(self, name: str) -> str:
        """The file that is there if the table was ever written."""
        return f"{self.path}/{TABLES}/{name}"

    def checkpoint(self, name: str) -> str:
        """The folder where a pipeline into this archive remembers what it has read."""
        return f"{self.path}/{CHECKPOINTS}/{name}"


@dataclass(frozen=True)
class Batch:
    """The name that a batch is known by for ever: who writes it, and its number there, counting up."""

    writer: str
    number: int


@dataclass(frozen=True)
class Counts:
    """How many events, by stream, and dead letters, by code."""

    archived: Mapping[str, int]
    dead_letters: Mapping[str, int]


def matches_of(query: str) -> str:
    """The name of the table that a live query's matches go to if it has no sink of its own."""
    return f"_matches/{query}"


def check_writable(archive: Archive, streams: Sequence[Stream]) -> None:
    """Raises ArchiveUnwritable if a local archive can't be written, and ColumnClash if it can't hold a stream.

    The folder is made and a file written into it, since permission bits don't tell everything: not to root, nor of a
    read-only or full disk.
    """
    check_columns(streams, reserved=[DAY, *_LOGGED, LOG_DUPLICATE, PLACE])
    path = local(archive.path)
    if path is None:
        return  # Spark alone can tell
    folder = path
    try:
        for folder in (path, *(path / name for name in (*(s.name for s in streams), DEAD_LETTERS, CHECKPOINTS))):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
    except OSError as error:
        raise ArchiveUnwritable(
            f"the archive can't be written at '{folder}': {_reason(folder, error)}. Free that path, or choose another "
            f"(`archive: {{path: ...}}` in the application file)"
        ) from error


def _reason(folder: Path, error: OSError) -> str:
    for place in (folder, *folder.parents):
        if exists(place) and not place.is_dir():
            return f"'{place}' is a file, not a folder"
    return error.strerror or str(error)


def _as_it_is(events: DataFrame) -> DataFrame:
    return events


def append_batch(
    validated: DataFrame,
    streams: Sequence[Stream],
    archive: Archive,
    batch: Batch,
    greatest: dict[str, int | None] | None = None,
    enriched: Mapping[str, Transform] = _PLAIN,
) -> Counts:
    """Writes what `validate` gave to the archive's tables, and says how much that was.

    The same batch again, whole or after a failure half-way, adds only what is not there yet. With `greatest`, where the
    greatest time of each stream is kept from batch to batch, events are marked that came late (rule E4). Without it
    none are: files are complete. `enriched` adds columns to the events of streams.
    """
    if PLACE not in validated.columns:
        validated = validated.withColumn(PLACE, sf.monotonically_increasing_id())
    validated = validated.persist()  # parsed once, for all tables
    try:
        counts = _count(validated, streams)
        for stream in streams:
            if rows := counts.archived[stream.name]:
                own = _marked(validated, archive, stream, batch)
                if greatest is not None:
                    own = _with_late(own, archive, stream, batch, greatest)
                own = own.drop(PLACE).withColumn(DAY, day_of(sf.col("time")))
                own = own.transform(enriched.get(stream.name, _as_it_is))
                _write(own, archive, stream.name, batch, {stream.name: rows})
        if counts.dead_letters:
            letters = validated.transform(dead_letters()).select(sf.current_timestamp().alias("received"), "*")
            append_letters(letters, archive, batch, counts.dead_letters)
    finally:
        validated.unpersist()
    return counts


def append_events(
    events: DataFrame,
    streams: Sequence[Stream],
    archive: Archive,
    batch: Batch,
    enriched: Mapping[str, Transform] = _PLAIN,
) -> tuple[Counts, int]:
    """Writes events, a column of structs for each stream as `validate` has them; `enriched` adds columns to them.

    Says how many there were, and how many rows had none.
    """
    events = events.withColumn("code", sf.lit(None)).persist()
    try:
        counts = _count(events, streams)
        for stream in streams:
            if rows := counts.archived[stream.name]:
                rows_of = events.transform(events_of(stream)).withColumn(DAY, day_of(sf.col("time")))
                rows_of = rows_of.transform(enriched.get(stream.name, _as_it_is))
                _write(rows_of, archive, stream.name, batch, {stream.name: rows})
    finally:
        events.unpersist()
    own = {stream.name: counts.archived[stream.name] for stream in streams}
    return Counts(own, {}), sum(counts.archived.values()) - sum(own.values())


def append_letters(letters: DataFrame, archive: Archive, batch: Batch, counts: Mapping[str, int]) -> None:
    """Writes dead letters, of which there are so many by code."""
    _write(letters.withColumn(DAY, day_of(sf.col("received"))), archive, DEAD_LETTERS, batch, counts)


def _marked(validated: DataFrame, archive: Archive, stream: Stream, batch: Batch) -> DataFrame:
    """The events of a stream, with a mark on those whose id an earlier one had, here or in the table (rule E4).

    Mostly there are none, and ids go up: then the table's statistics tell, and nothing else is read.
    """
    event = event_column(stream)  # a struct until the end: attributes may have any name
    events = validated.where(sf.col(event).isNotNull()).select(event, PLACE)
    own_id = sf.col(f"{event}.id")
    count, different, low, high = events.agg(
        sf.count(own_id), sf.count_distinct(own_id), sf.min(own_id), sf.max(own_id)
    ).collect()[0]
    before = (
        _before(validated.sparkSession, archive, stream, batch)
        .where(sf.col("id").between(low, high))
        .select(sf.col("id").alias("before"))
        .distinct()
    )
    if count == different and before.isEmpty():
        return events.select(f"{event}.*", PLACE)
    rank = sf.row_number().over(Window.partitionBy(own_id).orderBy(PLACE))
    repeated = (sf.col("rank") > 1) | sf.col("before").isNotNull()
    ranked = events.withColumn("rank", rank).join(before, own_id == sf.col("before"), "left")
    return ranked.select(f"{event}.*", PLACE, repeated.alias(LOG_DUPLICATE))


def _before(spark: SparkSession, archive: Archive, stream: Stream, batch: Batch) -> DataFrame:
    """The events of a stream that batches before have brought; of a table that has this one, it may be all."""
    before = read(spark, archive, stream, late=True)
    if archive.format == "parquet":  # what an interrupted run of this batch left will be replaced
        before = before.where(~sf.input_file_name().contains(f"/batch={batch.writer}-{batch.number}/"))
    return before


def _with_late(
    events: DataFrame, archive: Archive, stream: Stream, batch: Batch, greatest: dict[str, int | None]
) -> DataFrame:
    """The events of a stream with a mark on those that came late: behind the greatest time of those that came before,
    duplicates aside, by more than the lateness. Brings `greatest` up to the last.
    """
    micros = sf.unix_micros("time")
    if stream.name not in greatest:
        before = _before(events.sparkSession, archive, stream, batch)
        last_day = before.agg(sf.max(DAY)).collect()[0][0]
        greatest[stream.name] = before.where(sf.col(DAY) == last_day).agg(sf.max(micros)).collect()[0][0]
    known = greatest[stream.name]
    counted = sf.when(~sf.col(LOG_DUPLICATE), micros) if LOG_DUPLICATE in events.columns else micros
    least, most = events.agg(sf.min(micros), sf.max(counted)).collect()[0]
    greatest[stream.name] = max((time for time in (known, most) if time is not None), default=None)
    if least >= (greatest[stream.name] or least) - stream.lateness:
        return events.withColumn(LOG_LATE, sf.lit(False))
    so_far = sf.max(counted).over(Window.orderBy(PLACE).rowsBetween(Window.unboundedPreceding, -1))
    limit = sf.greatest(so_far, sf.lit(known).cast("long")) - sf.lit(stream.lateness)
    return events.withColumn(LOG_LATE, sf.coalesce(micros < limit, sf.lit(False)))


def _count(validated: DataFrame, streams: Sequence[Stream]) -> Counts:
    """A row for each stream and each code: a count, not data."""
    which = sf.coalesce(
        *(sf.when(sf.col(event_column(stream)).isNotNull(), sf.lit(stream.name)) for stream in streams), sf.lit(None)
    )
    rows = validated.groupBy(which.alias("stream"), "code").count().collect()
    archived = {stream.name: 0 for stream in streams}
    archived.update({row["stream"]: row["count"] for row in rows if row["code"] is None})
    return Counts(archived, {row["code"]: row["count"] for row in rows if row["code"] is not None})


def day_of(time: Column) -> Column:
    """The day in UTC, whatever the session's time zone is."""
    return sf.date_from_unix_date(sf.floor(sf.unix_seconds(time) / sf.lit(86_400)).cast("int"))


def _write(rows: DataFrame, archive: Archive, table: str, batch: Batch, counts: Mapping[str, int]) -> None:
    is_marked = is_there(rows.sparkSession, archive.mark(table))
    if is_marked and not has_table(rows.sparkSession, archive, table):
        raise _lost(archive, table)
    writer: DataFrameWriter = rows.write.format(archive.format).partitionBy(DAY)
    if archive.format == "parquet":
        writer = writer.mode("overwrite").option("partitionOverwriteMode", "static")
        writer.save(_parquet_folder(archive, table, batch))
    else:
        note = {"writer": batch.writer, "batch": batch.number, "rows": counts}
        writer = writer.mode("append").option("mergeSchema", "true").option("userMetadata", json.dumps(note))
        writer = writer.option("txnAppId", batch.writer).option("txnVersion", batch.number)
        writer = writer.options(**log_properties())  # which only count when the table is made
        with explaining_delta(rows.sparkSession):
            _save_among_others(writer, archive.table(table))
    if not is_marked:
        write_note(rows.sparkSession, archive.mark(table), "")


def has_table(spark: SparkSession, archive: Archive, table: str) -> bool:
    """Whether there is a table of that name."""
    path = archive.table(table)
    return is_there(spark, f"{path}/_delta_log" if archive.format == "delta" else path)


def snapshot(spark: SparkSession, archive: Archive, table: str) -> Any:
    """What a Delta table's log says of it now, as an object of the JVM; None if there is none, or it can't be read."""
    if archive.format != "delta":
        return None
    try:
        return _snapshot(spark, archive, table)
    except (PySparkException, Py4JError):
        return None  # one that is damaged is told of when it is read


def _snapshot(spark: SparkSession, archive: Archive, table: str) -> Any:
    """What a Delta table's log says of it now; of a table that there is not it has the version -1."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    none = jvm.scala.Option.empty()
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, archive.table(table))
    return log.update(False, none, none)


def _lost(archive: Archive, table: str) -> TableLost:
    return TableLost(
        f"the archive had a table of '{table}', and there is none at '{archive.table(table)}' any more: what was in it "
        "would be missing. Bring that folder back from a copy; or, if its events may be forgotten, remove "
        f"'{archive.mark(table)}', which says that it was there"
    )


def _save_among_others(writer: DataFrameWriter, path: str) -> None:
    """Saves again after a conflict with another writer, which the batch's number makes safe."""
    for _ in range(_ATTEMPTS - 1):
        try:
            writer.save(path)
        except (Py4JJavaError, PySparkException) as error:
            if not any(conflict in str(error) for conflict in _CONFLICTS):
                raise
        else:
            return
    writer.save(path)


def _parquet_folder(archive: Archive, table: str, batch: Batch) -> str:
    return f"{archive.table(table)}/batch={batch.writer}-{batch.number}"


def read(spark: SparkSession, archive: Archive, stream: Stream, *, late: bool = False) -> DataFrame:
    """The archived events of a stream: id, time, the attributes, and day; none if there is no table yet.

    Raises TableLost if there was one. What came late through the log or from a topic takes part in no query (rule E4),
    and is there only with `late`: then the columns log_* tell, null of what came from files, and of what was archived
    before there was such a column. The second of two with one id is not there.
    """
    schema = logged_schema(stream).add(LOG_DUPLICATE, st.BooleanType()).add(DAY, st.DateType())
    events = _read(spark, archive, stream.name, schema)
    if LOG_DUPLICATE in events.columns:
        events = events.where(f"NOT coalesce({LOG_DUPLICATE}, false)").drop(LOG_DUPLICATE)
    absent = {name: sf.lit(None).cast(kind) for name, kind in _LOGGED.items() if name not in events.columns}
    events = events.withColumns(absent) if absent else events
    return events if late else events.where(f"NOT coalesce({LOG_LATE}, false)").drop(*_LOGGED)


def logged_schema(stream: Stream) -> st.StructType:
    """The columns of a stream's events that came through the log."""
    schema = event_schema(declared_for_spark(stream))
    for name, kind in _LOGGED.items():
        schema = schema.add(name, kind)
    return schema


def read_dead_letters(spark: SparkSession, archive: Archive) -> DataFrame:
    """The dead letters: received, stream, code, reason, raw, source, line, and day."""
    return _read(spark, archive, DEAD_LETTERS, _DEAD_LETTER_SCHEMA)


def _read(spark: SparkSession, archive: Archive, table: str, schema: st.StructType | str) -> DataFrame:
    path = archive.table(table)
    try:
        if archive.format == "delta":
            with explaining_delta(spark):
                return spark.read.format("delta").load(path)
        if has_table(spark, archive, table):  # its folder is made before it is
            return spark.read.schema(schema).option("basePath", path).parquet(literal(path)).drop("batch")
    except AnalysisException as error:
        if error.getCondition() not in _NO_TABLE:
            raise
    if is_there(spark, archive.mark(table)):
        raise _lost(archive, table)
    return spark.createDataFrame([], schema)


def removed_from(spark: SparkSession, archive: Archive, stream: str) -> int | None:
    """Before which time events were removed from a stream's table."""
    found = snapshot(spark, archive, stream)
    noted = None if found is None else found.metadata().configuration().get(REMOVED)
    return int(noted.get()) if noted is not None and noted.isDefined() else None


def committed(
    spark: SparkSession, archive: Archive, table: str, writer: str, batches: Mapping[int, Mapping[str, int]]
) -> dict[str, int]:
    """The rows that a writer's batches really brought into a table, by stream or by code, as the table itself says.

    `batches` has what was announced of each. Of one that Delta has and whose commit it forgot, that is believed.
    """
    if not batches:
        return {}
    if archive.format == "delta":
        return _committed_to_delta(spark, archive, table, writer, batches)
    folders = [literal(_parquet_folder(archive, table, Batch(writer, number))) for number in batches]
    rows = spark.read.option("basePath", archive.table(table)).parquet(*folders)
    if table != DEAD_LETTERS:
        return {table: rows.count()}
    return {row["code"]: row["count"] for row in rows.groupBy("code").count().collect()}


def last_batch(spark: SparkSession, archive: Archive, table: str, writer: str) -> int:
    """The number of the last batch of a writer that a table has; -1 if it has none."""
    if archive.format == "parquet":
        folder = local(archive.table(table))
        done = [] if folder is None else [f for f in folder.glob(f"batch={writer}-*") if (f / "_SUCCESS").exists()]
        return max((int(f.name.rpartition("-")[2]) for f in done), default=-1)
    # Not from the history of its commits, which Delta cuts short: it is a part of what the table is.
    with explaining_delta(spark):
        last = _snapshot(spark, archive, table).transactions().get(writer)
    return int(last.get()) if last.isDefined() else -1


def _note(metadata: str | None) -> dict[str, Any]:
    """What `_write` noted with a commit; nothing of those by others."""
    try:
        note = json.loads(metadata or "{}")
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def _committed_to_delta(
    spark: SparkSession, archive: Archive, table: str, writer: str, batches: Mapping[int, Mapping[str, int]]
) -> dict[str, int]:
    total, found = Counter[str](), set[int]()
    # The commits wanted are the last ones, but for those of other writers.
    for limit in (f"LIMIT {2 * len(batches) + 10}", ""):
        history = spark.sql(f"DESCRIBE HISTORY delta.`{archive.table(table).replace('`', '``')}` {limit}")
        total, found = Counter(), set()
        for rows, metadata in history.select("operationMetrics.numOutputRows", "userMetadata").collect():
            note = _note(metadata)
            if note.get("writer") == writer and note["batch"] in batches:
                found.add(note["batch"])
                total.update(note["rows"])
                total[_UNEXPLAINED] += int(rows) - sum(note["rows"].values())
        if len(found) >= len(batches):
            break
    last = last_batch(spark, archive, table, writer)
    for number in batches.keys() - found:
        if number <= last:
            total.update(batches[number])
    return {key: count for key, count in total.items() if count}
