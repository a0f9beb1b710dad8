"""The intake: small events a second from batches, by durability, and how soon a follower of the log has them.

Suppliers are processes of their own, so that their cost is not the intake's; the intake's CPU is read from the kernel.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from common import Bar, Plot, Report, arguments, series

from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.service.intake import IntakeConfig, IntakeProcess, start
from cepheid.service.supplier import Supplier

#: A reading of a sensor: which one, and a value; 48 bytes as a record.
STREAM: Final = Stream("reading", {"sensor": Type.INT, "value": Type.FLOAT}, id_kind="int")
NAMED: Final = Stream("named", {"sensor": Type.STRING, "value": Type.FLOAT}, id_kind="int")
DURABILITIES: Final = ("none", "interval 10ms", "each")
BATCHES: Final = (1, 10, 100, 1_000, 10_000)

SUPPLIER: Final = """
import json, sys, time
import numpy as np
from cepheid.service.supplier import Supplier

address, first, count, batch = sys.argv[1], *map(int, sys.argv[2:5])
with Supplier(address) as supplier:
    layout = supplier.layout("reading")
    rows = layout.empty(count)
    rows["id"], rows["time"] = np.arange(first, first + count), np.arange(count)
    rows["sensor"], rows["value"] = np.arange(count) % 1000, 21.5
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.time()
    for start in range(0, count, batch):
        supplier.push_rows(rows[start : start + batch])
    supplier.flush()
    print(json.dumps([began, time.time()]), flush=True)
"""


def cpu_of(process: IntakeProcess) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{process.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def flood(process: IntakeProcess, suppliers: int, count: int, batch: int) -> tuple[float, float]:
    """Events a second from the first push to the last acknowledgement, and the intake's share of a core."""
    share = count // suppliers
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SUPPLIER, process.address, str(n * share), str(share), str(batch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(suppliers)
    ]
    for each in running:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    used = cpu_of(process)
    for each in running:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    spans = [json.loads(each.communicate()[0]) for each in running]
    seconds = max(end for _, end in spans) - min(begin for begin, _ in spans)
    return suppliers * share / seconds, (cpu_of(process) - used) / seconds


def run(durability: str, suppliers: int, count: int, batch: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        config = IntakeConfig([STREAM, NAMED], Path(folder) / "log", [f"unix:{folder}/intake.sock"], durability)
        with start(config) as process:
            speed, share = flood(process, suppliers, count, batch)
            with Supplier(process.address) as supplier:
                counters = supplier.counters()["counters"]
        if counters["accepted"] != count // suppliers * suppliers or counters["duplicates"]:
            sys.exit(f"{counters} and {count} were sent")
    return speed, share


def floor(count: int) -> float:
    """Events a second if the same bytes were only written to a file, a megabyte at a time, and synced in the end."""
    block = bytes(1 << 20)
    with tempfile.TemporaryDirectory(dir=".") as folder, (Path(folder) / "floor").open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(count * 48 // len(block)):
            file.write(block)
        os.fdatasync(file.fileno())
        return count / (time.perf_counter() - began)


FOLLOWER: Final = """
import json, os, sys, time
from contextlib import suppress
from cepheid._native import LogFollower

with suppress(PermissionError):
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(30))
follower, count, found = LogFollower(sys.argv[1], 0), int(sys.argv[2]), []
print("ready", flush=True)
while len(found) < count:
    rows = follower.next()
    now = time.monotonic_ns()
    if rows is None:
        follower.wait(5.0)
    else:
        found += [(now - row[5][0]) / 1000 for row in rows]
print(json.dumps(sorted(found)))
"""


def delays(durability: str, count: int) -> list[float]:
    """Microseconds from before a push to when a follower, another process, has the event; one push a millisecond."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        log = Path(folder) / "log"
        config = IntakeConfig([STREAM], log, [f"unix:{folder}/intake.sock"], durability, priority=40)
        with start(config) as process, Supplier(process.address) as supplier:
            follower = subprocess.Popen(
                [sys.executable, "-c", FOLLOWER, str(log), str(count)], stdout=subprocess.PIPE, text=True
            )
            assert follower.stdout is not None
            assert follower.stdout.readline() == "ready\n"
            for number in range(count):
                time.sleep(0.001)
                supplier.push(Event("reading", number, number, {"sensor": time.monotonic_ns()}))
            supplier.flush()
            return list(json.loads(follower.communicate()[0]))


def main() -> None:
    options = arguments(__doc__)
    count, repeats = (1_000_000, 3) if options.quick else (4_000_000, 5)
    speeds: dict[str, list[float]] = {name: [] for name in DURABILITIES}
    shares: dict[str, list[float]] = {name: [] for name in DURABILITIES}
    floors: list[float] = []
    for turn in range(repeats):
        print(f"turn {turn + 1} of {repeats}", flush=True)
        for name in DURABILITIES:
            speed, share = run(name, 1, count, 1_000)
            speeds[name].append(speed)
            shares[name].append(share)
        floors.append(floor(count))
    two = [run("interval 10ms", 2, count, 1_000)[0] for _ in range(repeats)]
    sizes = [
        [run("interval 10ms", 1, min(count, 20_000 * batch), batch)[0] for _ in range(repeats)] for batch in BATCHES
    ]
    waits = {name: delays(name, 2_000 if options.quick else 10_000) for name in DURABILITIES}
    medians = {name: statistics.median(s) for name, s in speeds.items()}
    notes = [
        f"{name}: {medians[name]:,.0f} events/s ({min(s):,.0f} to {max(s):,.0f}), "
        f"the intake at {statistics.median(shares[name]):.0%} of a core"
        for name, s in speeds.items()
    ]
    notes.append(f"the same bytes only written and synced: {statistics.median(floors):,.0f} events/s")
    notes.append(f"two suppliers, interval 10ms: {statistics.median(two):,.0f} events/s")
    notes += [
        f"from push to a follower in another process, {name}: p50 {found[len(found) // 2]:.0f} us, "
        f"p99 {found[len(found) * 99 // 100]:.0f} us, largest {found[-1]:.0f} us"
        for name, found in waits.items()
    ]
    Report(
        name="intake",
        question=(__doc__ or "").split("\n", 1)[0],
        method=f"{count:,} events of 48 bytes from one supplier, rows of numpy in batches of 1,000, acknowledged when "
        f"safe; {repeats} turns, medians. The supplier has a process of its own on the same cores. The log is in the "
        "current folder. Delays: a push a "
        "millisecond, intake and follower at real-time priorities where that is allowed, the supplier at none.",
        bars=[Bar("interval 10ms, batches of 1,000", medians["interval 10ms"], 500_000, "at_least", "events/s")],
        plots=[
            Plot(
                "batches",
                "Events a second by size of the batch, durability interval 10ms",
                "events a batch",
                "events/s",
                [series("one supplier", BATCHES, sizes)],
                log=True,
            )
        ],
        notes=notes,
    ).save(options.out)


if __name__ == "__main__":
    main()
