"""The threaded engine: the virtual clock's outcome where timing can't matter, and books that balance where it does."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import UserDict, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cepheid._native import Engine as Native
from cepheid._native import probe
from cepheid.app.builder import Builder, Producer, within
from cepheid.service import Engine, Received
from cepheid.service.arrays import RecordLayout, row_bytes
from tests.reference.graph import FATES, Consumer, Delivery, Graph, Operator, Stream, VirtualClock
from tests.service.compiled import compiled
from tests.service.graphs import graphs, spec_of
from tests.service.waiting import until

HOUR = 3600 * 1_000_000


def deliveries_of(engine: Native, graph: Graph) -> dict[str, list[Delivery]]:
    found: dict[str, list[Delivery]] = defaultdict(list)
    for consumer in graph.consumers:
        while (received := engine.read(consumer.name, 0.0)) is not None:
            name, made, begin, attributes, end, marks = received
            parts = attributes["parts"]
            assert isinstance(parts, bytes)
            assert isinstance(made, int)
            found[name].append(Delivery(name, made, begin, end, frozenset(marks), tuple(parts)))
    return found


def assert_books_balance(stats: Mapping[str, Any], settled: bool = True) -> None:
    """Every event that came somewhere ended there in one way, or is held; and so did every event as a whole."""
    for stream in stats["streams"].values():
        _balances(stream["queue"], "came")
        _balances(stream["events"], "created")
        assert stream["queue"]["came"] == stream["events"]["created"]
        if settled:
            assert stream["queue"]["held"] == 0
    for operator in stats["operators"].values():
        _balances(operator["events"], "created")
        assert operator["events"]["created"] == operator["emitted"]
        assert operator["refused"] == 0, "a ring is smaller than the places that can hold its events"
        for book in operator["inputs"].values():
            _balances(book, "came")
    for consumer in stats["consumers"].values():
        _balances(consumer, "came")
        assert consumer["used"] == consumer["read"] + consumer["lost"] + consumer["waiting"]


def _balances(book: Mapping[str, int], total: str) -> None:
    assert book[total] == sum(book[fate] for fate in FATES), book


def _with_long_validity(graph: Graph) -> Graph:
    """Intervals of an hour instead of microseconds, so that the real clock does not matter."""
    streams = tuple(Stream(s.name, None if s.valid_for is None else HOUR) for s in graph.streams)
    return Graph(streams, graph.operators, graph.consumers)


@settings(max_examples=60, deadline=None)
@given(graphs(ordered_only=True), st.data(), st.booleans())
def test_one_event_at_a_time_is_the_virtual_clock(drawn: Graph, data: st.DataObject, prioritised: bool) -> None:
    """Old events are stale and new ones are not, by hours; each cascade ends before the next begins."""
    graph = _with_long_validity(drawn)
    stream = st.sampled_from([s.name for s in graph.streams])
    now = time.time_ns() // 1000
    ages = st.sampled_from([0, 1, 2, 3, 9, 2 * HOUR])
    events = data.draw(st.lists(st.tuples(stream, ages), min_size=5, max_size=25))
    engine = Native(spec_of(graph, prioritised=prioritised))
    reference = VirtualClock(graph)
    for number, (name, age) in enumerate(events):
        assert engine.push(name, number, now - age, {"parts": bytes([number])}) in ("accepted", "unread")
        assert engine.settle(10.0)
        reference.push(name, number, now - age)
        reference.run(now)
    found = deliveries_of(engine, graph)
    for consumer in graph.consumers:
        expected = [d for d in reference.deliveries if d.consumer == consumer.name]
        assert found[consumer.name] == expected
    stats = json.loads(engine.stats())
    assert_books_balance(stats)
    for operator in graph.operators:
        counted = stats["operators"][operator.name]
        for what in ("invoked", "fired", "stale", "relative"):
            assert counted[what] == reference.counts[operator.name, what]
        for source, book in counted["inputs"].items():
            assert {f: book[f] for f in FATES[:-1]} == {
                f: reference.books[operator.name, source, f] for f in FATES[:-1]
            }
    assert engine.stop(5.0)


def _tree() -> Graph:
    """Chains of single inputs over three levels: nothing can be replaced, so nothing depends on timing."""
    operators = (
        Operator("a", ("s",), 0, depth=64),
        Operator("b", ("a",), 0, depth=64),
        Operator("c", ("a",), 1, depth=64),
        Operator("d", ("c",), 2, depth=64),
        Operator("e", ("t",), 2, depth=64),
    )
    consumers = tuple(Consumer(f"of_{o.name}", o.name) for o in operators)
    return Graph((Stream("s"), Stream("t")), operators, (*consumers, Consumer("of_s", "s")))


@pytest.mark.parametrize("prioritised", [True, False])
def test_bursts_lose_nothing_and_keep_their_order(prioritised: bool) -> None:
    graph = _tree()
    engine = Native(spec_of(graph, prioritised=prioritised))
    number = 0
    for _ in range(20):
        for _ in range(40):
            for stream in ("s", "t"):
                parts = number.to_bytes(2, "big")
                assert engine.push(stream, number, number, {"parts": parts}) == "accepted"
                number += 1
        assert engine.settle(10.0)
    found = deliveries_of(engine, graph)
    for consumer in graph.consumers:
        numbers = [int.from_bytes(bytes(delivery.parts), "big") for delivery in found[consumer.name]]
        assert numbers == list(range(1 if consumer.name == "of_e" else 0, number, 2)), consumer.name
    assert_books_balance(json.loads(engine.stats()))


@settings(max_examples=25, deadline=None)
@given(graphs(), st.integers(1, 3), st.booleans())
def test_books_balance_under_any_storm(graph: Graph, suppliers: int, prioritised: bool) -> None:
    """Suppliers on several threads push as fast as they can, with microseconds of validity; nobody reads."""
    engine = Native(spec_of(graph, prioritised=prioritised, capacity=8))

    def supply(which: int) -> None:
        for number in range(300):
            stream = graph.streams[(number + which) % len(graph.streams)].name
            engine.push(stream, number, time.time_ns() // 1000, {"parts": bytes([number % 256])})

    threads = [threading.Thread(target=supply, args=(which,)) for which in range(suppliers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engine.settle(20.0)
    assert_books_balance(json.loads(engine.stats()))
    assert engine.stop(5.0)


def test_at_twice_the_load_the_books_balance_and_the_important_level_goes_on() -> None:
    """Two copies of the paper's chain at the lowest level get far more than two cores can do, for two seconds."""
    build = Builder("overload", levels=["high", "low"])
    streams = {}
    for name in ("h1", "h2", "l1", "l2", "l3", "l4"):
        streams[name] = build.stream(name, {"x": "array<uint8>"}, period="1ms", valid_for="10ms")
    build.consumer("high", build.fft("hf", build.ekf("he", streams["h1"], streams["h2"])), level="high", stale="shed")
    for copy, (one, two) in enumerate((("l1", "l2"), ("l3", "l4"))):
        fused = build.ekf(f"le{copy}", streams[one], streams[two])
        build.consumer(f"low{copy}", build.aes(f"la{copy}", build.fft(f"lf{copy}", fused)), level="low", stale="shed")
    build.service(replace=True)
    small, large = bytes(64), bytes(16384)
    with Engine(build.build()) as engine:
        end = time.monotonic() + 2.0
        accepted = 0
        turn = 0
        while time.monotonic() < end:
            for name in ("l1", "l2", "l3", "l4"):
                accepted += engine.push(name, {"x": large}) == "accepted"
            if turn % 20 == 0:
                accepted += engine.push("h1", {"x": small}) == "accepted"
                accepted += engine.push("h2", {"x": small}) == "accepted"
            turn += 1
        assert engine.settle(20.0)
        stats = engine.stats()
    assert_books_balance(stats)
    assert accepted == sum(stream["events"]["created"] for stream in stats["streams"].values())
    low = stats["streams"]["l1"]["events"]
    assert low["replaced"] + low["expired"] > low["used"], "the load was no overload"
    assert stats["operators"]["hf"]["fired"] > 0
    high = stats["streams"]["h1"]["events"]
    assert high["used"] > high["created"] // 2


def test_a_consumer_that_stops_reading_loses_the_oldest_and_nobody_waits() -> None:
    build = Builder("b")
    build.consumer("slow", build.stream("s", {"x": "int"}))
    with Engine(build.build()) as engine:
        for wave in range(15):
            for number in range(100):
                assert engine.push("s", {"x": wave * 100 + number, "id": wave * 100 + number}) == "accepted"
            assert engine.settle()
        consumer = engine.consumer("slow")
        found = [received.id for received in iter(lambda: consumer.get(0.0), None)]
        assert found == list(range(1500 - 1024, 1500))
        stats = engine.stats()
    assert stats["consumers"]["slow"]["lost"] == 1500 - 1024
    assert_books_balance(stats)


def test_a_full_input_queue_refuses_and_says_so() -> None:
    build = Builder("b")
    stop = threading.Event()
    stream = build.stream("s", {"x": "int"})
    build.consumer("c", build.python("p", stream, output={"x": "int"}))
    with Engine(build.build(), functions={"p": lambda event: stop.wait(20) and None}) as engine:
        outcomes = [engine.push("s", {"x": 1}) for _ in range(2000)]
        accepted = outcomes.count("accepted")
        assert outcomes == ["accepted"] * accepted + ["full"] * (2000 - accepted)
        assert 256 <= accepted < 1000
        stop.set()
        assert engine.settle()
        stats = engine.stats()
    assert stats["streams"]["s"]["refused"] == 2000 - accepted
    assert stats["operators"]["p"]["fired"] == accepted
    assert_books_balance(stats)


def test_an_operator_that_throws_is_counted_and_named_and_the_rest_goes_on() -> None:
    build = Builder("b")
    stream = build.stream("s", {"x": "int"})
    build.consumer("bad", build.python("thrower", stream, output={"x": "int"}))
    build.consumer("good", build.threshold("fine", stream, above=1.0))

    def throw(event: Mapping[str, Any]) -> object:
        raise ValueError("no such thing as " + str(event["x"]))

    with Engine(build.build(), functions={"thrower": throw}) as engine:
        for number in range(10):
            engine.push("s", {"x": number})
        assert engine.settle()
        stats = engine.stats()
    assert stats["operators"]["thrower"]["failed"] == 10
    assert sum(level["failed"] for level in stats["levels"].values()) == 10
    assert "no such thing as 9" in stats["operators"]["thrower"]["trouble"]
    assert stats["consumers"]["good"]["used"] == 10


def test_an_operator_that_never_returns_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    build = Builder("b")
    stream = build.stream("s", {"x": "int"})
    release = threading.Event()
    build.consumer("bad", build.python("sleeper", stream, output={"x": "int"}))
    build.consumer("good", build.threshold("fine", stream, above=1.0))
    with Engine(build.build(), functions={"sleeper": lambda event: release.wait() and None}, cores=2) as engine:
        engine.push("s", {"x": 1})
        deadline = time.monotonic() + 20
        while engine.stats()["operators"]["sleeper"]["stuck"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # The other worker goes on with what does not need it.
        received = engine.consumer("good").get(10)
        assert received is not None
        release.set()
    assert re.search(r"operator 'sleeper' has not returned for \d+ ms", capfd.readouterr().err)


def test_what_a_worker_has_to_share_does_not_wait_for_an_operator_that_hangs() -> None:
    build = Builder("b", levels=["high", "low"])
    stream = build.stream("s", {"x": "float"})
    release = threading.Event()
    hot = build.filter("hot", stream, where="?e.x >= 0")
    build.consumer("urgent", hot, level="high")
    build.consumer("bad", build.python("sleeper", stream, output={"x": "int"}), level="high")
    build.consumer("shared", build.filter("cold", hot, where="?e.x >= 0"), level="low")
    sleeper = {"sleeper": lambda event: release.wait() and None if event["x"] > 1 else None}
    with Engine(build.build(), functions=sleeper, cores=1) as engine:
        # It has always returned soon, so that its worker keeps what it has to share until it has run it.
        for _ in range(100):
            engine.push("s", {"x": 1.0})
            assert engine.settle()
        engine.push("s", {"x": 2.0})
        try:
            until(lambda: engine.stats()["operators"]["cold"]["fired"] == 101)
            used = engine.stats()["operators"]["sleeper"]["inputs"]["s"]["used"]
            assert used == 100, "it has returned"
        finally:
            release.set()


ENDLESS = """
volatile int64_t is_endless = 1;
OPERATOR(endless) {
    while (is_endless);
    return 0;
}
"""


def test_an_operator_that_spins_loses_its_priority_until_it_returns(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if not probe()["can_sched_rr"]:
        pytest.skip("needs the privilege to use SCHED_RR")
    library = ctypes.CDLL(str(compiled(tmp_path, ENDLESS)))
    build = Builder("b", levels=["high", "low"])
    stream = build.stream("s", {"x": "float"})
    build.consumer("bad", build.native("spinner", stream, output={"x": "int"}), level="high")
    build.consumer("good", build.threshold("fine", stream, above=1.0), level="low")
    real_time, ordinary = (os.SCHED_RR, 80), (os.SCHED_OTHER, 0)
    with Engine(build.build(), functions={"spinner": library.endless}, cores=2) as engine:
        engine.push("s", {"x": 2.0})
        until(lambda: threads_of_this_process()["cep-work-0"] == {real_time, ordinary})
        ctypes.c_int64.in_dll(library, "is_endless").value = 0
        until(lambda: threads_of_this_process()["cep-work-0"] == {real_time})
        assert engine.consumer("good").get(10) is not None
    said = r"operator 'spinner' has not returned for \d+ ms; until it does, its thread has no real-time priority"
    assert len(re.findall(said, capfd.readouterr().err)) == 1


BURNING = """
OPERATOR(burn) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t end = now.tv_sec * 1000000000 + now.tv_nsec + 20000000;
    do clock_gettime(CLOCK_MONOTONIC, &now); while (now.tv_sec * 1000000000 + now.tv_nsec < end);
    *(double *)out[0] = 2;
    return 1;
}
"""


def test_a_highest_level_with_too_much_to_do_leaves_time_to_the_lowest(tmp_path: Path) -> None:
    if not probe()["can_sched_rr"]:
        pytest.skip("needs the privilege to use SCHED_RR")
    burn = ctypes.CDLL(str(compiled(tmp_path, BURNING))).burn
    cores = len(os.sched_getaffinity(0))
    build = Builder("b", levels=["high", "low"])
    stream = build.stream("s", {"x": "float"}, valid_for="1h", period="1ms")
    for number in range(cores):
        hot = build.native(f"hot{number}", stream, output={"x": "float"})
        build.consumer(f"high{number}", hot, level="high")
        build.consumer(f"low{number}", build.threshold(f"cold{number}", hot, above=1.0), level="low")
    functions = {f"hot{number}": burn for number in range(cores)}
    with Engine(build.build(), functions=functions, cores=cores) as engine:
        for _ in range(64):
            engine.push("s", {"x": 1.0})
        assert engine.settle(60)
        assert engine.stats()["levels"]["high"]["pauses"] > 0
        engine.write_trace(tmp_path / "trace.json")
    begun = [one for one in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if one["ph"] == "B"]
    # While more than a second of work waited above, on every core, what was done was shared, and went on below.
    assert sum(one["name"] == "hot0" for one in begun) > 50
    above = max(one["ts"] for one in begun if one["name"] == "hot0")
    assert min(one["ts"] for one in begun if one["name"] == "cold0") < above


def test_a_higher_level_preempts_what_runs_on_every_core(tmp_path: Path) -> None:
    if not probe()["can_sched_rr"]:
        pytest.skip("needs the privilege to use SCHED_RR")
    burn = ctypes.CDLL(str(compiled(tmp_path, BURNING))).burn
    cores = len(os.sched_getaffinity(0))
    build = Builder("b", levels=["high", "middle", "low"])
    build.consumer("high", build.threshold("fast", build.stream("f", {"x": "float"}), above=0.0), level="high")
    slow = build.stream("s", {"x": "float"}, valid_for="1h", period="1ms")
    for number in range(cores):
        build.consumer(f"c{number}", build.native(f"hot{number}", slow, output={"x": "float"}), level="middle")
    functions = {f"hot{number}": burn for number in range(cores)}
    with Engine(build.build(), functions=functions, cores=cores) as engine:
        high = engine.consumer("high")
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(90))  # or this thread would have no core to push from
        try:
            for _ in range(16):
                engine.push("s", {"x": 1.0})
            for _ in range(40):
                time.sleep(0.006)
                engine.push("f", {"x": 1.0})
                assert high.get(10) is not None
        finally:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        assert engine.settle(60)
        engine.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    burning, interrupted = 0, 0
    for one in sorted((e for e in events if e["ph"] in "BE"), key=lambda e: e["ts"]):
        if one["name"].startswith("hot"):
            burning += 1 if one["ph"] == "B" else -1
        elif one["ph"] == "B":
            # Each core was in the middle of 20 ms of work below, which at one priority nothing would have ended.
            interrupted += burning == cores
    assert interrupted >= 5


def _blocked(build: Builder, name: str, *inputs: Producer) -> tuple[threading.Event, Callable[[Any], None]]:
    """A Python operator that waits for an event before it returns."""
    release = threading.Event()
    build.consumer(f"of_{name}", build.python(name, *inputs, output={"x": "int"}), level="low")
    return release, lambda event: (release.wait(), None)[1]


def _chain() -> Builder:
    build = Builder("b")
    stream = build.stream("s", {"x": "int"})
    first = build.python("first", stream, output={"x": "int"})
    build.consumer("c", build.python("second", first, output={"x": "int"}))
    return build


def test_pending_operators_come_before_new_supplier_events() -> None:
    ran: list[tuple[str, int]] = []
    begun, release = threading.Event(), threading.Event()

    def run(name: str) -> Callable[[Mapping[str, Any]], dict[str, int]]:
        def of(event: Mapping[str, Any]) -> dict[str, int]:
            ran.append((name, event["x"]))
            begun.set()
            release.wait()
            return {"x": event["x"]}

        return of

    with Engine(_chain().build(), functions={"first": run("first"), "second": run("second")}, cores=1) as engine:
        engine.push("s", {"x": 0})
        assert begun.wait(10)
        for number in range(1, 5):
            engine.push("s", {"x": number})
        release.set()
        assert engine.settle()
    assert ran == [(name, number) for number in range(5) for name in ("first", "second")]


def test_workers_of_a_level_collaborate_and_pipeline() -> None:
    """Two operators of one event run at once, and one runs for an event while its successor does for the one before."""
    build = _chain()
    stream = build.stream("t", {"x": "int"})
    for name in ("left", "right"):
        build.consumer(f"of_{name}", build.python(name, stream, output={"x": "int"}))
    together, piped = threading.Barrier(2), threading.Barrier(2)

    def first(event: Mapping[str, Any]) -> dict[str, int]:
        if event["x"] == 2:
            piped.wait(20)
        return {"x": event["x"]}

    def second(event: Mapping[str, Any]) -> dict[str, int]:
        if event["x"] == 1:
            piped.wait(20)
        return {"x": event["x"]}

    def meet(event: Mapping[str, Any]) -> dict[str, int]:
        together.wait(20)
        return {"x": event["x"]}

    functions = {"first": first, "second": second, "left": meet, "right": meet}
    with Engine(build.build(), functions=functions, cores=2) as engine:
        engine.push("t", {"x": 0})
        assert engine.settle(30)
        engine.push("s", {"x": 1})
        engine.push("s", {"x": 2})
        assert engine.settle(30)
        operators = engine.stats()["operators"]
    assert {name: (book["fired"], book["failed"]) for name, book in operators.items()} == {
        "first": (2, 0), "second": (2, 0), "left": (1, 0), "right": (1, 0)
    }  # fmt: skip


def test_inconsistency_is_counted_by_operator_level_and_reason() -> None:
    build = Builder("b", levels=["high", "low"])
    left, right = (build.stream(name, {"x": "int"}, valid_for="1s") for name in ("left", "right"))
    functions = {}
    for level in ("high", "low"):
        joined = build.python(f"of_{level}", left, right, output={"x": "int"}, relative=[within("5ms", left, right)])
        build.consumer(level, joined, level=level)
        functions[f"of_{level}"] = lambda left, right: {"x": 1}
    with Engine(build.build(), functions=functions) as engine:
        now = time.time_ns() // 1000
        for age, apart in ((0, 0), (0, 20_000), (5_000_000, 0), (5_000_000, 20_000)):
            engine.push("left", {"x": 1, "time": now - age})
            engine.push("right", {"x": 1, "time": now - age - apart})
            assert engine.settle()
        stats = engine.stats()
    for level in ("high", "low"):
        assert (stats["levels"][level]["stale"], stats["levels"][level]["relative"]) == (4, 2)
        assert (stats["operators"][f"of_{level}"]["stale"], stats["operators"][f"of_{level}"]["relative"]) == (4, 2)
        assert stats["consumers"][level]["stale"] == 2


def test_what_is_not_taken_gives_way_to_the_newest() -> None:
    build = Builder("b", levels=["low"])
    stream = build.stream("s", {"x": "int"})
    seen: list[int] = []
    release = threading.Event()

    def see(event: Mapping[str, Any]) -> None:
        release.wait()
        seen.append(event["x"])

    build.consumer("c", build.python("p", stream, output={"x": "int"}))
    with Engine(build.build(), functions={"p": see}, replace=True) as engine:
        for number in range(1000):
            assert engine.push("s", {"x": number}) == "accepted"
        release.set()
        assert engine.settle()
        stats = engine.stats()
    # One may run and one wait at the operator; of the others only the newest is left.
    assert seen[-1] == 999
    assert len(seen) <= 3
    assert stats["streams"]["s"]["queue"]["replaced"] == 1000 - len(seen)
    assert_books_balance(stats)


def test_a_low_level_that_is_stuck_stops_neither_its_superiors_nor_sharing_from_them() -> None:
    build = Builder("b", levels=["high", "middle", "low"])
    stream = build.stream("s", {"x": "int"})
    first = build.threshold("first", stream, above=5.0)
    build.consumer("high", first, level="high")
    build.consumer("middle", build.aggregate("second", first, function="sum", last=2, attribute="x"), level="middle")
    release, function = _blocked(build, "stuck", first)
    other, function_two = _blocked(build, "stuck_too", first)
    functions = {"stuck": function, "stuck_too": function_two}
    with Engine(build.build(), functions=functions, cores=2) as engine:
        high, middle = engine.consumer("high"), engine.consumer("middle")
        for number in range(200):
            engine.push("s", {"x": number})
            assert high.get(10) is not None
            assert middle.get(10) is not None
        release.set()
        other.set()
        assert engine.settle()
        stats = engine.stats()
    # An operator of the lowest level runs with what is newest once it can; up to its depth nothing is lost before.
    inputs = stats["operators"]["stuck"]["inputs"]["first"]
    assert inputs["used"] + inputs["replaced"] == 200
    assert inputs["used"] >= 64
    assert_books_balance(stats)


def test_closing_says_if_an_operator_does_not_return() -> None:
    build = Builder("b", levels=["low"])
    release, function = _blocked(build, "stuck", build.stream("s", {"x": "int"}))
    engine = Engine(build.build(), functions={"stuck": function})
    engine.push("s", {"x": 1})
    while engine.stats()["operators"]["stuck"]["fired"] == 0:
        time.sleep(0.001)
    assert not engine.close(0.1)
    release.set()
    assert engine.close(10)
    assert engine.push("s", {"x": 1}) == "closed"
    assert engine.consumer("of_stuck").get() is None


def test_a_program_that_forgets_to_close_ends_in_order() -> None:
    code = """
from tests.service.test_engine import Builder, Engine
build = Builder("b")
build.consumer("c", build.python("p", build.stream("s", {"x": "int"}), output={"x": "int"}))
engine = Engine(build.build(), functions={"p": lambda event: sum(range(20000)) and None})
for number in range(200):
    engine.push("s", {"x": number})
print("end")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


class Slow(UserDict[str, int]):
    """A mapping whose own Python code lets other threads run, and pushes an event itself."""

    engine: Engine | None = None

    def __getitem__(self, key: str) -> int:
        time.sleep(0)
        if self.engine is not None:
            engine, self.engine = self.engine, None
            engine.push("s", {"x": 7})
        return super().__getitem__(key)


def test_suppliers_with_mappings_of_their_own_do_not_block_each_other() -> None:
    build = Builder("b")
    build.consumer("c", build.stream("s", {"x": "int"}))
    with Engine(build.build()) as engine:

        def supply() -> None:
            for number in range(200):
                event = Slow(x=number)
                event.engine = engine
                engine._engine.push("s", number, 0, event)

        threads = [threading.Thread(target=supply) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert engine.settle()
        stream = engine.stats()["streams"]["s"]
        assert stream["events"]["created"] + stream["refused"] == 1200


def test_rows_of_numpy_are_pushed_as_they_lie_in_memory() -> None:
    build = Builder("b")
    build.stream("a", {"unread": "int"})
    build.consumer("c", build.stream("s", {"x": "int", "samples": "array<float>"}))
    application = build.build()
    layout = RecordLayout(1, application.graph.streams["s"], {"samples": 4})
    rows = layout.empty(100)
    rows["id"], rows["time"], rows["x"] = range(100), range(1000, 1100), range(100)
    rows["samples"] = np.arange(400.0).reshape(100, 4)
    with Engine(application) as engine:
        assert engine.push_records(row_bytes(rows))["accepted"] == 100
        assert engine.settle()
        consumer = engine.consumer("c")
        for number in range(100):
            received = consumer.get(10)
            assert received is not None
            assert (received.id, received.time, received.attributes["x"]) == (number, 1000 + number, number)
            assert received.attributes["samples"] == tuple(np.arange(4.0) + 4 * number)
        broken = bytearray(row_bytes(rows[:3]))
        broken[len(broken) // 3 + 4] = 9
        with pytest.raises(ValueError, match=rf"the record at byte {len(broken) // 3}: .*another stream"):
            engine.push_records(broken)
        assert engine.settle()
        assert engine.stats()["streams"]["s"]["events"]["created"] == 101


def test_callbacks_get_every_event_until_the_engine_is_closed() -> None:
    build = Builder("b")
    build.consumer("c", build.stream("s", {"x": "int"}))
    found: list[Received] = []

    def seen(received: Received) -> None:
        found.append(received)
        if received.attributes["x"] == 3:
            raise RuntimeError("once")

    with Engine(build.build()) as engine:
        thread = engine.consumer("c").call(seen)
        for number in range(50):
            engine.push("s", {"x": number})
        assert engine.settle()
        while len(found) < 50:
            time.sleep(0.001)
    thread.join(10)
    assert not thread.is_alive()
    assert [received.attributes["x"] for received in found] == list(range(50))


def test_the_trace_shows_what_ran(tmp_path: Path) -> None:
    build = Builder("b", levels=["high", "low"])
    stream = build.stream("s", {"x": "float"})
    first = build.threshold("first", stream, above=1.0)
    build.consumer("c", first, level="high")
    build.consumer("d", build.aggregate("second", first, function="max", last=3, attribute="x"), level="low")
    with Engine(build.build()) as engine:
        for number in range(20):
            engine.push("s", {"x": float(number)})
            assert engine.settle()
        engine.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    runs = [(threads[event["tid"]], event["name"]) for event in events if event["ph"] == "B"]
    assert sum(name == "first" and thread.startswith("high worker") for thread, name in runs) == 20
    assert sum(name == "second" and thread.startswith("low worker") for thread, name in runs) == 20
    assert sum(event["name"] == "move to second" for event in events) == 20


def threads_of_this_process() -> dict[str, set[tuple[int, int]]]:
    """The scheduling policy and priority of this process's threads, by their names."""
    found: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may have ended meanwhile
            thread = int(task.name)
            found[_name_of(task)].add((os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority))
    return found


def _name_of(task: Path) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return (task / "comm").read_text().strip()
    return ""


def _three_levels() -> Builder:
    build = Builder("b", levels=["high", "middle", "low"])
    first = build.threshold("first", build.stream("s", {"x": "float"}), above=1.0)
    second = build.threshold("second", first, above=1.0, attribute="x")
    build.consumer("a", first, level="high")
    build.consumer("b", second, level="middle")
    build.consumer("c", build.threshold("third", second, above=1.0, attribute="x"), level="low")
    return build


def test_levels_are_real_time_priorities_but_the_lowest() -> None:
    if not probe()["can_sched_rr"]:
        pytest.skip("needs the privilege to use SCHED_RR")
    with Engine(_three_levels().build(), cores=2) as engine:
        time.sleep(0.1)  # threads give themselves their priorities
        found = threads_of_this_process()
        assert engine.notices == []
        assert found["cep-work-0"] == {(os.SCHED_RR, 80)}
        assert found["cep-move-0"] == {(os.SCHED_RR, 79)}
        own = [task for task in Path("/proc/self/task").iterdir() if re.match("cep-(work|move)", _name_of(task))]
        assert sorted(map(_name_of, own)) == sorted(
            2 * ["cep-work-0", "cep-move-0", "cep-work-1", "cep-move-1", "cep-work-2"]
        )
        assert all(os.sched_getaffinity(int(task.name)) == os.sched_getaffinity(0) for task in own)
        assert found["cep-work-1"] == {(os.SCHED_RR, 77)}
        assert found["cep-move-1"] == {(os.SCHED_RR, 76)}
        assert found["cep-work-2"] == {(os.SCHED_OTHER, 0)}
        assert "cep-move-2" not in found
    levels = [f"level{number}" for number in range(30)]
    build = Builder("b", levels=levels)
    build.consumer("a", build.threshold("first", build.stream("s", {"x": "float"}), above=1.0), level="level0")
    with Engine(build.build(), cores=1) as engine:
        assert "there are 30 levels, more than thread priorities: from 'level26' on" in engine.notices[0]
    with Engine(_three_levels().build(), cores=1, prioritised=False):
        time.sleep(0.1)
        found = threads_of_this_process()
        assert found["cep-work-0"] == {(os.SCHED_OTHER, 0)}


@pytest.mark.root
def test_without_the_privilege_levels_are_nice_and_it_says_so_once(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    code = """
import logging, os, time
from tests.service.test_engine import _three_levels
from cepheid.service import Engine
logging.basicConfig(level=logging.WARNING)
application = _three_levels().build()
application.plan()  # all that has to be imported is, before files can't be read any more
os.setpriority(os.PRIO_PROCESS, 0, 0)  # whatever it was started with: without the privilege it can only rise
os.setgroups([]); os.setgid(65534); os.setuid(65534)
with Engine(application, cores=1) as engine:
    engine.push("s", {"x": 2.0}); assert engine.settle()
    time.sleep(0.1)
    nice = {}
    for task in os.listdir("/proc/self/task"):
        fields = open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()
        nice[open(f"/proc/self/task/{task}/comm").read().strip()] = int(fields[16])
    print(*(nice[f"cep-{n}"] for n in ("work-0", "move-0", "work-1", "move-1", "work-2")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    niceness = [int(word) for word in done.stdout.split()]
    assert niceness == sorted(set(niceness))
    assert done.stderr.count("no real-time priorities") == 1
