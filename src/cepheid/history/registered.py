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


def registered(spark: SparkSession, checkpoint: str) -> int:
    """The time of the first call for a checkpoint, in microseconds; it may lie elsewhere than on this machine."""
    noted = read_note(spark, _file(checkpoint))
    if noted is not None:
        return int(noted)
    now = time.time_ns() // 1000
    write_note(spark, _file(checkpoint), str(now))
    return now


def _file(checkpoint: str) -> str:
    return f"{checkpoint}/registered"


def seen_live(checked: Checked, now: int) -> Checked:
    """The query as it is asked live: without a WITHIN it sees what is from `now` on (rule Q5). Its matches are called
    as ever."""
    if checked.query.within is not None:
        return checked
    query = replace(checked.query, within=Within(Instant(now), None))
    return replace(checked, query=query, origin=checked.origin or checked.query)
