"""Consumers that acknowledge get each match of a query once, whoever is killed in between."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher
from cepheid.service import Engine
from cepheid.service.client import AsyncConsumer, ConsumerClient, read_stats
from cepheid.service.outlet import Outlet
from cepheid.service.place import Place
from cepheid.service.running.lanes import read
from cepheid.service.supplier import Supplier
from tests.service.test_delivery import dial
from tests.service.test_recovery import air, plant
from tests.service.test_service import children, service
from tests.service.test_survival import ENGINE, is_alive
from tests.service.waiting import until

APPLICATION = """
name: plant
streams:
  air: {attributes: {sensor: string, flow: float}, lateness: 0s, idle: 100ms}
queries:
  next:
    engine: service
    text: "SELECT ?b.flow FROM (?a, air), (?b, air) JOIN (?b.flow = ?a.flow + 1) SEQ (?a, ?b) WINDOW (?a, ?b, 1h)"
service: {listen: "unix:supply.sock", deliver: "unix:deliver.sock", log: LOG}
"""

CLIENT = """
import json, sys
from cepheid.service.client import ConsumerClient
for match in ConsumerClient("unix:deliver.sock", "next", place="place"):
    print(json.dumps([match.attributes["flow"], sorted(match.marks), match.delay]), flush=True)
    sys.stdin.readline()  # then it is handled
"""


class Consumer:
    """A process that tells of each match, and handles it when it is told to."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", CLIENT]
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout

    def get(self) -> tuple[float, list[str], int | None]:
        flow, marks, delay = json.loads(self._from.readline())
        return flow, marks, delay

    def handle(self) -> None:
        self._to.write("\n")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_nothing_is_lost_and_nothing_comes_twice_whoever_is_killed(tmp_path: Path) -> None:
    with (
        service(tmp_path, "{path: log, durability: none}", APPLICATION) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}", patience=60) as supplier,
        contextlib.ExitStack() as stack,
    ):
        deliver = f"unix:{tmp_path / 'deliver.sock'}"

        def consumer() -> Consumer:
            one = Consumer(tmp_path)
            stack.callback(one.kill)
            return one

        def push(*flows: int) -> None:
            """One later than the other, however fast they come; each but the first makes a match."""
            now = time.time_ns() // 1000
            supplier.push_many([Event("air", flow, now + flow, {"sensor": "s", "flow": float(flow)}) for flow in flows])
            supplier.flush()

        def kill_engine() -> None:
            until(lambda: ENGINE in children(process))
            pid = children(process)[ENGINE]
            os.kill(pid, signal.SIGKILL)
            until(lambda: not is_alive(pid))

        def all_is_acknowledged() -> bool:
            with contextlib.suppress(OSError):
                return bool(read_stats(deliver)["queries"]["next"]["unacknowledged"] == 0)
            return False

        first = consumer()
        push(0, 1, 2, 3, 4)
        assert first.get() == (1, [], None)
        first.handle()
        assert first.get()[0] == 2
        first.kill()  # between receipt and acknowledgement
        second = consumer()
        assert second.get()[0] == 2
        second.handle()
        assert second.get()[0] == 3
        kill_engine()  # what was acknowledged a moment ago is not on its disk
        second.handle()
        assert second.get()[0] == 4
        kill_engine()
        second.kill()
        push(5, 6, 7)
        third = consumer()
        flow, marks, delay = third.get()
        assert (flow, marks) == (4, ["recovered"])
        assert delay is not None
        third.handle()
        for number in range(5, 8):
            assert third.get()[0] == number
            third.handle()
        until(all_is_acknowledged)
        push(8)
        assert third.get()[:2] == (8, [])
        third.handle()
        until(all_is_acknowledged)
        time.sleep(2.5)  # now that is on disk
        third.kill()
        (tmp_path / "place").unlink()  # so who has no memory does not get it again either
        kill_engine()
        push(9)
        assert consumer().get()[0] == 9


@contextmanager
def served(folder: Path) -> Iterator[tuple[Outlet, Engine, Supplier, Any]]:
    with plant(folder) as (app, supplier), Engine(app) as engine:
        engine.follow(folder / "log")
        with Outlet(engine, f"unix:{folder / 'o'}") as outlet:
            yield outlet, engine, supplier, app


def test_more_than_is_kept_is_found_again(tmp_path: Path) -> None:
    """Nobody waits for a consumer that is away; what it finds when it is back is all of it, in order, and once."""
    place = tmp_path / "place"
    with served(tmp_path) as (outlet, engine, supplier, app):
        with ConsumerClient(outlet.address, "rising", place=place) as client:
            client.call(lambda _: None)
            until(lambda: engine.stats()["queries"]["rising"]["unacknowledged"] == 0)
        until(lambda: outlet.stats()["delivered"]["rising"]["clients"] == 0)
        time.sleep(2.1)  # who was here within 2 s is waited for
        events = []
        for start in range(0, 400, 10):  # what is found at one point of the log is kept whole
            events += [air(number) for number in range(start, start + 10)]
            supplier.push_many(events[start:])
            supplier.flush()
        wanted = [match.id for match in Matcher(app.plan().queries["rising"]).matches(events)]
        until(lambda: engine.stats()["queries"]["rising"]["found"] == len(wanted))
        assert len(wanted) > 2 * 16_384
        assert 16_384 <= engine.stats()["queries"]["rising"]["unacknowledged"] < 20_000
        assert engine.stats()["queries"]["rising"]["lost"] == 0

        async def read() -> list[object]:
            found: list[object] = []
            async with AsyncConsumer(outlet.address, "rising", place=place) as matches:
                async for match in matches:
                    found.append(match.id)
                    if len(found) == len(wanted):
                        matches.close()
            return found

        assert asyncio.run(asyncio.wait_for(read(), 120)) == wanted


def test_one_acknowledges_and_others_listen(tmp_path: Path) -> None:
    with served(tmp_path) as (outlet, _, supplier, _):
        with dial(outlet) as stream, stream.makefile("rb") as lines:
            stream.sendall(b'{"consumer": "rising", "format": "frames", "acks": true}\n')
            began = json.loads(lines.readline())["acks"]
            stream.sendall(struct.pack("<IB3xQ", 16, 4, began) + struct.pack("<IB3xQ", 16, 4, began + 1))
            assert lines.read() == b"", "nothing was given that it could have handled"
        until(lambda: outlet.stats()["delivered"]["rising"]["clients"] == 0)
        found: dict[str, list[object]] = {"listening": [], "before": [], "after": []}

        def collect(name: str, place: Path | None) -> ConsumerClient:
            client = ConsumerClient(outlet.address, "rising", place=place)
            client.call(lambda match: found[name].append(match.id))
            return client

        with collect("listening", None), collect("before", tmp_path / "one") as before:
            until(lambda: outlet.stats()["delivered"].get("rising", {}).get("clients") == 2)
            supplier.push_many([air(1), air(2)])
            supplier.flush()
            until(lambda: len(found["before"]) == len(found["listening"]) == 1)
            before.close()
            with collect("after", tmp_path / "two"):
                supplier.push(air(3))
                supplier.flush()
                until(lambda: len(found["listening"]) == 3)
                until(lambda: len(found["before"] + found["after"]) == 3)
                assert sorted(found["before"] + found["after"]) == sorted(found["listening"])  # type: ignore[type-var]
    with served(tmp_path):
        lanes = read(str(tmp_path / "log" / "lanes.json"))
        assert len(set(lanes.values())) == 2, "who is behind delays only those that are acknowledged too"


def test_a_place_is_kept_across_processes_and_does_not_grow(tmp_path: Path) -> None:
    place = Place(tmp_path / "place")
    place.begin(100)
    assert not place.had("a", 100)
    place.handled("a", 100)
    place.handled("b", 101)
    assert place.had("a", 100), "sent again, with its number"
    place.done(101)
    assert not place.had("a", 200)
    place.begin(500)
    place.done(500)
    assert place.had("b", 500), "of the engine before"
    for number in range(501, 20_000):
        place.handled(str(number), number)
        place.done(number)
    assert len(place.path.read_text().splitlines()) < 5_000
    with pytest.raises(ValueError, match="another consumer"):
        Place(place.path)
    place.close()
    again = Place(place.path)
    assert again.had("19999", 0)
    again.close()
