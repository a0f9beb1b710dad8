"""Twice what the machine can do, for 10 minutes: memory, the high level's stale events, and books that balance."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from common import Bar, Plot, Report, Series, arguments
from cpep.graphs import LEVELS, PERIOD_A, graph_a
from cpep.harness import ENDED, STALE, Case, CepheidService, run
from cpep.sets import Form, brief, calibrate, note_load
from cpep.watch import look

#: What ends an event at a reader; `held` is what has not ended.
FATES: Final = ("used", "replaced", "shed", "expired", "held")
#: High events are valid for so long, in microseconds.
VALID_FOR: Final = PERIOD_A | {"high": 10_000}
#: So much may memory differ between the first and the last part of the time, in MB: pages come and go.
NOISE: Final = 0.5


@dataclass
class Memory:
    """Resident memory of the service by seconds, looked at from a thread."""

    pids: dict[str, int]
    seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            try:
                resident = sum(look(pid).vm_rss for pid in self.pids.values())
            except FileNotFoundError:
                return
            self.seconds.append(time.monotonic() - self._begun)
            self.megabytes.append(resident)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


class WatchedService(CepheidService):
    """The service, with an eye on its memory."""

    memory: Memory

    def __init__(self, case: Case, folder: Path) -> None:
        super().__init__(case, folder)
        type(self).memory = Memory(dict(self.pids))

    def books(self) -> dict[str, Any]:
        type(self).memory.stop()
        # What was pushed last is processed, and then nothing is on its way between two counters.
        before: dict[str, Any] = {}
        for _ in range(50):
            found = super().books()
            if found["streams"] == before.get("streams") and found["operators"] == before.get("operators"):
                return found
            before = found
            time.sleep(0.1)
        return before


def unbalanced(books: dict[str, Any]) -> Iterator[str]:
    """Every place of the books where events came that did not end, or ended that did not come."""

    def check(place: str, came: int, book: dict[str, Any]) -> Iterator[str]:
        ended = sum(book[fate] for fate in FATES)
        if came != ended:
            yield f"{place}: {came} came, {ended} are accounted for"

    for name, stream in books["streams"].items():
        yield from check(f"stream {name}, InputQ", stream["queue"]["came"], stream["queue"])
        yield from check(f"stream {name}, events", stream["events"]["created"], stream["events"])
    for name, operator in books["operators"].items():
        for given, edge in operator["inputs"].items():
            yield from check(f"operator {name}, input {given}", edge["came"], edge)
        yield from check(f"operator {name}, events", operator["events"]["created"], operator["events"])
    for name, consumer in books["consumers"].items():
        yield from check(f"consumer {name}", consumer["came"], consumer)


def measure(form: Form, out: Path) -> Report:
    """One long run."""
    report = Report(
        "overload",
        "Does the service keep its promise to the high level, and its size, when twice as much comes as it can do?",
        f"Graph A with so many middle copies that they would need twice the cores, high events valid for 10 ms; "
        f"{form.words()}, log off, replacement on, stale events shed.",
    )
    if form.copies is not None:
        middle = form.copies[0]
    else:
        found = calibrate(graph_a, 3)
        middle = found.copies(2.0)
        report.notes.append(f"Graph A {found.words()} of the middle level; overload: {middle} copies")
    work = graph_a(middle, stale="shed", valid_for=VALID_FOR)
    outcome = run(form.case(work), WatchedService, out / "raw" / "overload.npz")
    print(brief(outcome), flush=True)
    report.runs.append(outcome.summary())
    memory = WatchedService.memory
    kept = [mb for at, mb in zip(memory.seconds, memory.megabytes, strict=True) if at >= form.warm_up]
    quarter = max(1, len(kept) // 4)
    growth = max(kept[-quarter:]) - max(kept[:quarter])
    report.bars.append(Bar("growth of resident memory, first to last quarter", growth, NOISE, "at_most", "MB"))
    report.plots.append(
        Plot("memory", "Resident memory", "s", "MB", [Series("service", memory.seconds, *[memory.megabytes] * 3)])
    )
    due = work.due("high") * form.seconds
    received = outcome.rate("high") * form.seconds
    in_time = outcome.rate("high", without=STALE | ENDED) * form.seconds
    # Those that were shed for it count too; of the whole run, which is a little more than was measured.
    stale = received - in_time + _expired(outcome.books, "high")
    report.bars.append(Bar("high events stale", 100 * stale / due, 0.1, "at_most", "%"))
    report.notes.append(
        f"High events: {due:.0f} due, {received:.0f} received, {in_time:.0f} of them while valid; what is "
        "missing was replaced by a newer event, or shed"
    )
    wrong = list(unbalanced(outcome.books))
    report.bars.append(Bar("places where the books do not balance", len(wrong), 0, "at_most"))
    report.notes += wrong[:20]
    _account(report, outcome.books, outcome.suppliers)
    note_load(report, [outcome])
    return report


def _expired(books: dict[str, Any], level: str) -> int:
    """Outputs that a level's consumers would have got, had an input or they themselves not been stale."""
    operators = [one for one in books["operators"].values() if one["level"] == level]
    at_operators: int = sum(max(edge["expired"] for edge in one["inputs"].values()) for one in operators)
    at_consumers: int = sum(one["expired"] for one in books["consumers"].values() if one["level"] == level)
    return at_operators + at_consumers


def _account(report: Report, books: dict[str, Any], supplied: dict[str, Any]) -> None:
    """From what suppliers pushed to what became of it."""
    log = books["log"]
    outcomes = ("accepted", "full", "duplicate", "unread", "unfit")
    fed = sum(log[word] for word in outcomes)
    missing = supplied["pushed"] - supplied["dead"] - fed
    report.bars.append(Bar("events pushed and not accounted for", abs(missing), 0, "at_most"))
    fates: dict[str, dict[str, int]] = {level: dict.fromkeys(FATES, 0) for level in LEVELS}
    for stream in books["streams"].values():
        for fate in FATES:
            fates[stream["level"]][fate] += stream["events"][fate]
    created = sum(sum(by.values()) for by in fates.values())
    report.bars.append(Bar("events accepted and not accounted for", abs(log["accepted"] - created), 0, "at_most"))
    for level, by in fates.items():
        report.notes.append(f"Supplier events, {level}: " + ", ".join(f"{count} {fate}" for fate, count in by.items()))
    listed = ", ".join(f"{log[word]} {word}" for word in outcomes)
    report.notes.append(f"Pushed {supplied['pushed']}, lost at the supplier {supplied['lost']}; fed: {listed}")


if __name__ == "__main__":
    options = arguments(__doc__)
    form = Form(5.0, 60.0, 1) if options.quick else Form(10.0, 600.0, 1)
    measure(form, options.out).save(options.out)
