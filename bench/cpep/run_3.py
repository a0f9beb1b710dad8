"""Operators shared between levels beside doubled ones: CPEP's set 3."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean
from typing import Final

from common import Bar, Report, Table, arguments
from cpep.graphs import LEVELS, graph_b
from cpep.harness import Outcome
from cpep.intervals import words
from cpep.sets import Form, Turns, form_of, latency_plots, note_load, unit_of_b

#: The paper's copies of the whole graph; it looks at CPU with five, and at the low level's latency with seven.
COPIES: Final = (1, 3, 5, 7, 9)
CPU_AT, LATENCY_AT = 5, 7


def measure(form: Form, out: Path) -> Report:
    """The whole set."""
    report = Report(
        "cpep-3",
        "What does it save that the low level takes what higher ones have computed?",
        f"Copies of graph B, periodic, coordinated, prioritised, replacement on, log off; {form.words()}. "
        "Not shared: EKF and FFT 2 and 4 doubled.",
    )
    unit = unit_of_b(form, report)
    copies = [unit * number for number in (form.copies or COPIES)]
    turns = Turns(report, out, form)
    runs: dict[str, list[list[Outcome]]] = {"shared": [], "not shared": []}
    for number in copies:
        cases = {f"{number} {name}": form.case(graph_b(number, shared=name == "shared")) for name in runs}
        for name, found in zip(runs, turns.take(cases).values(), strict=True):
            runs[name].append(found)
    latency_plots(report, copies, "copies of graph B", runs)
    table = Table("Mean latency, ms, and CPU", ["", "operators", *map(str, copies)])
    for level in LEVELS:
        for name, at in runs.items():
            table.rows.append([level, name, *(words([r.mean_ms(level) for r in found]) for found in at)])
    for name, at in runs.items():
        table.rows.append(["service's CPU %", name, *(words([100 * r.service_cpu for r in found], 1) for found in at)])
    report.tables.append(table)

    def saved(wanted: int, of: str) -> float:
        place = min(range(len(copies)), key=lambda i: abs(copies[i] - unit * wanted))
        values = {
            name: fmean(r.service_cpu if of == "cpu" else r.mean_ms("low") for r in at[place])
            for name, at in runs.items()
        }
        # In a moment the kernel may have counted none.
        return 1 - values["shared"] / values["not shared"] if values["not shared"] else math.nan

    report.bars.append(
        Bar(f"CPU of the service saved, {CPU_AT} units", 100 * saved(CPU_AT, "cpu"), 20, "at_least", "%")
    )
    report.bars.append(
        Bar(
            f"low level's mean latency saved, {LATENCY_AT} units",
            100 * saved(LATENCY_AT, "latency"),
            30,
            "at_least",
            "%",
        )
    )
    note_load(report, [r for at in runs.values() for found in at for r in found])
    return report


if __name__ == "__main__":
    options = arguments(__doc__)
    measure(form_of(options.quick), options.out).save(options.out)
