"""A run that is killed, as a program: `python -m tests.spark.killed_run INPUT ARCHIVE`.

SIGKILL hits this process and its JVM together when batch 1 has written its events and not yet its dead letters, and
small files are just being made large: the first large one is begun.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cepheid.spark import archive as archive_module
from cepheid.spark.archive import DEAD_LETTERS, Archive, Batch
from cepheid.spark.compaction import compact_all
from cepheid.spark.pipeline import archive_files
from cepheid.spark.session import session
from tests.conftest import SPARK_FOR_TESTS
from tests.spark.samples import AIR


def main(path: str, folder: str) -> None:
    write = archive_module._write

    def write_or_die(rows: DataFrame, archive: Archive, table: str, batch: Batch, counts: Mapping[str, int]) -> None:
        if batch.number == 1 and table == DEAD_LETTERS:
            die_compacting(rows.sparkSession, archive)
        write(rows, archive, table, batch, counts)

    archive_module._write = write_or_die
    archive_files(session("killed", **SPARK_FOR_TESTS), [AIR], path, "jsonl", Archive(folder), files_per_batch=1)


def die_compacting(spark: SparkSession, archive: Archive) -> None:
    def files() -> set[Path]:
        return set(Path(archive.table(AIR.name)).glob("day=*/*.parquet"))

    before = files()
    threading.Thread(target=compact_all, args=(spark, archive, AIR.name), daemon=True).start()
    while files() <= before:
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
