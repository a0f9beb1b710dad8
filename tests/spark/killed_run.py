"""A run that is killed, as a program: `python -m tests.spark.killed_run INPUT ARCHIVE`.

SIGKILL hits this process and its JVM together when batch 1 has written its events and not yet its dead letters.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

from pyspark.sql import DataFrame

from cepheid.spark import archive as archive_module
from cepheid.spark.archive import DEAD_LETTERS, Archive, Batch
from cepheid.spark.pipeline import archive_files
from cepheid.spark.session import session
from tests.conftest import SPARK_FOR_TESTS
from tests.spark.samples import AIR


def main(path: str, folder: str) -> None:
    write = archive_module._write

    def write_or_die(rows: DataFrame, archive: Archive, table: str, batch: Batch, counts: Mapping[str, int]) -> None:
        if batch.number == 1 and table == DEAD_LETTERS:
            os.killpg(0, signal.SIGKILL)
        write(rows, archive, table, batch, counts)

    archive_module._write = write_or_die
    archive_files(session("killed", **SPARK_FOR_TESTS), [AIR], path, "jsonl", Archive(folder), files_per_batch=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
