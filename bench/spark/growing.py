"""A query on streams of several sizes, on a cluster, as a program: `python growing.py MASTER FOLDER EXECUTORS CASES`.

CASES is a list of cases in JSON; what each took is printed as a line of JSON.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from spark.state import bytes_after
from spark.streams import read
from spark.workload import WEAK, rounds

import cepheid.spark
from cepheid.spark.clocks import Live
from cepheid.spark.session import session

#: Batches of a case; the first one warms up.
BATCHES: Final = 4


@dataclass(frozen=True)
class Case:
    """A stream of so many events a batch, in so many files, of so many keys; and how its work is divided."""

    keys: int = 2_000
    events: int = 50_000
    files: int = 2
    partitions: int = 2
    buckets: int = 16


@dataclass(frozen=True)
class Grown:
    """What a batch took, and what is held after the last."""

    case: Case
    executors: int
    seconds: list[float]
    state_bytes: int
    #: Events in the query's window, as the workload has them: one in ten seconds a key, for five minutes.
    held: int


def written(folder: Path, case: Case) -> Path:
    """Files of the case's events; so many are a batch."""
    folder.mkdir(parents=True)
    rows = pa.Table.from_batches(list(rounds(BATCHES * case.events, case.keys)))
    size = case.events // case.files
    for number in range(BATCHES * case.files):
        pq.write_table(rows.slice(number * size, size), folder / f"{number:05}.parquet")
    return folder


def run(spark: SparkSession, case: Case, executors: int, folder: Path) -> Grown:
    spark.conf.set("spark.sql.shuffle.partitions", case.partitions)
    stream = read(spark, written(folder / "in", case), files=case.files)
    found = stream.transform(cepheid.spark.match(WEAK, now=0, live=Live(buckets=case.buckets)))
    writer = found.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in batches[1:]]
    state = bytes_after(spark, folder / "checkpoint", batches[-1]["batchId"])
    spans = list(rounds(BATCHES * case.events, case.keys))
    last = max(rows.column("time")[-1].value for rows in spans)
    held = sum(int((rows.column("time").cast(pa.int64()).to_numpy() >= last - 300_000_000).sum()) for rows in spans)
    shutil.rmtree(folder)
    return Grown(case, executors, seconds, state, held)


def main(master: str, folder: str, executors: str, cases: str) -> None:
    spark = session(
        **{
            "spark.master": master,
            "spark.cores.max": executors,
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        }
    )
    run(spark, Case(), int(executors), Path(folder) / "warm-up")
    for number, given in enumerate(json.loads(cases)):
        found = run(spark, Case(**given), int(executors), Path(folder) / str(number))
        print(json.dumps(asdict(found)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
