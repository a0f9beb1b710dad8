"""One run of an experiment: a service, suppliers and consumers, each a process of its own, and what was found.

The service under test is `cepheid service`, reached over its sockets. Suppliers and consumers have real-time priorities
above all its threads. Latency is from the supplier's clock at the push of the last supplier event that is in an output
to the consumer's clock at its receipt; both are this machine's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Protocol

import numpy as np
import yaml
from cpep.graphs import LEVELS, Workload
from cpep.watch import Host, Seen, children, look, look_at_host
from numpy.typing import NDArray

from cepheid.service.client import read_stats

CORES: Final = len(os.sched_getaffinity(0))
#: Above everything in the service, whose highest is 81.
SUPPLIERS_PRIORITY: Final = 90
CONSUMERS_PRIORITY: Final = 91
#: This process only looks at /proc, but has to do so on time.
OWN_PRIORITY: Final = 95
#: Seconds after the measured time that what was pushed in it may still arrive.
TAIL: Final = 1.0
#: Flags of a sample (native/src/load/consumers.rs).
STALE, RELATIVE, ENDED = 1, 2, 4
#: Seconds that a process is given to come up, or to end.
PATIENCE: Final = 60.0


@dataclass(frozen=True)
class Case:
    """What is run: how the service is configured, and how it is loaded."""

    work: Workload
    log: bool = False
    prioritised: bool = True
    replace: bool = True
    sporadic: bool = False
    coordinated: bool = True
    #: All suppliers send over one connection, as those behind a gateway do.
    gateway: bool = False
    warm_up: float = 10.0
    seconds: float = 100.0
    tail: float = TAIL
    seed: int = 1
    #: Programs that only compute, as others that share the machine do, at ordinary priority.
    beside: int = 0


class Service(Protocol):
    """What is under test: started, it says where suppliers and consumers connect, and which processes it is."""

    suppliers: str
    consumers: str
    pids: Mapping[str, int]

    def stop(self) -> None: ...

    def books(self) -> dict[str, Any]: ...


@dataclass
class Outcome:
    """What a run gave."""

    seconds: float
    #: By level: microseconds from push to receipt, flags and numbers of consumers, in the order of receipt.
    latency: dict[str, NDArray[np.int64]]
    flags: dict[str, NDArray[np.uint8]]
    #: Shares of all cores, by process, while it was measured.
    cpu: dict[str, float]
    #: Share of all cores that were not idle, whoever used them; and share that was another machine's on the same host.
    host: float
    stolen: float
    memory: dict[str, Seen]
    #: Context switches and migrations of the service's threads, and switches of the machine, a millisecond.
    switches: float
    migrations: float
    host_switches: float
    suppliers: dict[str, Any]
    consumers: dict[str, Any]
    books: dict[str, Any] = field(default_factory=dict)

    @property
    def service_cpu(self) -> float:
        """Share of the cores that the service took."""
        return sum(share for name, share in self.cpu.items() if name not in ("suppliers", "consumers"))

    @property
    def total_cpu(self) -> float:
        """Share of the cores that service, suppliers and consumers took together."""
        return sum(self.cpu.values())

    def ms(self, level: str, percent: float) -> float:
        """A percentile of a level's latency in milliseconds; not a number if nothing came."""
        found = self.latency[level]
        return float(np.percentile(found, percent)) / 1e3 if len(found) else float("nan")

    def mean_ms(self, level: str) -> float:
        """The mean latency of a level in milliseconds."""
        found = self.latency[level]
        return float(found.mean()) / 1e3 if len(found) else float("nan")

    @property
    def wake_ms(self) -> float:
        """How late suppliers were woken, above all others, at the 99th percentile: no service can do better here."""
        return float(self.suppliers["late"][1]) / 1e6

    def rate(self, level: str, *, within: int | None = None, without: int = 0) -> float:
        """Events a second of a level: those faster than `within` microseconds, and without any of these flags."""
        good = (self.flags[level] & without) == 0
        if within is not None:
            good &= self.latency[level] < within
        return float(good.sum()) / self.seconds

    def summary(self) -> dict[str, Any]:
        """For the report: everything but the samples."""
        return {
            "levels": {
                level: {
                    "events": len(self.latency[level]),
                    "mean_ms": self.mean_ms(level),
                    **{f"p{p:g}_ms": self.ms(level, p) for p in (50, 90, 99, 99.9, 100)},
                }
                for level in LEVELS
            },
            "cpu": self.cpu,
            "host_cpu": self.host,
            "stolen_cpu": self.stolen,
            "memory_mb": {name: {"size": seen.vm_size, "rss": seen.vm_rss} for name, seen in self.memory.items()},
            "switches_per_ms": self.switches,
            "migrations_per_ms": self.migrations,
            "host_switches_per_ms": self.host_switches,
            "suppliers": self.suppliers,
            "consumers": self.consumers,
        }


class CepheidService:
    """`cepheid service` with the application of a case, in a folder of its own."""

    def __init__(self, case: Case, folder: Path) -> None:
        log: object = {"path": "log", "durability": "interval 10ms", "retain_size": "256MB"} if case.log else "none"
        service = {
            "listen": "unix:supply.sock",
            "deliver": "unix:deliver.sock",
            "cores": CORES,
            "log": log,
            "prioritised": case.prioritised,
            "replace": case.replace,
        }
        path = folder / "app.yaml"
        path.write_text(yaml.safe_dump(case.work.sections("cpep") | {"service": service}, sort_keys=False))
        self.suppliers = f"unix:{folder / 'supply.sock'}"
        self.consumers = f"unix:{folder / 'deliver.sock'}"
        command = [sys.executable, "-m", "cepheid.cli.main", "service", str(path)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("consumers:"):
                break
        else:
            raise RuntimeError(f"the service did not start; it ended with code {self._process.wait()}")
        pids = children(self._process.pid)
        self.pids: Mapping[str, int] = dict(zip(["intake", "engine"][-len(pids) :], pids, strict=True))

    def books(self) -> dict[str, Any]:
        return read_stats(self.consumers)

    def stop(self) -> None:
        end(self._process)


def end(process: subprocess.Popen[str]) -> None:
    """Ends a process that was started here, in order if that is possible."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


class LoadProcess:
    """Suppliers or consumers."""

    def __init__(self, role: str, task: dict[str, Any], samples: Path) -> None:
        script = Path(__file__).with_name("load.py")
        command = [sys.executable, str(script), role, str(samples)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.role = role
        self._say(json.dumps(task))
        self._hear()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def _say(self, line: str) -> None:
        stdin, _ = self._pipes()
        stdin.write(line + "\n")
        stdin.flush()

    def _hear(self) -> dict[str, Any]:
        line = self._pipes()[1].readline()
        if not line:
            raise RuntimeError(f"the {self.role} ended with code {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def start(self, moment: int) -> None:
        self._say(str(moment))

    def done(self) -> dict[str, Any]:
        found = self._hear()
        self.process.wait(PATIENCE)
        return found

    def stop(self) -> None:
        end(self.process)
        self._pipes()[0].close()


def _compute(seconds: float) -> subprocess.Popen[str]:
    """A program that only computes; it ends by itself."""
    script = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"
    return subprocess.Popen([sys.executable, "-c", script, str(seconds)], text=True)


@contextmanager
def _above_all() -> Iterator[None]:
    """This process above the load, but nothing that it starts. Without the privilege it measures as it can."""
    before = os.sched_getscheduler(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(OWN_PRIORITY))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, os.sched_param(0))


def _sleep_until(moment: int) -> None:
    time.sleep(max(0, moment - time.monotonic_ns()) / 1e9)


@dataclass
class _Moment:
    at: int
    processes: dict[str, Seen]
    host: Host


def _moment(pids: Mapping[str, int]) -> _Moment:
    return _Moment(time.monotonic_ns(), {name: look(pid, threads=True) for name, pid in pids.items()}, look_at_host())


def run(case: Case, start: type[CepheidService] | Any = CepheidService, raw: Path | None = None) -> Outcome:
    """Runs a case once, and keeps the raw samples in the file `raw`."""
    folder = Path(tempfile.mkdtemp(prefix="cpep-"))
    service: Service | None = None
    loads: list[LoadProcess] = []
    others: list[subprocess.Popen[str]] = []
    try:
        service = start(case, folder)
        length = case.warm_up + case.seconds + 0.2
        names = list(case.work.consumers)
        consumers = {
            "address": service.consumers,
            "consumers": names,
            "from": case.warm_up,
            "to": case.warm_up + case.seconds,
            "end": case.warm_up + case.seconds + case.tail,
            "priority": CONSUMERS_PRIORITY,
        }
        suppliers = {
            "address": service.suppliers,
            "groups": case.work.suppliers(sporadic=case.sporadic, coordinated=case.coordinated, gateway=case.gateway),
            "seconds": length,
            "seed": case.seed,
            "priority": SUPPLIERS_PRIORITY,
        }
        samples = folder / "samples"
        loads.append(LoadProcess("consumers", consumers, samples))
        loads.append(LoadProcess("suppliers", suppliers, samples))
        pids = {**service.pids, **{load.role: load.process.pid for load in loads}}
        others += [_compute(length + case.tail) for _ in range(case.beside)]
        begin = time.monotonic_ns() + 50_000_000
        for load in loads:
            load.start(begin)
        with _above_all():
            _sleep_until(begin + int(case.warm_up * 1e9))
            first = _moment(pids)
            _sleep_until(begin + int((case.warm_up + case.seconds) * 1e9))
            last = _moment(pids)
        received, supplied = (load.done() for load in loads)
        books = service.books()
        found = _outcome(case, names, samples, first, last)
        found.suppliers, found.consumers, found.books = supplied, received, books
        if raw is not None:
            _keep(raw, found)
        return found
    finally:
        for load in loads:
            load.stop()
        for other in others:
            end(other)
        if service is not None:
            service.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _outcome(case: Case, names: list[str], samples: Path, first: _Moment, last: _Moment) -> Outcome:
    words = np.fromfile(samples, dtype=np.uint64).reshape(-1, 2)
    latency = (words[:, 1] & np.uint64(0xFFFF_FFFF)).astype(np.int64)
    consumer = (words[:, 1] >> np.uint64(32) & np.uint64(0xFFFF)).astype(np.int64)
    flags = (words[:, 1] >> np.uint64(48)).astype(np.uint8)
    level = np.array([LEVELS.index(case.work.level_of(name)) for name in names])[consumer]
    passed = (last.at - first.at) / 1e9
    own = [name for name in last.processes if name not in ("suppliers", "consumers")]

    def difference(field: str) -> float:
        return float(sum(getattr(last.processes[n], field) - getattr(first.processes[n], field) for n in own))

    return Outcome(
        case.seconds,
        {name: latency[level == place] for place, name in enumerate(LEVELS)},
        {name: flags[level == place] for place, name in enumerate(LEVELS)},
        {n: (last.processes[n].cpu - first.processes[n].cpu) / passed / CORES for n in last.processes},
        1 - (last.host.idle - first.host.idle + last.host.stolen - first.host.stolen) / passed / CORES,
        (last.host.stolen - first.host.stolen) / passed / CORES,
        {name: last.processes[name] for name in own},
        difference("switches") / passed / 1e3,
        difference("migrations") / passed / 1e3,
        (last.host.switches - first.host.switches) / passed / 1e3,
        {},
        {},
    )


def _keep(raw: Path, found: Outcome) -> None:
    raw.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {f"{level}_us": found.latency[level].astype(np.uint32) for level in LEVELS}
    arrays |= {f"{level}_flags": found.flags[level] for level in LEVELS}
    np.savez_compressed(raw, **arrays)
