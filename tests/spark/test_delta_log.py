"""Delta's log of the archive's tables is cut short, and nothing that is counted on goes with it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyspark.sql import SparkSession

from cepheid.spark.archive import DEAD_LETTERS, Archive, Batch, committed, last_batch, read
from cepheid.spark.care import bound_log, cut_log
from cepheid.spark.delta_log import log_properties
from tests.spark.samples import AIR, airflow
from tests.spark.test_archive import write


def properties(spark: SparkSession, archive: Archive, table: str) -> dict[str, str]:
    (row,) = spark.sql(f"DESCRIBE DETAIL delta.`{archive.table(table)}`").select("properties").collect()
    return dict(row[0])


def age(folder: Path, hours: float) -> None:
    """Makes all that is in a table's log so old."""
    moment = time.time() - hours * 3600
    for file in (folder / "_delta_log").iterdir():
        if file.is_file():
            os.utime(file, (moment, moment))


def commits(folder: Path) -> list[int]:
    return sorted(int(file.stem) for file in (folder / "_delta_log").glob("*.json"))


def test_batches_are_known_when_their_commits_are_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    archive = Archive(str(tmp_path / "archive"))
    folder = Path(archive.table(AIR.name))

    def batch(number: int, writer: str = "test", first: int = 0) -> None:
        lines = [airflow(first + number), airflow(first + 100 + number)]
        write(spark, tmp_path / "in", lines, archive, Batch(writer, number))

    batch(0)
    wanted = dict(log_properties())
    assert properties(spark, archive, AIR.name).items() >= wanted.items()
    # One that was made before these were set gets them once, but for what its owner has set.
    table = f"delta.`{folder}`"
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ({', '.join(map(repr, wanted))})")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    bound_log(spark, archive, AIR.name)
    there = commits(folder)
    bound_log(spark, archive, AIR.name)
    bound_log(spark, archive, DEAD_LETTERS)  # of which there is none
    assert commits(folder) == there
    assert properties(spark, archive, AIR.name).items() >= (wanted | {"delta.checkpointInterval": "2"}).items()
    batch(1)
    batch(0, writer="another", first=50)
    age(folder, hours=2)
    batch(3)
    batch(4)
    cut_log(spark, archive, AIR.name)
    cut_log(spark, archive, DEAD_LETTERS)
    assert commits(folder)[0] > there[-1]
    assert not list((folder / "_delta_log").glob(f"*{there[-1]:020}*"))  # nor what lies beside a commit
    known = {writer: last_batch(spark, archive, AIR.name, writer) for writer in ("test", "another", "nobody")}
    assert known == {"test": 4, "another": 0, "nobody": -1}
    assert last_batch(spark, archive, DEAD_LETTERS, "test") == -1
    # What is done again is not doubled, and what is in the books was announced or is in the history; 5 is in neither.
    batch(0)
    batch(4)
    assert read(spark, archive, AIR, late=True).count() == 2 * 4 + 2
    announced = {number: {AIR.name: 2} for number in (0, 1, 3, 4, 5)}
    assert committed(spark, archive, AIR.name, "test", announced) == {AIR.name: 2 * 4}
