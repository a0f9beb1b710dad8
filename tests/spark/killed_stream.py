"""A query over the log into a Delta table, as a program: `python -m tests.spark.killed_stream LOG FOLDER PARTITIONS`.

It reads what the log has and ends. Meanwhile it kills all of its Python workers, in the middle of two batches, and says
so when tasks have failed of it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyspark import StatusTracker
from pyspark.sql.streaming.query import StreamingQuery

import cepheid.spark
from cepheid.history.log_source import register
from cepheid.spark.clocks import Live
from cepheid.spark.session import session
from tests.conftest import SPARK_FOR_TESTS

QUERY: Final = """SELECT ?p.sensor, ?q.flow - ?p.flow AS rise FROM (?p, air), (?q, air), (?n, air) SEQ (?p, NOT ?n, ?q)
    WINDOW (?p, ?q, 300us) JOIN (?p.sensor = ?q.sensor) JOIN (?n.sensor = ?p.sensor) FILTER (?n.flow > 8)"""
#: A window that Catalyst has in a batch.
COUNTED: Final = """SELECT COUNT(?e) AS n, MAX(?e.time) AS last FROM (?e, air) WINDOW (?e, batch, 100us)
    GROUP BY ?e.sensor"""


def main(log: str, folder: str, partitions: str) -> None:
    settings = {"spark.master": "local[2,8]", "spark.sql.shuffle.partitions": partitions}
    spark = session("killed", **SPARK_FOR_TESTS | settings)
    register(spark)
    options = {"path": log, "stream": "air", "lateness": "10us", "eventsPerBatch": "100", "eventsPerTask": "60"}
    matches = (
        spark.readStream.format("cepheid")
        .options(**options)
        .load()
        .transform(cepheid.spark.match(QUERY, live=Live(buckets=4)))
    )
    writer = matches.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    query = writer.format("delta").start(f"{folder}/matches")
    killing = spark.sparkContext.statusTracker(), query, Path(folder) / "checkpoint", 2
    threading.Thread(target=kill_workers, args=killing, daemon=True).start()
    query.awaitTermination()


def kill_workers(tracker: StatusTracker, query: StreamingQuery, checkpoint: Path, most: int) -> None:
    """Kills all workers while tasks of a batch run, again until that has made one fail; then in the next batch."""
    hit, before = -1, 0
    while most:
        batch, (active, failed) = under_way(checkpoint), tasks(tracker, query)
        if batch > hit and failed > before:
            print(f"workers were killed in batch {batch}, and tasks failed: {failed - before}", flush=True)
            hit, most = batch, most - 1
        elif batch > hit and active:  # else they may be at work for the driver, which plans
            for pid in workers():
                with suppress(ProcessLookupError):  # it ended
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)  # until Spark has noticed
        elif batch == hit:
            before = failed
        time.sleep(0.01)


def under_way(checkpoint: Path) -> int:
    """The number of the batch that is begun and not committed; -1 if there is none."""
    begun, ended = (
        max((int(file.name) for file in (checkpoint / folder).glob("[0-9]*") if file.name.isdecimal()), default=-1)
        for folder in ("offsets", "commits")
    )
    return begun if begun > ended else -1


def tasks(tracker: StatusTracker, query: StreamingQuery) -> tuple[int, int]:
    """How many tasks of a query are at work, and how many have failed so far."""
    jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(str(query.runId)))
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    found = [info for info in map(tracker.getStageInfo, stages) if info is not None]
    return sum(info.numActiveTasks for info in found), sum(info.numFailedTasks for info in found)


def workers() -> list[int]:
    """The Python workers of this program: forked by a daemon that its JVM has started."""
    parents, daemons = processes(b"pyspark.daemon")
    forked = [pid for pid in daemons if parents.get(pid) in daemons]
    return [pid for pid in forked if parents.get(parents.get(parents[pid], 0)) == os.getpid()]


def planners() -> list[int]:
    """The processes that plan what this program's streams read of sources in Python: its JVM starts one for each."""
    parents, runners = processes(b"python_streaming_source_runner")
    return [pid for pid in runners if parents.get(parents.get(pid, 0)) == os.getpid()]


def processes(name: bytes) -> tuple[dict[int, int], set[int]]:
    """The parents of all processes, and those processes that have a name in their command."""
    parents, named = {}, set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if name in (place / "cmdline").read_bytes():
                named.add(int(place.name))
        except OSError:
            continue  # it ended
    return parents, named


if __name__ == "__main__":
    main(*sys.argv[1:])
