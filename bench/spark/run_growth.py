"""What a query on a stream costs as keys, events, partitions and executors grow; and a model of 10,000 times that.

On a standalone cluster of one and of two executors of one core each. The model is fitted by least squares to what was
measured, and is no more than that: what it assumes is said beside what it predicts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from common import Bar, Report, Table, arguments
from spark.cluster import cluster
from spark.growing import Case

TIMES: Final = 10_000
BASE: Final = Case()
#: One thing at a time, and some together.
GROWN: Final = (
    BASE,
    Case(keys=8_000),
    Case(events=200_000),
    Case(events=200_000, keys=8_000),
    Case(partitions=8),
    Case(buckets=128),
    Case(files=8),
    Case(files=8, buckets=128, partitions=8),
)
QUICK: Final = (BASE, Case(events=200_000), Case(keys=8_000, partitions=8), Case(files=8, buckets=128))

#: What a batch's seconds are made of.
TERMS: Final[Mapping[str, Callable[[Case, int], float]]] = {
    "a batch": lambda case, executors: 1.0,
    "tasks, planned by the driver": lambda case, executors: float(case.files + 2 * case.partitions),
    "events, over the executors": lambda case, executors: case.events / executors,
    "keys, over the executors": lambda case, executors: case.keys / executors,
    "rows packed (files x buckets), over the executors": lambda case, executors: case.files * case.buckets / executors,
    "buckets, over the executors": lambda case, executors: case.buckets / executors,
}


@dataclass(frozen=True)
class Model:
    """Seconds of a batch as a sum of terms, each with what it costs; `error` is the relative one, at its median."""

    costs: Mapping[str, float]
    error: float

    def seconds(self, case: Case, executors: int) -> float:
        return sum(cost * TERMS[name](case, executors) for name, cost in self.costs.items())


def fitted(points: Sequence[tuple[Case, int, float]]) -> Model:
    """Least squares of the relative error; a term whose cost would be negative is left out, as costs are not."""
    names = list(TERMS)
    while True:
        rows = np.array([[TERMS[name](case, executors) for name in names] for case, executors, _ in points])
        seconds = np.array([found for _, _, found in points])
        costs = np.linalg.lstsq(rows / seconds[:, None], np.ones(len(points)), rcond=None)[0]
        if costs.min() >= 0 or len(names) == 1:
            break
        names.pop(int(costs.argmin()))
    error = float(np.median(np.abs(rows @ costs / seconds - 1)))
    return Model({name: float(cost) for name, cost in zip(names, costs, strict=True)}, error)


def measured(master: str, folder: Path, executors: int, cases: Sequence[Case]) -> list[dict[str, Any]]:
    command = [sys.executable, str(Path(__file__).parent / "growing.py"), master, str(folder), str(executors)]
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [*command, json.dumps([asdict(case) for case in cases])],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    options = arguments(__doc__)
    cases = QUICK if options.quick else GROWN
    report = Report(
        name="spark-growth",
        question=(__doc__ or "").split("\n", 1)[0],
        method="Query 3 without its first FILTER on a stream of Parquet files, consumed (noop), on a cluster. "
        "Seconds of a batch are medians of all but the first. The state is what the matchers hold after the last.",
    )
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as master:
        for executors in (1, 2):
            runs += measured(master, Path(folder) / f"of-{executors}", executors, cases)
    report.runs += runs
    points = [(Case(**run["case"]), int(run["executors"]), statistics.median(run["seconds"])) for run in runs]
    told(report, points, runs)
    report.save(options.out)


def told(report: Report, points: Sequence[tuple[Case, int, float]], runs: Sequence[Mapping[str, Any]]) -> None:
    model = fitted(points)
    table = Table(
        "Measured, and by the model",
        ["keys", "events", "files", "partitions", "buckets", "executors", "seconds", "model", "state, MB"],
    )
    for (case, executors, seconds), run in zip(points, runs, strict=True):
        sizes = [f"{n:,}" for n in (case.keys, case.events, case.files, case.partitions, case.buckets, executors)]
        table.rows.append(
            [*sizes, f"{seconds:.2f}", f"{model.seconds(case, executors):.2f}", f"{run['state_bytes'] / 1e6:.1f}"]
        )
    report.tables.append(table)
    report.tables.append(
        Table(
            "The model: seconds of a batch are the sum of",
            ["what", "costs"],
            [[name, f"{cost:.3g} s each"] for name, cost in model.costs.items()],
        )
    )
    state = float(np.median([run["state_bytes"] / run["held"] for run in runs]))
    case, executors = case_of_base(points)
    grown = Case(
        keys=case.keys * TIMES,
        events=case.events * TIMES,
        files=case.files * TIMES,
        partitions=case.partitions * TIMES,
        buckets=case.buckets,
    )
    report.tables.append(predicted(model, case, grown, executors, state))
    report.bars.append(Bar("the model's error, at the median", model.error, 0.25, "at_most"))
    report.notes += [
        f"The prediction assumes {TIMES:,} times the executors, files, partitions, events and keys; that a shuffle of "
        "that size costs a row what a small one does; that keys are spread evenly; and that each executor is a core as "
        "ours. None of that was seen: there were two executors on one machine, which share its two cores with the "
        "driver.",
        "A batch of tasks is planned by one driver, and every task tells every bucket how far it has come: these two "
        "grow with the cluster where all else is divided. Fewer, larger files and partitions make them small.",
        "Buckets end at 4,096 (Live), so that a stream's matching uses no more cores than that.",
    ]


def case_of_base(points: Sequence[tuple[Case, int, float]]) -> tuple[Case, int]:
    return points[0][0], max(executors for _, executors, _ in points)


def predicted(model: Model, case: Case, grown: Case, executors: int, state: float) -> Table:
    table = Table(
        f"{TIMES:,} times", ["what", "keys", "events a batch", "executors", "buckets", "seconds a batch", "state, GB"]
    )
    several = Case(**{**asdict(grown), "buckets": 4096, "files": 4096, "partitions": 4096})
    held = 30  # events of a key in the window: one in ten seconds, for five minutes
    for what, one, many in (
        ("measured, by the model", case, executors),
        ("all grown alike", grown, executors * TIMES),
        ("4,096 buckets, files and partitions", several, executors * TIMES),
    ):
        busy = min(many, one.buckets)
        table.rows.append(
            [
                what,
                f"{one.keys:,}",
                f"{one.events:,}",
                f"{many:,}",
                f"{one.buckets:,}",
                f"{model.seconds(one, busy):,.1f}",
                f"{state * held * one.keys / 1e9:,.2f}",
            ]
        )
    return table


if __name__ == "__main__":
    main()
