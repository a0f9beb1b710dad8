"""When a live query on Spark was registered, which is its `now` for ever (rule Q5); kept with its checkpoint."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from cepheid.language.checker import Checked
from cepheid.language.syntax import Instant, Within


def registered(spark: SparkSession, checkpoint: str) -> int:
    """The time of the first call for a checkpoint, in microseconds; it may lie elsewhere than on this machine."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/registered")
    system = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if system.exists(path):
        stream = system.open(path)
        try:
            return int(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
    now = time.time_ns() // 1000
    stream = system.create(path)
    try:
        stream.write(str(now).encode())
    finally:
        stream.close()
    return now


def seen_live(checked: Checked, now: int) -> Checked:
    """The query as it is asked live: without a WITHIN it sees what is from `now` on (rule Q5). Its matches are called
    as ever."""
    if checked.query.within is not None:
        return checked
    query = replace(checked.query, within=Within(Instant(now), None))
    return replace(checked, query=query, origin=checked.origin or checked.query)
