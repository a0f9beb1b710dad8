"""What the campus's queries find, live and back in time, beside what was put there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cepheid.campus.generator import Campus
from cepheid.campus.model import Room

#: The query of the paper's case of demand response, which is asked in the middle of the morning.
DEMAND_RESPONSE: Final = "lecture_halls"
#: What each query is about: a kind of rooms and a department, None for any, and which faults there it is to find.
_ABOUT: Final[Mapping[str, tuple[str | None, str | None, frozenset[str]]]] = {
    "overcooled": (None, None, frozenset({"overcooled", "runaway"})),
    "rising": (None, None, frozenset({"overcooled"})),
    "office": ("Office", "EEDepartment", frozenset({"overcooled", "runaway"})),
    "green_office": ("Office", "EEDepartment", frozenset({"overcooled", "runaway"})),
    "meeting_room": ("MeetingRoom", None, frozenset({"overcooled"})),
    DEMAND_RESPONSE: ("LectureHall", None, frozenset({"overcooled", "runaway"})),
}
#: Queries about averages of some time (microseconds), which name no sensor: they find air handlers that run away.
_AVERAGES: Final[Mapping[str, int]] = {"average": 300_000_000, "office_average": 300_000_000}
#: What was found outside of everything that was put there.
_NOTHING: Final = "nothing"


class Seen(NamedTuple):
    """What a match is about: its time, and its sensor if it says so."""

    time: int
    sensor: str | None


@dataclass
class Found:
    """The ids of a query's matches; of those that were found back in time, what they are about."""

    live: set[str] = field(default_factory=set)
    past: dict[str, Seen] = field(default_factory=dict)


@dataclass(frozen=True)
class Injected:
    """The sensors or air handlers that a query is about and that had a fault: `over` so far, and `begun` at least."""

    over: set[str]
    begun: set[str]


def injected(campus: Campus, query: str, until: int) -> Injected:
    """What a query is to find up to a time."""
    faults = [(f.sensor, f) for f in campus.truth.faults if f.kind == "runaway"]
    if query not in _AVERAGES:
        kind, department, kinds = _ABOUT[query]
        rooms = {
            sensor.name: campus.model.floors[sensor.room.floor]
            for sensor in campus.model.sensors
            if sensor.kind == "airflow"
            and isinstance(sensor.room, Room)
            and kind in (None, sensor.room.kind)
            and department in (None, sensor.room.department)
        }
        runaways = {f.room: f for _, f in faults if "runaway" in kinds}
        faults = [(f.sensor, f) for f in campus.truth.faults if f.kind == "overcooled" and f.sensor in rooms]
        faults += [(sensor, runaways[building]) for sensor, building in rooms.items() if building in runaways]
    return Injected({name for name, f in faults if f.ends <= until}, {name for name, f in faults if f.begins < until})


@dataclass(frozen=True)
class Findings:
    """What each query found on a campus up to a time."""

    campus: Campus
    until: int
    found: Mapping[str, Found]

    def sources(self, query: str) -> set[str]:
        """The sensors or air handlers that a query found. A sensor that is not known shows what the one does whose name
        it garbles, and is left out."""
        past = self.found[query].past.values()
        if query not in _AVERAGES:
            known = {sensor.name for sensor in self.campus.model.sensors}
            return {seen.sensor for seen in past if seen.sensor is not None} & known
        runaways = [fault for fault in self.campus.truth.faults if fault.kind == "runaway"]
        span = _AVERAGES[query]
        return {
            source
            for seen in past
            for source in [f.sensor for f in runaways if f.begins <= seen.time < f.ends + span] or [_NOTHING]
        }

    def agree(self, query: str) -> bool:
        """Whether its two answers are one, and are what was put there."""
        answers, meant = self.found[query], injected(self.campus, query, self.until)
        return answers.live == answers.past.keys() and meant.over <= self.sources(query) <= meant.begun

    def table(self, engines: Mapping[str, str]) -> Iterator[str]:
        """A line a query."""
        yield f"{'query':16} {'runs on':8} {'live':>9} {'back in time':>13} {'faults found':>13} {'injected':>9}"
        for query, engine in engines.items():
            answers, meant = self.found[query], injected(self.campus, query, self.until)
            counts = f"{len(answers.live):>9,} {len(answers.past):>13,}"
            yield (
                f"{query:16} {engine:8} {counts} {len(self.sources(query)):>13} {len(meant.over):>9}"
                f"{'' if self.agree(query) else f'  {self._difference(query)}'}"
            )

    def _difference(self, query: str) -> str:
        answers, meant = self.found[query], injected(self.campus, query, self.until)
        if answers.live != answers.past.keys():
            return "DIFFERENT: live and back in time"
        if missed := sorted(meant.over - self.sources(query)):
            return f"DIFFERENT: missed {', '.join(missed[:3])}{' ...' if missed[3:] else ''}"
        return "DIFFERENT: found what was not put there"


def latencies(stats: Mapping[str, Any], order: Sequence[str], queries: Mapping[str, str]) -> Iterator[str]:
    """From when an event came in to when what was made of it went out: a line a level of the graph, and a line a query
    of the service, whose levels are given; of what was made live."""
    found = [(level, "graph", stats["levels"][level]) for level in order if level in stats["levels"]]
    found += [(level, name, stats["queries"][name]) for name, level in queries.items() if name in stats["queries"]]
    yield f"{'level':16} {'of':16} {'median':>13} {'p99':>13}"
    for level, name, book in sorted(found, key=lambda one: order.index(one[0])):
        times = book["latency"]
        if times.get("count", 1):
            yield f"{level:16} {name:16} {times['p50_ns'] / 1e6:>10.3f} ms {times['p99_ns'] / 1e6:>10.3f} ms"
