"""Queries on a stream of files, beside what one would write by hand: a state a key, and a stream-stream join."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from spark.workload import rounds

WINDOW: Final = 300_000_000
_EVENT: Final = np.dtype([("id", "i8"), ("t", "i8"), ("flow", "f8")])
_PAIRS: Final = "e1 BIGINT, e2 BIGINT, time BIGINT, sensorID STRING"


def written(folder: Path, batches: int, size: int) -> Path:
    """Files of so many events, which a stream reads one a batch, in groups of rows that several cores can read."""
    folder.mkdir()
    rows = pa.Table.from_batches(list(rounds(batches * size)))
    for number in range(batches):
        pq.write_table(rows.slice(number * size, size), folder / f"{number:05}.parquet", row_group_size=size // 4)
    return folder


def read(spark: SparkSession, folder: Path, files: int = 1) -> DataFrame:
    """The stream of a folder's files, so many of them a batch."""
    schema = "id BIGINT, time TIMESTAMP, sensorID STRING, flowrate DOUBLE"
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(folder))
    return stream.withWatermark("time", "10 seconds")


def sustained(result: DataFrame, folder: Path, mode: str = "append") -> tuple[float, list[int]]:
    """Events a second of all batches but the first, which warms up; and the milliseconds of each."""
    shutil.rmtree(folder, ignore_errors=True)
    writer = result.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(folder))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    rows = sum(p["numInputRows"] for p in batches[1:])
    times = [p["durationMs"]["triggerExecution"] for p in batches]
    return 1000 * rows / sum(times[1:]), times


def meeting(stream: DataFrame, rooms: DataFrame) -> DataFrame:
    return stream.join(sf.broadcast(rooms.where("kind = 'MeetingRoom'").select("sensorID")), "sensorID")


def joined(stream: DataFrame, rooms: DataFrame) -> DataFrame:
    """Query 7 as a stream-stream join."""
    rows = meeting(stream, rooms)
    a = rows.where("flowrate > 500").selectExpr("id AS e1", "time AS t1", "sensorID AS s1", "flowrate AS f1")
    b = rows.selectExpr("id AS e2", "time AS t2", "sensorID AS s2", "flowrate AS f2")
    condition = "s1 = s2 AND t2 > t1 AND t2 <= t1 + INTERVAL 5 MINUTES AND f2 - f1 > 50"
    return a.join(b, sf.expr(condition)).select("e1", "e2", sf.col("t2").alias("time"), "s1")


def kept(stream: DataFrame, rooms: DataFrame) -> DataFrame:
    """Query 7 by `applyInPandasWithState`, with a state a sensor: the last 5 minutes as bytes."""
    rows = meeting(stream, rooms).select("id", sf.unix_micros("time").alias("t"), "sensorID", "flowrate")

    def pairs(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        new = pd.concat(list(frames)).sort_values("t")
        # Arrays in the state can't be read back (Spark 4.2), and bytes are quicker.
        old = np.frombuffer(state.get[0] if state.exists else b"", dtype=_EVENT)
        ids = np.concatenate([old["id"], new["id"].to_numpy()])
        times = np.concatenate([old["t"], new["t"].to_numpy()])
        flows = np.concatenate([old["flow"], new["flowrate"].to_numpy()])
        first, found = len(old), []
        for j in range(first, len(ids)):
            i = np.searchsorted(times, times[j] - WINDOW)
            fits = i + np.nonzero((times[i:j] < times[j]) & (flows[i:j] > 500) & (flows[j] - flows[i:j] > 50))[0]
            found += [(ids[k], ids[j], times[j], key[0]) for k in fits]
        keep = times >= times[-1] - WINDOW
        last = np.empty(keep.sum(), dtype=_EVENT)
        last["id"], last["t"], last["flow"] = ids[keep], times[keep], flows[keep]
        state.update((last.tobytes(),))
        yield pd.DataFrame(found, columns=["e1", "e2", "time", "sensorID"])

    mode = GroupStateTimeout.NoTimeout
    return rows.groupBy("sensorID").applyInPandasWithState(pairs, _PAIRS, "events BINARY", "append", mode)


BY_HAND: Final[dict[str, Callable[..., DataFrame]]] = {
    "stream-stream join": joined,
    "applyInPandasWithState": kept,
}
