"""Care for an archive: what it holds, small files made large, and what is older than it is to be kept removed.

Streams write small files, one a batch and day at least. Delta tables are compacted day by day (`compaction.py`);
readers and writers go on meanwhile. Files that no version of the table needs are removed after a while: a reader may
still be at them. Delta's log of a table of events is kept short (`delta_log.py`). A stream that reads matches may be
far behind, so theirs are kept for as long as Delta keeps its log, of which a stream needs every commit anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from cepheid.model.files import Format
from cepheid.model.streams import Stream
from cepheid.model.time import UNITS
from cepheid.model.types import Type
from cepheid.spark.archive import (
    DAY,
    DEAD_LETTERS,
    REMOVED,
    Archive,
    day_of,
    has_table,
    matches_of,
    read,
    read_dead_letters,
    snapshot,
)
from cepheid.spark.compaction import SMALL, compact_all, quoted
from cepheid.spark.delta_log import DURATIONS, log_properties
from cepheid.spark.places import local

#: For how many hours files of matches are kept that were replaced: the 30 days of `delta.logRetentionDuration`.
_MATCHES_KEPT: Final = 30 * 24
#: For how many hours those of other tables are kept at least after they were written, whoever removed them meanwhile.
_FILES_KEPT: Final = 48


class CantCompact(ValueError):
    """An archive whose format has no compaction."""


@dataclass(frozen=True)
class TableStats:
    """What a table of the archive holds; `size` and `small` are None where the files are not on this machine."""

    table: str
    rows: int
    late: int
    first: datetime | None
    last: datetime | None
    days: int
    files: int
    #: How many of the files are so small that they are better made one.
    small: int | None
    size: int | None


def tables_of(streams: Sequence[Stream], queries: Sequence[str]) -> list[str]:
    """The tables of an archive, whether there are such yet: of streams, of dead letters, and of queries' matches."""
    return [*(stream.name for stream in streams), DEAD_LETTERS, *map(matches_of, queries)]


def stats(
    spark: SparkSession, archive: Archive, streams: Sequence[Stream], queries: Sequence[str] = ()
) -> list[TableStats]:
    """What each table holds: those of the streams, that of the dead letters, and those of matches that there are."""
    found = []
    for stream in streams:
        events = read(spark, archive, stream, late=True)
        late = sf.count_if(sf.coalesce("log_late", sf.lit(False)))
        found.append(_stats(stream.name, events, "time", late))
    letters = read_dead_letters(spark, archive)
    found.append(_stats(DEAD_LETTERS, letters, "received", sf.lit(0)))
    for table in map(matches_of, queries):
        place = Archive(archive.path)  # whatever the archive's tables are, these are of Delta
        if has_table(spark, place, table):
            found.append(_stats(table, spark.read.format("delta").load(place.table(table)), "time", sf.lit(0)))
    return found


def _stats(table: str, rows: DataFrame, time: str, late: Column) -> TableStats:
    count, of_late, first, last, days = rows.agg(
        sf.count(sf.lit(1)), late, sf.min(time), sf.max(time), sf.count_distinct(day_of(sf.col(time)))
    ).collect()[0]
    paths = [local(file) for file in rows.inputFiles()]
    sizes = [path.stat().st_size for path in paths if path is not None and path.exists()]
    known = len(sizes) == len(paths)
    small, size = sum(each < SMALL for each in sizes), sum(sizes)
    return TableStats(
        table, count, of_late, first, last, days, len(paths), small if known else None, size if known else None
    )


def compact(spark: SparkSession, archive: Archive, tables: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Makes few large files of all small ones; how many files there were and are, by table. CantCompact if not Delta.

    What is large is not written again, so that it may be done as often as one likes.
    """
    if archive.format != "delta":
        raise CantCompact("only Delta tables are compacted; this archive is kept as plain parquet")
    done = {}
    for table in tables:
        if has_table(spark, archive, table):
            before = len(spark.read.format("delta").load(archive.table(table)).inputFiles())
            if not is_of_matches(table):
                bound_log(spark, archive, table)
            compact_all(spark, archive, table)
            remove_unused(spark, archive, table)
            done[table] = before, len(spark.read.format("delta").load(archive.table(table)).inputFiles())
    return done


def is_of_matches(table: str) -> bool:
    """Whether a table has the matches of a query, which others may read as a stream."""
    return table.startswith(matches_of(""))


def bound_log(spark: SparkSession, archive: Archive, table: str) -> None:
    """Sets what bounds the log of a Delta table that was made before that was set; what its owner has set stays.

    A stream that writes to the table at that moment fails, unless it tries again, as what archives does.
    """
    found = snapshot(spark, archive, table)
    if found is None or found.version() < 0:
        return
    there = found.metadata().configuration()
    wanted = log_properties()
    if any(there.contains(name) for name in DURATIONS):  # Delta takes only some together
        wanted = {name: value for name, value in wanted.items() if name not in DURATIONS}
    lacking = [f"'{name}' = '{value}'" for name, value in wanted.items() if not there.contains(name)]
    if lacking:
        spark.sql(f"ALTER TABLE {quoted(archive, table)} SET TBLPROPERTIES ({', '.join(lacking)})")


def cut_log(spark: SparkSession, archive: Archive, table: str) -> None:
    """Removes from a Delta table's log what is older than its properties say.

    Delta does that with each checkpoint, but only for days that have ended.
    """
    found, jvm = snapshot(spark, archive, table), spark.sparkContext._jvm
    assert jvm is not None
    if found is not None and found.deltaLog().enableExpiredLogCleanup(found.metadata()):
        none, minute = jvm.scala.Option.empty(), jvm.org.apache.spark.sql.delta.TruncationGranularity.MINUTE()
        found.deltaLog().cleanUpExpiredLogs(found, none, none, minute)


def remove_unused(spark: SparkSession, archive: Archive, table: str) -> None:
    """Removes the files of a Delta table that were replaced or removed, or never became part of it, long enough ago.

    What its owner has set of that (`delta.deletedFileRetentionDuration`) holds.
    """
    retain = f" RETAIN {_MATCHES_KEPT} HOURS" if is_of_matches(table) else ""
    if not is_of_matches(table):
        found, name = snapshot(spark, archive, table), DURATIONS[1]
        kept = None if found is None else found.metadata().configuration().get(name)
        if kept is not None and kept.isDefined() and kept.get() == log_properties()[name]:
            retain = f" RETAIN {_FILES_KEPT} HOURS"
    jvm: Any = spark.sparkContext._jvm
    console = getattr(getattr(jvm.scala, "Console$"), "MODULE$")
    out = console.out()
    console.setOutDirect(jvm.java.lang.System.err)  # Delta says what it did, among the matches that are printed
    try:
        spark.sql(f"VACUUM {quoted(archive, table)}{retain}").collect()
    finally:
        console.setOutDirect(out)


def remove_before(spark: SparkSession, archive: Archive, streams: Sequence[Stream], moment: int) -> dict[str, int]:
    """Removes events and dead letters of days that ended before a moment; how many, by table. Delta only."""
    removed = {}
    for table in (*(stream.name for stream in streams), DEAD_LETTERS):
        if archive.format == "delta" and has_table(spark, archive, table):
            day = f"date_from_unix_date({moment // UNITS['d']})"
            (row,) = spark.sql(f"DELETE FROM {quoted(archive, table)} WHERE {DAY} < {day}").collect()  # noqa: S608
            removed[table] = int(row[0])
            if removed[table]:  # for those who ask about these days
                note = f"'{REMOVED}' = '{moment // UNITS['d'] * UNITS['d']}'"
                spark.sql(f"ALTER TABLE {quoted(archive, table)} SET TBLPROPERTIES ({note})")
    return removed


def export(events: DataFrame, stream: Stream, folder: Path, file_format: Format) -> None:
    """Writes events of a stream to files of a new folder, in a form that `cepheid match` reads."""
    plain = events.select("id", "time", *(f"`{name}`" for name in stream.attributes))
    if file_format == "parquet":
        plain.write.parquet(str(folder))
        return
    for name, kind in stream.attributes.items():
        if kind in (Type.BYTES, Type.UINT8_ARRAY):
            plain = plain.withColumn(name, sf.base64(name))
        elif kind is Type.FLOAT_ARRAY and file_format == "csv":
            plain = plain.withColumn(name, sf.to_json(name))
    writer = plain.write.option("timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    if file_format == "csv":
        writer.option("header", "true").csv(str(folder))
        return
    writer.json(str(folder))
    for file in folder.glob("*.json"):  # Spark's name for lines of JSON
        file.rename(file.with_suffix(".jsonl"))
