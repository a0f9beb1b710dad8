"""Latency, throughput and memory by level while the middle level grows, beside Flink (--peer flink): CPEP's set 1.

Flink has one socket source, as in the paper; with --peer flink-levels it has one a level, so that a level that falls
behind holds up no other. Suppliers have a connection a level, of which Flink's source takes what is there by turns; at
the overload they send over one connection, too, as behind a gateway.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal

from common import Bar, Plot, Report, Table, arguments
from cpep.graphs import BASE, LEVELS, PERIOD_A, Workload, graph_a
from cpep.harness import CORES, Outcome
from cpep.intervals import in_nine_of_ten, line, words
from cpep.sets import Form, Turns, copies_of_a, form_of, latency_plots, note_load

#: Seconds that Flink is given to compile what it runs, full and quick.
FLINK_WARM_UP: Final = 75.0
FLINK_QUICK_WARM_UP: Final = 12.0
#: Flink sustains a load if so much of what is due is received, at every level.
SUSTAINED: Final = 0.98
#: Beside Flink, loads go on from the heaviest of ours in such steps until it does not sustain one; at most so many.
STEP: Final = 1.25
#: The highest load that it sustains is known to so small a step: what lies below it may not be near its end.
FINE_STEP: Final = 1.1
MOST_STEPS: Final = 8
#: The stated overload: so many times the copies of the first load that Flink does not sustain.
OVERLOAD: Final = 1.25
#: The quick form without Flink has as many runs as "in 9 of 10" needs.
QUICK_RUNS: Final = 10
WAYS: Final = {"log off": False, "log on": True}
#: Table 1 of the paper, for 3, 6, 9, 12 and 15 middle copies.
PAPER: Final = {
    "high": ("0.8, 0.7, 0.7, 0.7, 0.7", "3.8, 5.9, 12.6, 52.6, 448.9"),
    "middle": ("1.6, 1.8, 2.2, 2.5, 3.0", "4.5, 6.4, 11.3, 28.9, 107.9"),
    "low": ("3.7, 4.8, 6.8, 10.6, 33.4", "5.2, 7.4, 15.5, 43.3, 679.8"),
}
Runs = dict[str, list[list[Outcome]]]


def measure(form: Form, out: Path, flink: Callable[..., Any] | None = None, flink_warm_up: float = 0.0) -> Report:
    """The whole set; beside `flink` the log is off, and loads go on until it sustains none, and to an overload."""
    report = Report(
        "cpep-1",
        "Does the high level keep its latency while the middle level grows until the cores are full?",
        f"Graph A, {BASE['high']} high, {BASE['low']} low and a growing number of middle copies; {form.words()}. "
        "`cepheid service`, with suppliers and consumers as processes of their own above it; suppliers of a stream "
        "coordinated, periodic; InputQ replacement on. From the push of the last supplier event to its receipt by the "
        "consumer.",
    )
    copies = copies_of_a(form, report)
    if form.copies is None:
        copies = sorted({BASE["middle"], *copies})
    turns = Turns(report, out, form)
    runs: Runs = {"log off": [], "log on": []} if flink is None else {"log off": [], "Flink": []}

    def take(middle: int, said: str = "", **how: Any) -> dict[str, list[Outcome]]:
        words = f"{middle}{said}"
        cases = {way: form.case(graph_a(middle), log=WAYS.get(way, False), **how) for way in runs}
        if flink is not None:
            cases["Flink"] = replace(cases["Flink"], warm_up=flink_warm_up, tail=5.0)
        named = {f"{words} {way}": case for way, case in cases.items()}
        found = turns.take(named, {} if flink is None else {f"{words} Flink": flink})
        return dict(zip(runs, found.values(), strict=True))

    def run_all(middle: int) -> None:
        for way, found in take(middle).items():
            runs[way].append(found)

    for middle in copies:
        run_all(middle)
    loads = list(copies)
    if flink is not None:

        def is_sustained(place: int) -> bool:
            return sustains(graph_a(loads[place]), runs["Flink"][place])

        for middle in beyond(loads, is_sustained):
            run_all(middle)
            loads.append(middle)
        for middle in between(loads, is_sustained):
            run_all(middle)
            place = bisect(loads, middle)
            loads.insert(place, middle)
            for at in runs.values():
                at.insert(place, at.pop())
    latency_plots(report, loads, "middle copies", runs)
    _throughput(report, loads, runs)
    report.tables.append(_table(loads, runs))
    _high_bars(report, runs, [place for place, middle in enumerate(loads) if middle in copies])
    base = max(r.memory["engine"].vm_rss for r in runs["log off"][0])
    report.bars.append(Bar("engine's resident memory, base load", base, 20, "at_most", "MB"))
    _memory(report, loads, runs)
    everything = [r for at in runs.values() for found in at for r in found]
    if flink is not None:
        _beside_flink(report, loads, runs)
        sustained = [middle for place, middle in enumerate(loads) if sustains(graph_a(middle), runs["Flink"][place])]
        middle = max(sustained, default=loads[0])
        shared = take(middle, f", {CORES} programs beside,", beside=CORES)
        _shared_machine(report, middle, shared)
        gateway = take(loads[-1], ", one connection,", gateway=True)
        _behind_a_gateway(report, loads[-1], gateway)
        everything += [r for found in (*shared.values(), *gateway.values()) for r in found]
    if form.copies is None:
        report.bars.append(
            Bar("cores in use at the highest load", 100 * max(r.host for r in everything), 95, "more_than", "%")
        )
    note_load(report, everything)
    return report


def beyond(loads: Sequence[int], is_sustained: Callable[[int], bool]) -> Iterator[int]:
    """Heavier and heavier loads until the last one is not sustained, and then an overload.

    `loads` has what was run so far, and `is_sustained` says of one by its place whether it was.
    """
    steps = 0
    while is_sustained(len(loads) - 1) and steps < MOST_STEPS:
        yield math.ceil(loads[-1] * STEP)
        steps += 1
    broken = [middle for place, middle in enumerate(loads) if not is_sustained(place)]
    overload = math.ceil((broken[0] if broken else loads[-1]) * OVERLOAD)
    if overload > loads[-1]:
        yield overload


def between(loads: Sequence[int], is_sustained: Callable[[int], bool]) -> Iterator[int]:
    """Loads between the highest that is sustained, before the first that is not, and that one, to a fine step.

    Who iterates puts each into its place in `loads`.
    """
    while True:
        broken = next((place for place in range(len(loads)) if not is_sustained(place)), 0)
        if broken == 0 or loads[broken] <= math.ceil(loads[broken - 1] * FINE_STEP):
            return
        yield round(math.sqrt(loads[broken - 1] * loads[broken]))


def _high_bars(report: Report, runs: Runs, places: Collection[int]) -> None:
    """Over the set's own loads, by their places."""
    for way, limit in (("log off", 0.7), ("log on", 1.0)):
        if way in runs:
            worst = max(in_nine_of_ten([r.ms("high", 99) for r in runs[way][place]]) for place in places)
            often = "in 9 of 10 runs" if len(runs[way][0]) >= 10 else "in all of too few runs"
            report.bars.append(Bar(f"high level's p99 at every load, {often}, {way}", worst, limit, "at_most", "ms"))


def _table(loads: Sequence[int], runs: Runs) -> Table:
    table = Table(
        "Table 1: 99th percentile latency, ms", ["level", "service", *map(str, loads), "paper: 3, 6, 9, 12, 15"]
    )
    for level in LEVELS:
        for way, at in runs.items():
            paper = PAPER[level][way == "Flink"]
            table.rows.append([level, way, *(words([r.ms(level, 99) for r in found]) for found in at), paper])
    for way, at in runs.items():
        table.rows.append(["wake-up", way, *(words([r.wake_ms for r in found]) for found in at), ""])
    for way, at in runs.items():
        table.rows.append(["CPU %", way, *(words([100 * r.total_cpu for r in found], 0) for found in at), ""])
    return table


def _throughput(report: Report, loads: Sequence[int], runs: Runs) -> None:
    """Figure 11: all, and those with a latency below the time between events."""
    for level in LEVELS:
        drawn = []
        for way, at in runs.items():
            drawn.append(line(f"{way}, total", loads, [[r.rate(level) for r in found] for found in at]))
            timely = [[r.rate(level, within=PERIOD_A[level]) for r in found] for found in at]
            drawn.append(line(f"{way}, timely", loads, timely))
        report.plots.append(
            Plot(f"throughput_{level}", f"Throughput, {level} level", "middle copies", "events/s", drawn)
        )


def _memory(report: Report, loads: Sequence[int], runs: Runs) -> None:
    """Figure 12."""
    for word, name in (("vm_size", "VmSize"), ("vm_rss", "VmRSS")):
        drawn = [
            line(way, loads, [[sum(getattr(s, word) for s in r.memory.values()) for r in found] for found in at])
            for way, at in runs.items()
        ]
        report.plots.append(Plot(name, f"Memory of the service, {name}", "middle copies", "MB", drawn, log_y=True))
    table = Table("Figure 12: memory of the service's processes, MB", ["", "service", *map(str, loads)])
    for word, name in (("vm_size", "VmSize"), ("vm_rss", "VmRSS")):
        for way, at in runs.items():
            sums = [[sum(getattr(s, word) for s in r.memory.values()) for r in found] for found in at]
            table.rows.append([name, way, *(words(values, 1) for values in sums)])
    report.tables.append(table)


def sustains(work: Workload, found: Sequence[Outcome]) -> bool:
    """Whether at every level nearly everything that was due was received, and half of it before the next event.

    Without the second, a queue that grows would pass as long as it is short enough at the end.
    """
    return all(
        fmean(r.rate(level) for r in found) >= SUSTAINED * work.due(level)
        and fmean(r.ms(level, 50) for r in found) * 1e3 < work.periods[level]
        for level in LEVELS
    )


def _beside_flink(report: Report, loads: Sequence[int], runs: Runs) -> None:
    sustained = [place for place, middle in enumerate(loads) if sustains(graph_a(middle), runs["Flink"][place])]

    def ratio(place: int, level: str) -> float:
        ours, theirs = (fmean(r.ms(level, 99) for r in runs[way][place]) for way in ("log off", "Flink"))
        return theirs / ours

    if sustained:
        highest = max(sustained)
        report.bars.append(
            Bar(
                f"Flink's high p99 over ours, {loads[highest]} copies, the highest load that Flink sustains",
                ratio(highest, "high"),
                10,
                "at_least",
            )
        )
        worst = min(ratio(place, level) for place in sustained for level in ("middle", "low"))
        report.bars.append(
            Bar("Flink's middle and low p99 over ours, least, where Flink is not saturated", worst, 1, "at_least")
        )
    else:
        report.notes.append("Flink sustained none of the loads")
        report.bars.append(
            Bar("Flink's high p99 over ours, at the highest load that Flink sustains", math.nan, 10, "at_least")
        )
    if len(sustained) == len(loads):
        report.notes.append("Flink sustained all of the loads, also the last one, which was to be too much for it")
    report.bars.append(
        Bar(f"Flink's high p99 over ours, overload of {loads[-1]} copies", ratio(-1, "high"), 100, "at_least")
    )
    for place, middle in enumerate(loads):
        shares = [fmean(r.rate(lv) for r in runs["Flink"][place]) / graph_a(middle).due(lv) for lv in LEVELS]
        listed = ", ".join(f"{level} {share:.1%}" for level, share in zip(LEVELS, shares, strict=True))
        report.notes.append(f"Flink, {middle} middle copies: received of what was due, within 5 s: {listed}")


def _shared_machine(report: Report, middle: int, found: dict[str, list[Outcome]]) -> None:
    """What becomes of the latencies where other programs want the cores, too."""
    title = f"99th percentile latency, ms, of {middle} middle copies beside {CORES} programs that only compute"
    report.tables.append(_at_one_load(title, middle, found))


def _behind_a_gateway(report: Report, middle: int, found: dict[str, list[Outcome]]) -> None:
    """The overload where who falls behind at one level can't take the events of another first."""
    title = f"99th percentile latency, ms, overload of {middle} middle copies, all suppliers over one connection"
    report.tables.append(_at_one_load(title, middle, found))
    ours, theirs = (fmean(r.ms("high", 99) for r in found[way]) for way in ("log off", "Flink"))
    name = f"Flink's high p99 over ours, overload of {middle} copies over one connection"
    report.bars.append(Bar(name, theirs / ours, 100, "at_least"))


def _at_one_load(title: str, middle: int, found: dict[str, list[Outcome]]) -> Table:
    table = Table(title, ["service", *LEVELS, *(f"{level}, received of what was due" for level in LEVELS)])
    for way, at in found.items():
        shares = [fmean(r.rate(level) for r in at) / graph_a(middle).due(level) for level in LEVELS]
        latencies = [words([r.ms(level, 99) for r in at]) for level in LEVELS]
        table.rows.append([way, *latencies, *(f"{share:.1%}" for share in shares)])
    return table


def main() -> None:
    options = arguments(__doc__, peers=("flink", "flink-levels"))
    form = form_of(options.quick)
    if options.peer is None:
        if options.quick:
            form = replace(form, repeats=QUICK_RUNS)
        measure(form, options.out).save(options.out)
        return
    from cpep.peer import FlinkService, build

    build()
    warm_up = FLINK_QUICK_WARM_UP if options.quick else FLINK_WARM_UP
    sources: Literal["one", "level"] = "one" if options.peer == "flink" else "level"
    measure(form, options.out, partial(FlinkService, sources=sources), warm_up).save(options.out)


if __name__ == "__main__":
    main()
