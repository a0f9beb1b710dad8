"""`cepheid run`: an application whole, in real processes, one of which is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cepheid.app import load
from cepheid.cli.pipeline import _watch, table
from cepheid.cli.run import command
from cepheid.cli.signals import heard
from cepheid.history.pipeline import Pipeline, Status
from cepheid.model.events import Event
from cepheid.service.client import ConsumerClient
from cepheid.service.received import Received
from cepheid.service.supplier import Supplier
from tests.spark.test_streaming import delta_ids

pytestmark = pytest.mark.spark

APP: Final = """
name: plant
streams:
  air: {attributes: {sensor: string, flow: float}, key: sensor}
archive: {path: archive}
service: {listen: "unix:intake.sock", deliver: "unix:consumers.sock", log: {path: log}}
queries:
  rising:
    text: |
      SELECT ?p.sensor FROM (?p, air), (?q, air) WITHIN [1970-01-01, ) SEQ (?p, ?q) WINDOW (?p, ?q, 50ms)
      JOIN (?p.sensor = ?q.sensor AND ?q.flow > ?p.flow)
consumers:
  watch: {input: rising}
"""
STRONG: Final = """
  strong: {text: "SELECT ?e.flow FROM (?e, air) WITHIN [1970-01-01, ) FILTER (?e.flow > 11)"}
"""
#: How long a loaded machine may take to start Spark and have it do its first work.
PATIENCE: Final = 240.0


@contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "app.yaml").write_text(APP)
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "cepheid.cli.main", "run", "app.yaml"], cwd=folder, stdout=said, stderr=said
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def until(done: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert process.poll() is None, (folder / "said").read_text()
        assert time.monotonic() < deadline, (folder / "said").read_text()
        time.sleep(0.2)


def push(folder: Path, numbers: range) -> None:
    events = [Event("air", i, i * 10_000, {"sensor": f"D{i % 4}", "flow": float(i * i % 13)}) for i in numbers]
    with Supplier(f"unix:{folder / 'intake.sock'}", patience=PATIENCE) as supplier:
        supplier.push_many(events)
        supplier.flush()


def hang_up(folder: Path, process: subprocess.Popen[bytes], text: str, *words: str) -> None:
    """Has a run go on with another application file, until all of these words were said of it."""
    said = folder / "said"
    before = len(said.read_text())
    (folder / "app.yaml").write_text(text)
    process.send_signal(signal.SIGHUP)
    until(lambda: all(word in said.read_text()[before:] for word in words), process, folder)


def driver(run: int) -> int:
    """The process of the pipeline under a `cepheid run`; it leads a group that its JVM belongs to."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == run and b"\0pipeline\0" in (place / "cmdline").read_bytes():
                return int(place.name)
        except OSError:
            continue  # it ended
    raise AssertionError("there is no pipeline")


def ids(table: Path) -> list[Any]:
    return sorted(delta_ids(table)) if (table / "_delta_log").exists() else []


def test_an_application_runs_through_a_kill_of_spark(tmp_path: Path) -> None:
    air = tmp_path / "archive" / "air"
    received: list[Received] = []
    with running(tmp_path) as process:
        until((tmp_path / "intake.sock").exists, process, tmp_path)
        push(tmp_path, range(100))
        until(lambda: ids(air) == list(range(100)), process, tmp_path)
        os.killpg(driver(process.pid), signal.SIGKILL)
        push(tmp_path, range(100, 150))  # the intake does not mind
        until(lambda: ids(air) == list(range(150)), process, tmp_path)
        matches = tmp_path / "archive" / "_matches" / "rising"
        until(lambda: len(ids(matches)) > 20, process, tmp_path)
        assert len(ids(matches)) == len(set(ids(matches)))
        # What Spark finds goes to a consumer of the service too: over the log, so each once.
        with ConsumerClient(f"unix:{tmp_path / 'consumers.sock'}", "watch", patience=PATIENCE) as watch:
            seen = threading.Thread(target=lambda: received.extend(islice(watch, 5)), daemon=True)
            seen.start()
            push(tmp_path, range(150, 200))
            until(lambda: not seen.is_alive(), process, tmp_path)
        assert {r.id for r in received} <= set(ids(matches))
        assert len({r.id for r in received}) == 5
        # On SIGHUP service and pipeline go on with what is in the file now; with a wrong one, as before.
        wrong, more = APP.replace("?q.flow >", "?q.flo >"), APP.replace("\nconsumers:", f"{STRONG}consumers:")
        hang_up(tmp_path, process, wrong, "nothing was changed", "the application was not applied")
        hang_up(tmp_path, process, more, "added: strong", "the application was applied")
        strong = [i for i in range(200) if i * i % 13 > 11]
        until(lambda: len(ids(tmp_path / "archive" / "_matches" / "strong")) == len(strong), process, tmp_path)
        hang_up(tmp_path, process, APP, "removed: strong", "the application was applied")
    assert process.returncode == 0
    said = (tmp_path / "said").read_text()
    assert "the pipeline died with code -9, and is started again" in said
    assert said.rindex("stopping\n") < said.rindex("stopped; the next start goes on from here\n")


def test_a_wrong_application_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(APP.replace("?q.flow >", "?q.flo >"))
    result = CliRunner().invoke(command, [str(tmp_path / "app.yaml")])
    assert result.exception is not None
    assert "flo" in str(result.exception)
    assert not (tmp_path / "log").exists()


def test_an_interrupt_of_the_pipeline_breaks_nothing_off(spark: SparkSession, tmp_path: Path) -> None:
    app = tmp_path / "app.yaml"
    (tmp_path / "in").mkdir()
    app.write_text(
        "name: plant\narchive: {path: archive}\n"
        "streams: {air: {attributes: {flow: float}, source: {kind: files, path: in}}}\n"
    )
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    stopped = heard()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own raises likewise
    try:
        with Pipeline(spark, load(app)) as pipeline:
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
            _watch(pipeline, str(app), stopped)
            assert [status.state for status in pipeline.status()] == ["running"]
    finally:
        os.close(signal.set_wakeup_fd(-1))
        stopped.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def test_the_table_of_parts() -> None:
    lines = list(
        table(
            [
                Status("archive", "background", "running", 1200, 300.0, 7, None),
                Status("rising", "high", "waiting", 0, 0.0, None, "the broker is away"),
            ]
        )
    )
    assert lines[1].split() == ["archive", "background", "running", "1,200", "300", "7"]
    assert lines[2].split()[:4] == ["rising", "high", "waiting", "0"]
    assert lines[2].endswith("the broker is away")
