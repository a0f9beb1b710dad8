"""The workload: 5,000 sensors with an event in 10 s each, a quarter of the rooms meeting rooms; as an archive's table.

The flow of a sensor wanders about a value of its own (autoregressive, deviation 20), so that a rise of 50 in 5 minutes
is a rare thing, as in a building, and not a coin toss.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import scepter_world as world
from pyspark.sql import DataFrame, SparkSession

SENSORS: Final = 5_000
PERIOD: Final = 10_000_000
#: A Monday morning.
START: Final = 1_336_368_000_000_000
#: Query 3 without its first FILTER: the filters are weak, and nearly everything must be matched.
WEAK: Final = world.QUERIES[3].replace("FILTER (?e1.flowrate > 500) ", "")
QUERIES: Final = {"Query 5": world.QUERIES[5], "Query 7": world.QUERIES[7], "Query 3, no FILTER": WEAK}
SCHEMA: Final = pa.schema(
    [("id", pa.int64()), ("time", pa.timestamp("us", "UTC")), ("sensorID", pa.string()), ("flowrate", pa.float64())]
)


def rounds(count: int, sensors: int = SENSORS, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """The events in order of time, a hundred rounds of all sensors at once."""
    draw = np.random.default_rng(seed)
    names = pa.array([f"S{number}" for number in range(sensors)])
    base = draw.uniform(350, 600, sensors)
    # Each sensor has a phase of its own, so that events come evenly.
    phase = np.sort(draw.integers(0, PERIOD, sensors))
    away = draw.normal(0, 20, sensors)
    remaining, number = count, 0
    while remaining > 0:
        flows = []
        for _ in range(100):
            away = 0.95 * away + draw.normal(0, 20 * np.sqrt(1 - 0.95**2), sensors)
            flows.append(base + away)
        size = min(100 * sensors, remaining)
        times = START + (np.arange(100)[:, None] + number // sensors) * PERIOD + phase[None, :]
        values = [
            pa.array(np.arange(number, number + size)),
            pa.array(times.ravel()[:size]).cast(pa.timestamp("us", "UTC")),
            names.take(pa.array(np.tile(np.arange(sensors), 100)[:size])),
            pa.array(np.concatenate(flows)[:size]),
        ]
        yield pa.record_batch(values, schema=SCHEMA)
        remaining, number = remaining - size, number + size


def archived(spark: SparkSession, count: int, folder: Path) -> DataFrame:
    """The events as a table of the archive: Delta, by day."""
    plain, table = folder / "plain", folder / "archive"
    plain.mkdir()
    for number, batch in enumerate(rounds(count)):
        pq.write_table(pa.Table.from_batches([batch]), plain / f"{number:05}.parquet")
    events = spark.read.parquet(str(plain)).selectExpr("*", "CAST(time AS DATE) AS day")
    events.write.format("delta").partitionBy("day").save(str(table))
    return spark.read.format("delta").load(str(table)).drop("day")


def rooms(spark: SparkSession, sensors: int = SENSORS) -> DataFrame:
    """What is known of the sensors, as a table that someone without an ontology would keep."""
    rows = [
        (f"S{n}", world.KINDS[n // 2 % len(world.KINDS)], world.DEPARTMENTS[n // 2 % len(world.DEPARTMENTS)])
        for n in range(sensors)
    ]
    return spark.createDataFrame(rows, "sensorID string, kind string, department string")
