"""Events that lie too far apart: how many are left, and what shedding them saves: CPEP's set 5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Final

from common import Bar, Plot, Report, Table, arguments
from cpep.graphs import LEVELS, PERIOD_A, graph_a
from cpep.harness import RELATIVE, Outcome
from cpep.intervals import line, words
from cpep.sets import FULL, Form, Turns, copies_of_a, form_of, note_load

#: Relative intervals of the middle level, and of the others; microseconds.
INTERVALS: Final = (5_500, 7_000, 8_500, 10_000)
OTHERS: Final = 5_000


def valid(outcome: Outcome, level: str) -> float:
    """Events a second that keep their relative interval."""
    return outcome.rate(level, without=RELATIVE)


def share(outcome: Outcome, level: str) -> float:
    """Percent of the events of a level that do."""
    everything = outcome.rate(level)
    return 100 * valid(outcome, level) / everything if everything else float("nan")


def measure(form: Form, out: Path, intervals: Sequence[int] = INTERVALS) -> Report:
    """The whole set, or some of its intervals."""
    report = Report(
        "cpep-5",
        "How many results are of inputs that lie too far apart, and what does shedding those inputs save?",
        "Graph A, 3 high, 12 low and a growing number of middle copies, suppliers not coordinated (each has a phase of "
        "its own, another in every run), prioritised, replacement on, log off, no absolute validity; "
        f"{form.words()}. High and low level 5 ms, middle 5.5 to 10 ms.",
    )
    copies = copies_of_a(form, report, coordinated=False)
    turns = Turns(report, out, form)
    runs: dict[tuple[int, str], list[list[Outcome]]] = {}
    for middle in copies:
        cases = {}
        for within in intervals:
            relative = {"high": OTHERS, "middle": within, "low": OTHERS}
            for stale in ("mark", "shed"):
                work = graph_a(middle, stale="mark" if stale == "mark" else "shed", valid_for=None, relative=relative)
                cases[f"{middle} {within} {stale}"] = form.case(work, coordinated=False)
        for (within, stale), found in zip(
            ((w, s) for w in intervals for s in ("mark", "shed")), turns.take(cases).values(), strict=True
        ):
            runs.setdefault((within, stale), []).append(found)
    label = "middle copies"
    for level in LEVELS:
        drawn = [
            line(f"{within / 1e3:g} ms", copies, [[share(r, level) for r in at] for at in runs[within, "mark"]])
            for within in intervals
        ]
        report.plots.append(
            Plot(f"valid_{level}", f"Relatively valid events, {level} level, no shedding", label, "%", drawn)
        )
    for within in intervals:
        pair = {stale: runs[within, stale] for stale in ("shed", "mark")}
        rates = [line(name, copies, [[valid(r, "middle") for r in at] for at in every]) for name, every in pair.items()]
        cpu = [line(name, copies, [[100 * r.total_cpu for r in at] for at in every]) for name, every in pair.items()]
        word = f"{within / 1e3:g} ms"
        report.plots.append(Plot(f"rate_{within}", f"Middle level, valid throughput, {word}", label, "events/s", rates))
        report.plots.append(Plot(f"cpu_{within}", f"CPU utilisation, {word}", label, "%", cpu))
    table = Table("Middle level", ["", "interval, way", *map(str, copies)])
    for (within, stale), every in runs.items():
        way = f"{within / 1e3:g} ms, {stale}"
        table.rows.append(["valid, events/s", way, *(words([valid(r, "middle") for r in at], 0) for at in every)])
        table.rows.append(["service's CPU %", way, *(words([100 * r.service_cpu for r in at], 1) for at in every)])
        if stale == "mark":
            table.rows.append(["valid, %", way, *(words([share(r, "middle") for r in at], 1) for at in every)])
    report.tables.append(table)

    def overall(within: int, stale: str, of: str) -> float:
        found = [r for at in runs[within, stale] for r in at]
        return fmean(valid(r, "middle") if of == "valid" else r.service_cpu for r in found)

    for within in intervals:
        if within >= PERIOD_A["middle"]:
            continue  # nothing can lie further apart
        for of, kind in (("valid", "more_than"), ("cpu", "less_than")):
            ratio = overall(within, "shed", of) / max(overall(within, "mark", of), 1e-9)
            word = "middle level's valid throughput" if of == "valid" else "CPU of the service"
            report.bars.append(Bar(f"{word} with shedding, times without, {within / 1e3:g} ms", ratio, 1.0, kind))
    note_load(report, [r for found in runs.values() for at in found for r in at])
    return report


if __name__ == "__main__":
    options = arguments(__doc__)
    form = form_of(options.quick, replace(FULL, repeats=40))
    measure(replace(form, loads=(0.4, 0.85)) if options.quick else form, options.out).save(options.out)
