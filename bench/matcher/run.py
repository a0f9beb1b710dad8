"""The matcher on rows from Python: filter, pattern and join by room, beside a peer if there is one.

A peer is a folder with a run.sh that prints a line of JSON, `{"peer": "esper", "runs": [{"mode": "filter",
"events_per_s": 1}, ...]}`, for the same workload; CEPHEID_PEERS names the folder of such folders, `--peer esper` one.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Final

from common import Bar, Report, arguments

from cepheid.language.checker import Checked, check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.matcher import Matcher

ROOMS: Final = 1000
TYPES: Final = "ABCDEFGHIJ"
WITHIN: Final = 10_000
#: The peers exclude the border of their windows, so ours is a millisecond shorter.
PAIR: Final = (
    "SELECT ?a.room, ?a.temp AS t0, ?b.temp AS t1 FROM (?a, s), (?b, s) FILTER (?a.type = 'A') FILTER (?b.type = 'B')"
    " JOIN (?a.room = ?b.room) JOIN (?b.temp > ?a.temp) WINDOW (?a, ?b, 9999ms)"
)
QUERIES: Final = {
    "filter": "SELECT ?b.room, ?b.temp FROM (?b, s) FILTER (?b.type = 'B' AND ?b.temp > 30)",
    "pattern": f"{PAIR} SEQ (?a, ?b) MATCH NEXT",
    "join": PAIR,
}
PEERS: Final = ("esper", "siddhi", "flink")
_MASK: Final = (1 << 64) - 1


def mix(z: int) -> int:
    z = ((z + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def workload(count: int) -> list[Event]:
    """One event a millisecond, a thousand rooms, ten types; event i is a function of i alone, as the peers have it."""
    rooms = [f"room{i}" for i in range(ROOMS)]
    return [
        Event(
            "s",
            i,
            i * 1000,
            {
                "room": rooms[(mix(i) >> 1) % ROOMS],
                "type": TYPES[(mix(i * 3 + 1) >> 1) % len(TYPES)],
                "temp": 15.0 + 20.0 * ((mix(i * 7 + 5) >> 11) * 2.0**-53),
            },
        )
        for i in range(count)
    ]


def oracle(events: list[Event]) -> dict[str, int]:
    """How many matches there are, counted by a plain loop."""
    counts = dict.fromkeys(QUERIES, 0)
    open_as: dict[object, deque[tuple[int, float]]] = {}
    seen: dict[tuple[object, object], deque[tuple[int, float]]] = {}
    for i, event in enumerate(events):
        kind, room, temp = (event.attributes[name] for name in ("type", "room", "temp"))
        assert isinstance(temp, float)
        counts["filter"] += kind == "B" and temp > 30
        if kind not in ("A", "B"):
            continue
        other = seen.setdefault((room, "B" if kind == "A" else "A"), deque())
        while other and i - other[0][0] >= WITHIN:
            other.popleft()
        counts["join"] += sum(t > temp if kind == "A" else temp > t for _, t in other)
        seen.setdefault((room, kind), deque()).append((i, temp))
        waiting = open_as.setdefault(room, deque())
        while waiting and i - waiting[0][0] >= WITHIN:
            waiting.popleft()
        if kind == "A":
            waiting.append((i, temp))
        else:
            left = deque(a for a in waiting if a[1] >= temp)
            counts["pattern"] += len(waiting) - len(left)
            open_as[room] = left
    return counts


def checked(text: str) -> Checked:
    stream = Stream("s", {"room": Type.STRING, "type": Type.STRING, "temp": Type.FLOAT}, id_kind="int")
    found, problems = check(parse(text), Catalogue({"s": stream}))
    assert found is not None, problems
    return found


def ours(query: Checked, events: list[Event]) -> tuple[float, int]:
    """Events a second, matches with their ids and values made and consumed, and how many there were."""
    matcher = Matcher(query)
    matches = 0
    began = time.perf_counter()
    for start in range(0, len(events), 4096):
        batch = events[start : start + 4096]
        matcher.push(batch)
        for match in matcher.advance(batch[-1].time):
            matches += len(match.id) > 0
    matches += len(matcher.advance(None))
    return len(events) / (time.perf_counter() - began), matches


def theirs(folder: Path) -> dict[str, float]:
    """Events a second of a peer, by mode."""
    done = subprocess.run(["bash", str(folder / "run.sh")], capture_output=True, text=True, check=True)
    runs = json.loads(done.stdout.splitlines()[-1])["runs"]
    return {run["mode"]: float(run["events_per_s"]) for run in runs if run.get("mode") in QUERIES}


def main() -> None:
    options = arguments(__doc__, PEERS)
    count, repeats = (200_000, 3) if options.quick else (500_000, 5)
    events = workload(count)
    expected = oracle(events)
    speeds: dict[str, list[float]] = {name: [] for name in QUERIES}
    peer_speeds: dict[str, list[float]] = {name: [] for name in QUERIES}
    with tempfile.TemporaryDirectory() as temporary:
        peer = _peer(options.peer, Path(temporary))
        for turn in range(repeats):
            print(f"turn {turn + 1} of {repeats}", flush=True)
            for name, text in QUERIES.items():
                speed, matches = ours(checked(text), events)
                if matches != expected[name]:
                    sys.exit(f"{name}: {matches} matches, and there are {expected[name]}")
                speeds[name].append(speed)
            if peer is not None and turn < (1 if options.quick else 2):
                for name, speed in theirs(peer).items():
                    peer_speeds[name].append(speed)
    medians = {name: statistics.median(s) for name, s in speeds.items()}
    notes = [
        f"{name}: {medians[name]:,.0f} events/s ({min(s):,.0f} to {max(s):,.0f}), {expected[name]:,} matches"
        for name, s in speeds.items()
    ]
    bars = [Bar("pattern, row by row from Python", medians["pattern"], 300_000, "at_least", "events/s")]
    wanted = {"filter": 1.0, "pattern": 3.0, "join": 3.0}
    for name, s in peer_speeds.items():
        if s:
            notes.append(f"{options.peer}, {name}: {statistics.median(s):,.0f} events/s")
            ratio = medians[name] / statistics.median(s)
            bars.append(Bar(f"{name}, ratio to {options.peer}, rows from Python", ratio, wanted[name], "at_least"))
    Report(
        name="matcher",
        question=(__doc__ or "").split("\n", 1)[0],
        method=f"{count:,} events, one a millisecond, of 1,000 rooms and 10 types; medians of {repeats} turns, one "
        "thread. Events are Python objects made beforehand; matches with ids and values are made and consumed. Counts "
        "are equal to a plain loop's.",
        bars=bars,
        notes=notes,
    ).save(options.out)


def _peer(name: str | None, temporary: Path) -> Path | None:
    """A copy of the peer's folder: it builds in place, and its own may be read-only."""
    if name is None:
        return None
    folder = os.environ.get("CEPHEID_PEERS")
    if folder is None or not (Path(folder) / name / "run.sh").exists():
        sys.exit(f"set CEPHEID_PEERS to the folder of the peers; it has to hold {name}/run.sh")
    copy = temporary / "peers"
    shutil.copytree(folder, copy)
    for path in copy.rglob("*"):
        path.chmod(0o755)
    return copy / name


if __name__ == "__main__":
    main()
