"""The Kafka bridge, with a real broker: each message once, whatever dies in between."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cepheid.service.bridges.kafka import KafkaBridge, KafkaSource
from tests.service.brokers import free_port
from tests.service.intakes import Start, dead_letters, logged, starting

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """By the command that a user has for it."""
    folder, port = tmp_path_factory.mktemp("kafka"), str(free_port())
    command = [sys.executable, "-m", "cepheid.spark.kafka", str(folder), "--port", port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == f"127.0.0.1:{port}"
        yield f"127.0.0.1:{port}"
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as begin:
        yield begin


def make_topic(broker: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)


def send(broker: str, topic: str, *payloads: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker})
    for number, payload in enumerate(payloads):
        producer.produce(topic, payload, key=str(number).encode())
    assert producer.flush(30) == 0


def record(number: int) -> bytes:
    """Without an id, so that only the offsets of the topic can tell what came before."""
    return json.dumps({"time": number, "sensor": f"D{number}"}).encode()


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, "it did not come to pass within 60 s"
        time.sleep(0.02)


def sensors(folder: Path) -> list[str]:
    return sorted(str(each.event.attributes["sensor"]) for each in logged(folder) if each.event.stream == "air")


def test_each_message_once_whatever_dies(intake: Start, broker: str, tmp_path: Path) -> None:
    make_topic(broker, "air", 3)
    process = intake()
    source = KafkaSource("air", "air", broker)
    send(broker, "air", *map(record, range(100)), b"no record", b'{"time": 1,\n "sensor": "two lines"}')
    with KafkaBridge(source, process.address) as bridge:
        wait_until(lambda: bridge.messages == 102)
        send(broker, "air", *map(record, range(100, 200)))
        process.kill()
        process = intake()
        wait_until(lambda: len(logged(tmp_path)) == 201)
    # Another bridge goes on where the log stands, even if Kafka was told nothing.
    send(broker, "air", *map(record, range(200, 300)))
    with KafkaBridge(source, process.address):
        wait_until(lambda: len(logged(tmp_path)) >= 301)
        time.sleep(0.5)  # for what should not come
    assert sensors(tmp_path) == sorted([*(f"D{number}" for number in range(300)), "two lines"])
    assert [(letter["code"], letter["raw"]) for letter in dead_letters(tmp_path)] == [("not-json", b"no record")]


def test_offsets_that_a_topic_leaves_out(intake: Start, broker: str, tmp_path: Path) -> None:
    """A transaction that is given up leaves offsets which no message has."""
    make_topic(broker, "gaps", 1)
    producer = Producer({"bootstrap.servers": broker, "transactional.id": "gaps"})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce("gaps", record(number))
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    process = intake()
    with KafkaBridge(KafkaSource("air", "gaps", broker), process.address) as bridge:
        wait_until(lambda: bridge.messages == 3)
    assert sensors(tmp_path) == ["D0", "D2", "D4"]


def test_options_of_the_client(intake: Start, broker: str, tmp_path: Path) -> None:
    """They reach it: what it does not know is refused."""
    process = intake()
    for options in ({"no.such": "1"}, {"security.protocol": "telegraph"}):
        with pytest.raises(ValueError, match=f"options of 'optional': .*{next(iter(options))}"):
            KafkaBridge(KafkaSource("air", "optional", broker, options=options), process.address).start()
    make_topic(broker, "optional", 1)
    send(broker, "optional", record(1))
    source = KafkaSource("air", "optional", broker, options={"security.protocol": "plaintext"})
    with KafkaBridge(source, process.address):
        wait_until(lambda: sensors(tmp_path) == ["D1"])
