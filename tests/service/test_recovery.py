"""What came while there was no engine is made good by the next one: nothing missing, nothing twice, marked."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cepheid.app import Application, load
from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher
from cepheid.service.engine import Engine
from cepheid.service.intake import IntakeThread, config_of
from cepheid.service.lanes import Found
from cepheid.service.log import LogReader
from cepheid.service.subscription import Subscription
from cepheid.service.supplier import Supplier
from tests.service.intakes import tail_of

APPLICATION = """
name: plant
streams:
  air: {attributes: {sensor: string, flow: float}, lateness: 0s, idle: 100ms}
queries:
  rising:
    engine: service
    text: "SELECT ?b.flow FROM (?a, air), (?b, air) JOIN (?b.flow > ?a.flow) SEQ (?a, ?b) WINDOW (?a, ?b, 1h)"
  silent:
    engine: service
    text: "SELECT ?a.flow FROM (?a, air), (?b, air) SEQ (?a, NOT ?b) WINDOW (?a, ?b, 600ms)"
service: {listen: "unix:supply.sock", log: {path: log, durability: none}}
"""


@contextmanager
def plant(folder: Path) -> Iterator[tuple[Application, Supplier]]:
    (folder / "app.yaml").write_text(APPLICATION)
    app = load(folder / "app.yaml")
    with IntakeThread(config_of(app)) as intake, Supplier(intake.address) as supplier:
        yield app, supplier
    for each in (folder / "log", folder / "log" / "dead"):
        tail_of(each).unlink(missing_ok=True)


def air(number: int) -> Event:
    """From now on, one later than the other however fast they come."""
    moment = time.time_ns() // 1000 + number
    return Event("air", number, moment, {"sensor": "s", "flow": float(number % 50)})


def read_all(engine: Engine, query: str, timeout: float = 0.5) -> list[Found]:
    found = []
    while (one := engine.matches(query).get(timeout)) is not None:
        found.append(one)
    return found


def test_what_waits_for_time_is_not_taken_to_be_delivered(tmp_path: Path) -> None:
    """The engine ends after an event, all of whose matches so far were read; what is due later comes from the next."""
    with plant(tmp_path) as (app, supplier):
        with Engine(app) as engine:
            engine.follow(tmp_path / "log")
            supplier.push(air(1))
            supplier.flush()
            assert engine.matches("silent").get(timeout=0.3) is None
        with Engine(app) as engine:
            engine.follow(tmp_path / "log")
            (found,) = read_all(engine, "silent", 3)
            assert found.match.events == {"a": ("air", 1)}
            assert found.marks == {"recovered"}
        with Engine(app) as engine:  # and once
            engine.follow(tmp_path / "log")
            assert engine.matches("silent").get(timeout=1.5) is None


def test_what_came_meanwhile_is_marked_and_what_is_live_is_not(tmp_path: Path) -> None:
    with plant(tmp_path) as (app, supplier):
        with Engine(app) as engine:
            engine.follow(tmp_path / "log")
            supplier.push_many([air(1), air(2)])
            supplier.flush()
            assert [one.marks for one in read_all(engine, "rising")] == [frozenset()]
        supplier.push(air(3))
        supplier.flush()
        with Engine(app) as engine:
            engine.follow(tmp_path / "log")
            assert [one.marks for one in read_all(engine, "rising")] == [{"recovered"}] * 2
            supplier.push(air(4))
            supplier.flush()
            assert [one.marks for one in read_all(engine, "rising")] == [frozenset()] * 3
            # How long a lane takes is told apart from how long there was none.
            book = engine.stats()["queries"]["rising"]
            assert (book["recovered"], book["delay"]["count"], book["latency"]["count"]) == (2, 2, 3)


def test_recovered_matches_wait_for_who_reads_them(tmp_path: Path) -> None:
    """More come at once than a live query may keep; one that is removed meanwhile holds up nobody."""
    with plant(tmp_path) as (app, supplier):
        with Engine(app) as engine:
            engine.follow(tmp_path / "log")  # registers the queries
        events = []
        for number in range(300):
            events.append(air(number))
            supplier.push(events[-1])
        supplier.flush()
        wanted = [match.id for match in Matcher(app.plan().queries["rising"]).matches(events)]
        assert len(wanted) > 10_000
        with Engine(app) as engine:
            engine.follow(tmp_path / "log")
            assert {one.match.id for one in read_all(engine, "rising")} == set(wanted)
            assert engine.stats()["queries"]["rising"]["lost"] == 0


def test_a_query_that_is_removed_while_it_recovers(tmp_path: Path) -> None:
    with plant(tmp_path) as (app, supplier):
        with Engine(app) as engine:
            engine.follow(tmp_path / "log")
        supplier.push_many([air(number) for number in range(300)])
        supplier.flush()
        with Engine(app) as engine:
            engine.follow(tmp_path / "log")
            lines = APPLICATION.splitlines(keepends=True)
            start = next(at for at, line in enumerate(lines) if line.startswith("  rising"))
            (tmp_path / "app.yaml").write_text("".join([*lines[:start], *lines[start + 3 :]]))
            changes = engine.apply(load(tmp_path / "app.yaml"))
            assert changes.queries.removed == ["rising"]
            found = engine.matches("silent").get(timeout=5)
            assert found is not None
            assert list(engine.stats()["queries"]) == ["silent"]


FULL = """
import resource, sys
from cepheid.app import load
from cepheid.service.engine import Engine
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # every write to a file fails, as on a full disk
with Engine(load("app.yaml")) as engine:
    engine.follow("log")
    found = set()
    while (one := engine.matches("rising").get(timeout=2)) is not None:
        found.add(one.match.id)
    sys.stdout.write(f"{len(found)}")
"""


def test_a_full_disk_does_not_keep_an_engine_from_coming_back(tmp_path: Path) -> None:
    with plant(tmp_path) as (app, supplier):
        with Engine(app) as engine:
            engine.follow(tmp_path / "log")
        supplier.push_many([air(number) for number in range(40)])
        supplier.flush()
        done = subprocess.run(
            [sys.executable, "-c", FULL], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout == str(40 * 39 // 2), done.stderr
        # Nothing could be written down, so the next one says it again.
        with Engine(app) as engine:
            engine.follow(tmp_path / "log")
            assert len(read_all(engine, "rising")) == 40 * 39 // 2


def test_a_client_gives_a_match_once() -> None:
    subscription = Subscription("rising", None)
    assert not subscription._came_before("a", is_recovered=False)
    assert not subscription._came_before("b", is_recovered=True)
    assert subscription._came_before("a", is_recovered=True)
    for number in range(1 << 16):
        assert not subscription._came_before(str(number), is_recovered=True)
    assert not subscription._came_before("a", is_recovered=True), "what was long ago is forgotten"


def test_a_clock_that_is_set_wrongly(tmp_path: Path) -> None:
    """An event from far ahead makes those after it late (rule E4): for everyone, now and after a restart."""
    with plant(tmp_path) as (app, supplier):
        with Engine(app) as engine:
            engine.follow(tmp_path / "log")
            first = air(1)
            ahead = Event("air", 2, first.time + 10 * 365 * 86_400_000_000, {"sensor": "s", "flow": 2.0})
            supplier.push_many([first, ahead, air(3), air(4)])
            supplier.flush()
            live = {one.match.id for one in read_all(engine, "silent")}
        with Engine(app) as engine:
            engine.follow(tmp_path / "log")
            assert read_all(engine, "silent") == []
        logged = list(LogReader(tmp_path / "log"))
        assert [one.late for one in logged] == [False, False, True, True]
        in_time = [one.event for one in logged if not one.late]
        wanted = Matcher(app.plan().queries["silent"]).matches(in_time)
        assert live == {match.id for match in wanted if match.time < ahead.time}
