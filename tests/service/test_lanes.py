"""Queries in the fast lane: the matches that `cepheid match` finds in the logged events, through kills and restarts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cepheid._native import probe
from cepheid.app import load
from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher
from cepheid.plan.standing import Standing
from cepheid.service.client import ConsumerClient
from cepheid.service.engine import Engine
from cepheid.service.intake import IntakeThread, config_of
from cepheid.service.log import LogReader
from cepheid.service.received import Received
from cepheid.service.supplier import Supplier
from tests.service.intakes import tail_of
from tests.service.test_engine import threads_of_this_process
from tests.service.test_service import COMMAND, children, service, wait_for

QUERY = (
    "SELECT ?a.sensor, ?b.flow - ?a.flow AS rise FROM (?a, air), (?b, air) JOIN (?a.sensor = ?b.sensor)"
    " JOIN (?b.flow > ?a.flow + 1) SEQ (?a, ?b) WINDOW (?a, ?b, 1s)"
)
QUIET = (
    "SELECT ?a.sensor FROM (?a, air), (?b, air) FILTER (?a.flow > 8) FILTER (?b.flow < 1) JOIN (?a.sensor = ?b.sensor)"
    " SEQ (?a, NOT ?b) WINDOW (?a, ?b, 50ms)"
)
APPLICATION = f"""
name: plant
levels: [critical, background]
streams:
  air: {{attributes: {{sensor: string, flow: float}}, period: 10ms, valid_for: 1h, idle: 20ms}}
queries:
  rising: {{level: critical, engine: service, text: "{QUERY}"}}
  quiet: {{level: background, engine: service, text: "{QUIET}"}}
  slow: {{engine: spark, text: "{QUERY}"}}
service: {{listen: "unix:supply.sock", deliver: "unix:deliver.sock", log: {{path: log, durability: each}}}}
"""


def air(number: int, start: int) -> Event:
    flow = float(number * 7 % 11)
    return Event("air", number, start + number * 1000, {"sensor": f"s{number % 3}", "flow": flow})


def matched(folder: Path, query: str = "rising") -> list[str]:
    """The ids that `cepheid match` finds for a query in the log's events."""
    app = load(folder / "app.yaml")
    (folder / "query.chi").write_text(app.graph.queries[query].text)
    with (folder / "events.jsonl").open("w") as file:
        for logged in LogReader(folder / "log"):
            if not logged.late and not logged.duplicate:
                event = logged.event
                record = {"stream": event.stream, "id": event.id, "time": event.time, **event.attributes}
                print(json.dumps(record), file=file)
    done = subprocess.run(
        [*COMMAND, "match", "query.chi", "--events", "events.jsonl", "--app", "app.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line)["id"] for line in done.stdout.splitlines()]


def test_matches_are_those_of_match_through_a_kill(tmp_path: Path) -> None:
    with (
        service(tmp_path, application=APPLICATION) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "rising") as consumer,
    ):
        found: dict[object, Received] = {}
        consumer.call(lambda one: found.setdefault(one.id, one))
        start = time.time_ns() // 1000
        for number in range(110):
            supplier.push(air(number, start))
            if number == 55:
                supplier.flush()
                os.kill(children(process)["cepheid.service.process"], signal.SIGKILL)
        supplier.flush()
        wanted = matched(tmp_path)
        assert 200 < len(wanted) < 1024  # so many wait for a client that is slow
        deadline = time.monotonic() + 30
        while set(found) != set(wanted) and time.monotonic() < deadline:
            time.sleep(0.05)
        # What was found before the kill and not sent yet is found again by the next engine: the ids are the same.
        assert set(found) == set(wanted)
        one = found[wanted[-1]]
        assert set(one.attributes) == {"sensor", "rise"}
        assert one.end == one.time + 3_600_000_000


def test_queries_share_and_find_what_each_finds_alone(tmp_path: Path) -> None:
    ranges = "FROM (?a, air), (?b, air)"
    pair = "JOIN (?b.flow > ?a.flow) SEQ (?a, ?b) WINDOW (?a, ?b, 1s) MATCH NEXT"
    queries = {
        "pair": f"SELECT ?a.flow AS low {ranges} {pair}",
        "again": f"SELECT ?b.flow AS high, ?a.sensor {ranges} {pair}",
        "triple": f"SELECT ?c.flow {ranges}, (?c, air) {pair.replace('?b) WINDOW', '?b, ?c) WINDOW')}"
        " JOIN (?c.flow < ?a.flow) WINDOW (?a, ?c, 5ms)",
    }
    levels = {"pair": "critical", "again": "background", "triple": "background"}
    listed = "\n".join(
        f'  {name}: {{level: {levels[name]}, engine: service, text: "{text}"}}' for name, text in queries.items()
    )
    head, _, rest = APPLICATION.partition("queries:\n")
    (tmp_path / "app.yaml").write_text(f"{head}queries:\n{listed}\n{rest[rest.index('service: {listen') :]}")
    app = load(tmp_path / "app.yaml")
    checked = app.plan().queries
    assert [p.queries for p in Standing(checked).patterns] == [("pair", "again"), ("triple",)]
    with Engine(app) as engine, IntakeThread(config_of(app)) as intake:
        engine.follow(tmp_path / "log")
        start = time.time_ns() // 1000
        events = [air(number, start) for number in range(60)]
        with Supplier(intake.address) as supplier:
            for one in events:
                supplier.push(one)
            supplier.flush()
            for name, query in checked.items():
                wanted = Matcher(query).matches(events)
                assert len(wanted) > 10
                found = [engine.matches(name).get(timeout=10) for _ in wanted]
                assert [one and one.match for one in found] == wanted
                assert all(one and one.end == one.match.time + 3_600_000_000 for one in found)
        engine.write_trace(tmp_path / "trace.json")
        moments = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        threads = {one["tid"]: one["args"]["name"] for one in moments if one["name"] == "thread_name"}
        at_work = {threads[one["tid"]] for one in moments if one["ph"] == "B" and one["name"] == "batch"}
        assert at_work == {"queries-critical", "queries-background"}
        kept = json.loads((tmp_path / "log" / "lanes.json").read_text())
        lanes = {key.split()[0]: lane for key, lane in kept.items() if key != "version"}
        # An equal pattern runs once, where its most important query does; one that only begins alike stays.
        assert lanes == {"pair": "queries-critical", "again": "queries-critical", "triple": "queries-background"}


@pytest.mark.parametrize("prioritised", [True, False])
def test_a_lane_has_the_priority_of_its_level(tmp_path: Path, prioritised: bool) -> None:
    if not probe()["can_sched_rr"]:
        pytest.skip("needs the privilege to use SCHED_RR")
    (tmp_path / "app.yaml").write_text(APPLICATION.replace("log:", f"prioritised: {str(prioritised).lower()}, log:"))
    app = load(tmp_path / "app.yaml")
    with IntakeThread(config_of(app)), Engine(app) as engine:
        engine.follow(tmp_path / "log")
        ordinary = (os.SCHED_OTHER, 0)
        lanes = {(os.SCHED_RR, 80), ordinary} if prioritised else {ordinary}
        assert in_time(lambda: threads_of_this_process()["cep-lane"] == lanes)
        # Who feeds the engine is above all levels, where there are some.
        feeder = {(os.SCHED_RR, 82)} if prioritised else {ordinary}
        assert in_time(lambda: threads_of_this_process()["cep-feeder"] == feeder)
    for folder in (tmp_path / "log", tmp_path / "log" / "dead"):
        tail_of(folder).unlink(missing_ok=True)


def test_what_waits_for_time_comes_on_an_idle_stream(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(APPLICATION)
    app = load(tmp_path / "app.yaml")
    with Engine(app) as engine, IntakeThread(config_of(app)) as intake:
        engine.follow(tmp_path / "log")
        assert sorted(engine.stats()["queries"]) == ["quiet", "rising"]
        with Supplier(intake.address) as supplier:
            supplier.push(Event("air", 1, time.time_ns() // 1000, {"sensor": "s", "flow": 9.0}))
            supplier.flush()
            # Nothing comes any more: the clock says that nothing followed.
            found = engine.matches("quiet").get(timeout=10)
        assert found is not None
        assert found.match.events == {"a": ("air", 1)}
        assert engine.stats()["queries"]["quiet"]["found"] == 1
    for folder in (tmp_path / "log", tmp_path / "log" / "dead"):
        tail_of(folder).unlink(missing_ok=True)


def test_e5_an_idle_stream_follows_the_clock_at_the_distance_of_idle(tmp_path: Path) -> None:
    text = APPLICATION.replace("idle: 20ms", "idle: 400ms").replace("50ms", "300ms")
    (tmp_path / "app.yaml").write_text(text)
    app = load(tmp_path / "app.yaml")
    with Engine(app) as engine, IntakeThread(config_of(app)) as intake, Supplier(intake.address) as supplier:
        engine.follow(tmp_path / "log")
        pushed = time.time_ns() // 1000
        supplier.push(Event("air", 1, pushed, {"sensor": "s", "flow": 9.0}))
        supplier.flush()
        found = engine.matches("quiet").get(timeout=10)
        waited = time.time_ns() // 1000 - pushed
        assert found is not None
        # Nothing followed within 300 ms, and that is so once the clock less 400 ms has come there.
        assert waited >= 700_000
    for folder in (tmp_path / "log", tmp_path / "log" / "dead"):
        tail_of(folder).unlink(missing_ok=True)


ALIGNED = "SELECT ?a.flow FROM (?a, air), (?b, air) SEQ (?a, ?b) WINDOW (?a, ?b, 1s) ALIGN (?a, ?b, 5ms)"


@contextmanager
def lanes(folder: Path, queries: str) -> Iterator[tuple[Engine, Supplier]]:
    """An engine that follows a log with these queries, and who supplies it."""
    head, _, rest = APPLICATION.replace(", idle: 20ms", "").partition("queries:\n")
    (folder / "app.yaml").write_text(f"{head}queries:\n{queries}\n{rest[rest.index('service: {listen') :]}")
    app = load(folder / "app.yaml")
    with Engine(app) as engine, IntakeThread(config_of(app)) as intake, Supplier(intake.address) as supplier:
        engine.follow(folder / "log")
        yield engine, supplier
    for each in (folder / "log", folder / "log" / "dead"):
        tail_of(each).unlink(missing_ok=True)


def test_g2_g3_align_marks_or_sheds_matches_whose_events_are_too_far_apart(tmp_path: Path) -> None:
    queries = f"""
  marking: {{engine: service, text: "{ALIGNED} STALE MARK"}}
  shedding: {{engine: service, text: "{ALIGNED} STALE SHED"}}"""
    with lanes(tmp_path, queries) as (engine, supplier):
        start = time.time_ns() // 1000
        for number, at in enumerate((0, 5_000, 20_001)):
            supplier.push(Event("air", number, start + at, {"sensor": "s", "flow": 1.0}))
        supplier.flush()

        def found(query: str, count: int) -> dict[tuple[str, str], frozenset[str]]:
            each = [engine.matches(query).get(timeout=10) for _ in range(count)]
            return {(str(one.match.events["a"]), str(one.match.events["b"])): one.marks for one in each if one}

        first, second, third = (str(("air", number)) for number in range(3))
        apart = frozenset({"relative"})
        near = {(first, second): frozenset[str]()}
        assert found("marking", 3) == near | {(first, third): apart, (second, third): apart}
        assert found("shedding", 1) == near
        assert in_time(lambda: engine.stats()["queries"]["shedding"]["shed"] == 2)
        for name, shed in (("marking", 0), ("shedding", 2)):
            book = engine.stats()["queries"][name]
            counts = {word: book[word] for word in ("found", "stale", "relative", "shed", "lost")}
            assert counts == {"found": 3, "stale": 0, "relative": 2, "shed": shed, "lost": 0}
            # From the log to the delivery.
            assert book["latency"]["count"] == 3
            assert 0 < book["latency"]["max_ns"] < 10_000_000_000


def test_q7_a_match_is_valid_as_long_as_its_completing_event(tmp_path: Path) -> None:
    queries = f"""
  plain: {{engine: service, text: "{ALIGNED}"}}
  stated: {{engine: service, text: "{ALIGNED} VALID 10ms STALE SHED"}}"""
    with lanes(tmp_path, queries) as (engine, supplier):
        start = time.time_ns() // 1000
        time.sleep(0.05)
        supplier.push(Event("air", 1, start, {"sensor": "s", "flow": 1.0}))
        supplier.push(Event("air", 2, start + 1, {"sensor": "s", "flow": 1.0}), valid_until=start + 7)
        supplier.push(Event("air", 3, start + 2, {"sensor": "s", "flow": 1.0}))
        supplier.flush()
        ends = {}
        for _ in range(3):
            found = engine.matches("plain").get(timeout=10)
            assert found is not None
            ends[found.match.events["b"]] = (found.end, found.marks)
        # One came with an end of its own, the other has that of its stream.
        assert ends[("air", 2)] == (start + 7, frozenset({"stale"}))
        assert ends[("air", 3)] == (start + 2 + 3_600_000_000, frozenset())
        assert in_time(lambda: engine.stats()["queries"]["stated"]["shed"] == 3)
        assert engine.stats()["queries"]["stated"]["stale"] == 3


class Gate:
    """Stands before an intake, and lets nothing through until it is opened."""

    def __init__(self, path: Path, target: str) -> None:
        self.address = f"unix:{path}"
        self.open = threading.Event()
        self._target = target.removeprefix("unix:")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            self.open.wait()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def test_g7_what_an_operator_produces_for_a_query_waits_and_is_not_lost(tmp_path: Path) -> None:
    head, _, rest = APPLICATION.partition("queries:\n")
    graph = 'graph:\n  strong: {kind: filter, inputs: [air], where: "?e.flow IS NOT NULL"}\n'
    query = 'queries:\n  rare: {engine: service, text: "SELECT ?a.flow FROM (?a, strong) FILTER (?a.flow > 99)"}\n'
    (tmp_path / "app.yaml").write_text(head + graph + query + rest[rest.index("service: {listen") :])
    app = load(tmp_path / "app.yaml")
    with IntakeThread(config_of(app)) as intake, Supplier(intake.address) as supplier:
        gate = Gate(tmp_path / "gate.sock", intake.address)
        with Engine(app) as engine:
            engine.follow(tmp_path / "log", intake=gate.address)
            start = time.time_ns() // 1000

            def came() -> int:
                return int(engine.stats()["log"]["offset"])

            # More than can wait; in small steps, as the InputQ of a stream is short.
            for first in range(0, 20_000, 200):
                supplier.push_many(air(number, start) for number in range(first, first + 200))
                supplier.flush()
                deadline = time.monotonic() + (2.0 if came() >= first else 0.0)
                while came() < first + 200 and time.monotonic() < deadline:
                    time.sleep(0.001)
            waiting = engine.stats()["consumers"]["log:strong"]
            assert 8_000 < waiting["waiting"] < 20_000, "the engine reads on"
            assert came() < 20_000
            gate.open.set()

            def logged() -> int:
                return sum(one.event.stream == "strong" for one in LogReader(tmp_path / "log"))

            assert in_time(lambda: logged() > 17_000 and logged() == engine.stats()["operators"]["strong"]["emitted"])
            assert engine.stats()["consumers"]["log:strong"]["lost"] == 0
    for folder in (tmp_path / "log", tmp_path / "log" / "dead"):
        tail_of(folder).unlink(missing_ok=True)


DERIVED = """
name: plant
levels: [critical, background]
streams:
  air: {attributes: {sensor: string, flow: float}, period: 10ms, valid_for: 1h, idle: 1s}
graph:
  strong: {kind: filter, inputs: [air], where: "?e.flow > 4"}
  marked: {kind: map, inputs: [twice], select: "?e.sensor AS sensor, ?e.more * 2 AS doubled"}
queries:
  rising:
    level: critical
    engine: service
    text: "SELECT ?a.sensor, ?b.flow - ?a.flow AS more FROM (?a, strong), (?b, air) JOIN (?a.sensor = ?b.sensor)
           JOIN (?b.flow > ?a.flow) SEQ (?a, ?b) WINDOW (?a, ?b, 40ms)"
  twice:
    level: background
    engine: service
    text: "SELECT ?x.sensor, ?x.more + ?y.more AS more FROM (?x, rising), (?y, rising) JOIN (?x.sensor = ?y.sensor)
           JOIN (?x.more >= ?y.more) SEQ (?x, ?y) WINDOW (?x, ?y, 10ms)"
consumers:
  panel: {input: marked, level: critical}
  screen: {input: twice, level: background}
service: {listen: "unix:supply.sock", deliver: "unix:deliver.sock", log: {path: log, durability: each}}
"""


def in_time(done: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(0.05)
    return done()


def test_queries_and_graph_read_what_is_derived_through_a_kill(tmp_path: Path) -> None:
    with (
        service(tmp_path, application=DERIVED) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "twice") as consumer,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "panel") as panel,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "screen") as screen,
    ):
        found: dict[object, Received] = {}
        doubled: list[object] = []
        seen: list[object] = []
        consumer.call(lambda one: found.setdefault(one.id, one))
        panel.call(lambda one: doubled.append(one.attributes["doubled"]))
        screen.call(lambda one: seen.append(one.id))
        start = time.time_ns() // 1000
        for number in range(120):
            supplier.push(air(number, start))
            if number == 60:
                supplier.flush()
                os.kill(children(process)["cepheid.service.process"], signal.SIGKILL)
        supplier.flush()
        logged = tmp_path / "log"

        def ids(stream: str) -> list[object]:
            # What an engine found again after the kill is in the log too, as a duplicate.
            return [x.event.id for x in LogReader(logged) if x.event.stream == stream and not x.duplicate]

        # Everything that `match` finds in the logged events has been found, logged once, and delivered.
        assert in_time(lambda: len(ids("strong")) >= 50 and set(ids("rising")) == set(matched(tmp_path, "rising")))
        assert in_time(lambda: set(ids("twice")) == set(found) == set(matched(tmp_path, "twice")))
        assert len(ids("rising")) == len(set(ids("rising"))) > 20
        assert len(ids("twice")) == len(set(ids("twice"))) > 20
        # An engine that was killed had received some of them, which it takes up again where it had come to.
        assert in_time(lambda: set(ids("twice")[-5:]) <= set(seen))
        assert set(doubled) <= {2 * float(str(one.attributes["more"])) for one in found.values()}


def test_a_restart_begins_where_nothing_older_matters(tmp_path: Path) -> None:
    text = APPLICATION.replace("WINDOW (?a, ?b, 1s)", "WINDOW (?a, ?b, 20ms)").replace(", idle: 20ms", "")
    (tmp_path / "app.yaml").write_text(text)
    app = load(tmp_path / "app.yaml")
    point = tmp_path / "log" / "queries-critical.restart"
    start = time.time_ns() // 1000 + 60_000_000  # after the queries are registered (rule Q5)
    found: set[str] = set()
    with IntakeThread(config_of(app)) as intake, Supplier(intake.address) as supplier:
        for first in (0, 500, 1000):
            with Engine(app) as engine:
                engine.follow(tmp_path / "log")
                supplier.push_many(air(number, start) for number in range(first, first + 250))
                supplier.flush()
                time.sleep(1.5)  # a lane marks where it is every second
                supplier.push_many(air(number, start) for number in range(first + 250, first + 500))
                supplier.flush()
                wanted = set(matched(tmp_path))
                matches = engine.matches("rising")
                while found != wanted and (one := matches.get(timeout=20)) is not None:
                    found.add(one.match.id)
                assert found == wanted
                # The windows are short: nothing matters any more that was logged before the pause.
                assert in_time(lambda first=first: point.exists() and _offset(point) >= first + 250)  # type: ignore[misc]
    assert len(found) > 500


def _offset(point: Path) -> int:
    return int(point.read_text().split()[1])


def test_who_derives_says_where_the_intake_is(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(DERIVED)
    (tmp_path / "log").mkdir()
    with (
        Engine(load(tmp_path / "app.yaml")) as engine,
        pytest.raises(ValueError, match="rising, strong, twice are to be"),
    ):
        engine.follow(tmp_path / "log")


def test_the_log_keeps_what_a_lane_would_read_again(tmp_path: Path) -> None:
    """The log forgets sooner than the WINDOW ends: what was open in a crash is found all the same."""
    query = QUERY.replace("WINDOW (?a, ?b, 1s)", "WINDOW (?a, ?b, 1h)")
    head, _, _ = APPLICATION.replace(QUERY, query).partition("  quiet:")
    log = "log: {path: log, durability: each, retain: 300ms}"
    application = f'{head}service: {{listen: "unix:supply.sock", deliver: "unix:deliver.sock", {log}}}\n'
    numbers = iter(range(100_000))
    with (
        service(tmp_path, application=application) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "rising") as consumer,
    ):
        found: list[Received] = []
        consumer.call(found.append)

        def push(sensor: str, flow: float) -> None:
            event = Event("air", next(numbers), time.time_ns() // 1000, {"sensor": sensor, "flow": flow})
            supplier.push(event)
            supplier.flush()

        def segments() -> list[int]:
            push("other", 0.0)
            return sorted(int(path.stem) for path in (tmp_path / "log").glob("*.log"))

        push("open", 1.0)
        # The first of these are old enough to go, and the engine is done with them.
        assert in_time(lambda: len(segments()) > 6)
        wait_for(tmp_path, segments()[3])
        assert segments()[0] == 0
        os.kill(children(process)["cepheid.service.process"], signal.SIGKILL)
        push("open", 9.0)
        assert in_time(lambda: [one.attributes for one in found] == [{"sensor": "open", "rise": 8.0}])
        # Nothing else holds them: without the query they go.
        assert segments()[0] == 0
        consumer.close()
        (tmp_path / "app.yaml").write_text(application.replace("engine: service", "engine: spark"))
        process.send_signal(signal.SIGHUP)
        assert in_time(lambda: segments()[0] > 0)
