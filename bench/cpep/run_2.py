"""Prioritised beside not prioritised processing, periodic and sporadic, with and without replacement: CPEP's set 2."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from common import Bar, Report, Table, arguments
from cpep.graphs import LEVELS, graph_a
from cpep.harness import Outcome
from cpep.intervals import words
from cpep.sets import Form, Turns, copies_of_a, form_of, latency_plots, note_load

#: Figure 13, Figure 14, and the conference paper's configuration.
VARIANTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "periodic": {},
    "sporadic": {"sporadic": True},
    "no_replacement": {"replace": False},
}


def measure(form: Form, out: Path, variants: Mapping[str, Mapping[str, Any]] = VARIANTS) -> Report:
    """The whole set, or some of its variants."""
    report = Report(
        "cpep-2",
        "What does it cost the important consumer that others are served, with priorities and without?",
        f"Graph A, 3 high, 12 low and a growing number of middle copies; {form.words()}; suppliers of a stream "
        "coordinated, log off. Sporadic: 2.5 ms more or less at each arrival.",
    )
    copies = copies_of_a(form, report)
    turns = Turns(report, out, form)
    every: list[Outcome] = []
    for variant, how in variants.items():
        runs: dict[str, list[list[Outcome]]] = {"prioritised": [], "not prioritised": []}
        for middle in copies:
            cases = {
                f"{variant} {middle} {name}": form.case(graph_a(middle), prioritised=name == "prioritised", **how)
                for name in runs
            }
            for name, found in zip(runs, turns.take(cases).values(), strict=True):
                runs[name].append(found)
                every += found
        latency_plots(report, copies, "middle copies", runs, f"{variant}_")
        report.tables.append(_table(variant, copies, runs))
        heavy = {name: fmean(r.ms("high", 99) for r in at[-1]) for name, at in runs.items()}
        report.bars.append(
            Bar(
                f"high level's p99 without priorities, times with, heaviest load, {variant.replace('_', ' ')}",
                heavy["not prioritised"] / heavy["prioritised"],
                1.0,
                "at_least",
            )
        )
    note_load(report, every)
    return report


def _table(variant: str, copies: list[int], runs: dict[str, list[list[Outcome]]]) -> Table:
    table = Table(f"99th percentile, ms: {variant.replace('_', ' ')}", ["level", "service", *map(str, copies)])
    for level in LEVELS:
        for name, at in runs.items():
            table.rows.append([level, name, *(words([r.ms(level, 99) for r in found]) for found in at)])
    for name, at in runs.items():
        table.rows.append(["CPU %", name, *(words([100 * r.total_cpu for r in found], 0) for found in at)])
    return table


if __name__ == "__main__":
    options = arguments(__doc__)
    measure(form_of(options.quick), options.out).save(options.out)
