"""Topics of a real Kafka as sources and sinks of the pipeline, where there is no service and so no log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from textwrap import dedent

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from cepheid.app import load
from cepheid.history.answer import PartialAnswer, query
from cepheid.history.live_events import NotOnSpark
from cepheid.history.pipeline import Pipeline, needs_kafka
from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher
from cepheid.spark.application import archive_of
from cepheid.spark.archive import read, read_dead_letters
from cepheid.spark.kafka import kafka

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
          SELECT ?q.flow FROM (?p, air), (?q, air) WITHIN [1970-01-01, ) SEQ (?p, ?q) WINDOW (?p, ?q, 5s)
          JOIN (?p.sensor = ?q.sensor AND ?q.flow > ?p.flow)
"""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "broker").mkdir()
    with kafka(tmp_path / "broker") as address:
        yield address


def test_from_topic_to_topic(spark: SparkSession, tmp_path: Path, brokers: str) -> None:
    """What is late is so by arrival, and marked in the archive (rule E4)."""
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic("readings", 2, 1)])["readings"].result()
    (tmp_path / "app.yaml").write_text(dedent(APP).format(brokers=brokers))
    app = load(tmp_path / "app.yaml")
    assert needs_kafka(app)
    events = [Event("air", i, i * 1_000_000, {"sensor": f"D{i % 2}", "flow": float(i * i % 7)}) for i in range(30)]
    late = [Event("air", 100 + i, 9_000_000, {"sensor": "D1", "flow": 9.0}) for i in range(2)]
    producer, clock = Producer({"bootstrap.servers": brokers}), count(time.time_ns() // 1_000_000)
    # In two partitions, as their timestamps say, and in two batches; the second by another start.
    for batch in ([*events[:12], late[0], *events[12:20]], [late[1], *events[20:]]):
        for number, event in enumerate(batch):
            record = {"stream": "air", "id": event.id, "time": event.time, **event.attributes}
            producer.produce("readings", json.dumps(record).encode(), partition=number % 2, timestamp=next(clock))
        producer.produce("readings", b"no record", partition=0)
        producer.produce("readings", None, partition=0)
        producer.flush()
        with Pipeline(spark, app, say=print) as pipeline:
            pipeline.process_all()
            assert not pipeline.down
            assert dict(pipeline.tally.archived) == {"air": len(batch)}
            assert {s.name: s.lag for s in pipeline.status()} == {"archive of readings": 0, "rising": 0}
    archive, air = archive_of(app), app.graph.streams["air"]
    assert sorted(row["id"] for row in read(spark, archive, air).collect()) == list(range(30))
    marked = read(spark, archive, air, late=True).where("log_late").select("id", "log_offset").collect()
    assert sorted(map(tuple, marked)) == [(100, None), (101, None)]
    with pytest.warns(PartialAnswer, match="of the topic 'readings' only what is archived"):
        assert len(list(query(app, "SELECT ?e.flow FROM (?e, air)", spark=spark))) == 30
    letters = read_dead_letters(spark, archive).collect()
    assert sorted(letter["source"] for letter in letters) == [f"kafka://readings/0/{n}" for n in (11, 12, 19, 20)]
    options = {"kafka.bootstrap.servers": brokers, "subscribe": "rises"}
    told = spark.read.format("kafka").options(**options).load().selectExpr("string(key)", "string(value)").collect()
    matcher = Matcher(app.plan().queries["rising"], 0)
    matcher.push(events)
    wanted = {match.id: match for match in matcher.advance(events[-1].time - 1_000_000)}
    assert len(wanted) > 10
    assert {row["key"] for row in told} == set(wanted)
    line = json.loads(told[0]["value"])
    assert line["events"] == {name: ref[1] for name, ref in wanted[line["id"]].events.items()}  # type: ignore[index]


REAL_TIME = """
    name: plant
    prefixes: {{"": "http://x#"}}
    streams:
      air:
        attributes: {{sensor: string, flow: float}}
        semantics: {{sensor: {{property: ":src", entity: ":{{value}}"}}}}
        source: {{kind: kafka, brokers: "{brokers}", topic: readings}}
    knowledge: {{sources: [kb.ttl], reasoning: none}}
    queries:
      strong:
        real_time: true
        sink: {{kind: kafka, brokers: "{brokers}", topic: strong}}
        text: |
          SELECT ?e.flow WITHIN [1970-01-01, ) FILTER (?e.flow > 3)
          PATH {{?e :src ?s . ?s :in ?r . ?r a :Office}}
"""
#: D3 is in no room.
ROOMS = """@prefix : <http://x#> .
:D0 :in :r0 . :D1 :in :r1 . :D2 :in :r2 . :r0 a :Office . :r1 a :Hall . :r2 a :Office .
"""


def test_in_real_time_mode(spark: SparkSession, tmp_path: Path, brokers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Really under `trigger(realTime=...)`: matches are there long before the first batch has ended.

    What is known is joined, as of a PATH with more keys than a condition takes.
    """
    monkeypatch.setattr("cepheid.spark.knowledge._MOST_LISTED", 0)
    (tmp_path / "kb.ttl").write_text(ROOMS)
    (tmp_path / "app.yaml").write_text(dedent(REAL_TIME).format(brokers=brokers))
    app = load(tmp_path / "app.yaml")
    admin = AdminClient({"bootstrap.servers": brokers})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in ("readings", "strong")]).values():
        made.result()
    events = [Event("air", i, i * 1_000_000, {"sensor": f"D{i % 4}", "flow": float(i * i % 7)}) for i in range(60)]
    matcher = Matcher(app.plan().queries["strong"], 0)
    matcher.push(events)
    matches = {match.id: match.events["e"] for match in matcher.advance(None)}
    in_offices = {("air", i) for i in range(60) if i * i % 7 > 3 and i % 4 in (0, 2)}
    assert set(matches.values()) == in_offices
    wanted = set(matches)
    assert len(wanted) > 6
    producer = Producer({"bootstrap.servers": brokers})
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe(["strong"])
    found: set[str] = set()
    with Pipeline(spark, app, say=print) as pipeline:
        (part,) = pipeline._parts.values()
        assert part.query is not None
        for event in events:
            record = {"stream": "air", "id": event.id, "time": event.time, **event.attributes}
            producer.produce("readings", json.dumps(record).encode())
        producer.produce("readings", b"no record")
        producer.flush()
        deadline = time.monotonic() + 60
        while found != wanted and time.monotonic() < deadline and part.query.isActive:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.add((message.key() or b"").decode())
        assert part.query.exception() is None
        assert part.query.lastProgress is None  # the first batch is still going on
        assert "BroadcastHashJoin" in part.query._jsq.explainInternal(False)
    consumer.close()
    assert found == wanted


def test_a_query_that_can_not_run_in_real_time_mode(spark: SparkSession, tmp_path: Path) -> None:
    text = dedent(REAL_TIME).format(brokers="localhost:1").replace("?e.flow > 3", "?e.flow * 2 > 3")
    (tmp_path / "kb.ttl").write_text(ROOMS)
    (tmp_path / "app.yaml").write_text(text)
    with pytest.raises(NotOnSpark, match=r"'strong' can't run in Real-Time Mode\. FILTER: arithmetic"):
        Pipeline(spark, load(tmp_path / "app.yaml"))
