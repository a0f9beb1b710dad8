"""The campus as knowledge, on Brick: buildings, rooms, departments, air handlers, VAV boxes, meters and sensors.

The same seed and number of sensors give the same campus, and the same text.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Final, Literal, TypeAlias

SensorKind: TypeAlias = Literal["airflow", "temperature", "occupancy", "meter"]
#: Buildings that the paper names; more are numbered.
_BUILDINGS: Final = ("RTH", "EEB", "SAL", "VHE")
_ROOMS_OF_A_FLOOR: Final = 15
_FLOORS: Final = 7
_DEPARTMENTS: Final = ("EEDepartment", "CSDepartment", "CEEDepartment", "AMEDepartment", "Library", "Registrar")
#: Kinds of rooms: how common, their class in Brick, and their numbers of airflow, temperature and occupancy sensors.
_KINDS: Final = {
    "Office": (60, "brick:Office", (1, 1, 1)),
    "MeetingRoom": (20, "brick:Conference_Room", (1, 1, 1)),
    "LectureHall": (10, "brick:Auditorium", (4, 3, 1)),
    "Laboratory": (10, "brick:Laboratory", (3, 3, 1)),
}
_CLASSES: Final = {
    "airflow": "brick:Supply_Air_Flow_Sensor",
    "temperature": "brick:Zone_Air_Temperature_Sensor",
    "occupancy": "brick:Occupancy_Sensor",
    "meter": "brick:Electrical_Meter",
}
_SUFFIXES: Final = {"airflow": "VOL", "temperature": "TMP", "occupancy": "OCC"}


@dataclass(frozen=True, slots=True)
class Room:
    """A room: its name is its building's and a number, as in RTH105."""

    name: str
    kind: str
    floor: str
    department: str


@dataclass(frozen=True, slots=True)
class Sensor:
    """Something that reports: by a name, such as RTH105VOL; a meter is a building's or a floor's, and in no room."""

    name: str
    kind: SensorKind
    room: Room | None = None


@dataclass(slots=True)
class Model:
    """A campus of so many sensors."""

    seed: int
    buildings: list[str] = field(default_factory=list)
    floors: dict[str, str] = field(default_factory=dict)
    rooms: list[Room] = field(default_factory=list)
    sensors: list[Sensor] = field(default_factory=list)

    @classmethod
    def of(cls, sensors: int, seed: int = 2012) -> Model:
        """A campus with exactly this many sensors, meters included; at least one of each kind."""
        if sensors < 4:
            raise ValueError("a campus has at least 4 sensors")
        model = cls(seed)
        chance = random.Random(seed)  # noqa: S311 - made-up data, no secret
        for sensor in model._grow(chance):
            model.sensors.append(sensor)
            if len(model.sensors) == sensors:
                break
        return model

    def _grow(self, chance: random.Random) -> Iterator[Sensor]:
        """Building after building, without end; what a sensor stands in is there before it."""
        while True:
            number = len(self.buildings)
            building = _BUILDINGS[number] if number < len(_BUILDINGS) else f"B{number + 1:03}"
            self.buildings.append(building)
            yield Sensor(f"{building}-main", "meter")
            for level in range(1, _FLOORS + 1):
                floor = f"{building}-L{level}"
                self.floors[floor] = building
                department = chance.choice(_DEPARTMENTS)
                for position in range(_ROOMS_OF_A_FLOOR):
                    kinds, weights = list(_KINDS), [common for common, _, _ in _KINDS.values()]
                    kind = chance.choices(kinds, weights)[0]
                    if number == 0 and level == 1 and position < len(kinds):
                        kind = kinds[position]  # the smallest campus has every kind
                        department = _DEPARTMENTS[0]
                    room = Room(f"{building}{level}{position + 1:02}", kind, floor, department)
                    self.rooms.append(room)
                    yield from _sensors(room)
                yield Sensor(floor, "meter")

    def write(self, folder: Path) -> Path:
        """Write campus.ttl, and beside it the vocabulary that it imports."""
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary = resources.files("cepheid.examples.campus") / "vocabulary.ttl"
        (folder / "vocabulary.ttl").write_bytes(vocabulary.read_bytes())
        path = folder / "campus.ttl"
        path.write_text(self.as_turtle(), encoding="utf-8")
        return path

    def as_turtle(self) -> str:
        """The campus in Turtle."""
        return "\n".join([_HEADER.format(sensors=len(self.sensors), seed=self.seed), *self._statements(), ""])

    def _statements(self) -> Iterator[str]:
        for department in _DEPARTMENTS:
            yield f"org:{department} a org:Department ."
        for building in self.buildings:
            yield f'bd:{building} a brick:Building ; rdfs:label "{building}" .'
            yield f"ee:{building}-AHU a brick:AHU ; brick:hasLocation bd:{building} ."
        for floor, building in self.floors.items():
            yield f"bd:{floor} a brick:Floor ; brick:isPartOf bd:{building} ."
        equipped = {sensor.room.name for sensor in self.sensors if sensor.room is not None}
        for room in self.rooms:
            if room.name in equipped:
                yield (
                    f"bd:{room.name} a {_KINDS[room.kind][1]} ; brick:isPartOf bd:{room.floor} ; "
                    f"bd:belongsTo org:{room.department} ."
                )
                yield (
                    f"ee:{room.name}-VAV a brick:VAV ; brick:isFedBy ee:{self.floors[room.floor]}-AHU ; "
                    f"brick:feeds bd:{room.name} ."
                )
        for sensor in self.sensors:
            yield self._statement(sensor)

    def _statement(self, sensor: Sensor) -> str:
        begin = f"ee:{sensor.name} a {_CLASSES[sensor.kind]}"
        if sensor.room is None:
            return f"{begin} ; brick:meters bd:{sensor.name.removesuffix('-main')} ."
        if sensor.kind == "airflow":
            return f"{begin} ; brick:isPointOf ee:{sensor.room.name}-VAV ."
        device = f' ; ee:deviceId "{sensor.name}"' if sensor.kind == "temperature" else ""
        return f"{begin} ; bd:hasLocation bd:{sensor.room.name}{device} ."


def _sensors(room: Room) -> Iterator[Sensor]:
    kinds: tuple[SensorKind, ...] = ("airflow", "temperature", "occupancy")
    for kind, count in zip(kinds, _KINDS[room.kind][2], strict=True):
        for number in range(1, count + 1):
            yield Sensor(f"{room.name}{_SUFFIXES[kind]}{number if number > 1 else ''}", kind, room)


_HEADER: Final = """\
# A campus of {sensors} sensors, made up by cepheid.campus from seed {seed}.
@prefix bd: <http://cei.usc.edu/Building.owl#> .
@prefix brick: <https://brickschema.org/schema/Brick#> .
@prefix ee: <http://cei.usc.edu/Equipment.owl#> .
@prefix hvc: <http://cei.usc.edu/HVAC.owl#> .
@prefix org: <http://cei.usc.edu/Organization.owl#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .

<http://cei.usc.edu/campus> a owl:Ontology ; owl:imports <http://cei.usc.edu/campus/vocabulary> .
"""
