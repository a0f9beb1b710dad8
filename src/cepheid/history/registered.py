"""When a live query on Spark was registered, which is its `now` for ever (rule Q5); kept with its checkpoint."""

from __future__ import annotations

import time
from dataclasses import replace

from pyspark.sql import SparkSession

from cepheid.language.checker import Checked
from cepheid.language.syntax import Instant, Within
from cepheid.spark.notes import read_note, write_note


def is_registered(spark: SparkSession, checkpoint: str) -> bool:
    """Whether a query began with a checkpoint before."""
    return read_note(spark, _file(checkpoint)) is not None


def registered_at(spark: SparkSession, checkpoint: str) -> int:
    """When a query was registered, in microseconds; now, if it was not yet."""
    noted = read_note(spark, _file(checkpoint))
    return time.time_ns() // 1000 if noted is None else int(noted)


def register(spark: SparkSession, checkpoint: str, now: int) -> None:
    """Registers a query that was not yet. Its checkpoint may lie elsewhere than on this machine."""
    if not is_registered(spark, checkpoint):
        write_note(spark, _file(checkpoint), str(now))


def _file(checkpoint: str) -> str:
    return f"{checkpoint}/registered"


def seen_live(checked: Checked, now: int) -> Checked:
    """The query as it is asked live: without a WITHIN it sees what is from `now` on (rule Q5). Its matches are called
    as ever."""
    if checked.query.within is not None:
        return checked
    query = replace(checked.query, within=Within(Instant(now), None))
    return replace(checked, query=query, origin=checked.origin or checked.query)
