"""A query over the log into a Delta table, as a program: `python -m tests.spark.killed_stream LOG FOLDER PARTITIONS`.

It reads what the log has and ends. Until then it kills one of its Python workers after each batch, three in all.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

import cepheid.spark
from cepheid.history.log_source import register
from cepheid.spark.clocks import Live
from cepheid.spark.session import session
from tests.conftest import SPARK_FOR_TESTS

QUERY: Final = """SELECT ?p.sensor, ?q.flow - ?p.flow AS rise FROM (?p, air), (?q, air), (?n, air) SEQ (?p, NOT ?n, ?q)
    WINDOW (?p, ?q, 300us) JOIN (?p.sensor = ?q.sensor) JOIN (?n.sensor = ?p.sensor) FILTER (?n.flow > 8)"""


def main(log: str, folder: str, partitions: str) -> None:
    settings = {"spark.master": "local[2,4]", "spark.sql.shuffle.partitions": partitions}
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
    threading.Thread(target=kill_workers, args=(Path(folder) / "checkpoint" / "commits", 3), daemon=True).start()
    query.awaitTermination()


def kill_workers(commits: Path, most: int) -> None:
    batches = len(list(commits.glob("[0-9]*")))
    while most:
        if len(list(commits.glob("[0-9]*"))) > batches and (found := workers()):
            os.kill(found[-1], signal.SIGKILL)
            print("killed a worker", flush=True)
            most, batches = most - 1, len(list(commits.glob("[0-9]*")))
        time.sleep(0.05)


def workers() -> list[int]:
    """The Python workers of this program: forked by a daemon that its JVM has started."""
    parents, daemons = {}, set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if b"pyspark.daemon" in (place / "cmdline").read_bytes():
                daemons.add(int(place.name))
        except OSError:
            continue  # it ended
    forked = [pid for pid in daemons if parents.get(pid) in daemons]
    return [pid for pid in forked if parents.get(parents.get(parents[pid], 0)) == os.getpid()]


if __name__ == "__main__":
    main(*sys.argv[1:])
