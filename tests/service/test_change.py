"""Changes while it runs: what stays notices nothing, what goes runs to its end, and every event is in the books."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cepheid._native import Engine as Native
from cepheid.app.application import Application
from cepheid.app.builder import Builder
from cepheid.model.events import Event
from cepheid.service import Engine
from cepheid.service.client import ConsumerClient, RefusedByService, read_stats
from cepheid.service.control import NotApplied, ask
from cepheid.service.log import LogReader
from cepheid.service.supplier import Supplier
from tests.reference.graph import FATES, Consumer, Graph, Operator, Stream
from tests.service.graphs import graphs, spec_of
from tests.service.test_engine import assert_books_balance
from tests.service.test_service import COMMAND, children, service
from tests.service.threads import of_threads


def threads(kind: str) -> set[str]:
    """The names of this process's workers or movers."""
    names = of_threads("self", "comm").values()
    return {name.strip() for name in names if name.startswith(f"cep-{kind}")}


def until(holds: Callable[[], object], what: str, patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def assert_removed_balance(stats: Mapping[str, Any]) -> None:
    """What was removed has ended, and every event that came to it ended in one way."""
    removed = stats["removed"]
    for stream in removed["streams"].values():
        assert stream["queue"]["held"] == stream["events"]["held"] == 0
        assert stream["queue"]["came"] == sum(stream["queue"][fate] for fate in FATES)
        assert stream["queue"]["came"] == stream["events"]["created"]
    for operator in removed["operators"].values():
        assert operator["events"]["created"] == sum(operator["events"][fate] for fate in FATES) == operator["emitted"]
        for book in operator["inputs"].values():
            assert book["held"] == 0
            assert book["came"] == sum(book[fate] for fate in FATES)
    for consumer in removed["consumers"].values():
        assert consumer["used"] == consumer["read"] + consumer["lost"]


def has_left(stats: Mapping[str, Any]) -> bool:
    """Whether nothing that was removed holds anything."""
    removed = stats["removed"]
    held = [s["queue"]["held"] + s["events"]["held"] for s in removed["streams"].values()]
    held += [o["events"]["held"] + sum(i["held"] for i in o["inputs"].values()) for o in removed["operators"].values()]
    held += [c["waiting"] for c in removed["consumers"].values()]
    return not any(held)


def plant(
    *, extra: bool = False, above: float = 5.0, level: str = "low", levels: tuple[str, ...] = ("high", "low")
) -> Application:
    """A count that remembers, and whatever else."""
    build = Builder("plant", levels=list(levels))
    flow = build.stream("flow", {"x": "int"})
    counted = build.aggregate("counted", flow, function="count", last=1000)
    build.consumer("kept", counted, level="low")
    build.consumer("high", build.threshold("over", flow, above=above), level="low")
    if extra:
        other = build.stream("other", {"x": "int"})
        build.consumer("more", build.aggregate("both", other, function="sum", last=3), level=level)
        build.consumer("again", counted, level=level)
    return build.build()


def test_what_stays_keeps_its_state_and_its_order_also_at_another_level() -> None:
    with Engine(plant()) as engine:
        kept = engine.consumer("kept")
        found: list[tuple[object, object]] = []

        def push(count: int) -> None:
            for _ in range(count):
                assert engine.push("flow", {"x": len(found)}) == "accepted"
                received = kept.get(10)
                assert received is not None
                found.append((received.id, received.attributes["x"]))

        push(20)
        changes = engine.apply(plant(extra=True, level="high"))
        assert (changes.streams.added, changes.streams.kept) == (["other"], ["flow"])
        assert (changes.operators.added, changes.operators.kept) == (["both"], ["counted", "over"])
        assert changes.consumers.added == ["more", "again"]
        push(20)
        assert engine.push("other", {"x": 7}) == "accepted"
        more = engine.consumer("more").get(10)
        assert more is not None
        assert more.attributes == {"x": 7}
        assert engine.stats()["operators"]["counted"]["level"] == "high"
        changes = engine.apply(plant(above=7.0))
        assert (changes.streams.removed, changes.operators.removed) == (["other"], ["both"])
        assert (changes.operators.changed, changes.operators.kept) == (["over"], ["counted"])
        with pytest.raises(KeyError, match="no stream 'other'"):
            engine.push("other", {"x": 7})
        push(20)
        # Each has the id of the event that it was made of; two were of `other`.
        assert found == [(number if number <= 40 else number + 2, number) for number in range(1, 61)]
        assert engine.settle()
        over = engine.consumer("high")
        assert len(list(iter(lambda: over.get(0.0), None))) == 60
        until(lambda: has_left(engine.stats()), "what was removed does not end")
        stats = engine.stats()
        assert_books_balance(stats)
        assert_removed_balance(stats)
        assert stats["removed"]["operators"]["over"]["fired"] == 40
        assert stats["operators"]["over"]["fired"] == 20
        assert stats["operators"]["counted"]["fired"] == 60
        assert stats["removed"]["streams"]["other"]["events"]["used"] == 1


def test_what_a_removed_operator_waited_with_is_shed_and_a_removed_consumer_can_be_read_out() -> None:
    def pairs(has_pairs: bool) -> Application:
        build = Builder("pairs")
        left = build.stream("left", {"x": "array<uint8>"})
        right = build.stream("right", {"x": "array<uint8>"})
        build.consumer("one", left)
        build.consumer("two", right)
        if has_pairs:
            build.consumer("pair", build.cat("joined", left, right))
        return build.build()

    with Engine(pairs(True)) as engine:
        pair = engine.consumer("pair")
        for side in ("left", "right", "left"):
            engine.push(side, {"x": b"1"})
        assert engine.settle()
        engine.apply(pairs(False))
        engine.push("right", {"x": b"1"})
        assert pair.get(10) is not None
        assert pair.get(10) is None
        assert pair.is_over
        until(lambda: "joined" in engine.stats()["removed"]["operators"] and has_left(engine.stats()), "it stays")
        stats = engine.stats()
        left = stats["removed"]["operators"]["joined"]["inputs"]["left"]
        assert (left["came"], left["used"], left["shed"]) == (2, 1, 1)
        assert (stats["removed"]["consumers"]["pair"]["read"], stats["consumers"]["two"]["used"]) == (1, 2)
        assert_removed_balance(stats)


def test_a_new_level_gets_threads_and_one_that_vanishes_ends_them() -> None:
    with Engine(plant()) as engine:
        until(lambda: threads("work"), "no worker starts")
        before = threads("work")
        engine.apply(plant(extra=True, level="middle", levels=("high", "middle", "low")))
        assert engine.push("other", {"x": 1}) == "accepted"
        assert engine.settle()
        until(lambda: len(threads("work")) == len(before) + 1, "the new level has no workers")
        assert set(engine.stats()["levels"]) == {"middle", "low"}
        engine.apply(plant())
        until(lambda: threads("work") == before, "threads of a level that vanished go on")
        assert engine.push("flow", {"x": 1}) == "accepted"
        assert engine.settle()
        assert engine.consumer("kept").get(10) is not None


def test_what_can_not_be_changed_is_refused_and_nothing_changes() -> None:
    with Engine(plant(), cores=1) as engine:
        with pytest.raises(ValueError, match="levels can't change places"):
            engine.apply(plant(extra=True, levels=("low", "high")))
        assert "other" not in engine.stats()["streams"]
        build = Builder("plant", levels=["high", "low"])
        build.consumer("kept", build.python("p", build.stream("flow", {"x": "int"}), output={"x": "int"}))
        with pytest.raises(ValueError, match="nobody gave the function of operator 'p'"):
            engine.apply(build.build())
        assert sorted(engine.stats()["operators"]) == ["counted", "over"]
        engine.push("flow", {"x": 1})
        assert engine.consumer("kept").get(10) is not None


def test_a_function_that_is_another_object_is_another_operator() -> None:
    build = Builder("b")
    build.consumer("c", build.python("p", build.stream("s", {"x": "int"}), output={"x": "int"}))
    app = build.build()
    with Engine(app, functions={"p": lambda event: {"x": event["x"] + 1}}) as engine:
        consumer = engine.consumer("c")

        def answer() -> object:
            engine.push("s", {"x": 1})
            received = consumer.get(10)
            return None if received is None else received.attributes["x"]

        assert answer() == 2
        assert engine.apply(app).operators.kept == ["p"]
        assert engine.apply(app, functions={"p": lambda event: {"x": event["x"] + 9}}).operators.changed == ["p"]
        assert answer() == 10


#: The levels that a random graph's three are among, and their ranks there.
LEVELS = (
    (["high", "middle", "low"], (0, 1, 2)),
    (["top", "high", "middle", "low"], (1, 2, 3)),
    (["high", "between", "middle", "low", "bottom"], (0, 2, 3)),
)


def with_spine(graph: Graph, level: int, levels: int) -> str:
    """A random graph beside a chain that is in all of them, whose operators are of a level or lower."""
    spine = (Operator("keep", ("k",), level, depth=64), Operator("hold", ("keep",), 2, depth=64))
    consumers = (Consumer("kept", "hold"), Consumer("early", "keep"))
    whole = Graph((*graph.streams, Stream("k")), (*graph.operators, *spine), (*graph.consumers, *consumers))
    spec = json.loads(spec_of(whole, capacity=256))
    names, ranks = LEVELS[levels]
    spec["levels"] = names
    for part in (*spec["streams"], *spec["operators"], *spec["consumers"]):
        part["level"] = ranks[part["level"]]
    return json.dumps(spec)


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(graphs(), st.integers(0, 2), st.integers(0, len(LEVELS) - 1)), min_size=3, max_size=7),
    st.booleans(),
)
def test_any_changes_under_load_lose_nothing_of_what_stays(
    steps: list[tuple[Graph, int, int]], prioritised: bool
) -> None:
    """Random graphs follow each other while one supplier feeds all streams and another the chain that stays."""
    first, *rest = [with_spine(*step) for step in steps]
    engine = Native(first.replace('"prioritised": true', f'"prioritised": {str(prioritised).lower()}'))
    done = threading.Event()
    received: dict[str, list[int]] = {"kept": [], "early": []}
    pushed = [0]

    def storm() -> None:
        number = 0
        while not done.is_set():
            number += 1
            for stream in ("s0", "s1", "s2", "s3"):
                try:
                    engine.push(stream, number, time.time_ns() // 1000, {"parts": bytes([number % 256])})
                except KeyError:
                    continue
            time.sleep(0.0005)

    def supply() -> None:
        while not done.is_set():
            if pushed[0] - min(map(len, received.values())) > 30:
                time.sleep(0.0005)
                continue
            pushed[0] += 1
            parts = pushed[0].to_bytes(4, "big")
            assert engine.push("k", pushed[0], pushed[0], {"parts": parts}) == "accepted"

    def read(name: str) -> None:
        consumer = engine.consumer(name)
        while not done.is_set() or len(received[name]) < pushed[0]:
            found = consumer.read(1.0)
            if found is not None:
                parts = found[3]["parts"]
                assert isinstance(parts, bytes)
                received[name].append(int.from_bytes(parts, "big"))
            elif done.is_set():
                return

    running = [threading.Thread(target=storm), threading.Thread(target=supply)]
    running += [threading.Thread(target=read, args=(name,)) for name in received]
    for thread in running:
        thread.start()
    try:
        for spec in rest:
            before = pushed[0]
            until(lambda before=before: pushed[0] > before + 20, "the chain that stays stands still")  # type: ignore[misc]
            changes = engine.change(spec.replace('"prioritised": true', f'"prioritised": {str(prioritised).lower()}'))
            assert {"keep", "hold"} <= set(changes["operators"][3])
    finally:
        done.set()
        for thread in running:
            thread.join()
    assert engine.settle(20.0)
    assert received["kept"] == received["early"] == list(range(1, pushed[0] + 1))
    for name in json.loads(engine.stats())["consumers"]:
        while engine.read(name, 0.0) is not None:
            pass
    until(lambda: has_left(json.loads(engine.stats())), "what was removed does not end")
    stats = json.loads(engine.stats())
    assert_books_balance(stats)
    assert_removed_balance(stats)
    assert engine.stop(5.0)


APPLICATION = """
name: plant
levels: [critical, background]
streams:
  air: {attributes: {sensor: string, flow: float}, idle: 1s}
graph:
  every: {kind: filter, inputs: [air], where: "?e.flow IS NOT NULL"}
consumers:
  all: {input: every, level: background}
service: {listen: "unix:supply.sock", deliver: "unix:deliver.sock", log: LOG}
"""
WATER = "  water: {attributes: {level: float}}\n"
ADDED = (
    APPLICATION.replace(
        "graph:\n", WATER + "graph:\n  deep: {kind: threshold, inputs: [water], attribute: level, above: 2}\n"
    )
    .replace(
        "consumers:\n",
        "consumers:\n  flood: {input: deep, level: critical}\n  first: {input: every, level: critical}\n",
    )
    .replace(
        "service:",
        'queries:\n  high: {engine: service, text: "SELECT ?e.flow FROM (?e, air) FILTER (?e.flow > 5)"}\nservice:',
    )
)
LOG = "{path: log, durability: interval 10ms}"


def write(folder: Path, application: str) -> None:
    (folder / "app.yaml").write_text(application.replace("LOG", LOG))


def apply(folder: Path, application: str) -> list[str]:
    """Applies an application by the command, as a user would; what it says."""
    write(folder, application)
    done = subprocess.run(
        [*COMMAND, "service", "--apply", "app.yaml"], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@contextmanager
def load_on(folder: Path) -> Iterator[tuple[list[int], list[Any]]]:
    """A supplier that pushes air all the time, and a client that reads `all`: what was acknowledged, and received."""
    stop = threading.Event()
    pushed: list[int] = []
    received: list[Any] = []

    def supply() -> None:
        with Supplier(f"unix:{folder / 'supply.sock'}") as supplier:
            while not stop.is_set():
                number = len(pushed) + 1
                at = time.time_ns() // 1000
                supplier.push(Event("air", number, at, {"sensor": "D105", "flow": float(number % 10)}))
                pushed.append(number)
                time.sleep(0.001)
            supplier.flush()

    with ConsumerClient(f"unix:{folder / 'deliver.sock'}", "all") as client:
        reading = client.call(received.append)
        supplying = threading.Thread(target=supply)
        time.sleep(0.3)  # the client is there before the first event
        supplying.start()
        try:
            yield pushed, received
        finally:
            stop.set()
            supplying.join()
    reading.join()


def test_parts_come_and_go_under_load_and_who_stays_misses_nothing(tmp_path: Path) -> None:
    with service(tmp_path, LOG, APPLICATION):
        address = f"unix:{tmp_path / 'deliver.sock'}"
        with load_on(tmp_path) as (pushed, received), Supplier(f"unix:{tmp_path / 'supply.sock'}") as other:
            until(lambda: len(received) > 50, "nothing comes")
            matches: list[Any] = []
            for turn in range(3):
                said = apply(tmp_path, ADDED)
                assert said == [
                    "streams: added water",
                    "operators: added deep",
                    "queries: added high",
                    "consumers: added first, flood",
                    "kept: 2 levels, 1 streams, 1 operators, 1 consumers",
                ]
                if turn == 2:
                    break
                with ConsumerClient(address, "flood") as flood:
                    found: list[Any] = []
                    reading = flood.call(found.append)
                    number = 0
                    while not found:
                        number += 1
                        other.refresh()
                        other.push(Event("water", 10 * turn + number, number, {"level": 3.0}))
                        other.flush()
                        time.sleep(0.05)
                        assert number < 200
                assert found[0].attributes["on"] is True
                said = apply(tmp_path, APPLICATION)
                assert said[0] == "streams: removed water"
                other.push(Event("water", 1000 + turn, 1, {"level": 3.0}))
                other.flush()
                assert other.refusals[-1].code == "unknown-stream"
                with pytest.raises(RefusedByService, match="no consumer 'flood'"):
                    next(iter(ConsumerClient(address, "flood")))
                reading.join()
            # The query is there for the third time, and was registered then.
            with ConsumerClient(address, "high") as high:
                reading = high.call(matches.append)
                count = len(pushed)
                until(lambda: len(pushed) > count + 200, "the supplier stands still")
                write(tmp_path, ADDED.replace("kind: threshold", "kind: thresold"))
                with pytest.raises(NotApplied, match="thresold"):
                    ask(address, str(tmp_path / "app.yaml"))
                write(tmp_path, ADDED.replace("supply.sock", "elsewhere.sock"))
                with pytest.raises(NotApplied, match=r"service\.listen can't change"):
                    ask(address, str(tmp_path / "app.yaml"))
                write(tmp_path, ADDED)
                assert "nothing has changed" in apply(tmp_path, ADDED)[0]
                until(lambda: len(pushed) > count + 300, "the supplier stands still")
        # The client ended with the load: what it got has no hole, from the first on.
        assert [one.id for one in received] == list(range(1, len(received) + 1))
        assert len(received) > 300
        wanted = matched(tmp_path)
        seen = {one.id for one in matches}
        assert seen <= wanted
        assert len(seen) > 20
        until(lambda: read_stats(address)["queries"]["high"]["found"] >= len(wanted), "matches are missing")
        stats = read_stats(address)
        assert stats["queries"]["high"]["found"] == len(wanted)
        until(lambda: has_left(read_stats(address)), "what was removed does not end")
        stats = read_stats(address)
        assert_removed_balance(stats)
        assert stats["log"]["unfit"] == 0
        assert stats["streams"]["air"]["events"]["created"] == len(pushed)


def matched(folder: Path) -> set[str]:
    """The ids of what `cepheid match` finds for `high` in the logged events since it was registered."""
    known = json.loads((folder / "log" / "queries.json").read_text())
    (since,) = (moment for key, moment in known.items() if key != "version")
    (folder / "query.chi").write_text("SELECT ?e.flow FROM (?e, air) FILTER (?e.flow > 5)")
    with (folder / "events.jsonl").open("w") as file, LogReader(folder / "log") as log:
        for logged in log:
            event = logged.event
            if event.stream == "air" and event.time >= since:
                record = {"stream": event.stream, "id": event.id, "time": event.time, **event.attributes}
                print(json.dumps(record), file=file)
    command = [*COMMAND, "match", "query.chi", "--events", "events.jsonl", "--app", "app.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return {json.loads(line)["id"] for line in done.stdout.splitlines()}


def test_an_engine_that_is_killed_while_it_changes_ends_up_with_what_was_applied(tmp_path: Path) -> None:
    chance = random.Random(5)
    with service(tmp_path, LOG, APPLICATION) as process:
        address = f"unix:{tmp_path / 'deliver.sock'}"
        with load_on(tmp_path) as (pushed, _):
            for turn in range(4):
                application = ADDED if turn % 2 == 0 else APPLICATION
                write(tmp_path, application)
                engine = children(process)["cepheid.service.process"]
                asking = threading.Thread(target=lambda: _ask_in_vain(address, tmp_path))
                asking.start()
                time.sleep(chance.random() * 0.3)
                os.kill(engine, signal.SIGKILL)
                asking.join()
                until(lambda: _ask_in_vain(address, tmp_path), "the next engine does not apply it")
                stats = read_stats(address)
                assert ("water" in stats["streams"]) == (turn % 2 == 0)
                assert ("high" in stats["queries"]) == (turn % 2 == 0)
        with LogReader(tmp_path / "log") as log:
            logged = [each.event.id for each in log if each.event.stream == "air"]
        assert logged == pushed
        until(lambda: read_stats(address)["log"]["offset"] >= len(pushed), "the engine does not come to the end")
        assert read_stats(address)["log"]["trouble"] is None


def _ask_in_vain(address: str, folder: Path) -> bool:
    try:
        ask(address, str(folder / "app.yaml"))
    except NotApplied:
        return False
    return True


@pytest.mark.parametrize("log", [LOG, "none"])
def test_a_hangup_applies_the_file(tmp_path: Path, log: str) -> None:
    with service(tmp_path, log, APPLICATION) as process:
        address = f"unix:{tmp_path / 'deliver.sock'}"
        (tmp_path / "app.yaml").write_text(ADDED.replace("LOG", log))
        process.send_signal(signal.SIGHUP)
        until(lambda: "flood" in read_stats(address)["consumers"], "the file was not applied")
        with Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier:
            until(
                lambda: _pushed(supplier, Event("water", 1, 1, {"level": 3.0})), "the intake does not know the stream"
            )
            until(lambda: read_stats(address)["operators"]["deep"]["fired"] == 1, "the new stream is not read")
        if log != "none":
            # After a crash the next engine starts from what was applied, whatever is in the file.
            (tmp_path / "app.yaml").write_text("nonsense")
            os.kill(children(process)["cepheid.service.process"], signal.SIGKILL)
            until(lambda: _consumers(address) == ["all", "first", "flood"], "the next engine has something else")


def _pushed(supplier: Supplier, event: Event) -> bool:
    """Pushes an event, if the intake knows its stream by now."""
    try:
        supplier.refresh()
        supplier.push(event)
        supplier.flush()
    except ValueError:
        return False
    return True


def _consumers(address: str) -> list[str]:
    try:
        return sorted(read_stats(address)["consumers"])
    except OSError:
        return []
