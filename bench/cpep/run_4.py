"""Shedding what is stale, with and without sharing, up to overload: timely throughput, CPEP's set 4."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Final

from common import Bar, Plot, Report, Series, Table, arguments
from cpep.graphs import LEVELS, graph_b
from cpep.harness import ENDED, STALE, Outcome
from cpep.intervals import line, words
from cpep.sets import FULL_AT, Form, Turns, form_of, note_load, unit_of_b

#: The paper's copies of the whole graph.
COPIES: Final = (1, 3, 5, 7, 9, 11, 13, 15, 17, 19)
QUICK_COPIES: Final = (7, 11, 15, 19)


def timely(outcome: Outcome, level: str) -> float:
    """Events a second that were received while they were valid: within 10 ms of their first supplier event."""
    return outcome.rate(level, without=ENDED | STALE)


def measure(form: Form, out: Path, quick: bool = False) -> Report:
    """The whole set."""
    report = Report(
        "cpep-4",
        "Does it help that what can't be in time any more is not computed?",
        "Copies of graph B, valid for 10 ms, periodic, coordinated, prioritised, replacement on, log off; "
        f"{form.words()}. Timely: received before the validity had ended.",
    )
    unit = unit_of_b(form, report)
    numbers = form.copies or (QUICK_COPIES if quick else COPIES)
    copies = [unit * number for number in numbers]
    turns = Turns(report, out, form)
    ways = {
        f"{'shared' if shared else 'not shared'}, {stale}": (shared, stale)
        for shared in (True, False)
        for stale in ("shed", "mark")
    }
    runs: dict[str, list[list[Outcome]]] = {name: [] for name in ways}
    sizes = graph_b(1).output_bytes

    def mbps(outcome: Outcome) -> float:
        return sum(timely(outcome, level) * sizes[level] * 8 / 1e6 for level in LEVELS)

    for number in copies:
        cases = {
            f"{number} {name}": form.case(graph_b(number, shared=shared, stale="shed" if stale == "shed" else "mark"))
            for name, (shared, stale) in ways.items()
        }
        for name, found in zip(runs, turns.take(cases).values(), strict=True):
            runs[name].append(found)
    label = "copies of graph B"

    def lines(of: Callable[[Outcome], float]) -> list[Series]:
        return [line(name, copies, [[of(r) for r in at] for at in every]) for name, every in runs.items()]

    for level in LEVELS:
        drawn = lines(partial(timely, level=level))
        report.plots.append(Plot(f"timely_{level}", f"Timely throughput, {level} level", label, "events/s", drawn))
    report.plots.append(Plot("cpu", "CPU utilisation", label, "%", lines(lambda r: 100 * r.total_cpu)))
    report.plots.append(Plot("mbps", "Timely throughput of all levels", label, "Mbps", lines(mbps)))
    table = Table("Timely throughput, events/s; of all levels, Mbps", ["", "operators, stale", *map(str, copies)])
    for level in LEVELS:
        for name, every in runs.items():
            table.rows.append([level, name, *(words([timely(r, level) for r in at], 0) for at in every)])
    for name, every in runs.items():
        table.rows.append(["all, Mbps", name, *(words([mbps(r) for r in at], 0) for at in every)])
    for name, every in runs.items():
        table.rows.append(["CPU %", name, *(words([100 * r.total_cpu for r in at], 0) for at in every)])
    report.tables.append(table)
    # Overload: more than the cores can do where nothing is shared.
    over = [place for place, number in enumerate(numbers) if number > FULL_AT] or [len(copies) - 1]
    for shared in ("shared", "not shared"):
        kept = {
            stale: fmean(mbps(r) for p in over for r in runs[f"{shared}, {stale}"][p]) for stale in ("shed", "mark")
        }
        ratio = kept["shed"] / kept["mark"] if kept["mark"] else float("inf")
        report.bars.append(
            Bar(f"timely throughput with shedding, times without; {shared}, overload", ratio, 1.0, "more_than")
        )
    note_load(report, [r for found in runs.values() for at in found for r in at])
    return report


if __name__ == "__main__":
    options = arguments(__doc__)
    measure(form_of(options.quick), options.out, options.quick).save(options.out)
