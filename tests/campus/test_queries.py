"""The paper's queries on the campus: what they find is what was put there."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

import pytest

import cepheid as cepheid_package
from cepheid.app import examine, load
from cepheid.app.application import Application
from cepheid.app.known import Known
from cepheid.app.meaning import judged
from cepheid.app.question import ask
from cepheid.campus.generator import START, Campus
from cepheid.campus.model import Room
from cepheid.cli.engines import find_matches
from cepheid.demo.findings import Findings, Found, Seen, latencies
from cepheid.language.checker import check
from cepheid.language.errors import Source
from cepheid.language.parser import examine as parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.model.readers import read_events
from cepheid.plan.typing import derive
from tests.cli.test_cli import cepheid

EXAMPLE = Path(cepheid_package.__file__).parent / "examples" / "campus"
MINUTE = 60_000_000


@dataclass(frozen=True)
class World:
    """A campus of 200 sensors, its first minutes, and the application over it."""

    campus: Campus
    app: Application
    known: Known | None
    events: list[Event]
    folder: Path

    def find(self, query: str) -> list[Match]:
        text = (EXAMPLE / "queries" / f"{query}.chi").read_text(encoding="utf-8")
        tree, problems = parse(Source(query, text))
        assert tree is not None, problems
        graph = self.app.graph
        catalogue = Catalogue(derive(graph).streams, graph.default_stream, graph.prefixes, graph.properties)
        checked, problems = check(tree, catalogue)
        assert checked is not None, problems
        return list(find_matches("native", ask(checked, self.known), self.events, 0))

    def sensors(self, kind: str | None = None, department: str | None = None) -> set[str]:
        """The airflow sensors of rooms of a kind and a department."""
        return {
            sensor.name
            for sensor in self.campus.model.sensors
            if sensor.kind == "airflow"
            and isinstance(sensor.room, Room)
            and kind in (None, sensor.room.kind)
            and department in (None, sensor.room.department)
        }

    def overcooled(self, among: set[str]) -> set[str]:
        """The sensors that were made to report too much."""
        return {fault.sensor for fault in self.campus.truth.faults if fault.kind == "overcooled"} & among

    def reports(self, among: set[str] | None) -> list[Event]:
        """What these sensors reported, in order; None: all, and those that nobody knows."""
        own = (e for e in self.events if e.stream == "airflowReport" and isinstance(e.attributes["flowrate"], float))
        return sorted((e for e in own if among is None or e.attributes["sensorID"] in among), key=lambda e: e.order)

    def flows(self, among: set[str]) -> Iterator[tuple[int, str, float]]:
        """When which of these sensors reported what, in order."""
        for event in sorted(self.events, key=lambda e: e.order):
            sensor, flow = event.attributes.get("sensorID"), event.attributes.get("flowrate")
            if event.stream == "airflowReport" and sensor in among and isinstance(flow, float):
                yield event.time, str(sensor), flow


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("campus")
    campus = Campus(21, 200)  # two offices of the department and a meeting room have faults
    campus.model.write(folder)
    campus.write(folder / "events", 1, 24_000)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CAMPUS_KNOWLEDGE", str(folder / "campus.ttl"))
        environment.setenv("CAMPUS_EVENTS", str(folder / "events"))
        app = load(EXAMPLE / "app.yaml")
        known = app.known()
        assert known is not None
        found = read_events([folder / "events" / "events-0001.jsonl"], app.graph.streams.values())
        events = {(e.stream, e.id): e for e in found if isinstance(e, Event)}
        yield World(campus, app, known, list(events.values()), folder)


@pytest.mark.parametrize(
    ("query", "kind", "department"),
    [("query4", "Office", "EEDepartment"), ("query5", "Office", "EEDepartment")],
)
def test_offices_that_are_overcooled(world: World, query: str, kind: str, department: str) -> None:
    meant = world.sensors(kind, department)
    found = world.find(query)
    assert {m.select["sensorID"] for m in found} == world.overcooled(meant)
    assert len(world.overcooled(meant)) > 1
    assert len(found) == sum(flow > 500 for _, _, flow in world.flows(meant))


def test_without_knowledge_every_room_is_found_and_who_nobody_knows(world: World) -> None:
    found = {m.select["sensorID"] for m in world.find("query1")}
    assert found & world.sensors() == world.overcooled(world.sensors())
    strangers = {str(e.attributes.get("sensorID")) for e in world.events} - world.sensors()
    assert found - world.sensors() == {name for _, name, flow in world.flows(strangers) if flow > 500}


@pytest.mark.parametrize(("query", "kind"), [("query3", None), ("query7", "MeetingRoom")])
def test_rooms_that_get_more_and_more(world: World, query: str, kind: str | None) -> None:
    meant = None if kind is None else world.sensors(kind)
    reports = world.reports(meant)
    found = world.find(query)
    by_sensor: dict[object, list[Event]] = {}
    for event in reports:
        by_sensor.setdefault(event.attributes["sensorID"], []).append(event)
    expected = {
        (one.id, other.id)
        for own in by_sensor.values()
        for one in own
        for other in own
        if flow(one) > 500 and flow(other) - flow(one) > 50 and 0 < other.time - one.time <= 5 * MINUTE
    }
    assert {(m.events["e1"][1], m.events["e2"][1]) for m in found} == expected  # type: ignore[index]
    sensors = {str(m.select["sensorID"]) for m in found} & world.sensors()
    assert sensors == world.overcooled(world.sensors(kind))
    assert sensors


@pytest.mark.parametrize(("query", "kind"), [("query2", None), ("query6", "Office")])
def test_the_average_of_five_minutes(world: World, query: str, kind: str | None) -> None:
    reports = world.reports(None if kind is None else world.sensors(kind, "EEDepartment"))
    assert averages(world.find(query)) == above(reports)


def test_the_average_exceeds_500_while_and_shortly_after_a_room_is_overcooled(tmp_path: Path) -> None:
    """Query 2 in a small building, where nothing but the fault that was put in can bring it about."""
    campus = Campus(5, 20)
    faulty = {fault.sensor: fault for fault in campus.truth.faults if fault.kind == "overcooled"}
    (fault,) = faulty.values()
    campus.write(tmp_path, 1, 4_000)
    app = load(EXAMPLE / "app.yaml")
    found = read_events([tmp_path / "events-0001.jsonl"], app.graph.streams.values())
    own = [e for e in found if isinstance(e, Event) and e.attributes.get("sensorID") == fault.sensor]
    events = list({e.id: e for e in own}.values())
    world = World(campus, app, None, events, tmp_path)
    times = [time for time, _ in averages(world.find("query2"))]
    assert averages(world.find("query2")) == above(world.reports(None))
    # None before it begins, nor when it is out of sight; all from where nothing else is in sight up to its end.
    assert fault.begins <= min(times)
    assert max(times) < fault.ends + 5 * MINUTE
    inside = [e.time for e in world.reports(None) if fault.begins + 5 * MINUTE <= e.time < fault.ends]
    assert len(inside) > 20
    assert set(inside) <= set(times)


def test_air_handlers_that_run_away_raise_the_averages_and_a_summary_says_what_was_missed(tmp_path: Path) -> None:
    """What the demo holds against what was put there: averages too, which name no sensor."""
    begins = START + 25 * MINUTE
    campus = Campus(21, 700, runaway=begins)
    assert [f.sensor for f in campus.truth.faults if f.kind == "runaway"] == ["RTH-AHU"]  # of two buildings
    campus.model.write(tmp_path)
    until = begins + 10 * MINUTE
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(campus.lines_until(until)))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CAMPUS_KNOWLEDGE", str(tmp_path / "campus.ttl"))
        app = load(EXAMPLE / "app.yaml")
        known = app.known()
    read = read_events([tmp_path / "events.jsonl"], app.graph.streams.values())
    events = {(e.stream, e.id): e for e in read if isinstance(e, Event)}
    small = World(campus, app, known, list(events.values()), tmp_path)
    queries = {
        "overcooled": "query1",
        "average": "query2",
        "rising": "query3",
        "office_average": "query6",
        "lecture_halls": "demand_response",
    }
    found = {}
    for name, query in queries.items():
        matches = {m.id: Seen(m.time, m.select.get("sensorID")) for m in small.find(query)}  # type: ignore[arg-type]
        found[name] = Found(set(matches), matches)
    findings = Findings(campus, until, found)
    engines = dict.fromkeys(queries, "native")
    assert all(map(findings.agree, queries)), list(findings.table(engines))
    assert findings.sources("average") == findings.sources("office_average") == {"RTH-AHU"}
    quiet = Findings(campus, until, {**found, "average": Found()})
    assert not quiet.agree("average")
    assert "DIFFERENT: missed RTH-AHU" in next(line for line in quiet.table(engines) if line.startswith("average"))


def test_latencies_are_those_of_the_graph_s_levels_and_of_the_queries() -> None:
    book = {"latency": {"count": 1, "p50_ns": 1e6, "p99_ns": 2e6}}
    stats = {"levels": {"critical": book, "low": book}, "queries": {"rising": book}}
    lines = list(latencies(stats, ["critical", "high", "low"], {"rising": "high", "on_spark": "low"}))
    assert [line.split()[:2] for line in lines[1:]] == [["critical", "graph"], ["high", "rising"], ["low", "graph"]]


def flow(event: Event) -> float:
    value = event.attributes["flowrate"]
    assert isinstance(value, float)
    return value


def averages(found: list[Match]) -> list[tuple[int, float]]:
    """When an average was found, and which."""
    assert all(isinstance(m.select["avgrate"], float) for m in found)
    return sorted((m.time, m.select["avgrate"]) for m in found)  # type: ignore[misc]


def above(reports: list[Event]) -> list[tuple[int, float]]:
    """When the average of the five minutes before exceeded 500, worked out here."""
    times = [event.time for event in reports]
    sums = [*accumulate((Fraction(flow(event)) for event in reports), initial=Fraction(0))]
    expected = []
    for time in times:
        low, high = bisect_right(times, time - 5 * MINUTE), bisect_right(times, time)
        average = float(sums[high] - sums[low]) / (high - low)
        if average > 500:
            expected.append((time, average))
    return expected


def test_events_that_share_no_attribute_are_joined_by_their_room(world: World) -> None:
    rooms = {s.name: s.room.name for s in world.campus.model.sensors if isinstance(s.room, Room)}
    found = world.find("same_room")
    by_id = {(e.stream, e.id): e for e in world.events}
    assert found
    for match in found:
        names = {str(by_id[match.events[v]].attributes["sensorID"]) for v in ("air", "warm")}  # type: ignore[index]
        assert {f"http://cei.usc.edu/Building.owl#{rooms[name]}" for name in names} == {match.select["room"]}


def test_the_commands_work_on_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMPUS_KNOWLEDGE", str(world.folder / "campus.ttl"))
    monkeypatch.setenv("CAMPUS_EVENTS", str(world.folder / "events"))
    application, diagnostics = examine(EXAMPLE / "app.yaml")
    assert application is not None
    assert [*diagnostics, *judged(application)] == []
    (pruned, *_) = application.plan(world.known).semantic["green_office"].steps
    assert (pruned.rule, pruned.reason) == ("prune", "hvc:GreenOfficeAirflow hvc:hasValue ?gaf: ?gaf is 500")
    events = str(world.folder / "events" / "events-0001.jsonl")
    query, app = str(EXAMPLE / "queries" / "query5.chi"), str(EXAMPLE / "app.yaml")
    matched = cepheid("match", query, "--events", events, "--app", app)
    assert {json.loads(line)["select"]["sensorID"] for line in matched.stdout.splitlines()} == world.overcooled(
        world.sensors("Office", "EEDepartment")
    )
