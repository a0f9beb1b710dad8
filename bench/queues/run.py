"""What the queues of an EventProcessor cost each way, the paper's Table 2 (experiment set 6)."""

from __future__ import annotations

import statistics

from common import Bar, Report, arguments

from cepheid._native import queue_costs

#: Nanoseconds each way: the bar, and what the paper measured (enqueue, dequeue).
LIMITS = {"InputQ": 5.0, "PendingQ": 40.0, "MovingQ": 100.0}
PAPER = {"InputQ": (1.23, 1.03), "PendingQ": (34.86, 337.81), "MovingQ": (194.21, 177.33)}


def main() -> None:
    options = arguments(__doc__)
    repeats, operations = (3, 200_000) if options.quick else (11, 1_000_000)
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in LIMITS}
    for _ in range(repeats):
        for name, *costs in queue_costs(operations):
            found[name].append(tuple(costs))
    report = Report(
        "queues",
        "What does it cost to put an event into a queue of the engine, and to take it out?",
        f"Each queue with its lock, as workers use it; mean of {operations:,} operations in batches of 256, median of "
        f"{repeats} runs. Contended: two threads put in, two take out, an operation's time includes its waits.",
    )
    for name, runs in found.items():
        put, take, put_contended, take_contended = (statistics.median(column) for column in zip(*runs, strict=True))
        report.bars.append(Bar(f"{name} enqueue", put, LIMITS[name], "at_most", "ns"))
        report.bars.append(Bar(f"{name} dequeue", take, LIMITS[name], "at_most", "ns"))
        paper = PAPER[name]
        report.notes.append(
            f"{name}: contended {put_contended:.0f} and {take_contended:.0f} ns; paper {paper[0]} and {paper[1]} ns"
        )
    report.save(options.out)


if __name__ == "__main__":
    main()
