"""Seconds of Query 7 with so many cores, pinned from outside: `python one.py ARCHIVE KNOWLEDGE CORES REPEATS`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import scepter_world as world
from spark.workload import QUERIES, SENSORS

import cepheid.spark
from cepheid.spark.session import session


def main(archive: str, folder: str, cores: str, repeats: str) -> None:
    spark = session(**{"spark.master": f"local[{cores}]", "spark.driver.memory": "512m"})
    events = spark.read.format("delta").load(archive).drop("day")
    known = world.known(world.knowledge(SENSORS, Path(folder)))
    matches = events.transform(cepheid.spark.match(QUERIES["Query 7"], knowledge=known))
    seconds = []
    for _ in range(int(repeats) + 1):
        start = time.perf_counter()
        matches.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - start)
    print(json.dumps(seconds[1:]))


if __name__ == "__main__":
    main(*sys.argv[1:])
