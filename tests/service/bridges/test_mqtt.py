"""The MQTT bridge, with a real mosquitto: both versions, dead letters, and nothing lost when any of the three dies."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from paho.mqtt import publish

from cepheid.service.bridges.mqtt import MqttBridge, MqttSource
from tests.service.brokers import free_port, mosquitto
from tests.service.intakes import Start, dead_letters, logged, starting


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    port = free_port()
    with mosquitto(tmp_path, port):
        yield port


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as begin:
        yield begin


def send(port: int, topic: str, *payloads: bytes, qos: int = 1) -> None:
    publish.multiple([(topic, payload, qos, False) for payload in payloads], hostname="127.0.0.1", port=port)


def record(number: int, **more: object) -> bytes:
    return json.dumps({"id": number, "time": number, "sensor": "D1", **more}).encode()


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, "it did not come to pass within 30 s"
        time.sleep(0.02)


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_messages_become_events(intake: Start, broker: int, tmp_path: Path, version: Literal["3.1.1", "5"]) -> None:
    process = intake()
    source = MqttSource("air", ["plant/+/air", "extra"], f"127.0.0.1:{broker}", version)
    with MqttBridge(source, process.address, "bridge") as bridge:
        send(broker, "plant/1/air", record(1), record(2, airflow=5))
        send(broker, "extra", record(3) + b"\n" + b'{"stream": "vibration", "id": 1, "time": 0}\n', qos=0)
        send(broker, "plant/2/air", b"no record", b"", qos=2)
        send(broker, "plant/2/water", record(99))
        wait_until(lambda: bridge.messages == 5)
    found = [(each.event.stream, each.event.id) for each in logged(tmp_path)]
    assert sorted(found) == [("air", 1), ("air", 2), ("air", 3), ("vibration", 1)]
    assert [letter["code"] for letter in dead_letters(tmp_path)] == ["not-json", "not-json"]


def test_a_message_that_is_longer_than_any_record_is_a_dead_letter(intake: Start, broker: int, tmp_path: Path) -> None:
    process = intake()
    with MqttBridge(MqttSource("air", ["air"], f"127.0.0.1:{broker}"), process.address, "bridge") as bridge:
        send(broker, "air", record(1), record(2, more="x" * (5 << 20)), record(3))
        wait_until(lambda: bridge.messages == 3)
    assert [each.event.id for each in logged(tmp_path)] == [1, 3]
    (letter,) = dead_letters(tmp_path)
    assert letter["raw"].startswith(b'{"id": 2, ')


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_what_comes_while_the_bridge_is_away_is_kept_by_the_broker(
    intake: Start, broker: int, tmp_path: Path, version: Literal["3.1.1", "5"]
) -> None:
    process = intake()
    source = MqttSource("air", ["air"], f"127.0.0.1:{broker}", version)
    with MqttBridge(source, process.address, "bridge"):
        pass
    send(broker, "air", *(record(number) for number in range(50)))
    with MqttBridge(source, process.address, "bridge") as bridge:
        wait_until(lambda: bridge.messages == 50)
    assert [each.event.id for each in logged(tmp_path)] == list(range(50))


def test_kills_of_the_intake_lose_nothing(intake: Start, broker: int, tmp_path: Path) -> None:
    process = intake()
    source = MqttSource("air", ["air"], f"127.0.0.1:{broker}")
    with MqttBridge(source, process.address, "bridge") as bridge:
        for start in range(0, 300, 100):
            send(broker, "air", *(record(number) for number in range(start, start + 50)))
            process.kill()
            send(broker, "air", *(record(number) for number in range(start + 50, start + 100)))
            process = intake()
        wait_until(lambda: bridge.messages >= 300)
    found = logged(tmp_path)
    assert sorted(each.event.id for each in found if not each.duplicate) == list(range(300))


def test_a_broker_that_dies_and_comes_back(intake: Start, tmp_path: Path) -> None:
    process, port = intake(), free_port()
    source = MqttSource("air", ["air"], f"127.0.0.1:{port}")
    with mosquitto(tmp_path, port) as first:
        bridge = MqttBridge(source, process.address, "bridge").start()
        send(port, "air", record(1))
        wait_until(lambda: bridge.messages == 1)
        time.sleep(1.5)  # the broker saves its sessions once a second
        first.kill()
    with mosquitto(tmp_path, port):
        send(port, "air", record(2))
        wait_until(lambda: bridge.messages >= 2)
        bridge.stop()
    assert [each.event.id for each in logged(tmp_path) if not each.duplicate] == [1, 2]


def test_a_broker_that_is_not_there(intake: Start) -> None:
    bridge = MqttBridge(MqttSource("air", ["air"], f"127.0.0.1:{free_port()}"), intake().address, "bridge")
    with pytest.raises(ConnectionError):
        bridge.start()
