"""The log as Python reads it: from any offset, while it is written, from disk and over a socket; and its retention."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cepheid.service.log import Logged, LogReader, OffsetGone, commit, log_committed
from cepheid.service.supplier import Supplier
from tests.service.intakes import Start, air, logged, read


def test_from_any_offset_from_disk_and_over_sockets(intake: Start, tmp_path: Path) -> None:
    process = intake(listen=[f"unix:{tmp_path / 'intake.sock'}", "tcp:127.0.0.1:0"], segment_bytes=4096)
    with Supplier(process.address) as supplier:
        for start in range(0, 200, 7):
            supplier.push_many(air(n) for n in range(start, min(start + 7, 200)))
    assert len(list((tmp_path / "log").glob("*.log"))) > 3
    sources: list[str | Path] = [tmp_path / "log", *process.listening]
    for source in sources:
        for offset in (0, 1, 6, 7, 8, 99, 199, 200, 201):
            found = read(source, offset)
            assert [each.offset for each in found] == list(range(offset, 200))
            assert [each.event for each in found] == [air(n) for n in range(offset, 200)]


def test_dead_letters_are_read_from_elsewhere_too(intake: Start, tmp_path: Path) -> None:
    process, log = intake(listen=["tcp:127.0.0.1:0"]), tmp_path / "log"
    with Supplier(process.address) as supplier:
        supplier.push(air(1))
        supplier.push_json([b'{"stream": "air", "id": 2, "time": 3, "flow": "much"}'])
        supplier.flush()
    elsewhere = f"{process.address}/dead"
    (letter,) = read(elsewhere)
    assert [letter] == read(log / "dead")
    assert letter.event.attributes["code"] == "wrong-type"
    commit(elsewhere, "archive", 1)
    assert (log_committed(log / "dead", "archive"), log_committed(log, "archive")) == (1, None)


@pytest.mark.parametrize("remote", [False, True], ids=["disk", "tcp"])
def test_what_comes_is_followed(intake: Start, tmp_path: Path, remote: bool) -> None:
    process = intake(listen=[f"unix:{tmp_path / 'intake.sock'}", "tcp:127.0.0.1:0"])
    found: list[Logged] = []

    def follow() -> None:
        with LogReader(process.listening[1] if remote else tmp_path / "log") as reader:
            while len(found) < 500:
                found.extend(reader.read(timeout=30))

    thread = threading.Thread(target=follow)
    thread.start()
    with Supplier(process.address) as supplier:
        for n in range(500):
            supplier.push(air(n))
    thread.join(timeout=60)
    assert [each.event.id for each in found] == list(range(500))


def test_another_process_follows_through_kills_of_the_intake(intake: Start, tmp_path: Path) -> None:
    code = """
import sys, json
from cepheid.service.log import LogReader
with LogReader(sys.argv[1], 0) as reader:
    ids = []
    while len(ids) < 300:
        ids += [each.event.id for each in reader.read(timeout=30)]
print(json.dumps(ids))
"""
    process = intake(segment_bytes=4096)
    reader = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "log")], stdout=subprocess.PIPE)
    for start in (0, 100, 200):
        with Supplier(process.address) as supplier:
            supplier.push_many(air(n) for n in range(start, start + 100))
        process.kill()
        process = intake(segment_bytes=4096)
    output, _ = reader.communicate(timeout=60)
    assert json.loads(output) == list(range(300))


def test_a_log_can_be_read_when_nobody_writes_it(intake: Start, tmp_path: Path) -> None:
    process = intake()
    with Supplier(process.address) as supplier:
        supplier.push_many(air(n) for n in range(10))
    process.stop()
    assert len(logged(tmp_path, 3)) == 7
    # As on another machine, where there is no tail in memory.
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", tmp_path / "log", copy], check=True)
    assert len(read(copy)) == 10


def test_retention_never_passes_what_the_archive_has_committed(intake: Start, tmp_path: Path) -> None:
    process = intake(
        segment_bytes=4096,
        retain_bytes=10_000,
        consumers=["archive"],
        listen=[f"unix:{tmp_path / 'intake.sock'}", "tcp:127.0.0.1:0"],
    )

    def push(ids: range) -> None:
        with Supplier(process.address) as supplier:
            for n in ids:
                supplier.push(air(n))

    def first() -> int:
        with Supplier(process.address) as supplier:
            return int(supplier.counters()["first_offset"])

    push(range(500))
    process.stop()
    process = intake(segment_bytes=4096, retain_bytes=10_000, consumers=["archive"], listen=["tcp:127.0.0.1:0"])
    time.sleep(1.5)  # the intake looks after retention once a second
    assert first() == 0
    commit(process.address, "archive", 250)
    assert log_committed(tmp_path / "log", "archive") == 250
    wait_until(lambda: first() > 0)
    assert first() <= 250
    commit(tmp_path / "log", "archive", 500)
    wait_until(lambda: first() > 250)
    kept = first()
    assert kept < 500
    assert [each.offset for each in logged(tmp_path)] == list(range(kept, 500))
    with pytest.raises(OffsetGone, match=f"begins with {kept}"):
        logged(tmp_path, 0)
    with pytest.raises(OffsetGone) as caught:
        read(process.address, 0)
    assert caught.value.first == kept
    assert [each.offset for each in read(process.address)] == list(range(kept, 500))
    with LogReader(process.address, -1) as remote, LogReader(tmp_path / "log", -1) as local:
        assert remote.read() == local.read() == []
        push(range(500, 501))
        assert [each.offset for each in remote.read(30)] == [each.offset for each in local.read(30)] == [500]


def wait_until(done: Callable[[], bool]) -> None:
    for _ in range(300):
        if done():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to pass within 30 s")


def test_a_consumers_name_is_a_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no name of a consumer"):
        commit(tmp_path, "../other", 5)
