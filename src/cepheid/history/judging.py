"""By what knowledge the batches of a live query on Spark are judged: each by one version, also one that is begun twice.

A stream takes up a change between two batches, by being started again with other tables. Spark does a batch again that
it had planned and not finished, and by then the knowledge may be another. So how batches are judged is kept before the
first one is, in the application's folder; an unfinished one is done by that, and then the stream goes on by what is
known now.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cepheid.history import plain
from cepheid.language.checker import Checked
from cepheid.spark.knowledge import portable


@dataclass(frozen=True)
class Judged:
    """A query with its PATHs judged by a version of the knowledge."""

    checked: Checked
    version: int


@dataclass(frozen=True)
class Judging:
    """What judges the batches of a query: `kept` beside the application, for the checkpoint in a folder."""

    file: Path
    checkpoint: str

    def kept(self) -> Judged | None:
        """What the last batch was judged by; None if nobody has said, or in a way that is not understood any more."""
        try:
            found = plain.read(self.file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:  # of another version of this program
            return None
        if not (isinstance(found, dict) and isinstance(found.get("query"), Checked)):
            return None
        return Judged(found["query"], found["version"])

    def keep(self, judged: Judged) -> None:
        """Says what batches are judged by from now on; it is on disk when this returns."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new = self.file.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            file.write(plain.write({"query": portable(judged.checked), "version": judged.version}))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.file)

    def is_unfinished(self, spark: SparkSession) -> bool:
        """Whether a batch was planned and not finished."""
        planned, finished = (_latest(spark, f"{self.checkpoint}/{name}") for name in ("offsets", "commits"))
        return planned > finished


def _latest(spark: SparkSession, folder: str) -> int:
    """The last batch of which there is a file in a folder of a checkpoint; -1 if there is none."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    system = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not system.exists(path):
        return -1
    names = [status.getPath().getName() for status in system.listStatus(path)]
    return max((int(name) for name in names if name.isdigit()), default=-1)
