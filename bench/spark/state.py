"""What a query on a stream keeps over a day of event time: the bytes of its matchers' state, hour by hour."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from spark import streams
from spark.workload import PERIOD, WEAK, rounds

import cepheid.spark

#: Hours of event time, one a batch.
HOURS: Final = 24
HOUR: Final = 3_600_000_000


def kept(spark: SparkSession, folder: Path, sensors: int) -> list[int]:
    """Bytes of state after each hour, of Query 3 without its FILTER."""
    files = folder / "day"
    files.mkdir()
    size = sensors * HOUR // PERIOD
    rows = pa.Table.from_batches(list(rounds(HOURS * size, sensors)))
    for hour in range(HOURS):
        pq.write_table(rows.slice(hour * size, size), files / f"{hour:05}.parquet")
    checkpoint = folder / "day-checkpoint"
    streams.sustained(streams.read(spark, files).transform(cepheid.spark.match(WEAK, now=0)), checkpoint)
    return [bytes_after(spark, checkpoint, batch) for batch in range(HOURS)]


def bytes_after(spark: SparkSession, checkpoint: Path, batch: int) -> int:
    """What the buckets hold after a batch, all of it; without what the checkpoint keeps of batches before."""
    sizes = {
        "chunks": "octet_length(user_map_key.name) + octet_length(user_map_value.content)",
        "progress": "octet_length(value.progress) + octet_length(value.head)",
    }
    held = 0
    for variable, size in sizes.items():
        state = spark.read.format("statestore").option("path", str(checkpoint)).option("batchId", batch)
        found = state.option("stateVarName", variable).load().selectExpr(f"coalesce(sum({size}), 0)").first()
        held += 0 if found is None else int(found[0])
    return held
