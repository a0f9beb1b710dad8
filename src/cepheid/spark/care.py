"""Care for an archive: what it holds, small files made large, and what is older than it is to be kept removed.

Streams write small files, one a batch and day at least. Delta tables are compacted day by day; readers and writers go
on meanwhile. Files that no version of the table needs are removed once they are a week old, as Delta advises: a reader
may still be at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from cepheid.model.files import Format
from cepheid.model.streams import Stream
from cepheid.model.time import UNITS
from cepheid.model.types import Type
from cepheid.spark.archive import DAY, DEAD_LETTERS, REMOVED, Archive, read, read_dead_letters
from cepheid.spark.places import local


class CantCompact(ValueError):
    """An archive whose format has no compaction."""


@dataclass(frozen=True)
class TableStats:
    """What a table of the archive holds; `size` is None where the files are not on this machine."""

    table: str
    rows: int
    late: int
    first: datetime | None
    last: datetime | None
    days: int
    files: int
    size: int | None


def stats(spark: SparkSession, archive: Archive, streams: Sequence[Stream]) -> list[TableStats]:
    """What each table holds, those of the streams and that of the dead letters."""
    found = []
    for stream in streams:
        events = read(spark, archive, stream, late=True)
        late = sf.count_if(sf.coalesce("log_late", sf.lit(False)))
        found.append(_stats(stream.name, events, "time", late))
    letters = read_dead_letters(spark, archive)
    return [*found, _stats(DEAD_LETTERS, letters, "received", sf.lit(0))]


def _stats(table: str, rows: DataFrame, time: str, late: Column) -> TableStats:
    count, of_late, first, last, days = rows.agg(
        sf.count(sf.lit(1)), late, sf.min(time), sf.max(time), sf.count_distinct(DAY)
    ).collect()[0]
    paths = [local(file) for file in rows.inputFiles()]
    sizes = [path.stat().st_size for path in paths if path is not None and path.exists()]
    size = sum(sizes) if len(sizes) == len(paths) else None
    return TableStats(table, count, of_late, first, last, days, len(paths), size)


def compact(spark: SparkSession, archive: Archive, streams: Sequence[Stream]) -> dict[str, tuple[int, int]]:
    """Makes few large files of many small ones; how many there were and are, by table. CantCompact if not Delta."""
    if archive.format != "delta":
        raise CantCompact("only Delta tables are compacted; this archive is kept as plain parquet")
    done = {}
    for table in (*(stream.name for stream in streams), DEAD_LETTERS):
        if _is_table(archive, table):
            before = len(spark.read.format("delta").load(archive.table(table)).inputFiles())
            spark.sql(f"OPTIMIZE {_quoted(archive, table)}").collect()
            spark.sql(f"VACUUM {_quoted(archive, table)}").collect()
            done[table] = before, len(spark.read.format("delta").load(archive.table(table)).inputFiles())
    return done


def remove_before(spark: SparkSession, archive: Archive, streams: Sequence[Stream], moment: int) -> dict[str, int]:
    """Removes events and dead letters of days that ended before a moment; how many, by table. Delta only."""
    removed = {}
    for table in (*(stream.name for stream in streams), DEAD_LETTERS):
        if archive.format == "delta" and _is_table(archive, table):
            day = f"date_from_unix_date({moment // UNITS['d']})"
            (row,) = spark.sql(f"DELETE FROM {_quoted(archive, table)} WHERE {DAY} < {day}").collect()  # noqa: S608
            removed[table] = int(row[0])
            if removed[table]:  # for those who ask about these days
                note = f"'{REMOVED}' = '{moment // UNITS['d'] * UNITS['d']}'"
                spark.sql(f"ALTER TABLE {_quoted(archive, table)} SET TBLPROPERTIES ({note})")
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


def _is_table(archive: Archive, table: str) -> bool:
    folder = local(archive.table(table))
    return folder is None or (folder / "_delta_log").is_dir()


def _quoted(archive: Archive, table: str) -> str:
    return f"delta.`{archive.table(table).replace('`', '``')}`"
