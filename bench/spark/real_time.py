"""Real-Time Mode, Kafka to Kafka: how long a match takes from the supplier's hand to the consumer's."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from scepter_world import STREAM
from spark.workload import QUERIES, SENSORS

import cepheid.spark
from cepheid.app.known import Known
from cepheid.history.sinks import as_line
from cepheid.spark.clocks import Live
from cepheid.spark.jvm_records import events_in_jvm
from cepheid.spark.kafka import kafka
from cepheid.spark.sources import read_topic

#: After each batch how far it came is written down. The quick form has the shortest that Spark takes.
QUICK_BATCH: Final = "5 seconds"
_FIELDS: Final = ("id", "time", "sensorID", "flowrate")
#: Seconds at the beginning that don't count: the JVM is young, and the first batch is planned.
WARM_UP: Final = 15.0


@dataclass
class Latencies:
    """Milliseconds from the push of an event to the receipt of its match, and what else is to be known."""

    milliseconds: np.ndarray[tuple[int], np.dtype[np.float64]]
    sent: int
    #: Batches that ended.
    batches: int
    #: Matches of events after the warm-up that did not come.
    missing: int


def latencies(spark: SparkSession, known: Known, folder: Path, rate: int, seconds: float, batch: str) -> Latencies:
    """Query 5 under the trigger, with so many events a second for so long."""
    (folder / "broker").mkdir()
    with kafka(folder / "broker") as brokers:
        admin = AdminClient({"bootstrap.servers": brokers})
        made = admin.create_topics([NewTopic(name, 1, 1) for name in ("readings", "matches")])
        for future in made.values():
            future.result()
        events = read_topic(spark, brokers, "readings").transform(events_in_jvm(STREAM, alone=True))
        matches = events.transform(
            cepheid.spark.match(QUERIES["Query 5"], knowledge=known, now=0, live=Live(real_time=True))
        )
        records = matches.select(sf.col("id").alias("key"), as_line(matches).alias("value"))
        writer = records.writeStream.format("kafka").outputMode("update").trigger(realTime=batch)  # type: ignore[call-overload]
        writer = writer.options(**{"kafka.bootstrap.servers": brokers, "topic": "matches"})
        query = writer.option("checkpointLocation", str(folder / "real-time")).start()
        try:
            return _run(spark, known, brokers, rate, seconds, query)
        finally:
            query.stop()


def _due(spark: SparkSession, known: Known, sent: list[tuple[int, int, str, float]]) -> set[int]:
    """The events that are a match, by a batch over all that were sent."""
    events = spark.createDataFrame(sent, "id BIGINT, time BIGINT, sensorID STRING, flowrate DOUBLE")
    found = events.transform(cepheid.spark.match(QUERIES["Query 5"], knowledge=known, now=0))
    return {row["e"] for row in found.select("events.*").collect()}


def _run(
    spark: SparkSession, known: Known, brokers: str, rate: int, seconds: float, query: StreamingQuery
) -> Latencies:
    consumer = Consumer(
        {"bootstrap.servers": brokers, "group.id": "bench", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 1000}
    )
    consumer.subscribe(["matches"])
    received: list[tuple[int, float]] = []
    done = threading.Event()

    def listen() -> None:
        while not done.is_set():
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                received.append((json.loads(message.value() or b"")["events"]["e"], time.perf_counter()))

    listener = threading.Thread(target=listen)
    listener.start()
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 0})
    draw = np.random.default_rng(1)
    flows = draw.uniform(350, 600, rate * int(WARM_UP + seconds) + 1)
    pushed: list[float] = []
    sent: list[tuple[int, int, str, float]] = []
    start = time.perf_counter()
    for number, flow in enumerate(flows):
        due = start + number / rate
        while (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        sent.append((number, time.time_ns() // 1000, f"S{draw.integers(SENSORS)}", round(float(flow), 3)))
        text = json.dumps({"stream": STREAM.name, **dict(zip(_FIELDS, sent[-1], strict=True))})
        pushed.append(time.perf_counter())
        producer.produce("readings", text)
        producer.poll(0)
    producer.flush(10)
    time.sleep(2)
    done.set()
    listener.join()
    consumer.close()
    first = rate * int(WARM_UP)
    found = [1000 * (at - pushed[event]) for event, at in received if event >= first]
    batches = len(query.recentProgress)
    query.stop()  # it has the cores
    wanted = {event for event in _due(spark, known, sent) if event >= first}
    return Latencies(np.array(found), len(pushed), batches, len(wanted - {event for event, _ in received}))
