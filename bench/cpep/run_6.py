"""What it costs: queues (Table 2), context switches and migrations under SCHED_RR and CFS, memory: CPEP's set 6."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common import Bar, Plot, Report, Series, Table, arguments
from cpep.graphs import graph_a, graph_b
from cpep.harness import Outcome
from cpep.intervals import words
from cpep.sets import Form, Turns, form_of, note_load, unit_of_b

from cepheid._native import queue_costs

#: Nanoseconds each way: the bar, and what the paper measured (enqueue, dequeue).
LIMITS: Final = {"InputQ": 5.0, "PendingQ": 40.0, "MovingQ": 100.0}
PAPER: Final = {"InputQ": (1.23, 1.03), "PendingQ": (34.86, 337.81), "MovingQ": (194.21, 177.33)}
#: The paper's: switches and migrations a millisecond.
PAPER_SWITCHES: Final = {"SCHED_RR": (37.0, 6.3), "CFS": (60.0, 2.5)}
#: Units of graph B, which fill most of the cores.
UNITS: Final = 7


def measure(form: Form, out: Path, operations: int = 1_000_000, turns: int = 11) -> Report:
    """The whole set."""
    report = Report(
        "cpep-6",
        "What do queues, preemption and memory cost?",
        f"Queues with their locks, mean of {operations:,} operations in batches of 256, median of {turns} runs. "
        f"Switches and migrations of the service's threads, from /proc, while {UNITS} units of graph B run; "
        f"{form.words()}. CFS: no priorities. Memory from /proc.",
    )
    _queues(report, operations, turns)
    number = (form.copies or (UNITS,))[0] * unit_of_b(form, report)
    cases = {
        "SCHED_RR": form.case(graph_b(number)),
        "CFS": form.case(graph_b(number), prioritised=False),
        "base, log off": form.case(graph_a(3)),
        "base, log on": form.case(graph_a(3), log=True),
    }
    runs = Turns(report, out, form).take(cases)
    table = Table("A millisecond", ["", "switches", "migrations", "switches of the machine", "paper, both"])
    for name in ("SCHED_RR", "CFS"):
        found = runs[name]
        paper = PAPER_SWITCHES[name]
        table.rows.append(
            [
                name,
                words([r.switches for r in found], 1),
                words([r.migrations for r in found], 2),
                words([r.host_switches for r in found], 1),
                f"{paper[0]:g}, {paper[1]:g}",
            ]
        )
    report.tables.append(table)
    bars = [
        Series(n, [0.0, 1.0], *([[_mean(runs[n], "switches"), _mean(runs[n], "migrations")]] * 3))
        for n in PAPER_SWITCHES
    ]
    report.plots.append(Plot("switches", "Context switches (0) and migrations (1) a millisecond", "", "", bars))
    memory = Table("Memory, MB", ["process", "VmSize", "VmRSS"])
    for name, found in runs.items():
        for process in found[0].memory:
            sizes = [r.memory[process] for r in found]
            memory.rows.append(
                [f"{process}: {name}", words([s.vm_size for s in sizes], 1), words([s.vm_rss for s in sizes], 1)]
            )
    report.tables.append(memory)
    engine = max(r.memory["engine"].vm_rss for r in runs["base, log off"])
    report.bars.append(Bar("engine's resident memory, base load of set 1", engine, 20, "at_most", "MB"))
    note_load(report, [r for found in runs.values() for r in found])
    return report


def _mean(runs: Sequence[Outcome], name: str) -> float:
    return statistics.fmean(getattr(r, name) for r in runs)


def _queues(report: Report, operations: int, turns: int) -> None:
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in LIMITS}
    for _ in range(turns):
        for name, *costs in queue_costs(operations):
            found[name].append(tuple(costs))
    table = Table("Table 2: nanoseconds an operation", ["", *LIMITS])
    medians = {name: [statistics.median(c) for c in zip(*runs, strict=True)] for name, runs in found.items()}
    for place, word in enumerate(("enqueue", "dequeue")):
        table.rows.append([word, *(f"{medians[name][place]:.2f}" for name in LIMITS)])
        table.rows.append([f"{word}, paper", *(f"{PAPER[name][place]:.2f}" for name in LIMITS)])
        table.rows.append([f"{word}, 2 + 2 threads", *(f"{medians[name][2 + place]:.0f}" for name in LIMITS)])
        for name, limit in LIMITS.items():
            report.bars.append(Bar(f"{name} {word}", medians[name][place], limit, "at_most", "ns"))
    report.tables.append(table)


if __name__ == "__main__":
    options = arguments(__doc__)
    brief = (200_000, 3) if options.quick else (1_000_000, 11)
    measure(form_of(options.quick), options.out, *brief).save(options.out)
