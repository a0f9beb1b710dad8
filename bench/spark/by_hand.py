"""The same queries as one would write them in plain PySpark: the best formulations we know, giving the same rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

MINUTES: Final = 300_000_000


def office(events: DataFrame, rooms: DataFrame) -> DataFrame:
    """Query 5: a broadcast join and a filter."""
    wanted = rooms.where("kind = 'Office' AND department = 'EEDepartment'")
    return events.where("flowrate > 500").join(sf.broadcast(wanted), "sensorID").select("id", "time", "sensorID")


def _meeting(events: DataFrame, rooms: DataFrame) -> DataFrame:
    wanted = rooms.where("kind = 'MeetingRoom'").select("sensorID")
    return events.join(sf.broadcast(wanted), "sensorID", "left_semi")


def self_join(events: DataFrame, first: Column) -> DataFrame:
    """Rising pairs by a self-join on the sensor and buckets of the window's length."""
    events = events.select("id", sf.unix_micros("time").alias("t"), "sensorID", "flowrate")
    bucket = sf.col("t").cast("long") - sf.pmod(sf.col("t"), sf.lit(MINUTES))
    a = events.where(first).withColumn("bucket", sf.explode(sf.array(bucket, bucket + MINUTES))).alias("a")
    b = events.withColumn("bucket", bucket).alias("b")
    condition = (
        "a.sensorID = b.sensorID AND a.bucket = b.bucket AND b.t > a.t AND b.t - a.t <= 300000000"
        " AND b.flowrate - a.flowrate > 50"
    )
    return a.join(b, sf.expr(condition)).selectExpr("a.id AS e1", "b.id AS e2", "b.t AS time", "a.sensorID")


def window(events: DataFrame, first: Column) -> DataFrame:
    """Rising pairs by a window function: each event with all that follow in time, taken apart again."""
    events = events.select("id", sf.unix_micros("time").alias("t"), "sensorID", "flowrate")
    following = Window.partitionBy("sensorID").orderBy("t").rangeBetween(1, MINUTES)
    later = sf.collect_list(sf.struct("id", "t", "flowrate")).over(following)
    pairs = events.withColumn("later", later).where(first)
    pairs = pairs.select("id", "sensorID", "flowrate", sf.explode("later").alias("b"))
    return pairs.where("b.flowrate - flowrate > 50").selectExpr("id AS e1", "b.id AS e2", "b.t AS time", "sensorID")


Formulation = Callable[[DataFrame, DataFrame], DataFrame]
_HIGH: Final = "flowrate > 500"
#: By query and name.
BY_HAND: Final[dict[str, dict[str, Formulation]]] = {
    "Query 5": {"join and filter": office},
    "Query 7": {
        "self-join": lambda events, rooms: self_join(_meeting(events, rooms), sf.expr(_HIGH)),
        "window": lambda events, rooms: window(_meeting(events, rooms), sf.expr(_HIGH)),
    },
    "Query 3, no FILTER": {
        "self-join": lambda events, rooms: self_join(events, sf.lit(True)),
        "window": lambda events, rooms: window(events, sf.lit(True)),
    },
}
