"""Events of a campus, as its devices would send them: at their own rates, in several spellings, some late or malformed.

The same seed gives the same bytes. What is wrong with a record, and what is wrong on the campus, is known from the
start, so that what a pipeline or a query finds can be compared with what was put in.
"""

from __future__ import annotations

import heapq
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from cepheid.campus.model import Model, Room, Sensor
from cepheid.model.time import format_instant, parse_instant
from cepheid.model.types import Json

#: The morning of the paper's example.
START: Final = parse_instant("2012-05-07T09:00")
#: One record in so many is malformed, late, or from a sensor that nobody knows.
ONE_BAD_IN: Final = 80
ONE_LATE_IN: Final = 250
ONE_UNKNOWN_IN: Final = 500
#: One sensor in so many has a fault.
ONE_FAULTY_IN: Final = 25

_SECOND: Final = 1_000_000
#: How often each kind of sensor reports; an occupancy sensor reports changes.
_PERIODS: Final = {
    "airflow": 10 * _SECOND,
    "temperature": 30 * _SECOND,
    "meter": 60 * _SECOND,
    "occupancy": 600 * _SECOND,
}
#: Air that no room without a fault exceeds, and what the overcooled ones get.
_MOST_AIR: Final = 480.0
_TOO_MUCH_AIR: Final = 520.0
#: What every room of a building gets whose air handler runs away, and for how long; so much that it raises averages.
_RUNAWAY_AIR: Final = 1500.0
_RUNAWAY: Final = 420 * _SECOND

#: What a malformed record of each code looks like, made from a good one.
_MALFORMED: Final[dict[str, Callable[[dict[str, Json], bytes], bytes]]] = {
    "not-json": lambda _, line: line[: len(line) // 2],
    "not-utf8": lambda _, line: line.replace(b'"stream"', b'"str\xffeam"'),
    "duplicate-attribute": lambda _, line: line[:-1] + b', "time": 0}',
    "unknown-stream": lambda record, _: _encode({**record, "stream": "airflowRaport"}),
    "missing-time": lambda record, _: _encode({k: v for k, v in record.items() if k != "time"}),
    "missing-id": lambda record, _: _encode({k: v for k, v in record.items() if k != "id"}),
    "unknown-attribute": lambda record, _: _encode({**record, "firmware": "2.1"}),
    "wrong-type": lambda record, _: _encode({**record, _own(record): {"value": "high"}}),
    "not-finite": lambda record, _: _encode({**record, _reading(record): float("nan")}),
    "out-of-range": lambda record, _: _encode({**record, "time": 2**62}),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong on the campus, from one time up to another (microseconds).

    `overcooled`: the airflow exceeds 500, and then rises by more than 50 within 5 minutes. `stuck`: a thermometer shows
    the same all the time. `runaway`: an air handler gives every room of its building far more than 500, evenly.
    """

    kind: str
    sensor: str
    room: str
    begins: int
    ends: int


@dataclass(slots=True)
class Truth:
    """What was generated: records by stream, malformed ones by the code of what is wrong; late ones and those of
    unknown sensors, which are among the good, by stream; and the campus's faults."""

    good: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)

    @property
    def records(self) -> int:
        return self.good.total() + self.bad.total()

    def write(self, path: Path) -> None:
        """Write everything down as JSON."""
        told = {name: dict(sorted(getattr(self, name).items())) for name in ("good", "bad", "late", "unknown")}
        faults = [
            {**asdict(f), "begins": format_instant(f.begins), "ends": format_instant(f.ends)} for f in self.faults
        ]
        path.write_text(json.dumps({**told, "faults": faults}, indent=1) + "\n", encoding="utf-8")


class Campus:
    """A campus at work. `model` is what is known of it. At `runaway`, if given, the air handlers of half of the
    buildings run away."""

    def __init__(self, seed: int = 2012, sensors: int = 700, start: int = START, *, runaway: int | None = None) -> None:
        self.model = Model.of(sensors, seed)
        self._start = start
        self.truth = Truth()
        self._random = random.Random(seed)  # noqa: S311 - made-up data, no secret
        self._ids: Counter[str] = Counter()
        self._level = {s.name: self._first(s) for s in self.model.sensors}
        #: Vendors spell attributes their way, and a sensor has one vendor.
        self._spelling = {s.name: self._random.randrange(3) for s in self.model.sensors}
        self._faults = self._make_faults()
        self._runaways = {} if runaway is None else self._make_runaways(runaway)
        faults = (*self._faults.values(), *self._runaways.values())
        self.truth.faults = sorted(faults, key=lambda fault: (fault.begins, fault.sensor))
        #: What reports next: a sensor by position, or a record that was held up.
        self._due: list[tuple[int, int, dict[str, Json] | None]] = [
            (start + self._random.randrange(_PERIODS[s.kind]), i, None) for i, s in enumerate(self.model.sensors)
        ]
        heapq.heapify(self._due)
        self._held = len(self._due)

    def _first(self, sensor: Sensor) -> float:
        return {
            "airflow": self._random.uniform(250, 450),
            "temperature": self._random.gauss(22, 1),
            "meter": self._random.uniform(5, 20),
            "occupancy": float(self._random.random() < 0.5),
        }[sensor.kind]

    def _make_faults(self) -> dict[str, Fault]:
        """The first office and every so manyth sensor after; each fault once, somewhere in the first half hour."""
        faults: dict[str, Fault] = {}
        for kind, sensor_kind in (("overcooled", "airflow"), ("stuck", "temperature")):
            candidates = [s for s in self.model.sensors if s.kind == sensor_kind]
            for sensor in candidates[::ONE_FAULTY_IN]:
                begins = self._start + self._random.randrange(60, 1200) * _SECOND
                room = sensor.room.name if isinstance(sensor.room, Room) else ""
                faults[sensor.name] = Fault(kind, sensor.name, room, begins, begins + 600 * _SECOND)
        return faults

    def _make_runaways(self, begins: int) -> dict[str, Fault]:
        """By building: half of them, and the first at least."""
        buildings = self.model.buildings[: (len(self.model.buildings) + 1) // 2]
        return {name: Fault("runaway", f"{name}-AHU", name, begins, begins + _RUNAWAY) for name in buildings}

    def lines(self, count: int) -> Iterator[bytes]:
        """The next records, a line each; goes on where the last call ended."""
        for _ in range(count):
            yield self._line()

    def lines_until(self, moment: int) -> Iterator[bytes]:
        """The next records, a line each, up to those that arrive at a time (microseconds)."""
        while self._due[0][0] < moment:
            yield self._line()

    def _line(self) -> bytes:
        record = self._next()
        line = _encode(record)
        if self._random.randrange(ONE_BAD_IN) == 0:
            code = self._random.choice([c for c in _MALFORMED if c != "not-finite" or _reading(record)])
            self.truth.bad[code] += 1
            return _MALFORMED[code](record, line)
        self.truth.good[str(record["stream"])] += 1
        return line

    def write(self, folder: Path, files: int, records: int) -> None:
        """Write so many files of so many records. A file appears when it is complete, as a stream of files needs it."""
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(files):
            self._ids["file"] += 1
            path = folder / f"events-{self._ids['file']:04}.jsonl"
            hidden = folder / f".{path.name}.part"
            hidden.write_bytes(b"\n".join(self.lines(records)) + b"\n")
            hidden.rename(path)

    def _next(self) -> dict[str, Json]:
        """The record that arrives next: in order of time, but for those that were held up on their way."""
        while True:
            now, position, held = heapq.heappop(self._due)
            if held is not None:
                self.truth.late[str(held["stream"])] += 1
                return held
            sensor = self.model.sensors[position]
            jitter = self._random.randrange(_SECOND // 10)
            period = _PERIODS[sensor.kind]
            pause = period if sensor.kind != "occupancy" else self._random.randrange(period // 10, 2 * period)
            heapq.heappush(self._due, (now + pause + jitter, position, None))
            record = self._record(sensor, now)
            if self._random.randrange(ONE_LATE_IN) == 0:
                self._held += 1
                heapq.heappush(self._due, (now + self._random.randrange(20, 90) * _SECOND, self._held, record))
                continue
            return record

    def _record(self, sensor: Sensor, now: int) -> dict[str, Json]:
        name = sensor.name
        if sensor.kind in ("airflow", "temperature") and self._random.randrange(ONE_UNKNOWN_IN) == 0:
            name = f"X{self._random.randrange(100)}{name}"
            self.truth.unknown["airflowReport" if sensor.kind == "airflow" else "ambientTemperature"] += 1
        if sensor.kind == "airflow":
            spelling = ("flowrate", "airvolume", "airflow")[self._spelling[sensor.name]]
            return self._event("airflowReport", now, sensorID=name, **{spelling: self._airflow(sensor, now)})
        if sensor.kind == "temperature":
            spelling = ("celsius", "celsius", "temperature")[self._spelling[sensor.name]]
            return self._event("ambientTemperature", now, sensorID=name, **{spelling: self._temperature(sensor, now)})
        if sensor.kind == "meter":
            level = self._level[name] = max(0.5, self._level[name] + self._random.gauss(0, 0.5))
            readings = self._random.randrange(60)
            return self._event("meterUpdate", now, meterID=name, kwh=round(level, 3), readings=readings)
        occupied = self._level[name] = 1 - self._level[name]
        since = format_instant(now - self._random.randrange(60 * _SECOND))
        room = sensor.room.name if sensor.room is not None else ""
        return self._event("roomOccupancy", now, room=room, occupied=bool(occupied), since=since)

    def _airflow(self, sensor: Sensor, now: int) -> float:
        fault = self._faults.get(sensor.name)
        if fault is not None and fault.begins <= now < fault.ends:
            # Too much from the start, and 20 more with each minute.
            return round(_TOO_MUCH_AIR + 20 * (now - fault.begins) / (60 * _SECOND), 1)
        runaway = self._runaways.get(self.model.floors[sensor.room.floor]) if isinstance(sensor.room, Room) else None
        if runaway is not None and runaway.begins <= now < runaway.ends:
            return _RUNAWAY_AIR
        level = self._level[sensor.name] + self._random.gauss(0, 8)
        self._level[sensor.name] = min(_MOST_AIR, max(100.0, level))
        return round(self._level[sensor.name], 1)

    def _temperature(self, sensor: Sensor, now: int) -> float:
        fault = self._faults.get(sensor.name)
        if fault is None or not fault.begins <= now < fault.ends:
            level = self._level[sensor.name]
            self._level[sensor.name] = level + (22 - level) / 20 + self._random.gauss(0, 0.15)
        return round(self._level[sensor.name], 2)

    def _event(self, stream: str, now: int, **attributes: Json) -> dict[str, Json]:
        self._ids[stream] += 1
        return {"stream": stream, "id": self._ids[stream], "time": format_instant(now), **attributes}


def _encode(record: dict[str, Json]) -> bytes:
    return json.dumps(record).encode()


def _own(record: dict[str, Json]) -> str:
    """The last attribute of a record."""
    return list(record)[-1]


def _reading(record: dict[str, Json]) -> str:
    """The attribute of a record that is a float, if there is one."""
    return next((name for name, value in record.items() if isinstance(value, float)), "")
