"""Knowledge of a campus of 50,000 sensors: the first load, the second start, and a change while it runs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Bar, Plot, Report, arguments, series
from pyoxigraph import NamedNode, Triple

from cepheid._native import Reasoner
from cepheid.campus.model import Model
from cepheid.knowledge import journal, sources
from cepheid.knowledge.follow import Follower
from cepheid.knowledge.store import Knowledge

BRICK = "https://brickschema.org/schema/Brick#"
EE = "http://cei.usc.edu/Equipment.owl#"
BD = "http://cei.usc.edu/Building.owl#"
#: A program that starts, loads, and asks one thing; it prints how long that took, and its processor time in all.
START = """
import sys, time
began = time.perf_counter()
from pathlib import Path
from cepheid.knowledge.store import Knowledge
folder = Path(sys.argv[1])
knowledge = Knowledge.load(["campus.ttl"], folder=folder, cache=folder / "cache")
found = knowledge.select("SELECT ?x { ?x a <http://cei.usc.edu/Equipment.owl#Meter> }", {})
assert found
print(time.perf_counter() - began, time.process_time())
"""


def start(folder: Path) -> tuple[float, float]:
    """Seconds, and processor seconds, of a start in a process of its own."""
    done = subprocess.run([sys.executable, "-c", START, str(folder)], check=True, capture_output=True, text=True)
    took, busy = done.stdout.split()
    return float(took), float(busy)


def moved(number: int, room: str) -> Triple:
    """A sensor that was put up in a room."""
    return Triple(NamedNode(f"{EE}NEW{number}"), NamedNode(BRICK + "isPointOf"), NamedNode(f"{EE}{room}-VAV"))


def changes(knowledge: Knowledge, rooms: list[str]) -> tuple[list[float], list[float]]:
    """Seconds until a changed triple is in force: by the API, and through the journal as another process writes it."""
    by_call, by_journal = [], []
    for number, room in enumerate(rooms):
        began = time.perf_counter()
        change = knowledge.apply([moved(number, room)], [moved(number - 1, rooms[number - 1])] if number else [])
        by_call.append(time.perf_counter() - began)
        assert (
            Triple(NamedNode(f"{EE}NEW{number}"), NamedNode(BD + "hasLocation"), NamedNode(BD + room)) in change.added
        )
    with Follower(knowledge):
        for number, room in enumerate(rooms, 1_000):
            version = knowledge.version
            began = time.perf_counter()
            journal.append(knowledge.journal, [moved(number, room)], [])
            while knowledge.version == version:
                time.sleep(0.001)
            by_journal.append(time.perf_counter() - began)
    return by_call, by_journal


def reasoners(folder: Path) -> dict[str, float]:
    """Processor seconds of the rules alone, beside `reasonable`, on the same triples."""
    from reasonable import PyReasoner  # type: ignore[import-untyped]

    parts = sources.read(["campus.ttl"], folder).parts
    base = "".join(part.text for part in parts)
    file = folder / "base.n3"
    file.write_text(base)
    took = {}
    began = time.process_time()
    own = Reasoner(True, "", 50_000_000)
    own.load(base)
    took["native rules"] = time.process_time() - began
    began = time.process_time()
    peer = PyReasoner()
    peer.load_file(str(file))
    peer.reason()
    took["reasonable"] = time.process_time() - began
    return took


def main() -> None:
    options = arguments(__doc__)
    sizes = [20, 1_000, 50_000] if options.quick else [20, 1_000, 10_000, 50_000]
    repeats = 3 if options.quick else 5
    first: list[list[float]] = []
    second: list[list[float]] = []
    for size in sizes:
        print(f"{size:,} sensors", flush=True)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            model = Model.of(size)
            model.write(folder)
            took, busy = start(folder)
            first.append([took])
            second.append([start(folder)[0] for _ in range(repeats)])
            if size == sizes[-1]:
                knowledge = Knowledge.load(["campus.ttl"], folder=folder, cache=folder / "cache")
                began = time.perf_counter()
                knowledge.prepare()
                ready = time.perf_counter() - began
                rooms = [room.name for room in model.rooms[:: len(model.rooms) // 40]]
                by_call, by_journal = changes(knowledge, rooms)
                triples = len(knowledge)
                peers = reasoners(folder)
    largest = f"{sizes[-1]:,} sensors"
    report = Report(
        name="knowledge",
        question=__doc__ or "",
        method=f"Made-up campuses on Brick 1.4, imported by their vocabulary; {largest} are {triples:,} triples with "
        f"what follows. Each start is a process of its own; second starts are medians of {repeats}. A change is one "
        "triple that puts up a sensor, from the call, or from another's entry in the journal, to its being in force.",
        bars=[
            Bar(f"first load, {largest}", first[-1][0], 30, "at_most", "s"),
            Bar(f"second start, {largest}", statistics.median(second[-1]), 2, "at_most", "s"),
            Bar(f"a change by call, {largest}, worst", max(by_call), 0.25, "at_most", "s"),
            Bar(f"a change by the journal, {largest}, worst", max(by_journal), 0.25, "at_most", "s"),
        ],
        plots=[
            Plot(
                "starts",
                "Time to load, by number of sensors",
                "sensors",
                "seconds",
                [series("first load", sizes, first), series("second start", sizes, second)],
                log=True,
            )
        ],
        notes=[
            f"a change by call: median {statistics.median(by_call) * 1e3:.2f} ms; by the journal, which is looked at "
            f"every 50 ms: {statistics.median(by_journal) * 1e3:.0f} ms; getting ready for the first: {ready:.1f} s",
            f"first load: {busy:.1f} s of processor time",
            "the rules alone, processor time: " + ", ".join(f"{name} {s:.1f} s" for name, s in peers.items()),
        ],
    )
    report.save(options.out)


if __name__ == "__main__":
    main()
