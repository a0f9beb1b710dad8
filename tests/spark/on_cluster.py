"""The suite of queries on a cluster, as a program: `python -m tests.spark.on_cluster MASTER FOLDER LOG`.

It prints as JSON how its scheduler shares cores, the matches of a batch and the processes that made them, the events of
a log over TCP and the processes that read them, and kills an executor while the suite runs as a stream.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

from cepheid.history.log_source import register
from cepheid.spark.clocks import Live
from cepheid.spark.pools import pools
from cepheid.spark.session import session
from tests.conftest import JAVA_FOR_TESTS, SPARK_FOR_TESTS
from tests.history.test_log_source import TOKEN
from tests.spark.suite import ON_CLUSTER, by_name, together
from tests.spark.test_streaming import SCHEMA, read

#: The levels of its scheduler pools, highest first.
LEVELS: Final = ("urgent", "<high>", "background")


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
        columns = [batch.column("name"), batch.column("id"), pa.array([mine] * batch.num_rows)]
        yield pa.record_batch(columns, ["name", "id", "executor"])


def main(master: str, folder: str, address: str) -> None:
    loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    settings = {"spark.master": master, "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    # Both executors get something to do, though what there is would fit one task.
    even = {"spark.sql.adaptive.enabled": "false", "spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    even["spark.executor.extraJavaOptions"] = JAVA_FOR_TESTS
    spark = session("cluster", **SPARK_FOR_TESTS | loopback | settings | even | pools(LEVELS, Path(folder)))
    context = spark.sparkContext._jsc.sc()
    shares = {level: context.getPoolForName(level).get() for level in LEVELS}
    weights = {level: (pool.weight(), pool.minShare()) for level, pool in shares.items()}
    print(json.dumps({"scheduling": context.getSchedulingMode().toString(), "pools": weights}), flush=True)
    matches = together(spark.read.schema(SCHEMA).json(f"{folder}/in"))
    rows = matches.mapInArrow(signed, "name STRING, id STRING, executor BIGINT").collect()
    executors = sorted({row["executor"] for row in rows})
    batch = by_name((row["name"], row["id"]) for row in rows)
    print(json.dumps({"batch": batch, "executors": executors}), flush=True)

    register(spark)
    reader = spark.read.format("cepheid").options(address=address, token=TOKEN, stream="air", eventsPerTask=20)
    events = reader.load().selectExpr("'air' AS name", "CAST(id AS STRING) AS id")
    rows = events.mapInArrow(signed, "name STRING, id STRING, executor BIGINT").collect()
    told = {"log": [int(row["id"]) for row in rows], "readers": sorted({row["executor"] for row in rows})}
    print(json.dumps(told), flush=True)

    stream = read(spark, Path(folder) / "in").withWatermark("time", "2 seconds")
    writer = together(stream, Live(buckets=4), ON_CLUSTER).writeStream.option(
        "checkpointLocation", f"{folder}/checkpoint"
    )
    query = writer.trigger(availableNow=True).format("delta").start(f"{folder}/matches")
    while not Path(folder, "checkpoint", "commits", "0").exists() and query.isActive:
        time.sleep(0.05)
    os.kill(executors[0], signal.SIGKILL)
    is_active = query.isActive
    query.awaitTermination()
    print(json.dumps({"killed while it ran": is_active}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
