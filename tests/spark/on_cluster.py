"""A query on a cluster, as a batch and as a stream, as a program: `python -m tests.spark.on_cluster MASTER FOLDER`.

It prints as JSON the processes that made the matches of the batch, and kills an executor while the stream runs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

import cepheid.spark
from cepheid.spark.clocks import Live
from cepheid.spark.session import session
from tests.conftest import SPARK_FOR_TESTS
from tests.spark.killed_stream import QUERY


def executor() -> int:
    """The executor that this process works for: a JVM above it."""
    pid = os.getpid()
    while pid > 1:
        place = Path("/proc") / str(pid)
        if b"CoarseGrainedExecutorBackend" in (place / "cmdline").read_bytes():
            return pid
        pid = int((place / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def signed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Matches with the executor whose task made them: what follows in a plan without a shuffle is the same task."""
    mine = executor()
    for batch in batches:
        yield pa.record_batch([batch.column("id"), pa.array([mine] * batch.num_rows)], ["id", "executor"])


def main(master: str, folder: str) -> None:
    loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings = {"spark.master": master, "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "3"}
    # Both executors get something to do, though what there is would fit one task.
    even = {"spark.sql.adaptive.enabled": "false", "spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    even["spark.executor.extraJavaOptions"] = SPARK_FOR_TESTS["spark.driver.extraJavaOptions"]
    spark = session("cluster", **SPARK_FOR_TESTS | loopback | settings | even)
    schema = "id BIGINT, time BIGINT, sensor STRING, flow DOUBLE"
    stamped = "id", "timestamp_micros(time) AS time", "sensor", "flow"
    events = spark.read.schema(schema).json(f"{folder}/in").selectExpr(*stamped)
    matches = events.transform(cepheid.spark.match(QUERY))
    rows = matches.mapInArrow(signed, "id STRING, executor BIGINT").collect()
    executors = sorted({row["executor"] for row in rows})
    print(json.dumps({"batch": [row["id"] for row in rows], "executors": executors}), flush=True)

    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{folder}/in").selectExpr(*stamped)
    found = stream.withWatermark("time", "0 seconds").transform(cepheid.spark.match(QUERY, live=Live(buckets=4)))
    writer = found.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    query = writer.format("delta").start(f"{folder}/matches")
    while not Path(folder, "checkpoint", "commits", "0").exists() and query.isActive:
        time.sleep(0.05)
    os.kill(executors[0], signal.SIGKILL)
    is_active = query.isActive
    query.awaitTermination()
    print(json.dumps({"killed while it ran": is_active}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
