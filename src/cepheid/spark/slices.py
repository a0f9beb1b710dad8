"""Batches of queries without a key, divided by time: slices that overlap, each matched by itself.

A match is its slice's in which its time lies, so one that is found in two slices is given once. That is right where all
that a match depends on lies within a bounded time before it; whatever depends on all that went before runs in order.

    ... | slice 4: gives the matches of [t4, t5) | slice 5: gives those of [t5, t6) | ...
               reads [t4 - reach, t5)                 reads [t5 - reach, t6)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cepheid.model.types import INT64_MIN

#: Slices for each partition of a shuffle: their number is what evens out that some have more to do than others.
_EACH: Final = 4
#: A slice is at least so many times as long as what it reads of the one before.
LENGTH: Final = 4


class Slice(NamedTuple):
    """The times of the matches that a slice gives, the last not included; None is open."""

    since: int | None
    until: int | None

    def gives(self, time: int) -> bool:
        """Whether a match of that time is the slice's."""
        return (self.since is None or time >= self.since) and (self.until is None or time < self.until)

    def own(self, matches: pa.RecordBatch) -> pa.RecordBatch:
        """Those of some matches, with a column `time`, that are the slice's."""
        if self.since is None and self.until is None:
            return matches
        times = matches.column("time").cast(pa.int64())
        low = pc.greater_equal(times, INT64_MIN if self.since is None else self.since)
        return matches.filter(low if self.until is None else pc.and_(low, pc.less(times, self.until)))


def sliced(events: DataFrame, most: int) -> DataFrame:
    """Events of one task after another: each in its slice, and in the next one where that reaches back so far.

    Slices have columns `since` and `until`, the times of matches that they give; null is open. How long they are is
    known when the job runs: from the first event to the last there are four for each partition of a shuffle, or fewer
    where that would be shorter than four times `most`.
    """
    partitions = int(events.sparkSession.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    ends = events.agg(sf.min("time").alias("first"), sf.max("time").alias("last"))
    length = sf.greatest(sf.lit(LENGTH * most), sf.expr(f"(last - first) div {_EACH * partitions}"), sf.lit(1))
    placed = (
        events.join(sf.broadcast(ends.withColumn("length", length)))
        .withColumn("own", sf.expr("(time - first) div length"))
        .withColumn("read", sf.expr(f"least((time - first + {most}) div length, (last - first) div length)"))
        .withColumn("slice", sf.explode(sf.sequence("own", "read")))
    )
    since = sf.when(sf.col("slice") > 0, sf.expr("first + slice * length"))
    until = sf.when(sf.expr("slice < (last - first) div length"), sf.expr("first + (slice + 1) * length"))
    rows = placed.select(*events.columns, since.alias("since"), until.alias("until"))
    return rows.repartition("since").sortWithinPartitions("since", "time")


def in_slices(tables: Iterable[pa.Table]) -> Iterator[tuple[Slice, Iterator[pa.Table]]]:
    """The slices of a task, each with its rows in order of time; those of one have to be taken before the next."""
    apart = ((_slice_of(rows), rows) for table in tables for rows in _apart(table))
    for own, parts in groupby(apart, key=itemgetter(0)):
        yield own, (rows.drop_columns(["since", "until"]) for _, rows in parts)


def _slice_of(rows: pa.Table) -> Slice:
    return Slice(rows.column("since")[0].as_py(), rows.column("until")[0].as_py())


def _apart(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows of each slice."""
    since = rows.column("since").fill_null(INT64_MIN).to_numpy()
    cuts = [0, *(np.flatnonzero(since[1:] != since[:-1]) + 1), len(since)]
    return (rows.slice(start, end - start) for start, end in pairwise(cuts))
