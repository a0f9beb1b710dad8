"""What the machine may do to the service: a disk that does not sync, a clock that steps: by a shim in processes."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cepheid.model.events import Event
from cepheid.service.client import ConsumerClient, read_stats
from cepheid.service.intake import IntakeError
from cepheid.service.supplier import Supplier, SupplierError
from tests.service.intakes import Start, air, logged
from tests.service.test_delivery import collected
from tests.service.test_service import children, service
from tests.service.threads import of_threads
from tests.service.waiting import until

#: Stands between a process and the C library; a page that it shares with the test says what it does.
SHIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *page(void) {
    static volatile int64_t none[4], *found;
    if (!found) {
        const char *path = getenv("SHIM_PAGE");
        int file = path ? open(path, O_RDWR) : -1;
        void *mapped = file < 0 ? MAP_FAILED : mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        found = mapped == MAP_FAILED ? none : mapped;
    }
    return found;
}

int clock_gettime(clockid_t id, struct timespec *time) {
    int status = syscall(SYS_clock_gettime, id, time);
    if (status == 0 && id == CLOCK_REALTIME) {
        time->tv_sec += page()[0];
        __sync_fetch_and_add(&page()[3], 1);
    }
    return status;
}

static int sync_or_fail(long call, int file) {
    if (page()[1]) {
        __sync_fetch_and_add(&page()[2], 1);
        errno = EIO;
        return -1;
    }
    return syscall(call, file);
}

int fsync(int file) { return sync_or_fail(SYS_fsync, file); }
int fdatasync(int file) { return sync_or_fail(SYS_fdatasync, file); }
"""

HOUR = 3600


class Shim:
    """What the processes that are started from now on see of the machine."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def step(self, hours: float) -> None:
        """The wall clock is so many hours ahead of the right one."""
        struct.pack_into("<q", self._page, 0, int(hours * HOUR))

    def fail_syncs(self, fail: bool) -> None:
        """fsync and fdatasync fail with EIO."""
        struct.pack_into("<q", self._page, 8, fail)

    @property
    def failed_syncs(self) -> int:
        return int(struct.unpack_from("<q", self._page, 16)[0])

    @property
    def clock_readings(self) -> int:
        return int(struct.unpack_from("<q", self._page, 24)[0])


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, for the shim")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / "shim.so"), str(folder / "shim.c")]
    subprocess.run(command, check=True)
    return folder / "shim.so"


@pytest.fixture
def shim(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shim]:
    monkeypatch.setenv("SHIM_PAGE", str(tmp_path / "page"))
    found = Shim(tmp_path / "page")
    monkeypatch.setenv("LD_PRELOAD", str(library))
    yield found
    found.fail_syncs(False)


@pytest.mark.parametrize("durability", ["each", "interval 10ms"])
def test_a_sync_that_fails_acknowledges_nothing_and_says_so(
    shim: Shim, intake: Start, tmp_path: Path, durability: str
) -> None:
    process = intake(durability=durability)
    with Supplier(process.address, patience=3) as supplier:
        supplier.push(air(0))
        supplier.flush()
        assert supplier.acknowledged == 1
        shim.fail_syncs(True)
        for number in range(1, 20):
            supplier.push(air(number))
        with pytest.raises(SupplierError, match="19 events wait"):
            supplier.flush()
        assert shim.failed_syncs == 1, "the kernel may have dropped it: a second sync would say nothing"
        assert supplier.acknowledged == 1
        # The intake does not go on with a log of which it can't say what is in it.
        assert process.process.stdout is not None
        said = json.loads(process.process.stdout.readline())["error"]
        assert re.match(r"keeping the log failed: syncing .*\.log: Input/output error", said)
        assert process.process.wait(30) != 0
        # The next one reads what there is, and the supplier sends the rest again.
        shim.fail_syncs(False)
        intake(durability=durability)
        supplier.push(air(20))
        supplier.flush()
        assert supplier.acknowledged == 21
    assert [(each.event.id, each.duplicate) for each in logged(tmp_path)] == [(number, False) for number in range(21)]


def test_a_disk_that_never_syncs_acknowledges_nothing_through_restarts(
    shim: Shim, intake: Start, tmp_path: Path
) -> None:
    """What an intake finds in the log, and can't sync, is not safe because it can be read."""
    process = intake()
    with Supplier(process.address, patience=2) as supplier:
        shim.fail_syncs(True)
        supplier.push(air(1))
        with pytest.raises(SupplierError):
            supplier.flush()
        assert process.process.wait(30) != 0
        for _ in range(2):
            with contextlib.suppress(IntakeError):  # it may find out at once
                intake()
            with pytest.raises(SupplierError):
                supplier.flush()
            assert supplier.acknowledged == 0
        shim.fail_syncs(False)
        intake()
        supplier.flush()
        assert supplier.acknowledged == 1
    assert [each.event.id for each in logged(tmp_path)] == [1]


# `still` never has an event: its watermark follows the clock, and a match waits for it.
CLOCKS = """
name: plant
levels: [high, low]
streams:
  air: {attributes: {flow: float}, lateness: 0s, idle: 200ms, valid_for: 1h}
  still: {attributes: {flow: float}, lateness: 0s, idle: 200ms}
graph:
  every: {kind: filter, inputs: [air], where: "?e.flow IS NOT NULL"}
consumers:
  out: {input: every, level: high}
queries:
  direct: {level: high, engine: service, text: "SELECT ?a.flow FROM (?a, air)"}
  alone:
    level: high
    engine: service
    text: "SELECT ?a.flow FROM (?a, air), (?b, still) SEQ (?a, NOT ?b) WINDOW (?a, ?b, 100ms)"
service: {listen: "unix:supply.sock", deliver: "unix:deliver.sock", log: {path: log, durability: each}}
"""


def test_a_clock_that_steps(shim: Shim, tmp_path: Path) -> None:
    with (
        service(tmp_path, application=CLOCKS) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "out") as consumer,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "alone") as matched,
    ):
        found, matches = collected(consumer), collected(matched)
        deliver = f"unix:{tmp_path / 'deliver.sock'}"
        until(lambda: all(read_stats(deliver)["delivered"].get(name, {}).get("clients") for name in ("out", "alone")))
        readings = shim.clock_readings
        assert readings > 0, "the service reads the clock that the shim gives it"

        engine = children(process)["cepheid.service.process"]

        def push(number: int, step: float | None = None) -> set[str]:
            """An event of now, by the right clock; its marks when it comes, with a step while it is on its way."""
            if step is not None:
                os.kill(engine, signal.SIGSTOP)
                until(lambda: states(engine) == {"T"})
            supplier.push(Event("air", number, time.time_ns() // 1000, {"flow": float(number)}))
            supplier.flush()
            if step is not None:
                shim.step(step)
                os.kill(engine, signal.SIGCONT)
            until(lambda: found and found[-1].id == number)
            return set(found[-1].marks)

        assert push(1) == set()
        until(lambda: [one.attributes["flow"] for one in matches] == [1.0])
        # Ahead for a moment, in which streams are idle: events are judged by the clock there is, but what waits for
        # time does not take the hours for passed.
        assert push(2, step=5) == {"stale"}
        time.sleep(1)
        shim.step(0)
        assert push(3) == set()
        until(lambda: [one.attributes["flow"] for one in matches] == [1.0, 2.0, 3.0])
        # Back: nothing is stale before its time, and nothing waits for the clock to come there again but who must.
        assert push(4, step=-5) == set()
        assert push(5, step=0) == set()
        until(lambda: [one.attributes["flow"] for one in matches] == [1.0, 2.0, 3.0, 4.0, 5.0])
        stats = read_stats(deliver)
        assert stats["streams"]["air"]["events"]["used"] == 5
        assert stats["queries"]["direct"]["latency"]["count"] == 5
        for spans in latencies(stats):
            assert all(0 <= value < 60_000_000_000 for value in spans.values() if isinstance(value, int | float)), spans


def states(pid: int) -> set[str]:
    """Of the threads of a process."""
    return {said.rpartition(")")[2].split()[0] for said in of_threads(pid, "stat").values()}


def latencies(stats: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The histograms in the books, in nanoseconds or what they count."""
    for part in ("consumers", "levels", "operators", "queries"):
        for book in stats[part].values():
            yield from (value for key, value in book.items() if key in ("latency", "run") and value)


def loaded(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def resident(pid: int, what: str = "VmRSS") -> int:
    """Kilobytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(what)).split()[1])


#: The base load of the paper's first set, in small: its levels, operators and sizes.
BASE = """
name: base
levels: [high, middle, low]
streams:
  s1: {attributes: {x: "array<uint8>"}, period: 5ms, valid_for: 5ms}
  s2: {attributes: {x: "array<uint8>"}, period: 5ms, valid_for: 5ms}
  s3: {attributes: {x: "array<uint8>"}, period: 20ms, valid_for: 20ms}
graph:
  fused: {kind: ekf, inputs: [s1, s2]}
  sealed: {kind: aes, inputs: [fused]}
  spectrum: {kind: fft, inputs: [s3]}
  both: {kind: cat, inputs: [fused, s3]}
consumers:
  first: {input: sealed, level: high}
  second: {input: spectrum, level: middle}
  third: {input: both, level: low}
service: {listen: "unix:supply.sock", deliver: "unix:deliver.sock", log: LOG}
"""


@pytest.mark.parametrize("log", ["none", "{path: log, durability: interval 10ms}"])
def test_the_engine_is_small(tmp_path: Path, log: str) -> None:
    deliver = f"unix:{tmp_path / 'deliver.sock'}"
    with (
        service(tmp_path, log, BASE) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        contextlib.ExitStack() as stack,
    ):
        consumers = [stack.enter_context(ConsumerClient(deliver, name)) for name in ("first", "second", "third")]
        found = [collected(consumer) for consumer in consumers]
        engine = children(process)["cepheid.service.process"]
        number = 0
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and (number < 4000 or not all(found)):
            for stream, size in (("s1", 512), ("s2", 512), ("s3", 2048)):
                number += 1
                supplier.push(Event(stream, number, time.time_ns() // 1000, {"x": bytes(size)}))
            supplier.flush()
        assert all(found), "each level has delivered"
        assert resident(engine) <= 20 * 1024
        assert "yaml" not in loaded(engine)
        assert "pydantic" not in loaded(engine)


# Operators' outputs and matches go into the log, and come back from it.
READ = BASE.replace(
    "consumers:\n",
    """queries:
  loud: {level: high, engine: service, text: "SELECT ?a.x AS y FROM (?a, fused)"}
  again: {level: low, engine: service, text: "SELECT ?a.y FROM (?a, loud)"}
consumers:
""",
)


def test_an_engine_whose_outputs_are_logged_is_small_too(tmp_path: Path) -> None:
    with (
        service(tmp_path, "{path: log, durability: interval 10ms}", READ) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "again") as consumer,
    ):
        found = collected(consumer)
        engine = children(process)["cepheid.service.process"]
        number = 0
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and (number < 2000 or len(found) < 100):
            for stream, size in (("s1", 512), ("s2", 512), ("s3", 2048)):
                number += 1
                supplier.push(Event(stream, number, time.time_ns() // 1000, {"x": bytes(size)}))
            supplier.flush()
        assert len(found) >= 100
        assert resident(engine) <= 20 * 1024
        assert "asyncio" not in loaded(engine)


def test_what_the_engine_imports() -> None:
    code = "import cepheid.service.process, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"asyncio", "dataclasses", "json", "lark", "logging", "pathlib", "pydantic", "re", "threading", "typing"}
    heavy |= {"pandas", "pyarrow", "numpy", "pyoxigraph", "pyspark", "yaml", "cepheid.app", "cepheid.plan"}
    assert heavy & set(done.stdout.split()) == set()


def test_the_engine_loads_no_columns_and_no_java(tmp_path: Path) -> None:
    with (
        service(tmp_path, application=CLOCKS) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "out") as consumer,
    ):
        found = collected(consumer)
        engine = children(process)["cepheid.service.process"]

        def load(first: int) -> None:
            supplier.push_many(Event("air", first + n, time.time_ns() // 1000, {"flow": 1.0}) for n in range(2000))
            supplier.flush()

        load(0)
        until(lambda: len(found) > 0)
        before = resident(engine)
        for turn in range(1, 4):
            load(2000 * turn)
        until(lambda: read_stats(f"unix:{tmp_path / 'deliver.sock'}")["log"]["offset"] == 8000)
        for library in ("pyarrow", "libarrow", "pandas", "numpy", "libjvm"):
            assert library not in loaded(engine)
        assert resident(engine) < before + 4096, "a load leaves nothing behind"
