"""The paper's queries on the campus: what they find is what was put there."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import cepheid as cepheid_package
from cepheid.app import examine, load
from cepheid.app.application import Application
from cepheid.app.known import Known
from cepheid.app.meaning import judged
from cepheid.app.question import ask
from cepheid.campus.generator import Campus
from cepheid.campus.model import Room
from cepheid.cli.engines import find_matches
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
    known: Known
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
    meant = world.sensors(kind)
    found = {str(m.select["sensorID"]) for m in world.find(query)}
    assert found & world.sensors() == world.overcooled(meant)
    assert world.overcooled(meant)


def test_the_average_of_offices(world: World) -> None:
    flows = list(world.flows(world.sensors("Office", "EEDepartment")))
    times = [time for time, _, _ in flows]
    expected = 0
    for time in times:
        low, high = bisect_right(times, time - 5 * MINUTE), bisect_right(times, time)
        window = [flow for _, _, flow in flows[low:high]]
        expected += sum(window) / len(window) > 500
    assert len(world.find("query6")) == expected
    assert len(world.find("query2")) < sum(flow > 0 for _, _, flow in world.flows(world.sensors()))


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
