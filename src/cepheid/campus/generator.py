"""Events of a campus, as its devices would send them: in order, in several spellings, and now and then malformed.

The same seed gives the same bytes. What is wrong with a record is known from the start, so that what a pipeline finds
can be compared with what was put in.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cepheid.model.time import format_instant, parse_instant
from cepheid.model.types import Json

#: The morning of the paper's example.
START: Final = parse_instant("2012-05-07T09:00")
#: One record in so many is malformed.
ONE_BAD_IN: Final = 80

#: What a malformed record of each code looks like, made from a good one.
_FAULTS: Final[dict[str, Callable[[dict[str, Json], bytes], bytes]]] = {
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


@dataclass(slots=True)
class Truth:
    """What was generated: records by stream, malformed ones by the code of what is wrong."""

    good: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        return self.good.total() + self.bad.total()


class Campus:
    """A campus of rooms, each with an airflow and a temperature sensor, and a meter a building."""

    def __init__(self, seed: int = 2012, rooms: int = 200) -> None:
        self.truth = Truth()
        self._random = random.Random(seed)  # noqa: S311 - made-up data, no secret
        self._rooms = [f"{building}{number}" for building in ("RTH", "EEB", "SAL", "VHE") for number in range(100, 600)]
        self._rooms = self._random.sample(self._rooms, rooms)
        self._flow = {room: self._random.uniform(250, 520) for room in self._rooms}
        self._ids: Counter[str] = Counter()
        self._now = START

    def lines(self, count: int) -> Iterator[bytes]:
        """The next records, a line each; goes on where the last call ended."""
        for _ in range(count):
            self._now += self._random.randint(1_000, 20_000)
            record = self._record()
            line = _encode(record)
            if self._random.randrange(ONE_BAD_IN) == 0:
                code = self._random.choice([c for c in _FAULTS if c != "not-finite" or _reading(record)])
                self.truth.bad[code] += 1
                yield _FAULTS[code](record, line)
            else:
                self.truth.good[str(record["stream"])] += 1
                yield line

    def write(self, folder: Path, files: int, records: int) -> None:
        """Write so many files of so many records. A file appears when it is complete, as a stream of files needs it."""
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(files):
            self._ids["file"] += 1
            path = folder / f"events-{self._ids['file']:04}.jsonl"
            hidden = folder / f".{path.name}.part"
            hidden.write_bytes(b"\n".join(self.lines(records)) + b"\n")
            hidden.rename(path)

    def _record(self) -> dict[str, Json]:
        room = self._random.choice(self._rooms)
        kind = self._random.choices(("air", "temperature", "meter", "occupancy"), (60, 25, 10, 5))[0]
        if kind == "air":
            self._flow[room] = min(700.0, max(100.0, self._flow[room] + self._random.gauss(0, 15)))
            spelling = self._random.choice(("flowrate", "flowrate", "airvolume", "airflow"))
            return self._event("airflowReport", sensorID=f"{room}VOL", **{spelling: round(self._flow[room], 1)})
        if kind == "temperature":
            celsius = round(self._random.gauss(22, 1.5), 2)
            return self._event("ambientTemperature", sensorID=f"{room}TMP", celsius=celsius)
        if kind == "meter":
            kwh = round(self._random.uniform(0, 40), 3)
            return self._event("meterUpdate", meterID=f"{room[:3]}-main", kwh=kwh, readings=self._random.randrange(60))
        since = format_instant(self._now - self._random.randrange(3_600_000_000))
        return self._event("roomOccupancy", room=room, occupied=self._random.random() < 0.5, since=since)

    def _event(self, stream: str, **attributes: Json) -> dict[str, Json]:
        self._ids[stream] += 1
        return {"stream": stream, "id": self._ids[stream], "time": format_instant(self._now), **attributes}


def _encode(record: dict[str, Json]) -> bytes:
    return json.dumps(record).encode()


def _own(record: dict[str, Json]) -> str:
    """The last attribute of a record."""
    return list(record)[-1]


def _reading(record: dict[str, Json]) -> str:
    """The attribute of a record that is a float, if there is one."""
    return next((name for name, value in record.items() if isinstance(value, float)), "")
