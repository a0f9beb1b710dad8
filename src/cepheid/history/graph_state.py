"""Graphs on streams of Spark: keys hashed into buckets, and of each key what its graph holds, from batch to batch.

The events of a batch are run in the order of their arrival, after all of the batches before. So the outcome is that of
the whole in one piece as far as arrival goes up from batch to batch, as it does in the log and in a partition of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from cepheid.history.graphs import KeyGraph, Work
from cepheid.spark.buckets import PACKED, StateUnusable, pack, unpack
from cepheid.spark.matching import divided, tables
from cepheid.spark.streaming import unpacking

#: How many rows are packed at once.
_ROWS: Final = 1 << 16
_ORDER: Final = [("key", "ascending"), ("arrival", "ascending"), ("time", "ascending"), ("stream", "ascending")]


def run_stream(events: DataFrame, work: Work, buckets: int) -> DataFrame:
    """What consumers receive of a streaming DataFrame of the events of graphs.py."""
    bucket = sf.pmod(sf.xxhash64("key"), sf.lit(buckets)).cast("int").alias("bucket")
    target = to_arrow_schema(work.schema, timezone="UTC")
    return (
        events.select("*", bucket)
        .mapInArrow(packing(buckets), "bucket INT, packed BINARY")
        .groupBy("bucket")
        .transformWithState(GraphBucket(work, buckets), PACKED, "Append", "None")
        .mapInArrow(unpacking(target), work.schema)
    )


def packing(buckets: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Packs a task's rows by bucket: rows of Python's would be dear on the way."""
    target = pa.schema([("bucket", pa.int32()), ("packed", pa.binary())])

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in tables(batches, _ROWS):
            parts = divided(rows.drop_columns("bucket"), rows.column("bucket"), buckets)
            found = [(number, pack(part)) for number, part in enumerate(parts) if part.num_rows]
            yield pa.record_batch([[n for n, _ in found], [packed for _, packed in found]], schema=target)

    return in_executor


class GraphBucket(StatefulProcessor):
    """Runs the graphs of a bucket's keys; Spark makes one for each task."""

    def __init__(self, work: Work, buckets: int) -> None:
        self._work, self._buckets = work, buckets

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._begin = self._work.begin()
        self._began = handle.getValueState("began", "buckets INT")
        self._graphs = handle.getMapState("graphs", "key STRING", "now BIGINT, saved STRING")

    # ruff: noqa: N802, N803 -- the names are Spark's, which hands them over by name.
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        self._check()
        events = pa.concat_tables([unpack(row.packed) for row in rows])
        events = events.sort_by([*_ORDER, ("id", "ascending")])
        target = to_arrow_schema(self._work.schema, timezone="UTC")
        found: list[dict[str, Any]] = []
        current, own = None, None
        for event in events.to_pylist():
            if own is None or event["key"] != current:
                self._keep(current, own)
                current, own = event["key"], self._graph(event["key"])
            found += own.take(event)
        self._keep(current, own)
        if found:
            yield Row(packed=pack(pa.Table.from_pylist(found, schema=target)))

    def _check(self) -> None:
        began = self._began.get()
        if began is None:
            self._began.update((self._buckets,))
        elif began[0] != self._buckets:
            raise StateUnusable(
                f"the checkpoint was begun with {began[0]} buckets, and a key would not be found in another number of "
                f"them. Write graph(app, buckets={began[0]}), or take a new checkpoint"
            )

    def _graph(self, key: str) -> KeyGraph:
        held = self._graphs.getValue((key,)) if self._graphs.containsKey((key,)) else None
        try:
            return KeyGraph(self._begin) if held is None else KeyGraph(self._begin, *held)
        except ValueError as error:
            raise StateUnusable(
                f"the checkpoint can't go on for key {key}: {error}. A checkpoint belongs to one graph: give another, "
                "or a changed one, a checkpointLocation of its own"
            ) from error

    def _keep(self, key: str | None, own: KeyGraph | None) -> None:
        if own is not None:
            self._graphs.updateValue((key,), (own.now, own.save()))
