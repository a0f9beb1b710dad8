"""The sources that an application file names are brought into its log, by a process of the service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from paho.mqtt import publish

from cepheid.app import load
from cepheid.service.log import LogReader
from cepheid.service.sources import order_of
from tests.service.brokers import free_port, made_certificates, mosquitto
from tests.service.test_service import children

APP = """
    name: plant
    streams:
      made: {{attributes: {{x: float, n: int, on: bool, room: string}}, source: {{kind: rate, per_second: 200}}}}
      told: {{attributes: {{word: string}}, source: {{kind: python, function: "own_source:words"}}}}
      air: {{attributes: {{flow: float}}, source: {{kind: mqtt, broker: "127.0.0.1:{port}", topic: "air/+",
                                                  version: 3.1.1, user: plant, password_file: secret}}}}
    service: {{listen: "unix:intake.sock", deliver: "unix:consumers.sock", log: {{path: log}}}}
"""
AWAY = """
    name: plant
    streams:
      wind: {{attributes: {{flow: float}}, source: {{kind: kafka, brokers: "127.0.0.1:{kafka}", topic: wind}}}}
      air: {{attributes: {{flow: float}}, source: {{kind: mqtt, broker: "127.0.0.1:{mqtt}", topic: "air"}}}}
    service: {{listen: "unix:intake.sock", deliver: "unix:consumers.sock", log: {{path: log}}}}
"""
ENCRYPTED = """
    name: plant
    streams:
      air: {{attributes: {{flow: float}}, source: {{kind: mqtt, broker: "127.0.0.1:{port}", topic: "air", tls: true
           {more}}}}}
    service: {{listen: "unix:intake.sock", deliver: "unix:consumers.sock", log: {{path: log}}}}
"""
FUNCTION = """
    def words():
        for number, word in enumerate(["on", "off", "on"]):
            yield {"id": number, "time": number, "word": word}
        raise RuntimeError("no more words")
"""


@contextmanager
def service(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "said").open("wb") as said:
        command = [sys.executable, "-m", "cepheid.cli.main", "service", str(folder / "app.yaml")]
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def until(done: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, (folder / "said").read_text()
        time.sleep(0.1)


def ids(folder: Path, stream: str) -> list[object]:
    if not (folder / "log").is_dir() or not any((folder / "log").glob("*.log")):
        return []
    return [each.event.id for each in LogReader(folder / "log") if each.event.stream == stream and not each.duplicate]


def sources_of(service: subprocess.Popen[bytes]) -> int:
    return children(service).get("cepheid.service.sources", 0)


def test_sources_of_all_kinds_reach_the_log(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "app.yaml").write_text(dedent(APP).format(port=port))
    (tmp_path / "own_source.py").write_text(dedent(FUNCTION))
    with service(tmp_path) as process:
        until(lambda: len(ids(tmp_path, "made")) > 20, tmp_path)
        until(lambda: ids(tmp_path, "told") == [0, 1, 2], tmp_path)
        until(lambda: "RuntimeError: no more words; it is tried again" in (tmp_path / "said").read_text(), tmp_path)
        (tmp_path / "secret").write_text("sesame\n")
        with mosquitto(tmp_path, port, "sesame"):  # it comes later than the service
            sent = json.dumps({"id": 1, "time": 5, "flow": 2}).encode()

            def arrives() -> bool:
                publish.single(
                    "air/1", sent, 1, hostname="127.0.0.1", port=port, auth={"username": "plant", "password": "sesame"}
                )
                return ids(tmp_path, "air") == [1]

            until(arrives, tmp_path)
        # So mosquitto calls MQTT 3.1.1.
        assert "as cepheid-plant-air (p2," in (tmp_path / "mosquitto.log").read_text()
        first = sources_of(process)
        os.kill(first, signal.SIGKILL)
        until(lambda: sources_of(process) not in (0, first), tmp_path)
        many = len(ids(tmp_path, "made"))
        until(lambda: len(ids(tmp_path, "made")) > many + 20, tmp_path)
        # Without sources there is no such process.
        (tmp_path / "app.yaml").write_text(
            "name: plant\nstreams: {made: {attributes: {x: float, n: int, on: bool, room: string}}}\nservice: "
            '{listen: "unix:intake.sock", deliver: "unix:consumers.sock", log: {path: log}}\n'
        )
        process.send_signal(signal.SIGHUP)
        until(lambda: sources_of(process) == 0, tmp_path)
    made = [each.event for each in LogReader(tmp_path / "log") if each.event.stream == "made"]
    assert {type(value).__name__ for value in made[0].attributes.values()} == {"float", "int", "bool", "str"}
    assert "the sources died with code -9" in (tmp_path / "said").read_text()


def test_brokers_that_are_away_are_named(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "app.yaml").write_text(dedent(AWAY).format(kafka=free_port(), mqtt=port))

    def says(*words: str) -> Callable[[], bool]:
        def said() -> bool:
            lines = (tmp_path / "said").read_text().splitlines()
            return any(all(word in line for word in words) for line in lines)

        return said

    with service(tmp_path):
        until(says("wind (kafka): ", "Connection refused", "it is tried again"), tmp_path)
        until(says("air (mqtt): ", "Connection refused", "it is tried again"), tmp_path)
        with mosquitto(tmp_path, port):
            until(lambda: "as cepheid-plant-air" in (tmp_path / "mosquitto.log").read_text(), tmp_path)
        until(says("air (mqtt): the connection is lost: "), tmp_path)


def test_a_broker_that_wants_encrypted_connections_and_certificates(tmp_path: Path) -> None:
    certificates, port = made_certificates(tmp_path), free_port()
    unknown = dedent(ENCRYPTED).format(port=port, more="")
    known = "ca_file: certificates/ca.pem, certificate_file: certificates/client.pem, key_file: certificates/client.key"
    (tmp_path / "app.yaml").write_text(unknown)
    with mosquitto(tmp_path, port, certificates=certificates), service(tmp_path) as process:
        # Nobody on this machine has heard of the authority.
        until(lambda: "certificate verify failed" in (tmp_path / "said").read_text(), tmp_path)
        (tmp_path / "app.yaml").write_text(dedent(ENCRYPTED).format(port=port, more=", " + known))
        process.send_signal(signal.SIGHUP)
        until(lambda: "as cepheid-plant-air" in (tmp_path / "mosquitto.log").read_text(), tmp_path)
        tls: Any = {
            "ca_certs": str(certificates / "ca.pem"),
            "certfile": str(certificates / "client.pem"),
            "keyfile": str(certificates / "client.key"),
        }

        def arrives() -> bool:
            sent = json.dumps({"id": 1, "time": 5, "flow": 2}).encode()
            publish.single("air", sent, 1, hostname="127.0.0.1", port=port, tls=tls)
            return ids(tmp_path, "air") == [1]

        until(arrives, tmp_path)


def test_an_application_without_sources_needs_no_process(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("name: a\nstreams: {s: {attributes: {x: int}, source: {kind: socket}}}\n")
    assert order_of(load(tmp_path / "app.yaml"), "unix:x", None) is None
