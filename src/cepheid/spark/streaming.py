"""Pattern matching for streaming DataFrames: the matches of the batch, however the stream is cut into batches.

Keys are hashed into buckets. In each batch of Spark every task packs its rows by bucket, as Arrow, and tells every
bucket how far the streams have come in its part, so that a bucket without rows knows the watermark too. A bucket
(buckets.py) judges which of its rows are late, gives the others to its matcher, and keeps the matcher's state.
"""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from cepheid.language.checker import Checked
from cepheid.model.time import parse_duration
from cepheid.plan.division import is_alone
from cepheid.plan.real_time import hindrance
from cepheid.spark.buckets import PACKED, Bucket, Work, pack, unpack
from cepheid.spark.clocks import Clocks, Live
from cepheid.spark.columns import Columns, UnsuitableColumns
from cepheid.spark.knowledge import without_settled
from cepheid.spark.matching import (
    NoKey,
    depends_on_now,
    divided,
    in_partition,
    key_columns,
    matching,
    needed,
    only_relevant,
    places,
    relevant,
    tables,
)
from cepheid.spark.real_time import NotRealTime, in_jvm
from cepheid.spark.recovered import MARKS, marking

#: How many rows are packed at once: a task holds no more of them.
_ROWS: Final = 1 << 20
_Times: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
_PACKED_ROWS: Final = "bucket INT, greatest STRING, packed BINARY, offset LONG, came LONG"
#: What is told of every event, be it in a match or not.
_OF_ALL: Final = ("stream", "time", "arrival", "offset", "came")


class NoWatermark(UnsuitableColumns):
    """A streaming DataFrame that does not say how late its events may come."""


def match_stream(
    events: DataFrame, checked: Checked, columns: Columns, now: int, schema: st.StructType, live: Live, version: int
) -> DataFrame:
    """The matches of a query in a streaming DataFrame of `matching.py`'s events.

    `version` is that of the knowledge by which its PATHs were judged: another start may have another.
    """
    if live.real_time:
        if reason := hindrance(checked):
            raise NotRealTime(f"the query can't run in Real-Time Mode. {reason}")
        if depends_on_now(checked):
            warnings.warn(
                "`now` is that of this start in Real-Time Mode, which keeps nothing", UserWarning, stacklevel=4
            )
        return in_jvm(only_relevant(events, checked, now), checked, places(checked), schema)
    clocks = _clocks(checked, columns, live)
    left = without_settled(checked)
    if is_alone(checked) and clocks.flagged and not depends_on_now(checked):  # there is nothing to remember
        kept = only_relevant(events, checked, now).select(*needed(events, left))
        work = matching(left, now, schema)
        if live.missed is None:
            return kept.mapInArrow(work, schema)
        kept = kept.withColumn("clock", sf.unix_micros(sf.current_timestamp()))
        own, schema = to_arrow_schema(schema, timezone="UTC"), st.StructType([*schema.fields, *MARKS])
        return kept.mapInArrow(marking(work, live.missed, own, lambda rows: tables(rows, _ROWS)), schema)
    if is_alone(checked):
        bucket = sf.pmod(sf.xxhash64("id"), sf.lit(live.buckets))
    elif keys := key_columns(checked):
        bucket = sf.pmod(sf.xxhash64(*keys), sf.lit(live.buckets))
    else:
        warnings.warn(
            "the query has no key that all its variables share: all events of the stream are matched in one bucket, by "
            "one task at a time, however many there are. Join the variables on an attribute if they have one in common",
            NoKey,
            stacklevel=4,
        )
        bucket, live = sf.lit(0), replace(live, buckets=1)
    known, useful = relevant(events, checked, None)
    packable = known.select(*_packable(needed(events, left), useful & in_partition(checked), bucket))
    if live.arrival is not None:
        packable = packable.repartition(1)
    if live.late:
        schema = st.StructType([*schema.fields, st.StructField("late", late_type(columns.id_type))])
    if live.missed is not None:
        schema = st.StructType([*schema.fields, *MARKS])
    target = to_arrow_schema(schema, timezone="UTC")
    lateness, idle, run = clocks.lateness, clocks.idle, uuid.uuid4().hex
    task = Work(left, now, target, lateness, idle, live.buckets, live.late, clocks.flagged, run, version, live.missed)
    return (
        packable.mapInArrow(packing(left, live), _PACKED_ROWS)
        # A bucket without timers is not told the time of its batch.
        .withColumn("clock", sf.unix_micros(sf.current_timestamp()))
        .groupBy("bucket")
        .transformWithState(Bucket(task), PACKED, "Append", "ProcessingTime" if clocks.idle else "None")
        .mapInArrow(unpacking(target), schema)
    )


def _packable(columns: list[str], useful: Column, bucket: Column) -> Iterator[Column]:
    """What the tasks pack: of an event that no match can have only its time, which counts for the watermark.

    Its bucket is null.
    """
    for name in columns:
        yield sf.col(name) if name in _OF_ALL else sf.when(useful, sf.col(name)).alias(name)
    yield sf.when(useful, bucket.cast("int")).alias("bucket")


def _clocks(checked: Checked, columns: Columns, live: Live) -> Clocks:
    """Lateness and idle time of each stream that the query reads."""
    said = columns.clocks
    if said is None or not said.lateness:
        how = (
            'Write spark.readStream.format("cepheid").option("lateness", "10s")'
            if said is not None
            else f'Write frame.withWatermark("{columns.time}", "10 seconds").transform(match(...))'
        )
        raise NoWatermark(
            f"the streaming DataFrame has no watermark on '{columns.time}', so nothing says how late its events may "
            f"come, and when a match is final. {how}"
        )
    if said.flagged and (live.late or live.arrival is not None):
        raise UnsuitableColumns(
            "events of the log are judged already: those that came too late are `events.where('late')`, and Live needs "
            "neither `late` nor `arrival`"
        )
    # A stream that the DataFrame does not have says nothing, late or not.
    lateness = {s: said.lateness.get(s, said.lateness.get("", 0)) for s in checked.streams}
    own = None if live.idle is None else parse_duration(live.idle)
    idle = {s: found for s in checked.streams if (found := own or said.idle.get(s)) is not None}
    return Clocks(lateness, idle, said.flagged)


def late_type(id_type: st.DataType) -> st.StructType:
    """What is told of an event that came too late."""
    event_id = st.StringType() if isinstance(id_type, st.StringType) else st.LongType()
    return st.StructType().add("stream", st.StringType()).add("id", event_id).add("time", st.TimestampType())


def packing(checked: Checked, live: Live) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Packs a task's rows by bucket, each with the greatest time of its stream until then, in this task."""
    names = [*(["stream"] if len(checked.streams) > 1 else []), "id", "time", *places(checked)]
    streams, buckets, ordered = checked.streams, live.buckets, live.arrival is not None
    target = pa.schema([("bucket", pa.int32()), ("greatest", pa.string()), ("packed", pa.binary())])
    target = target.append(pa.field("offset", pa.int64())).append(pa.field("came", pa.int64()))

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        greatest: dict[str, int] = {}
        for rows in tables(batches, None if ordered else _ROWS):
            arrival = None
            if ordered:
                rows = rows.sort_by("arrival")
                arrival, rows = rows.column("arrival").to_numpy(), rows.drop_columns("arrival")
            last: list[int | None] = [None, None]
            came = None
            if "came" in rows.column_names:
                last = [pc.max(rows.column(name)).as_py() for name in ("offset", "came")]
                came, rows = rows.column("came"), rows.drop_columns(["offset", "came"])
            packable = rows.drop_columns("bucket").rename_columns(names)
            if came is not None:
                packable = packable.append_column("\0came", came)
            packable = packable.append_column("\0seen", pa.array(_seen(packable, streams, greatest, arrival)))
            bucket = rows.column("bucket")
            if bucket.null_count:
                packable, bucket = packable.filter(bucket.is_valid()), bucket.drop_null()
            told = json.dumps(greatest)
            parts = [pack(part) if part.num_rows else None for part in divided(packable, bucket, buckets)]
            told_last = ([value] * buckets for value in last)
            yield pa.record_batch([list(range(buckets)), [told] * buckets, parts, *told_last], schema=target)

    return in_executor


def _seen(
    rows: pa.Table, streams: Sequence[str], greatest: dict[str, int], arrival: np.ndarray[Any, Any] | None
) -> _Times:
    """For each row the greatest time of its stream up to it; brings `greatest` up to the last.

    Rows of one `arrival`, which goes up, came side by side: none is there before another.
    """
    times: _Times = rows.column("time").to_numpy()
    seen = times.copy()
    for stream in streams:
        mask = slice(None) if len(streams) == 1 else pc.equal(rows.column("stream"), stream).to_numpy()
        if len(own := times[mask]):
            running = np.maximum.accumulate(own)
            if stream in greatest:
                running = np.maximum(running, greatest[stream])
            greatest[stream], until = int(running[-1]), running
            if arrival is not None:
                before = np.searchsorted(arrival[mask], arrival[mask]) - 1
                until = np.maximum(own, np.where(before >= 0, running[before], own))
            seen[mask] = until
    return seen


def unpacking(target: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows of what buckets give."""

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for packed in batch.column(0):
                yield from unpack(packed.as_buffer()).cast(target).to_batches()

    return in_executor
