"""Queries through Spark Connect, as a program: `python -m tests.spark.on_connect FOLDER`; prints the ids as JSON.

Connect has no JVM in this process and no RDDs. A process has either it or the classic Spark, so this is one by itself.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import scepter_world as world
from pyspark.sql import DataFrame, SparkSession

import cepheid.spark
from cepheid.spark.clocks import Live
from cepheid.spark.java import find_java
from tests.history.test_graphs import application, frame_of
from tests.history.test_graphs import events as graph_events
from tests.spark.killed_stream import COUNTED, QUERY
from tests.spark.test_operators import KEY


def ids(frame: DataFrame, column: str = "id") -> list[str]:
    return sorted(str(row[0]) for row in frame.select(column).collect())


def main(folder: str) -> None:
    os.environ["JAVA_HOME"], os.environ["PYSPARK_PYTHON"] = str(find_java().home), sys.executable
    # The server is started by pyspark, and takes what it is to be from here.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    given = " ".join(f"--conf {name}={value}" for name, value in conf.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{given} pyspark-shell"
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    schema = "id BIGINT, time BIGINT, sensor STRING, flow DOUBLE"
    stamped = "id", "timestamp_micros(time) AS time", "sensor", "flow"
    events = spark.read.schema(schema).json(f"{folder}/in").selectExpr(*stamped)
    found: dict[str, Any] = {"key": ids(events.transform(cepheid.spark.match(QUERY)))}
    found["slices"] = ids(events.transform(cepheid.spark.match(QUERY.replace("JOIN (?p.sensor = ?q.sensor)", ""))))
    found["counted"] = ids(events.transform(cepheid.spark.match(COUNTED)))

    known = world.known(world.knowledge(8, Path(folder)))
    report = spark.createDataFrame(
        [(i, i, f"S{i % 8}", 550.0) for i in range(16)], "id bigint, time bigint, sensorID string, flowrate double"
    )
    found["path"] = ids(report.transform(cepheid.spark.match(world.QUERIES[5], knowledge=known)), "events.e")
    office = "PATH {?e evt:hasSource ?s . ?s bd:hasLocation/rdf:type bd:Office}"
    found["where"] = ids(report.transform(cepheid.spark.where(office, known)))
    found["enrich"] = ids(report.transform(cepheid.spark.enrich(known, "sensorID", room="bd:hasLocation")), "room")

    arrays = spark.sql("SELECT X'0102ff' AS a, X'0305' AS b, 77L AS time, 1L AS id")
    hidden = cepheid.spark.aes(cepheid.spark.cat("a", "b"), KEY, time="time", id="id")
    (row,) = arrays.select(cepheid.spark.fft(cepheid.spark.ekf("a", "b")).alias("f"), hidden.alias("h")).collect()
    found["operators"] = [row["f"], bytes(row["h"]).hex()]
    graph = cepheid.spark.graph(application(Path(folder)), arrival="came")
    outputs = frame_of(spark, graph_events()).transform(graph)
    found["graph"] = [list(r) for r in outputs.selectExpr("machine", "consumer", "id", "unix_micros(time)").collect()]

    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{folder}/in").selectExpr(*stamped)
    matches = stream.withWatermark("time", "0 seconds").transform(cepheid.spark.match(QUERY, live=Live(buckets=2)))
    writer = matches.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    writer.format("parquet").start(f"{folder}/matches").awaitTermination()
    found["stream"] = ids(spark.read.parquet(f"{folder}/matches"))
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
