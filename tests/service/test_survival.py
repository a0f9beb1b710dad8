"""What a service survives, with real processes: kills of its parts, operators that fail, readers that don't read.

What comes in at its other end, from suppliers, is in test_faults.py; what the machine does, in test_machine.py.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from cepheid.model.events import Event
from cepheid.service.client import ConsumerClient, read_stats
from cepheid.service.log import LogReader
from cepheid.service.received import Received
from cepheid.service.supplier import Supplier
from tests.service.compiled import compiled
from tests.service.test_service import APPLICATION, air, children, service, wait_for
from tests.service.waiting import until

ENGINE, INTAKE, SOURCES = (f"cepheid.service.{name}" for name in ("process", "intake", "sources"))


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


RATE = APPLICATION.replace(
    "period: 10ms}", "period: 10ms}\n  made: {attributes: {x: int}, source: {kind: rate, per_second: 20}}"
)


@pytest.mark.parametrize("log", ["{path: log, durability: each}", "none"])
def test_a_supervisor_that_is_killed_leaves_nothing_behind_and_the_next_begins_at_once(
    tmp_path: Path, log: str
) -> None:
    with service(tmp_path, log, RATE) as first, Supplier(f"unix:{tmp_path / 'supply.sock'}", patience=60) as supplier:
        parts = children(first)
        assert set(parts) == {ENGINE, SOURCES} | ({INTAKE} if "path" in log else set())
        for number in range(100):
            supplier.push(air(number))
        supplier.flush()
        wait_for(tmp_path, 100)
        first.kill()
        first.wait()
        # It does not wait until they have ended.
        with service(tmp_path, log, RATE) as second:
            until(lambda: not any(is_alive(pid) for pid in parts.values()))
            assert set(children(second)) == set(parts)
            for number in range(100, 200):
                supplier.push(air(number))
            supplier.flush()
            until(lambda: read_stats(f"unix:{tmp_path / 'deliver.sock'}")["streams"]["air"]["events"]["used"] >= 100)
        if "path" in log:
            with LogReader(tmp_path / "log") as reader:
                found = [one for one in reader if one.event.stream == "air"]
            assert [one.event.id for one in found] == list(range(200))
            assert not any(one.duplicate for one in found)


RUN = """
import time
from cepheid.cli.run import _start
print(_start(["service", "app.yaml"]).pid, flush=True)
time.sleep(1000)
"""


def test_a_service_ends_with_the_run_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(APPLICATION.replace("LOG", "{path: log}"))
    with subprocess.Popen([sys.executable, "-c", RUN], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        assert run.stdout.readline().startswith("suppliers: ")
        run.kill()
        until(lambda: not is_alive(pid))
    assert not (tmp_path / "supply.sock").exists(), "in order"


def test_what_a_killed_service_kept_in_memory_is_removed_by_the_next(tmp_path: Path) -> None:
    folders = set(Path("/dev/shm").glob("cepheid-log-*"))
    with service(tmp_path, "none") as first:
        (left,) = set(Path("/dev/shm").glob("cepheid-log-*")) - folders
        parts = children(first)
        first.kill()
        first.wait()
    until(lambda: not any(is_alive(pid) for pid in parts.values()))
    assert left.exists()
    os.utime(left, (0, 0))  # one that is young may be somebody's who has just made it
    with service(tmp_path, "none"):
        assert not left.exists()
        (own,) = set(Path("/dev/shm").glob("cepheid-log-*")) - folders
        os.utime(own, (0, 0))
        other = tmp_path / "other"
        other.mkdir()
        with service(other, "none"):
            assert own.exists(), "it is locked by who uses it"
    assert not own.exists()


def test_a_dead_engine_is_noticed_within_a_tenth_of_a_second(tmp_path: Path) -> None:
    with service(tmp_path) as process:
        taken = []
        for _ in range(4):
            until(lambda: children(process).keys() == {ENGINE, INTAKE})
            before = children(process)[ENGINE]
            # Also while the intake is started again.
            os.kill(children(process)[INTAKE], signal.SIGKILL)
            os.kill(before, signal.SIGKILL)
            killed = time.monotonic()
            while children(process).get(ENGINE, before) == before:
                assert time.monotonic() < killed + 30
                time.sleep(0.001)
            taken.append(time.monotonic() - killed)
            wait_for(tmp_path, 0)
        # By the best: a loaded machine runs neither the supervisor nor this test when it should.
        assert min(taken) < 0.1


DERIVED = """
name: plant
levels: [critical, background]
streams:
  air: {attributes: {sensor: string, flow: float}, valid_for: 1h, idle: 1s}
  water: {attributes: {level: float}, valid_for: 2h}
graph:
  strong: {kind: filter, inputs: [air], where: "?e.flow > 4"}
  both: {kind: python, function: "own:joined", inputs: [air, water], fire: any, output: {x: float}}
queries:
  seen: {level: critical, engine: service, text: "SELECT ?a.flow FROM (?a, strong)"}
  pairs: {engine: service, text: "SELECT ?a.x FROM (?a, both)"}
  again: {engine: service, text: "SELECT ?a.flow FROM (?a, seen)"}
consumers:
  made: {input: strong, level: critical}
  joined: {input: both, level: critical}
service: {listen: "unix:supply.sock", deliver: "unix:deliver.sock", log: LOG}
"""
OWN = """
import time

def joined(air, water):
    given = air or water
    return [{"x": float(given["id"])}, {"x": -float(given["id"])}]

def wrong(event):
    if event["flow"] > 4:
        raise ValueError("that is too much for me")
    return {"x": event["flow"]}

def endless(event):
    while event["flow"] > 4:
        time.sleep(0.01)
    return {"x": event["flow"]}

def many(event):
    time.sleep(0.3)
    return [{"x": float(number)} for number in range(int(event["flow"]))]
"""


def test_kills_at_any_moment_lose_and_double_nothing_that_is_derived(tmp_path: Path) -> None:
    """What operators make again has the ids that it had, so that the log and consumers know what they have."""
    (tmp_path / "own.py").write_text(OWN)
    chance = random.Random(5)
    total = 1500
    received: dict[str, dict[object, set[tuple[object, ...]]]] = {"made": defaultdict(set), "joined": defaultdict(set)}

    def collect(name: str) -> Callable[[Received], object]:
        return lambda one: received[name][one.id].add((one.time, *one.attributes.values()))

    with (
        service(tmp_path, "{path: log, durability: interval 10ms}", DERIVED) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}", patience=60) as supplier,
        contextlib.ExitStack() as stack,
    ):
        for name in received:
            stack.enter_context(ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", name)).call(collect(name))
        start = time.time_ns() // 1000
        kills = {400: ENGINE, 650: INTAKE, 900: ENGINE, 1200: ENGINE}
        for number in range(total):
            flow = float(number % 10)
            supplier.push(Event("air", number, start + number, {"sensor": "D105", "flow": flow}))
            if number % 2 == 0:
                supplier.push(Event("water", number, start + number, {"level": 1.0}))
            if number in kills:
                time.sleep(chance.uniform(0, 0.02))
                os.kill(children(process)[kills[number]], signal.SIGKILL)
            if number % 20 == 0 or number in kills:
                # No faster than the graph, whose operators may leave out what they have no time for.
                supplier.flush()
                assert supplier.offset is not None
                wait_for(tmp_path, supplier.offset)
        supplier.flush()
        wanted = {
            "air": total,
            "water": total // 2,
            "strong": total // 2,
            "both": total + total // 2 + total + total // 2,
            "seen": total // 2,
        }

        def fresh() -> Counter[str]:
            with LogReader(tmp_path / "log") as reader:
                return Counter(one.event.stream for one in reader if not one.duplicate)

        until(lambda: fresh() == wanted)
        with LogReader(tmp_path / "log") as reader:
            logged = list(reader)
    assert any(one.duplicate for one in logged if one.event.stream == "strong"), "some was made again"
    strong = [one for one in logged if one.event.stream == "strong" and not one.duplicate]
    # The id is that of the event which it was made of, and so is the end of its validity.
    assert [one.event.id for one in strong] == [number for number in range(total) if number % 10 > 4]
    assert {(one.valid_until or 0) - one.event.time for one in strong} == {3_600_000_000}
    ids = {one.event.id for one in logged if one.event.stream == "both"}
    assert len(ids) == wanted["both"]
    # What came twice came with the same id, time and values.
    assert {len(values) for values in received["made"].values()} == {1}
    assert {len(values) for values in received["joined"].values()} == {1}
    assert set(received["made"]) <= {one.event.id for one in strong}
    assert set(received["joined"]) <= ids


FAILING = APPLICATION.replace(
    "consumers:\n",
    "  wrong: {kind: python, function: 'own:wrong', inputs: [air], output: {x: float}}\n"
    "  endless: {kind: python, function: 'own:endless', inputs: [air], output: {x: float}}\n"
    "consumers:\n"
    "  failing: {input: wrong, level: background}\n"
    "  stuck: {input: endless, level: background}\n",
).replace("log: LOG", "cores: 2, log: LOG")


def test_operators_that_throw_or_never_return_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    deliver = f"unix:{tmp_path / 'deliver.sock'}"
    with (
        service(tmp_path, application=FAILING) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        ConsumerClient(deliver, "alarm") as alarm,
    ):
        alarms: list[Received] = []
        alarm.call(alarms.append)
        until(lambda: read_stats(deliver)["delivered"].get("alarm", {}).get("clients"))
        supplier.push(air(1, flow=1.0))
        supplier.push(air(2, flow=9.0))
        supplier.flush()
        until(lambda: read_stats(deliver)["operators"]["wrong"]["failed"] == 1)
        assert read_stats(deliver)["operators"]["wrong"]["trouble"] == "ValueError: that is too much for me"
        until(lambda: read_stats(deliver)["operators"]["endless"]["stuck"] == 1)
        until(lambda: len(alarms) == 2)
        for number in range(3, 53):
            supplier.push(air(number, flow=number % 2 * 9.0))
        supplier.flush()
        # The level above has all of it; the one with the operator that never returns has another worker.
        until(lambda: len(alarms) == 52)
        until(lambda: read_stats(deliver)["operators"]["wrong"]["failed"] == 26)
        assert children(process).keys() == {ENGINE, INTAKE}
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert "operator 'endless' has not returned for 1" in said
        assert process.returncode == 0


POISONED = """
OPERATOR(halved) {
    double flow = *(const double *)data[1];
    if (flow < 0) abort();
    *(double *)out[0] = flow / 2;
    return 1;
}
"""


def test_an_engine_that_dies_again_and_again_leaves_the_intake_at_work(tmp_path: Path) -> None:
    compiled(tmp_path, POISONED)
    with_half = "  half: {kind: KIND}\nconsumers:\n  of_half: {input: half, level: critical}\n"
    native = "native, inputs: [air], library: ./own.so, symbol: halved, output: {flow: float}"
    fatal = APPLICATION.replace("consumers:\n", with_half.replace("KIND", native))
    deliver = f"unix:{tmp_path / 'deliver.sock'}"
    with (
        service(tmp_path, application=fatal) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}", patience=1) as supplier,
    ):
        assert process.stderr is not None
        intake = children(process)[INTAKE]
        supplier.push(air(0, flow=-1.0))
        supplier.flush()
        # One that dies before it is ready is not said to have been started again.
        said = next(line for line in process.stderr if "and was started again" not in line)
        assert said.startswith("the engine died with code -6, 10 times in a row; the other parts go on")
        for number in range(1, 50):
            supplier.push(air(number))
        supplier.flush()
        assert children(process)[INTAKE] == intake
        # As the message says: the file is corrected, and applied.
        own = fatal.replace(native, "map, inputs: [air], select: '?e.flow / 2 AS flow'")
        (tmp_path / "app.yaml").write_text(own.replace("LOG", "{path: log, durability: each}"))
        process.send_signal(signal.SIGHUP)
        assert process.stderr.readline() == "the application was applied:\n"
        until(lambda: read_stats(deliver)["consumers"]["of_half"]["came"] == 50)
        assert children(process)[INTAKE] == intake


READER = """
import socket, sys, time
lazy = socket.socket(socket.AF_UNIX)
lazy.connect(sys.argv[1])
lazy.sendall(b'{"consumer": "all", "format": "frames"}\\n')
lazy.recv(10)
print("there", flush=True)
time.sleep(1000)
"""


def test_a_consumers_process_that_stops_reading_loses_its_oldest_and_holds_nobody_up(tmp_path: Path) -> None:
    deliver = f"unix:{tmp_path / 'deliver.sock'}"
    with service(tmp_path, "{path: log, durability: none}") as process, contextlib.ExitStack() as stack:
        supplier = stack.enter_context(Supplier(f"unix:{tmp_path / 'supply.sock'}"))
        command = [sys.executable, "-c", READER, str(tmp_path / "deliver.sock")]
        lazy = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(lazy.kill)
        assert lazy.stdout is not None
        assert lazy.stdout.readline() == "there\n"
        seen: list[object] = []
        busy = stack.enter_context(ConsumerClient(deliver, "all"))
        busy.call(lambda one: seen.append(one.id))
        until(lambda: read_stats(deliver)["delivered"]["all"]["clients"] == 2)
        memory = Path(f"/proc/{children(process)[ENGINE]}/statm")
        grown = []
        for turn in range(6):
            first = turn * 1000
            for at in range(first, first + 1000, 50):
                supplier.push_many(Event("air", at + n, at + n, {"sensor": "x" * 800, "flow": 1.0}) for n in range(50))
                supplier.flush()
                until(lambda at=at: seen and seen[-1] == at + 49)  # type: ignore[misc]
            grown.append(int(memory.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        assert seen == list(range(6_000)), "the one who reads misses nothing"
        stats = read_stats(deliver)
        assert stats["delivered"]["all"]["lost"] > 2_000
        assert stats["consumers"]["all"]["lost"] == 0
        assert grown[-1] < grown[2] + 4_000_000, "what waits for it has a bound"
        lazy.kill()
        until(lambda: read_stats(deliver)["delivered"]["all"]["clients"] == 1)


def test_a_thousand_consumers(tmp_path: Path) -> None:
    deliver = str(tmp_path / "deliver.sock")
    with service(tmp_path) as _, contextlib.ExitStack() as stack:
        supplier = stack.enter_context(Supplier(f"unix:{tmp_path / 'supply.sock'}"))
        clients = []
        for _ in range(1000):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(60)
            client.connect(deliver)
            client.sendall(b'{"consumer": "all"}\n')
            clients.append(client)
        until(lambda: read_stats(f"unix:{deliver}")["delivered"]["all"]["clients"] == 1000)
        supplier.push(air(1))
        supplier.flush()
        for client in clients:
            with client.makefile("rb") as lines:
                assert b'"consumer"' in lines.readline()
                assert b'"id":1,' in lines.readline()
        for client in clients:
            client.close()
        until(lambda: read_stats(f"unix:{deliver}")["delivered"]["all"]["clients"] == 0)


MANY = """
name: plant
streams:
  air: {attributes: {sensor: string, flow: float}}
graph:
  many: {kind: python, function: "own:many", inputs: [air], output: {x: float}}
queries:
  rare: {engine: service, text: "SELECT ?a.x FROM (?a, many) FILTER (?a.x < 0)"}
service: {listen: "unix:supply.sock", deliver: "unix:deliver.sock", log: LOG}
"""


def test_g7_more_at_once_than_can_wait_for_the_log_is_counted_and_said(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    deliver = f"unix:{tmp_path / 'deliver.sock'}"
    with service(tmp_path, "{path: log, durability: none}", MANY) as process:
        intake = children(process)[INTAKE]
        with Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier:
            supplier.push(air(1, flow=30_000.0))
            supplier.flush()
            until(lambda: read_stats(deliver)["operators"]["many"]["emitted"] == 30_000)
            assert read_stats(deliver)["consumers"]["log:many"]["lost"] == 0
            # Now nobody takes what is made.
            supplier.push(air(2, flow=45_000.0))
            supplier.flush()
            os.kill(intake, signal.SIGSTOP)
            try:
                until(lambda: read_stats(deliver)["operators"]["many"]["emitted"] == 75_000)
            finally:
                os.kill(intake, signal.SIGCONT)
        lost = read_stats(deliver)["consumers"]["log:many"]["lost"]
        assert lost > 0

        def logged() -> int:
            with LogReader(tmp_path / "log") as reader:
                return sum(one.event.stream == "many" for one in reader)

        until(lambda: logged() == 75_000 - lost)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert "'many' gave more than 32768 events at once" in said


def test_kills_of_engine_and_intake_again_and_again(tmp_path: Path) -> None:
    """Engine and intake are killed again and again, together too: nothing acknowledged is lost or there twice."""
    chance = random.Random(9)
    done = threading.Event()
    acknowledged: list[int] = []

    def supply() -> None:
        with Supplier(f"unix:{tmp_path / 'supply.sock'}", patience=60) as supplier:
            number = 0
            while not done.is_set():
                supplier.push(air(number))
                number += 1
                if number % 50 == 0:
                    supplier.flush()
            supplier.flush()
            acknowledged.append(supplier.acknowledged)

    with service(tmp_path, "{path: log, durability: interval 10ms}") as process:
        thread = threading.Thread(target=supply)
        thread.start()
        for turn in range(6):
            time.sleep(chance.uniform(0.05, 0.4))
            parts = children(process)
            names = [ENGINE, INTAKE] if turn % 3 == 2 else [chance.choice([ENGINE, INTAKE])]
            for name in names:
                if name in parts:
                    os.kill(parts[name], signal.SIGKILL)
        until(lambda: children(process).keys() == {ENGINE, INTAKE})
        done.set()
        thread.join(90)
        assert len(acknowledged) == 1
        wait_for(tmp_path, acknowledged[0])
        with LogReader(tmp_path / "log") as reader:
            found = list(reader)
    assert [one.event.id for one in found] == list(range(acknowledged[0]))
    assert not any(one.duplicate for one in found)
