"""Consumers elsewhere: what they get through the socket is what they would get in the engine's process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cepheid import _native
from cepheid._native import DeliveryReader, probe
from cepheid.app import Builder
from cepheid.app.application import Application
from cepheid.service import Engine
from cepheid.service.client import AsyncConsumer, ConsumerClient, RefusedByService, ask, read_stats
from cepheid.service.outlet import Outlet
from cepheid.service.received import Received
from tests.service.test_engine import threads_of_this_process
from tests.service.waiting import until

TYPES = {
    "b": "bool",
    "i": "int",
    "f": "float",
    "s": "string",
    "t": "timestamp",
    "x": "bytes",
    "u": "array<uint8>",
    "a": "array<float>",
}
FULL = {"b": True, "i": -(2**62), "f": 0.1, "s": "Grüße\n", "t": 7, "x": b"\0\xff", "u": b"\x01", "a": (1.5, -2.0)}
NULL = dict.fromkeys(FULL)


def application() -> Application:
    build = Builder("plant", levels=["critical", "background"])
    every = build.stream("every", TYPES, valid_for="1s")
    build.consumer("all", every, level="critical")
    build.consumer("same", every, level="background")
    build.consumer(
        "count", build.aggregate("sums", build.stream("n", {"x": "int"}), attribute="x", function="sum", last=1)
    )
    return build.build()


def collected(client: ConsumerClient) -> list[Received]:
    found: list[Received] = []
    client.call(found.append)
    return found


def clients(outlet: Outlet, consumer: str) -> int:
    return int(outlet.stats()["delivered"].get(consumer, {}).get("clients", 0))


@pytest.fixture(params=["unix", "tcp"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"unix:{tmp_path / 'o.sock'}" if request.param == "unix" else "tcp:127.0.0.1:0"


def test_every_value_comes_as_in_process(address: str) -> None:
    with (
        Engine(application()) as engine,
        Outlet(engine, address) as outlet,
        ConsumerClient(outlet.address, "all") as far,
    ):
        found = collected(far)
        until(lambda: clients(outlet, "all"))
        now = time.time_ns() // 1000
        for number, values in ((1, FULL), ("two", NULL), (3, {**FULL, "x": b"", "a": ()})):
            engine.push("every", {"id": number, "time": now, **values})
        engine.push("every", {"id": 4, "time": 0, **FULL})
        near = [engine.consumer("same").get(10) for _ in range(4)]
        until(lambda: len(found) == 4)
        for here, there in zip(near, found, strict=True):
            assert here is not None
            assert there.pushed is not None
            assert there.pushed >= now
            assert (there.id, there.time, there.end, there.marks) == (here.id, here.time, here.end, here.marks)
            assert there.attributes == here.attributes
            assert list(map(type, there.attributes.values())) == list(map(type, here.attributes.values()))
        assert found[3].marks == {"stale"}
        assert outlet.stats()["delivered"]["all"] == {"clients": 1, "sent": 4, "lost": 0}


def test_who_delivers_has_the_priority_of_the_consumers_level(tmp_path: Path) -> None:
    if not probe()["can_sched_rr"]:
        pytest.skip("needs the privilege to use SCHED_RR")
    with Engine(application()) as engine, Outlet(engine, f"unix:{tmp_path / 'o'}") as outlet:
        for consumer, expected in (("all", (os.SCHED_RR, 81)), ("same", (os.SCHED_OTHER, 0))):
            with dial(outlet) as stream:
                stream.sendall(json.dumps({"consumer": consumer}).encode() + b"\n")
                stream.recv(100)
                until(lambda expected=expected: threads_of_this_process()["cep-deliver"] == {expected})  # type: ignore[misc]
            until(lambda: "cep-deliver" not in threads_of_this_process())


def test_lines_for_a_person(address: str) -> None:
    with Engine(application()) as engine, Outlet(engine, address) as outlet, dial(outlet) as person:
        person.sendall(b'{"consumer": "all"}\n')
        lines = person.makefile("rb")
        assert json.loads(lines.readline()) == {"consumer": "all"}
        engine.push("every", {"id": 7, "time": 1, **FULL})
        expected = {**FULL, "x": "AP8=", "u": "AQ==", "a": [1.5, -2.0]}
        assert json.loads(lines.readline()) == {
            "id": 7, "time": 1, "end": 1_000_001, "marks": ["stale"], "attributes": expected
        }  # fmt: skip


def dial(outlet: Outlet) -> socket.socket:
    if outlet.address.startswith("unix:"):
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(outlet.address.removeprefix("unix:"))
    else:
        _, host, port = outlet.address.split(":")
        stream = socket.create_connection((host, int(port)))
    stream.settimeout(30)
    return stream


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b'{"consumer": "al"}\n', "there is no consumer 'al'; there are: all, same, count"),
        (
            b'{"consumer": "all", "acks": true}\n',
            'who acknowledges says "acks": true and "format": "frames"',
        ),
        (
            b'{"consumer": "all", "acks": true, "format": "frames"}\n',
            "'all' reads the graph, which makes nothing again; only the matches of queries are acknowledged",
        ),
        (b'{"consumer": 1}\n', "a consumer's name is text, not 1"),
        (b'{"consumer": "all", "format": "xml"}\n', "there is no format 'xml'; there are: lines, frames"),
        (
            b'{"drink": "tea"}\n',
            'the first line is to name a consumer, such as {"consumer": "plant"}, or one of: again, histograms, stats',
        ),
        (b"[]\n", "the first line is to be an object of JSON"),
        (b"\xff\n", "the first line is to be an object of JSON: expected value at line 1 column 1"),
        (b"x" * 100_000, 'the first line is to name a consumer, such as {"consumer": "plant"}'),
    ],
)
def test_first_lines_that_mean_nothing(tmp_path: Path, said: bytes, answer: str) -> None:
    with Engine(application()) as engine, Outlet(engine, f"unix:{tmp_path / 'o'}") as outlet, dial(outlet) as stream:
        stream.sendall(said)
        assert json.loads(stream.makefile("rb").readline()) == {"error": answer}


def test_requests_are_answered_in_python_and_hold_nobody_up(tmp_path: Path) -> None:
    go = threading.Event()

    def wait(asked: Any) -> object:
        if asked["wait"] == "wrong":
            raise ValueError("there is nothing to wait for")
        go.wait(30)
        return {"waited": asked["wait"]}

    with (
        Engine(application()) as engine,
        Outlet(engine, f"unix:{tmp_path / 'o'}", "secret", {"wait": wait}) as outlet,
        dial(outlet) as slow,
    ):
        slow.sendall(b'{"wait": 1, "token": "secret"}\n')
        with pytest.raises(RefusedByService, match="nothing to wait for"):
            ask(outlet.address, {"wait": "wrong"}, "secret")
        with pytest.raises(RefusedByService, match="token"):
            ask(outlet.address, {"wait": 1}, "secre")
        assert set(read_stats(outlet.address, "secret")["consumers"]) == {"all", "same", "count"}
        go.set()
        assert json.loads(slow.makefile("rb").readline()) == {"waited": 1}


def test_who_asks_while_it_opens_is_answered_when_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    build = Builder("plant")
    build.consumer("c", build.stream("s", {"x": "int"}))
    answers: list[Any] = []

    class Opening:
        """Asked before who opens it has it."""

        def __init__(self, _engine: object, address: str, _token: object, answer: Callable[[str], str]) -> None:
            self.address = address
            self.asking = threading.Thread(target=lambda: answers.append(json.loads(answer('{"stats": true}'))))
            self.asking.start()
            self.asking.join(0.2)  # as long as it waits

        def stats(self) -> str:
            return "{}"

        def close(self) -> None:
            self.asking.join(30)

    with Engine(build.build()) as engine:
        monkeypatch.setattr(_native, "Outlet", Opening)
        with Outlet(engine, "unix:anywhere"):
            pass
    (answer,) = answers
    assert answer["application"] == "plant"


def test_who_does_not_read_loses_the_oldest_and_is_told_how_many(tmp_path: Path) -> None:
    with Engine(application()) as engine, Outlet(engine, f"unix:{tmp_path / 'o'}") as outlet:
        lazy = ConsumerClient(outlet.address, "all")
        events = iter(lazy)
        busy = ConsumerClient(outlet.address, "all")
        seen = collected(busy)
        until(lambda: clients(outlet, "all") == 1)
        engine.push("every", {"id": 0, **FULL})
        until(lambda: seen)
        first = threading.Thread(target=next, args=(events,))
        first.start()
        until(lambda: clients(outlet, "all") == 2)
        total = 8000
        for number in range(1, total + 1):
            engine.push("every", {"id": number, **FULL, "s": "x" * 500})
            if number % 100 == 0:
                until(lambda number=number: seen[-1].id == number)  # type: ignore[misc]
        first.join()
        assert [one.id for one in seen] == list(range(total + 1)), "the one who reads misses nothing"
        lost = outlet.stats()["delivered"]["all"]["lost"]
        assert lost > 0
        ids = [1]
        while ids[-1] != total:
            ids.append(next(events).id)  # type: ignore[arg-type]
        assert ids == sorted(set(ids))
        assert lazy.lost == lost == total - len(ids)
        busy.close()
        lazy.close()


def test_who_is_alone_and_behind_leaves_events_in_the_consumers_queue(tmp_path: Path) -> None:
    with Engine(application()) as engine, Outlet(engine, f"unix:{tmp_path / 'o'}") as outlet, dial(outlet) as stream:
        stream.sendall(b'{"consumer": "all"}\n')
        until(lambda: clients(outlet, "all"))
        for number in range(6000):
            while engine.push("every", {"id": number, **FULL, "s": "x" * 500}) == "full":
                time.sleep(0.001)
        assert engine.settle()
        stats = outlet.stats()
        book = stats["consumers"]["all"]
        assert book["lost"] > 0
        assert stats["delivered"]["all"]["lost"] == 0
        # Nothing but what the books say is lost: the rest is sent, or waits.
        lines = stream.makefile("rb")
        lines.readline()
        ids: list[int] = []
        while not ids or ids[-1] != 5999:
            ids.append(json.loads(lines.readline())["id"])
        assert len(ids) == 6000 - book["lost"]
        assert ids == sorted(ids)


def test_clients_come_and_go(address: str) -> None:
    with Engine(application()) as engine, Outlet(engine, address) as outlet:
        for _ in range(5):
            some = [dial(outlet) for _ in range(40)]
            for stream in some:
                stream.sendall(b'{"consumer": "all", "format": "frames"}\n')
            until(lambda: clients(outlet, "all") == 40)
            engine.push("every", {"id": 1, **FULL})
            for stream in some:
                assert stream.recv(10) == b'{"attribut'
                stream.close()
            until(lambda: clients(outlet, "all") == 0)
        # The engine is none the worse.
        with ConsumerClient(outlet.address, "all") as client:
            found = collected(client)
            until(lambda: clients(outlet, "all") == 1)
            engine.push("every", {"id": 99, **FULL})
            until(lambda: found and found[-1].id == 99)


def test_the_client_connects_again(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'o'}"
    with Engine(application()) as engine, ConsumerClient(address, "all") as client:
        found = collected(client)
        for number in range(3):
            with Outlet(engine, address) as outlet:
                until(lambda outlet=outlet: clients(outlet, "all") == 1)  # type: ignore[misc]
                engine.push("every", {"id": number, **FULL})
                until(lambda number=number: found and found[-1].id == number)  # type: ignore[misc]
        assert [one.id for one in found] == [0, 1, 2]


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(iter(ConsumerClient(f"unix:{tmp_path / 'o'}", "all", patience=0.05)))
    with pytest.raises(ValueError, match="is no address"):
        ConsumerClient("localhost:99", "all")


def test_a_callback_that_fails_does_not_end_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        Engine(application()) as engine,
        Outlet(engine, f"unix:{tmp_path / 'o'}") as outlet,
        ConsumerClient(outlet.address, "all") as client,
        caplog.at_level(logging.ERROR),
    ):
        seen: list[object] = []

        def take(one: Received) -> None:
            seen.append(one.id)
            raise RuntimeError("no")

        client.call(take)
        until(lambda: clients(outlet, "all"))
        engine.push("every", {"id": 1, **FULL})
        engine.push("every", {"id": 2, **FULL})
        until(lambda: seen == [1, 2])
        assert "the callback of consumer 'all' failed" in caplog.text


def test_asyncio(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'o'}"

    async def consume(engine: Engine) -> list[object]:
        found: list[object] = []
        async with AsyncConsumer(address, "all") as events:

            async def read() -> None:
                async for event in events:
                    found.append(event.id)  # noqa: PERF401 - each is looked at as it comes

            reading = asyncio.create_task(read())
            for number in range(2):
                # The second time it has to connect again.
                outlet = await asyncio.to_thread(Outlet, engine, address)
                while not clients(outlet, "all"):
                    await asyncio.sleep(0.01)
                engine.push("every", {"id": number, **FULL})
                while len(found) <= number:
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(outlet.close)
            events.close()
            await asyncio.wait_for(reading, 30)
        with pytest.raises(FileNotFoundError):
            async for _ in AsyncConsumer(f"unix:{tmp_path / 'nothing'}", "all", patience=0.05):
                pass
        return found

    with Engine(application()) as engine:
        assert asyncio.run(asyncio.wait_for(consume(engine), 60)) == [0, 1]


def test_asyncio_is_refused(tmp_path: Path) -> None:
    async def consume(address: str) -> None:
        async for _ in AsyncConsumer(address, "al"):
            pass

    with (
        Engine(application()) as engine,
        Outlet(engine, f"unix:{tmp_path / 'o'}") as outlet,
        pytest.raises(RefusedByService, match="no consumer 'al'"),
    ):
        asyncio.run(consume(outlet.address))


def test_bytes_that_are_no_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown type 'flaot'"):
        DeliveryReader(["a"], ["flaot"])
    reader = DeliveryReader(["a"], ["int"])
    assert reader.feed(b"\0" * 47) == []
    with pytest.raises(ValueError, match="a frame of kind 0 and 0 bytes came"):
        reader.feed(b"\0")
    head = (64).to_bytes(4, "little") + b"\x0e" + b"\0" * 43
    with pytest.raises(ValueError, match="length"):
        DeliveryReader(["a"], ["int"]).feed(head + b"\xff" * 16)
