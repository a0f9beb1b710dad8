"""PATHs in the fast lane, and knowledge that changes while the service runs: each event is judged by one version."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

import pytest
from pyoxigraph import Literal, NamedNode, Triple

from cepheid.app import load
from cepheid.knowledge import journal
from cepheid.knowledge.store import Knowledge
from cepheid.model.events import Event
from cepheid.service.client import ConsumerClient, read_stats
from cepheid.service.engine import Engine
from cepheid.service.intake import IntakeThread, config_of
from cepheid.service.lanes import Found
from cepheid.service.lowering import NotYet
from cepheid.service.received import Received
from cepheid.service.supplier import Supplier
from tests.service.test_lanes import matched
from tests.service.test_service import COMMAND, children, service

TURTLE = """@prefix : <http://x#> .
:s0 :in :r0 . :s1 :in :r1 . :s2 :in :r2 .
:r0 a :Office . :r1 a :Office . :r2 a :Hall .
:Limit :is 4 .
"""
OFFICES = "SELECT ?e.sensor, ?r FROM (?e, air) PATH {?e :src ?s . ?s :in ?r . ?r a :Office}"
PAIRS = (
    "SELECT ?r, ?b.flow - ?a.flow AS rise FROM (?a, air), (?b, air) JOIN (?b.flow > ?a.flow) SEQ (?a, ?b)"
    " WINDOW (?a, ?b, 20ms) PATH {?a :src/:in ?r . ?b :src/:in ?r . ?a :flow ?f . :Limit :is ?l . FILTER (?f > ?l)}"
)
APPLICATION = f"""
name: plant
prefixes: {{"": "http://x#"}}
levels: [critical, background]
streams:
  air:
    attributes: {{sensor: string, flow: float}}
    semantics: {{sensor: {{property: ":src", entity: ":{{value}}"}}, flow: ":flow"}}
knowledge: {{sources: [kb.ttl], reasoning: none}}
queries:
  offices: {{level: critical, engine: service, text: "{OFFICES}"}}
  pairs: {{level: background, text: "{PAIRS} PRIORITY background"}}
service: {{listen: "unix:supply.sock", deliver: "unix:deliver.sock", log: {{path: log, durability: each}}}}
"""


def air(number: int, start: int) -> Event:
    return Event("air", number, start + number * 1000, {"sensor": f"s{number % 3}", "flow": float(number * 7 % 11)})


def triple(subject: str, name: str, target: str | int) -> Triple:
    end = NamedNode(f"http://x#{target}") if isinstance(target, str) else Literal(target)
    a = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
    return Triple(NamedNode(f"http://x#{subject}"), NamedNode(a if name == "a" else f"http://x#{name}"), end)


def change(folder: Path, added: list[Triple], removed: list[Triple]) -> None:
    """As `cepheid knowledge apply` does."""
    journal.append(journal.journal_of(folder), added, removed)


def test_matches_of_paths_are_those_of_match_through_a_kill(tmp_path: Path) -> None:
    (tmp_path / "kb.ttl").write_text(TURTLE, encoding="utf-8")
    deliver = f"unix:{tmp_path / 'deliver.sock'}"
    with (
        service(tmp_path, application=APPLICATION) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        ConsumerClient(deliver, "offices") as offices,
        ConsumerClient(deliver, "pairs") as pairs,
    ):
        found: dict[str, dict[object, Received]] = {"offices": {}, "pairs": {}}
        offices.call(lambda one: found["offices"].setdefault(one.id, one))
        pairs.call(lambda one: found["pairs"].setdefault(one.id, one))
        start = time.time_ns() // 1000
        for number in range(90):
            supplier.push(air(number, start))
            if number == 45:
                supplier.flush()
                os.kill(children(process)["cepheid.service.process"], signal.SIGKILL)
        supplier.flush()
        for name, received in found.items():
            wanted = matched(tmp_path, name)
            assert len(wanted) > 5
            deadline = time.monotonic() + 30
            while set(received) != set(wanted) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert set(received) == set(wanted)
            assert {one.found and one.found["knowledge"] for one in received.values()} == {1}


def test_a_running_service_follows_what_is_applied_and_the_files(tmp_path: Path) -> None:
    (tmp_path / "kb.ttl").write_text(TURTLE, encoding="utf-8")
    with (
        service(tmp_path, application=APPLICATION) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "offices") as offices,
    ):
        numbers = iter(range(10**6))
        found: list[Received] = []
        offices.call(found.append)

        def rooms_until(wanted: set[str], seconds: float = 20.0) -> set[int]:
            """Pushes events until the rooms that are found are these; with which versions they were."""
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                seen = len(found)
                for _ in range(3):
                    supplier.push(air(next(numbers), time.time_ns() // 1000))
                supplier.flush()
                time.sleep(0.1)
                fresh = found[seen:]
                if {str(one.attributes["r"]).removeprefix("http://x#") for one in fresh} == wanted:
                    return {one.found["knowledge"] for one in fresh if one.found is not None}
            raise AssertionError([one.attributes for one in found[-6:]])

        assert rooms_until({"r0", "r1"}) == {1}
        (tmp_path / "new.ttl").write_text("@prefix : <http://x#> . :r2 a :Office .", encoding="utf-8")
        (tmp_path / "old.ttl").write_text("@prefix : <http://x#> . :r0 a :Office .", encoding="utf-8")
        command = [*COMMAND, "knowledge", "apply", "app.yaml", "new.ttl", "--remove", "old.ttl"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        assert rooms_until({"r1", "r2"}) == {2}
        # The next engine begins with it.
        os.kill(children(process)["cepheid.service.process"], signal.SIGKILL)
        assert rooms_until({"r1", "r2"}) == {2}
        (tmp_path / "kb.ttl").write_text(TURTLE.replace(":r1 a :Office", ":r1 a :Hall"), encoding="utf-8")
        assert rooms_until({"r2"}) == {3}
        # A file that is broken changes nothing.
        (tmp_path / "kb.ttl").write_text(":r1 a ", encoding="utf-8")
        assert rooms_until({"r2"}) == {3}


WIDE = APPLICATION.replace("?b, 20ms", "?b, 1min")


def test_after_a_crash_events_are_judged_as_they_were(tmp_path: Path) -> None:
    """The next engine goes through the log again; what came before a change is judged by what was known then."""
    (tmp_path / "kb.ttl").write_text(TURTLE, encoding="utf-8")
    with (
        service(tmp_path, application=WIDE) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "pairs") as pairs,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "offices") as offices,
    ):
        found: dict[object, Received] = {}
        versions: list[int] = []
        pairs.call(lambda one: found.setdefault(one.id, one))
        offices.call(lambda one: versions.append(one.found["knowledge"] if one.found is not None else 0))

        def push(number: int, sensor: str, flow: float) -> None:
            supplier.push(Event("air", number, moment(), {"sensor": sensor, "flow": flow}))
            supplier.flush()

        def wait(holds: Callable[[], bool], also: Callable[[], object] = lambda: None) -> None:
            deadline = time.monotonic() + 30
            while not holds() and time.monotonic() < deadline:
                also()
                time.sleep(0.05)
            assert holds()

        push(1, "s0", 5.0)  # above 4
        push(2, "s1", 3.0)  # not above 4
        change(tmp_path, [triple("Limit", "is", 2)], [triple("Limit", "is", 4)])
        wait(lambda: 2 in versions, lambda: push(next(unused), "s1", 0.0))
        change(tmp_path, [triple("Limit", "is", 6)], [triple("Limit", "is", 2)])
        wait(lambda: 3 in versions, lambda: push(next(unused), "s1", 0.0))
        push(3, "s0", 5.5)  # not above 6, but more than 5.0
        wait(lambda: len(found) == 1)
        os.kill(children(process)["cepheid.service.process"], signal.SIGKILL)
        push(4, "s0", 9.0)
        push(5, "s1", 9.0)
        wait(lambda: len(found) >= 2)
        time.sleep(0.5)
        by = sorted((one.attributes["rise"], one.found["knowledge"]) for one in found.values() if one.found is not None)
        # By what is known now no event but the last ones is above the limit.
        assert by == [(0.5, 3), (4.0, 3)]


def test_versions_and_what_was_judged_by_them_outlive_the_service(tmp_path: Path) -> None:
    """Knowledge that changed while nothing ran is in force from where the log ended on."""

    def push(supplier: Supplier, number: int, sensor: str, flow: float) -> None:
        supplier.push(Event("air", number, moment(), {"sensor": sensor, "flow": flow}))
        supplier.flush()

    def settled(engine: Engine, version: int) -> bool:
        deadline = time.monotonic() + 10
        while engine.stats()["queries"]["pairs"]["knowledge"] != version and time.monotonic() < deadline:
            time.sleep(0.02)
        return bool(engine.stats()["queries"]["pairs"]["knowledge"] == version)

    with running(tmp_path, WIDE) as (engine, supplier):
        push(supplier, 1, "s0", 5.0)
        assert all_of(engine, "pairs", 0.3) == []
    (tmp_path / "data" / "knowledge").mkdir(parents=True, exist_ok=True)
    with running(tmp_path, WIDE, TURTLE.replace(":is 4", ":is 6")) as (engine, supplier):
        push(supplier, 2, "s0", 5.5)
        assert settled(engine, 2)
        assert [(sorted(ids(one)), version(one)) for one in all_of(engine, "pairs")] == [([1, 2], 2)]
    # The same again is no other version; and 1 is still above 4, 2 still not above 6.
    with running(tmp_path, WIDE, TURTLE.replace(":is 4", ":is 6")) as (engine, supplier):
        push(supplier, 3, "s0", 5.8)
        assert settled(engine, 2)
        found = [(sorted(ids(one)), version(one)) for one in all_of(engine, "pairs")]
        assert [pair for pair in found if 3 in pair[0]] == [([1, 3], 2)]
    lines = (tmp_path / "data" / "knowledge" / "versions.jsonl").read_text().splitlines()
    assert len(lines) == 2


@contextmanager
def running(folder: Path, application: str = APPLICATION, turtle: str = TURTLE) -> Iterator[tuple[Engine, Supplier]]:
    (folder / "kb.ttl").write_text(turtle, encoding="utf-8")
    (folder / "app.yaml").write_text(application, encoding="utf-8")
    app = load(folder / "app.yaml")
    with IntakeThread(config_of(app)) as intake, Engine(app) as engine, Supplier(intake.address) as supplier:
        engine.follow(folder / "log")
        yield engine, supplier


def all_of(engine: Engine, query: str, patience: float = 1.0) -> list[Found]:
    found = []
    while (one := engine.matches(query).get(timeout=patience)) is not None:
        found.append(one)
    return found


def ids(found: Found) -> list[int]:
    """The ids of the events of a match."""
    return [ref[1] for ref in found.match.events.values() if isinstance(ref, tuple) and isinstance(ref[1], int)]


def version(found: Found) -> int:
    assert found.match.knowledge is not None
    return found.match.knowledge


def test_all_lanes_take_a_change_up_at_one_event(tmp_path: Path) -> None:
    """Two lanes, events without a pause, and changes: in both the same event is the first of each version."""
    same = OFFICES.replace("?e", "?x")
    more = f'  again: {{level: background, engine: service, text: "{same}"}}\n'
    with running(tmp_path, APPLICATION.replace("queries:\n", f"queries:\n{more}")) as (engine, supplier):
        start = time.time_ns() // 1000
        for number in range(3000):
            supplier.push(air(number, start))
            if number % 500 == 250:
                room = [triple("r2", "a", "Office")]
                change(tmp_path, *((room, []) if number % 1000 == 250 else ([], room)))
                time.sleep(0.15)
        supplier.flush()
        by_query = {name: all_of(engine, name) for name in ("offices", "again")}
        judged = {
            name: [(number, version(one)) for one in found for number in ids(one)] for name, found in by_query.items()
        }
        assert judged["offices"] == judged["again"]
        versions = [v for _, v in judged["offices"]]
        assert versions == sorted(versions)
        assert set(versions) == {1, 2, 3, 4, 5, 6, 7}
        # By versions 2, 4 and 6 the hall is an office too, and by no other; nothing is judged twice, or not at all.
        since = {v: min(number for number, one in judged["offices"] if one == v) for v in set(versions)}
        for number in range(3000):
            ambiguous = [v for v in since if since[v] - 2 <= number < since[v]]  # the hall's event before the first
            found_by = [v for n, v in judged["offices"] if n == number]
            by = max(v for v in since if since[v] <= number or v == 1)
            if number % 3 != 2:
                assert found_by == [by]
            elif not ambiguous:
                assert found_by == ([by] if by % 2 == 0 else [])


def moment() -> int:
    """Now, in microseconds."""
    return time.time_ns() // 1000


def test_a_changed_constant_keeps_what_is_held(tmp_path: Path) -> None:
    with running(tmp_path, APPLICATION.replace("?b, 20ms", "?b, 1min")) as (engine, supplier):
        numbers = count(1)

        def push(sensor: str, flow: float) -> int:
            number = next(numbers)
            supplier.push(Event("air", number, moment(), {"sensor": sensor, "flow": flow}))
            supplier.flush()
            return number

        above = push("s0", 5.0)
        change(tmp_path, [triple("Limit", "is", 6)], [triple("Limit", "is", 4)])
        deadline = time.monotonic() + 10
        while engine.stats()["queries"]["pairs"]["knowledge"] < 2 and time.monotonic() < deadline:
            push("s2", 0.0)
            time.sleep(0.02)
        below, last = push("s0", 5.5), push("s0", 9.0)
        found = [(sorted(ids(one)), version(one)) for one in all_of(engine, "pairs")]
        # 5.0 was above 4 when it came, and stays so; 5.5 is not above 6.
        assert found == [([above, below], 2), ([above, last], 2)]


def test_values_without_an_entity_are_counted(tmp_path: Path) -> None:
    (tmp_path / "kb.ttl").write_text(TURTLE, encoding="utf-8")
    deliver = f"unix:{tmp_path / 'deliver.sock'}"
    with (
        service(tmp_path, application=APPLICATION),
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        ConsumerClient(deliver, "offices") as offices,
    ):
        start = time.time_ns() // 1000
        for number, sensor in enumerate(["s7", "s0", "s2", "s8", None, "s7", "s1"]):
            supplier.push(Event("air", number, start + number, {"sensor": sensor, "flow": 9.0}))
        supplier.flush()
        assert [one.attributes["sensor"] for one in islice(offices, 2)] == ["s0", "s1"]
        # A hall is known, though no office; of a null nothing was asked.
        deadline = time.monotonic() + 10
        while (found := read_stats(deliver)["queries"]["offices"]["unknown"]) != 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert found == 3


def test_what_is_applied_beside_it_keeps_both(tmp_path: Path) -> None:
    with running(tmp_path) as (engine, supplier):
        change(tmp_path, [triple("r2", "a", "Office")], [])
        number, deadline = 0, time.monotonic() + 10
        while engine.stats()["queries"]["offices"]["knowledge"] < 2 and time.monotonic() < deadline:
            supplier.push(Event("air", number, moment(), {"sensor": "s2", "flow": 0.0}))
            supplier.flush()
            number += 1
            time.sleep(0.02)
        file = tmp_path / "app.yaml"
        file.write_text(APPLICATION.replace("?b, 20ms", "?b, 30ms"), encoding="utf-8")
        changes = engine.apply(load(file))
        assert (list(changes.queries.changed), list(changes.queries.kept)) == (["pairs"], ["offices"])
        later = range(number, number + 10)
        for n in later:
            supplier.push(Event("air", n, moment(), {"sensor": f"s{n % 3}", "flow": 0.0}))
        supplier.flush()
        found = [one for one in all_of(engine, "offices") if ids(one)[0] in later]
        assert ([ids(one)[0] for one in found], {version(one) for one in found}) == ([*later], {2})
        change(tmp_path, [], [triple("r2", "a", "Office")])
        while engine.stats()["queries"]["offices"]["knowledge"] < 3 and time.monotonic() < deadline:
            supplier.push(Event("air", next(unused), moment(), {"sensor": "s9", "flow": 0.0}))
            supplier.flush()
            time.sleep(0.02)
        assert engine.stats()["queries"]["pairs"]["knowledge"] == 3


unused = count(10_000)


def test_what_is_not_indexed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kb.ttl").write_text(TURTLE, encoding="utf-8")
    path = "PATH {?e :src ?s . ?e :flow ?f . ?s :limit ?l . FILTER (?f > ?l)}"
    (tmp_path / "app.yaml").write_text(APPLICATION.replace(OFFICES, f"SELECT ?e.sensor FROM (?e, air) {path}"))
    app = load(tmp_path / "app.yaml")
    with IntakeThread(config_of(app)), Engine(app) as engine, pytest.raises(NotYet, match="not indexed"):
        engine.follow(tmp_path / "log")


def test_a_change_while_queries_register(tmp_path: Path) -> None:
    """A change that comes between the plan and the first event is in force for it."""
    (tmp_path / "kb.ttl").write_text(TURTLE, encoding="utf-8")
    (tmp_path / "app.yaml").write_text(APPLICATION, encoding="utf-8")
    app = load(tmp_path / "app.yaml")
    with IntakeThread(config_of(app)) as intake, Engine(app) as engine, Supplier(intake.address) as supplier:
        change(tmp_path, [triple("r2", "a", "Office")], [])
        engine.follow(tmp_path / "log")
        deadline, seen = time.monotonic() + 10, set[object]()
        while "http://x#r2" not in seen and time.monotonic() < deadline:
            supplier.push(Event("air", next(unused), moment(), {"sensor": "s2", "flow": 0.0}))
            supplier.flush()
            seen |= {one.match.select["r"] for one in all_of(engine, "offices", 0.02)}
        assert "http://x#r2" in seen
        # The same as one who comes later finds.
        assert len(Knowledge.load(["kb.ttl"], folder=tmp_path, reasoning="none")) == 8
