"""Batches of queries without a key, divided by time: slices that overlap, each matched by itself.

A match is its slice's in which its time lies, so one that is found in two slices is given once. That is right where all
that a match depends on lies within a bounded time before it; whatever depends on all that went before runs in order.

    ... | slice 4: gives the matches of [t4, t5) | slice 5: gives those of [t5, t6) | ...
               reads [t4 - reach, t5)                 reads [t5 - reach, t6)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cepheid.model.types import INT64_MIN
from cepheid.plan.matcher import Matcher

#: Slices for each partition of a shuffle: their number is what evens out that some have more to do than others.
_EACH: Final = 4
#: A slice is at least so many times as long as what it reads of the one before.
_LENGTH: Final = 4


def sliced(events: DataFrame, most: int) -> DataFrame:
    """Events of one task after another: each in its slice, and in the next one where that reaches back so far.

    Slices have columns `since` and `until`, the times of matches that they give; null is open. How long they are is
    known when the job runs: from the first event to the last there are four for each partition of a shuffle, or fewer
    where that would be shorter than four times `most`.
    """
    partitions = int(events.sparkSession.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    ends = events.agg(sf.min("time").alias("first"), sf.max("time").alias("last"))
    length = sf.greatest(sf.lit(_LENGTH * most), sf.expr(f"(last - first) div {_EACH * partitions}"), sf.lit(1))
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


def in_slices(
    tables: Iterable[pa.Table],
    begin: Callable[[], Matcher],
    found: Callable[[Matcher, int | None], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """The matches of slices that come one after another, each in order of time.

    `begin` gives a new matcher, and `found` what one has found up to a time; None: in all.
    """
    matcher: Matcher | None = None
    ends: tuple[int | None, int | None] = None, None
    for table in tables:
        for rows in _apart(table):
            those = rows.column("since")[0].as_py(), rows.column("until")[0].as_py()
            if matcher is None or those != ends:
                if matcher is not None:
                    yield from _own(found(matcher, None), *ends)
                matcher, ends = begin(), those
            last = rows.column("time")[-1].as_py()
            for batch in rows.drop_columns(["since", "until"]).to_batches():
                matcher.push_batch(batch)
            yield from _own(found(matcher, last), *ends)
    if matcher is not None:
        yield from _own(found(matcher, None), *ends)


def _apart(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows of each slice."""
    since = rows.column("since").fill_null(INT64_MIN).to_numpy()
    cuts = [0, *(np.flatnonzero(since[1:] != since[:-1]) + 1), len(since)]
    return (rows.slice(start, end - start) for start, end in pairwise(cuts))


def _own(matches: Iterable[pa.RecordBatch], since: int | None, until: int | None) -> Iterator[pa.RecordBatch]:
    """The matches that are the slice's to give."""
    for batch in matches:
        times = batch.column("time").cast(pa.int64())
        low = pc.greater_equal(times, INT64_MIN if since is None else since)
        yield (
            batch
            if until is None and since is None
            else batch.filter(low if until is None else pc.and_(low, pc.less(times, until)))
        )
