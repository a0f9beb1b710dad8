"""What the campus's queries find, live and back in time, beside what was put there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cepheid.campus.generator import Campus
from cepheid.campus.model import Room

#: The query of the paper's case of demand response, which is asked in the middle of the morning.
DEMAND_RESPONSE: Final = "lecture_halls"
#: Whose overcooled rooms each query is about: their kind and department, None for any.
_ABOUT: Final[Mapping[str, tuple[str | None, str | None]]] = {
    "overcooled": (None, None),
    "rising": (None, None),
    "office": ("Office", "EEDepartment"),
    "green_office": ("Office", "EEDepartment"),
    "meeting_room": ("MeetingRoom", None),
    DEMAND_RESPONSE: ("LectureHall", None),
}


@dataclass
class Found:
    """The matches of a query by their ids, with the sensor that each is about, if it says so."""

    live: dict[str, str | None] = field(default_factory=dict)
    past: dict[str, str | None] = field(default_factory=dict)

    @property
    def sensors(self) -> set[str]:
        return {sensor for sensor in self.past.values() if sensor is not None}


@dataclass(frozen=True)
class Injected:
    """The sensors that a query is about and that were made to report too much: `over` so far, and `begun` at least."""

    over: set[str]
    begun: set[str]


def injected(campus: Campus, query: str, until: int) -> Injected | None:
    """What a query is to find up to a time; None if it is not about sensors."""
    if query not in _ABOUT:
        return None
    kind, department = _ABOUT[query]
    about = {
        sensor.name
        for sensor in campus.model.sensors
        if isinstance(sensor.room, Room)
        and kind in (None, sensor.room.kind)
        and department in (None, sensor.room.department)
    }
    faults = [fault for fault in campus.truth.faults if fault.kind == "overcooled" and fault.sensor in about]
    return Injected({f.sensor for f in faults if f.ends <= until}, {f.sensor for f in faults if f.begins < until})


@dataclass(frozen=True)
class Findings:
    """What each query found on a campus up to a time."""

    campus: Campus
    until: int
    found: Mapping[str, Found]

    @property
    def known(self) -> set[str]:
        """Sensors that are known: one that is not shows what the one does whose name it garbles."""
        return {sensor.name for sensor in self.campus.model.sensors}

    def agree(self, query: str) -> bool:
        """Whether its two answers are one, and are what was put there."""
        answers, meant = self.found[query], injected(self.campus, query, self.until)
        if answers.live.keys() != answers.past.keys():
            return False
        return meant is None or meant.over <= answers.sensors & self.known <= meant.begun

    def table(self, engines: Mapping[str, str]) -> Iterator[str]:
        """A line a query."""
        yield f"{'query':16} {'runs on':8} {'live':>9} {'back in time':>13} {'sensors found':>14} {'injected':>9}"
        for query, engine in engines.items():
            answers, meant = self.found[query], injected(self.campus, query, self.until)
            sensors = ("", "") if meant is None else (len(answers.sensors & self.known), len(meant.over))
            verdict = "" if self.agree(query) else "  DIFFERENT"
            counts = f"{len(answers.live):>9,} {len(answers.past):>13,}"
            yield f"{query:16} {engine:8} {counts} {sensors[0]:>14} {sensors[1]:>9}{verdict}"


def latencies(levels: Mapping[str, Mapping[str, Mapping[str, float]]], order: Sequence[str]) -> Iterator[str]:
    """A line a level: from when an event came in to when what was made of it went out."""
    yield f"{'level':16} {'median':>10} {'p99':>10}"
    for level in order:
        if level in levels and levels[level]["latency"].get("count", 1):
            times = levels[level]["latency"]
            yield f"{level:16} {times['p50_ns'] / 1e6:>7.3f} ms {times['p99_ns'] / 1e6:>7.3f} ms"
