"""Small files of a Delta table made large: which of them, when, and that what is large is not written again.

A stream leaves a file or more for each batch and day, of a few kilobytes. Files below SMALL are sorted into classes by
their size. When a day has MANY files of a class, those of the class and of the classes below become one, which mostly
lies in a higher class: so a byte is written about once in a class, and not each time that its day has new files. What
is not small is left alone. A day that has been quiet is done with a few files, as nothing more is to be expected.

Readers and writers go on meanwhile: Delta's OPTIMIZE says of its files that nothing in them has changed, so that a
stream that reads the table passes over them, and what appends to it does not conflict. The files that were replaced
stay until VACUUM removes them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cepheid.spark.archive import DAY, Archive, snapshot

#: So many small files of a day and class are made one.
MANY: Final = 32
#: Where classes end, in bytes. A file of one event has 3 kB, and MANY of these are not more than the first class.
_CLASSES: Final = (128 * 1024, 4 * 1024 * 1024)
#: A file of fewer bytes is small.
SMALL: Final = _CLASSES[-1]
#: What is made has at most so many bytes.
_LARGE: Final = 128 * 1024 * 1024
#: Seconds without a new small file after which a day is quiet, and how many of them are too many then.
QUIET: Final = 3600.0
FEW: Final = 8
#: What Delta says if another has removed what was being compacted, or changed the table's properties.
_CONFLICTS: Final = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_ATTEMPTS: Final = 5


@dataclass(frozen=True)
class SmallFiles:
    """The small files of a day; of all days if the table is not divided by them."""

    day: str | None
    #: How many there are in each class.
    counts: tuple[int, ...]
    #: When the newest was written, in seconds since 1970.
    newest: float

    def limit(self, now: float) -> int | None:
        """Files below this size are to be made one; None if it is not worth it yet."""
        for end, count in reversed(list(zip(_CLASSES, self.counts, strict=True))):
            if count >= MANY:
                return end
        return SMALL if sum(self.counts) >= FEW and now - self.newest >= QUIET else None


@dataclass(frozen=True)
class Done:
    """What a compaction did: how many files became how many, and the bytes of these."""

    removed: int = 0
    added: int = 0
    written: int = 0

    def __add__(self, other: Done) -> Done:
        return Done(self.removed + other.removed, self.added + other.added, self.written + other.written)


def version_of(spark: SparkSession, archive: Archive, table: str) -> int:
    """The version of a table, which each commit counts up; -1 if there is none."""
    found = snapshot(spark, archive, table)
    return -1 if found is None else int(found.version())


def small_files(spark: SparkSession, archive: Archive, table: str) -> list[SmallFiles]:
    """The small files of a table, by days. They are in its log: no file is opened."""
    found: Any = snapshot(spark, archive, table)
    if found is None or found.version() < 0:
        return []
    files = DataFrame(found.allFiles().toDF(), spark).where(sf.col("size") < SMALL)
    ends = (0, *_CLASSES)
    counts = [
        sf.count_if((sf.col("size") >= low) & (sf.col("size") < end)).alias(str(end))
        for low, end in zip(ends, _CLASSES, strict=False)
    ]
    days = files.groupBy(sf.col(f"partitionValues.{DAY}").alias("day"))
    rows = days.agg(sf.max("modificationTime"), *counts).collect()
    return [SmallFiles(day, tuple(counts), newest / 1000) for day, newest, *counts in map(tuple, rows)]


def compact_where_many(spark: SparkSession, archive: Archive, table: str, found: Sequence[SmallFiles]) -> Done:
    """Makes large files of the small ones of those days that have many, in a session of one's own.

    Raises what Delta does if another has changed these files meanwhile: see `is_conflict`.
    """
    days, now, done = defaultdict[int, list[str | None]](list), time.time(), Done()
    for each in found:
        if (limit := each.limit(now)) is not None:
            days[limit].append(each.day)
    for limit, own in days.items():
        done += _optimize(spark, archive, table, limit, own)
    return done


def compact_all(spark: SparkSession, archive: Archive, table: str) -> Done:
    """Makes large files of all small ones; again if another has changed them meanwhile."""
    own = own_session(spark)
    for _ in range(_ATTEMPTS - 1):
        try:
            return _optimize(own, archive, table, SMALL, [None])
        except (Py4JJavaError, PySparkException) as error:
            if not is_conflict(error):
                raise
    return _optimize(own, archive, table, SMALL, [None])


def is_conflict(error: Exception) -> bool:
    """Whether it was for another who changed the same table that something failed."""
    return any(conflict in str(error) for conflict in _CONFLICTS)


def own_session(spark: SparkSession) -> SparkSession:
    """A session with the settings of another, to be given further ones that the other does not get."""
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


def _optimize(spark: SparkSession, archive: Archive, table: str, limit: int, days: Sequence[str | None]) -> Done:
    """Makes large files of those below a limit; `days` are those meant, or None for all."""
    spark.conf.set("spark.databricks.delta.optimize.minFileSize", limit)
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", _LARGE)
    named = [f"DATE'{day}'" for day in days if day is not None]
    where = f" WHERE {DAY} IN ({', '.join(named)})" if named else ""
    (row,) = spark.sql(f"OPTIMIZE {quoted(archive, table)}{where}").collect()
    metrics = row["metrics"]
    return Done(metrics["numFilesRemoved"], metrics["numFilesAdded"], metrics["filesAdded"]["totalSize"] or 0)


def quoted(archive: Archive, table: str) -> str:
    """A Delta table in a statement of SQL."""
    return f"delta.`{archive.table(table).replace('`', '``')}`"
