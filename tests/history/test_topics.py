"""Topics of a real Kafka as sources and sinks of the pipeline, where there is no service and so no log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from cepheid.app import load
from cepheid.history.pipeline import Pipeline, needs_kafka
from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher
from cepheid.spark.application import archive_of
from cepheid.spark.archive import read, read_dead_letters
from tests.service.brokers import kafka

APP = """
    name: plant
    streams:
      air:
        attributes: {{sensor: string, flow: float}}
        lateness: 1s
        source: {{kind: kafka, brokers: "{brokers}", topic: readings}}
    archive: {{path: archive}}
    queries:
      rising:
        sink: {{kind: kafka, brokers: "{brokers}", topic: rises}}
        text: |
          SELECT ?q.flow FROM (?p, air), (?q, air) SEQ (?p, ?q) WINDOW (?p, ?q, 5s)
          JOIN (?p.sensor = ?q.sensor AND ?q.flow > ?p.flow)
"""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "broker").mkdir()
    with kafka(tmp_path / "broker") as address:
        yield address


def test_from_topic_to_topic(spark: SparkSession, tmp_path: Path, brokers: str) -> None:
    (tmp_path / "app.yaml").write_text(dedent(APP).format(brokers=brokers))
    app = load(tmp_path / "app.yaml")
    assert needs_kafka(app)
    events = [Event("air", i, i * 1_000_000, {"sensor": f"D{i % 2}", "flow": float(i * i % 7)}) for i in range(30)]
    producer = Producer({"bootstrap.servers": brokers})
    for event in events:
        record = {"stream": "air", "id": event.id, "time": event.time, **event.attributes}
        producer.produce("readings", json.dumps(record).encode(), partition=0)
    producer.produce("readings", b"no record", partition=0)
    producer.produce("readings", None, partition=0)
    producer.flush()
    with Pipeline(spark, app, say=print) as pipeline:
        pipeline.process_all()
        assert not pipeline.down
        assert dict(pipeline.tally.archived) == {"air": 30}
    archive = archive_of(app)
    assert sorted(row["id"] for row in read(spark, archive, app.graph.streams["air"]).collect()) == list(range(30))
    letters = read_dead_letters(spark, archive).collect()
    assert sorted(letter["source"] for letter in letters) == ["kafka://readings/0/30", "kafka://readings/0/31"]
    options = {"kafka.bootstrap.servers": brokers, "subscribe": "rises"}
    told = spark.read.format("kafka").options(**options).load().selectExpr("string(key)", "string(value)").collect()
    matcher = Matcher(app.plan().queries["rising"], 0)
    matcher.push(events)
    wanted = {match.id: match for match in matcher.advance(events[-1].time - 1_000_000)}
    assert len(wanted) > 10
    assert {row["key"] for row in told} == set(wanted)
    line = json.loads(told[0]["value"])
    assert line["events"] == {name: ref[1] for name, ref in wanted[line["id"]].events.items()}  # type: ignore[index]
