"""A live query under a batch load, with levels and without: `python levels.py ARCHIVE KNOWLEDGE SECONDS`.

Levels are scheduler pools (cepheid/spark/pools.py): which task gets a core that falls free, not preemption. So the load
has many short tasks here; a live query waits as long as those that run take.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import scepter_world as world
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession
from spark.workload import QUERIES, SENSORS

import cepheid.spark
from cepheid.app.known import Known
from cepheid.spark.pools import pools
from cepheid.spark.session import session

#: Events a second that the live query is offered, far less than what two cores can do alone.
RATE: Final = 50_000
#: Milliseconds from one of its batches to the next.
TRIGGER: Final = 2000
#: Tasks of the load, each of a moment.
TASKS: Final = 32
LEVELS: Final = ("high", "background")


def offered(spark: SparkSession) -> DataFrame:
    rows = spark.readStream.format("rate").option("rowsPerSecond", RATE).option("numPartitions", 2).load()
    events = rows.selectExpr(
        "value AS id", "timestamp AS time", f"concat('S', value % {SENSORS}) AS sensorID", "rand(1) * 600 AS flowrate"
    )
    return events.withWatermark("time", "1 second")


def live(spark: SparkSession, known: Known, pool: str, folder: Path, seconds: float) -> dict[str, float]:
    """Query 5, every two seconds: how long a batch takes, and the part of the batches that were done by the next.

    How many events went through says nothing: those that wait are taken by a later batch.
    """
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
    matches = offered(spark).transform(cepheid.spark.match(QUERIES["Query 5"], knowledge=known, now=0))
    writer = matches.writeStream.format("noop").outputMode("append").trigger(processingTime=f"{TRIGGER} milliseconds")
    query = writer.option("checkpointLocation", str(folder)).start()
    time.sleep(seconds)
    batches: list[Any] = [p for p in query.recentProgress if p["numInputRows"]][3:]
    query.stop()
    times = [p["durationMs"]["triggerExecution"] for p in batches] or [int(1000 * seconds)]
    return {"in time": sum(t <= TRIGGER for t in times) / len(times), "batch": statistics.median(times)}


def load(events: DataFrame, pool: str, over: threading.Event) -> InheritableThread:
    """Query 3 without its FILTER over the archive, again and again, in tasks of a moment each."""

    def run() -> None:
        events.sparkSession.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
        matches = events.transform(cepheid.spark.match(QUERIES["Query 3, no FILTER"]))
        while not over.is_set():
            matches.write.format("noop").mode("overwrite").save()

    thread = InheritableThread(target=run)
    thread.start()
    return thread


def main(archive: str, folder: str, seconds: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        settings = {"spark.master": "local[2]", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
        spark = session(**settings, **pools(LEVELS, Path(temporary)))
        beside = spark.newSession()
        beside.conf.set("spark.sql.shuffle.partitions", str(TASKS))
        beside.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
        events = beside.read.format("delta").load(archive).drop("day")
        known = world.known(world.knowledge(SENSORS, Path(folder)))
        found = {"alone": live(spark, known, "high", Path(temporary) / "alone", float(seconds))}
        for name, pool in (("with levels", "background"), ("in one pool", "high")):
            over = threading.Event()
            thread = load(events, pool, over)
            time.sleep(2)
            found[name] = live(spark, known, "high", Path(temporary) / name, float(seconds))
            over.set()
            thread.join()
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
