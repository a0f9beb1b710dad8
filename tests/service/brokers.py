"""Brokers for the tests: real ones, on loopback, ended when the tests are."""

from __future__ import annotations

import base64
import fcntl
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cepheid.spark.jars import _ivy, jars_folder
from cepheid.spark.java import find_java

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"the broker ended with code {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}")


def find_mosquitto() -> str:
    found = subprocess.run([ROOT / "scripts" / "mosquitto"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.skip(f"there is no MQTT broker: {found.stderr.strip().splitlines()[-1]}")
    return found.stdout.strip()


@contextmanager
def mosquitto(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A broker that keeps sessions on disk; it can be killed and started again."""
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {folder}/\n"
        "autosave_interval 1\nautosave_on_changes true\nmax_queued_messages 0\nuser root\n"
    )
    with (folder / "mosquitto.log").open("ab") as log:
        process = subprocess.Popen([find_mosquitto(), "-c", str(config)], stdout=log, stderr=log)
    try:
        wait_for_port(port, process)
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


KAFKA = "4.3.1"


def kafka_jars() -> Path:
    """The jars of a broker, fetched once through the Ivy that pyspark ships, and cached beside Spark's."""
    folder = jars_folder().parent / f"kafka-{KAFKA}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".kafka-{KAFKA}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of tests may be at it
        if not folder.is_dir():
            _fetch_kafka(folder)
    return folder


def _fetch_kafka(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        (work / "ivy.xml").write_text(
            '<ivy-module version="2.0"><info organisation="cepheid" module="kafka"/><dependencies>'
            f'<dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA}" conf="default->master,runtime"/>'
            "</dependencies></ivy-module>"
        )
        command: list[str | Path] = [find_java().path, f"-Divy.default.ivy.user.dir={work}/home", "-jar", _ivy()]
        command += ["-error", "-cache", work / "cache", "-ivy", work / "ivy.xml", "-types", "jar", "bundle"]
        command += ["-m2compatible", "-retrieve", f"{work}/jars/[artifact]-[revision].[ext]"]
        fetched = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
        if fetched.returncode != 0 or not (work / "jars" / f"kafka_2.13-{KAFKA}.jar").exists():
            pytest.skip(f"the jars of Kafka {KAFKA} could not be fetched: {fetched.stdout[-300:]}")
        shutil.copytree(work / "jars", folder.with_suffix(".new"), dirs_exist_ok=True)
        folder.with_suffix(".new").rename(folder)


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """A broker of one node in KRaft mode; its address."""
    port, controller = free_port(), free_port()
    config = folder / "kraft.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"log.dirs={folder}/kafka\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n"
        "group.initial.rebalance.delay.ms=0\ntransaction.state.log.replication.factor=1\n"
        "transaction.state.log.min.isr=1\ntransaction.state.log.num.partitions=1\n"
    )
    java = [str(find_java().path), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    java += ["-cp", f"{kafka_jars()}/*"]
    identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(config)], check=True, capture_output=True
    )
    with (folder / "kafka.log").open("ab") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)
    try:
        wait_for_port(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(timeout=30)
