"""Latency by level while the middle level grows: the paper's experiment set 1, with suppliers inside the engine.

Graph A. High: s1, s2 -> EKF -> AES. Middle: s3, s4 -> EKF -> FFT and s5, s6 -> EKF -> FFT, both -> CAT. Low: s7, s8 ->
EKF -> FFT -> AES. Latency is from the push of the last supplier event to the push into the consumer's queue: neither a
socket nor the consumer's own wake-up is in it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from common import Bar, Plot, Report, Series, arguments, series

from cepheid.app.application import Application
from cepheid.app.builder import Builder, Producer
from cepheid.service.lowering import lower

LEVELS = ("high", "middle", "low")
HIGH, LOW = 3, 12
#: Microseconds between events, and bytes of one, by level.
PERIOD = {"high": 5_000, "middle": 10_000, "low": 20_000}
SIZE = {"high": 512, "middle": 1_024, "low": 2_048}
Group = tuple[list[str], int, int, int]


def graph_a(middle: int, high: int = HIGH, low: int = LOW) -> tuple[Application, list[Group]]:
    """Copies of graph A, and the streams that are pushed together."""
    build = Builder("graph_a", levels=list(LEVELS))
    groups: list[Group] = []

    def streams(level: str, names: list[str]) -> Iterator[Producer]:
        groups.append((names, PERIOD[level], 0, SIZE[level]))
        period = f"{PERIOD[level]}us"
        for name in names:
            yield build.stream(name, {"x": "array<uint8>"}, period=period, valid_for=period)

    for i in range(high):
        one, two = streams("high", [f"h{i}s1", f"h{i}s2"])
        build.consumer(f"h{i}", build.aes(f"h{i}aes", build.ekf(f"h{i}ekf", one, two)), level="high")
    for i in range(middle):
        four = list(streams("middle", [f"m{i}s{k}" for k in range(3, 7)]))
        halves = [build.fft(f"m{i}fft{k}", build.ekf(f"m{i}ekf{k}", *four[2 * k : 2 * k + 2])) for k in range(2)]
        build.consumer(f"m{i}", build.cat(f"m{i}cat", *halves), level="middle")
    for i in range(low):
        one, two = streams("low", [f"l{i}s7", f"l{i}s8"])
        spectrum = build.fft(f"l{i}fft", build.ekf(f"l{i}ekf", one, two))
        build.consumer(f"l{i}", build.aes(f"l{i}aes", spectrum), level="low")
    return build.build(), groups


#: Runs an engine in a process of its own, which loads nothing but the native core: so memory and CPU are the engine's.
CHILD = """
import json, os, resource, sys, time
from cepheid import _native
spec, groups, seconds, warm_up = json.load(sys.stdin)
groups = [tuple(group) for group in groups]
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
engine = _native.Engine(spec)
engine.supply(groups, warm_up)
engine.settle(10.0)
engine.reset_latencies()
began, used = time.monotonic(), cpu()
accepted, refused, late = engine.supply(groups, seconds)
busy = (cpu() - used) / (time.monotonic() - began) / len(os.sched_getaffinity(0))
engine.settle(10.0)
status = open("/proc/self/status").read().splitlines()
memory = int(next(line.split()[1] for line in status if line.startswith("VmRSS"))) / 1024
found = json.loads(engine.stats())
print(json.dumps({**found, "cpu": busy, "late_ns": late, "refused": refused, "rss_mb": memory}))
engine.stop(5.0)
"""


def run(middle: int, seconds: float, warm_up: float, prioritised: bool) -> dict[str, Any]:
    """One run: the engine's books after the measured time, with CPU and memory."""
    application, groups = graph_a(middle)
    spec = lower(application.plan(), "cpep1", prioritised=prioritised, replace=True)
    job = json.dumps([spec, groups, seconds, warm_up])
    done = subprocess.run([sys.executable, "-c", CHILD], input=job, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    options = arguments(__doc__)
    repeats, seconds, warm_up = (1, 3.0, 1.0) if options.quick else (10, 10.0, 2.0)
    copies = [3, 30, 60] if options.quick else [3, 15, 30, 45, 60, 75]
    report = Report(
        "cpep1",
        "Does the high level keep its latency while the middle level grows until the cores are full?",
        f"Graph A, {HIGH} high, {LOW} low and a growing number of middle copies; {repeats} runs of {seconds:g} s after "
        f"{warm_up:g} s; suppliers on a thread of the same process above all workers, InputQ replacement on. From the "
        "push of the last supplier event to the push into the consumer's queue. No Flink beside it yet.",
    )
    p99: dict[tuple[str, bool], list[list[float]]] = {(level, p): [] for level in LEVELS for p in (True, False)}
    for middle in copies:
        for prioritised in (True, False):
            runs = [run(middle, seconds, warm_up, prioritised) for _ in range(repeats)]
            for level in LEVELS:
                values = [r["levels"][level]["latency"]["p99_ns"] / 1e6 for r in runs]
                p99[level, prioritised].append(values)
            cpu = statistics.median(r["cpu"] for r in runs)
            listed = ", ".join(f"{lv} {statistics.median(p99[lv, prioritised][-1]):.3f}" for lv in LEVELS)
            word = "prioritised" if prioritised else "not prioritised"
            memory = max(r["rss_mb"] for r in runs)
            report.notes.append(
                f"{middle} middle copies, {word}: CPU {cpu:.0%}, p99 ms {listed}; resident {memory:.1f} MB"
            )
            print(report.notes[-1], flush=True)
    high = [value for values in p99["high", True] for value in values]
    worst = sorted(high)[max(0, int(len(high) * 0.9) - 1)] if len(high) > 1 else high[0]
    report.bars.append(Bar("high level's p99, in 9 of 10 runs", worst, 0.7, "at_most", "ms"))
    for prioritised in (True, False):
        word = "prioritised" if prioritised else "not_prioritised"
        lines: list[Series] = [series(level, copies, p99[level, prioritised]) for level in LEVELS]
        report.plots.append(Plot(word, f"99th percentile, {word.replace('_', ' ')}", "middle copies", "ms", lines))
    report.save(options.out)


if __name__ == "__main__":
    main()
