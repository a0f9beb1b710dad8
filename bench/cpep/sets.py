"""What the six experiment sets share: their forms, how many copies make which load, and runs that take turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from common import Plot, Report
from cpep.graphs import LEVELS, Workload, graph_a, graph_b
from cpep.harness import TAIL, Case, CepheidService, Outcome, run
from cpep.intervals import line

#: The shares of the cores that loads are made for, from the paper's 40% to over 95%.
LOADS: Final = (0.40, 0.55, 0.70, 0.85, 0.97)
QUICK_LOADS: Final = (0.40, 0.70, 0.97)
#: The heaviest of them has more than this, whoever uses it; copies grow in such steps until it has.
FULL_CORES: Final = 0.95
STEP: Final = 1.08
MOST_STEPS: Final = 6


@dataclass(frozen=True)
class Form:
    """How long and how often: the paper's, a quick one, or what a test takes."""

    warm_up: float
    seconds: float
    repeats: int
    loads: tuple[float, ...] = LOADS
    #: Copies instead of loads: nothing is calibrated then.
    copies: tuple[int, ...] | None = None
    tail: float = TAIL

    def words(self) -> str:
        return f"{self.repeats} runs of {self.seconds:g} s after {self.warm_up:g} s"

    def case(self, work: Workload, **how: Any) -> Case:
        return Case(work, warm_up=self.warm_up, seconds=self.seconds, tail=self.tail, **how)


FULL: Final = Form(10.0, 100.0, 10)
QUICK: Final = Form(1.0, 4.0, 1, QUICK_LOADS)


@dataclass(frozen=True)
class Calibration:
    """CPU by copies: a share of all cores at none, and for each copy; service, suppliers and consumers together."""

    base: float
    each: float

    def copies(self, share: float, least: int = 1) -> int:
        """How many copies take such a share of the cores."""
        return max(least, round((share - self.base) / self.each))

    def words(self) -> str:
        return f"calibrated: {self.base:.1%} of the cores without copies, {self.each:.2%} a copy"


def calibrate(make: Callable[[int], Workload], few: int, *, coordinated: bool = True) -> Calibration:
    """Draws a line through a light load and one near four fifths of the cores, found by a load between them.

    A copy costs less the more there are, as threads that are awake need not be woken; so the heavy one decides.
    """

    def cpu(copies: int) -> float:
        # Of three, as a bad moment of the machine would make all loads wrong.
        return median(_light(make(copies), coordinated).total_cpu for _ in range(3))

    first = cpu(few)
    between = few + max(4, round(few * 0.2 / max(first, 0.01)))
    guess = _through(few, first, between, cpu(between))
    heavy = max(between, guess.copies(0.8))
    return _through(few, first, heavy, cpu(heavy))


def filling(make: Callable[[int], Workload], copies: int, *, coordinated: bool) -> int:
    """As many copies, or more: what fills the cores. Near that, the line through lighter loads is too steep."""
    for _ in range(MOST_STEPS):
        if _light(make(copies), coordinated).host > FULL_CORES:
            break
        copies = math.ceil(copies * STEP)
    return copies


def _light(work: Workload, coordinated: bool) -> Outcome:
    return run(Case(work, warm_up=0.5, seconds=2.0, tail=0.2, coordinated=coordinated))


def _through(few: int, first: float, many: int, second: float) -> Calibration:
    each = max((second - first) / (many - few), 1e-4)
    return Calibration(first - few * each, each)


def copies_of_a(form: Form, report: Report, *, coordinated: bool = True) -> list[int]:
    """Numbers of middle copies of graph A for the form's loads."""
    if form.copies is not None:
        return list(form.copies)
    found = calibrate(graph_a, 3, coordinated=coordinated)
    report.notes.append(f"Graph A {found.words()} of the middle level")
    copies = [found.copies(share, 3) for share in form.loads]
    if form.loads[-1] > FULL_CORES:
        copies[-1] = filling(graph_a, copies[-1], coordinated=coordinated)
    return copies


#: The paper's machine is full with nine copies of graph B that share nothing; so a unit is a ninth of ours.
FULL_AT: Final = 9


def unit_of_b(form: Form, report: Report) -> int:
    """How many copies of graph B are to our cores what one was to the paper's."""
    if form.copies is not None:
        return 1
    found = calibrate(lambda copies: graph_b(copies, shared=False), 2)
    unit = max(1, round(found.copies(1.0) / FULL_AT))
    report.notes.append(f"Graph B, not shared, {found.words()}; so the paper's copy is {unit} here")
    return unit


class Turns:
    """Runs cases one after another, again and again, so that a noisy minute strikes all alike; keeps samples."""

    def __init__(self, report: Report, out: Path, form: Form) -> None:
        self._report = report
        self._out = out
        self._form = form

    def take(
        self, cases: Mapping[str, Case], services: Mapping[str, Callable[..., Any]] | None = None
    ) -> dict[str, list[Outcome]]:
        """By name of the case, what its runs gave. `services` names those that are not Cepheid's."""
        found: dict[str, list[Outcome]] = {name: [] for name in cases}
        for number in range(self._form.repeats):
            for name, case in cases.items():
                start = (services or {}).get(name, CepheidService)
                raw = self._out / "raw" / f"{name.replace(' ', '_')}-{number + 1}.npz"
                outcome = run(replace(case, seed=number + 1), start, raw)
                found[name].append(outcome)
                self._report.runs.append({"case": name, "run": number + 1, **outcome.summary()})
                print(f"{name}, run {number + 1}: {brief(outcome)}", flush=True)
        return found


def brief(outcome: Outcome) -> str:
    """A run in a line."""
    latency = ", ".join(f"{level} {outcome.ms(level, 99):.3f}" for level in LEVELS)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in outcome.cpu.items())
    return (
        f"p99 ms {latency}; wake-up {outcome.wake_ms:.3f}; CPU {outcome.total_cpu:.0%} ({shares}); "
        f"host {outcome.host:.0%}, stolen {outcome.stolen:.1%}"
    )


def note_load(report: Report, runs: Sequence[Outcome]) -> None:
    """What the load processes took, and whether they were on time."""
    if not runs:
        return
    most = {name: max(r.cpu[name] for r in runs) for name in ("suppliers", "consumers")}
    lost = sum(r.suppliers["lost"] for r in runs)
    late = [r.wake_ms for r in runs]
    realtime = all(r.suppliers["realtime"] and r.consumers["realtime"] for r in runs)
    report.notes.append(
        f"Load processes: at most {most['suppliers']:.1%} (suppliers) and {most['consumers']:.1%} (consumers) of the "
        f"cores, {'above the service in' if realtime else 'WITHOUT'} real-time priority. They were woken "
        f"{median(late):.3f} ms late at the 99th percentile in the median run, {max(late):.3f} ms in the worst: the "
        f"floor of this machine, below any service. {lost} events were not pushed for want of room"
    )


def latency_plots(
    report: Report, x: Sequence[float], x_label: str, lines: Mapping[str, Sequence[Sequence[Outcome]]], prefix: str = ""
) -> None:
    """CPU, and by level the 99th and 90th percentile and the mean: the paper's Figures 8-10, 13-15."""
    cpu = [line(name, x, [[r.total_cpu * 100 for r in at] for at in runs]) for name, runs in lines.items()]
    report.plots.append(Plot(f"{prefix}cpu", f"{prefix.strip('_')} CPU utilisation".strip(), x_label, "%", cpu))
    measures: dict[str, Callable[[Outcome, str], float]] = {
        "99th percentile": lambda outcome, level: outcome.ms(level, 99),
        "90th percentile": lambda outcome, level: outcome.ms(level, 90),
        "mean": lambda outcome, level: outcome.mean_ms(level),
    }
    for level in LEVELS:
        for word, of in measures.items():
            drawn = [line(name, x, [[of(r, level) for r in at] for at in runs]) for name, runs in lines.items()]
            title = f"{prefix.strip('_')} {level} level, {word} of latency".strip()
            name = f"{prefix}{level}_{word.split()[0]}"
            report.plots.append(Plot(name, title, x_label, "ms", drawn, log_y=True))


def form_of(quick: bool, full: Form = FULL) -> Form:
    return QUICK if quick else full
