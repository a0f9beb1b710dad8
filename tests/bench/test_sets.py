"""Each experiment runs, with real processes, in a form of moments; what it measures is not judged here."""

from __future__ import annotations

import importlib
import math
from bisect import bisect
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from common import Report
from cpep import run_1, run_2, run_3, run_4, run_5, run_6
from cpep.graphs import LEVELS, graph_a
from cpep.harness import CORES, Case, run
from cpep.intervals import in_nine_of_ten, mean_and_half, student
from cpep.sets import Calibration, Form

MOMENT = Form(0.2, 0.4, 1, copies=(1,), tail=0.2)


def test_what_is_pushed_is_received_and_counted(tmp_path: Path) -> None:
    work = graph_a(1, high=1, low=1)
    raw = tmp_path / "raw.npz"
    found = run(Case(work, warm_up=0.3, seconds=0.5, replace=False), raw=raw)
    pushed, books = found.suppliers["pushed"], found.books
    assert pushed == found.suppliers["acknowledged"] == books["log"]["accepted"] > 0
    assert found.suppliers["lost"] == found.suppliers["dead"] == 0
    assert found.consumers["received"] == sum(c["came"] for c in books["consumers"].values())
    for level in LEVELS:
        assert len(found.latency[level]) > 0
        assert (found.latency[level] > 0).all()
    assert set(found.cpu) == {"engine", "suppliers", "consumers"}
    with np.load(raw) as kept:
        assert len(kept["high_us"]) == len(found.latency["high"])


def test_with_the_log_the_intake_is_a_process_of_its_own() -> None:
    found = run(Case(graph_a(1, high=1, low=1), log=True, warm_up=0.2, seconds=0.3))
    assert set(found.memory) == {"intake", "engine"}
    assert len(found.latency["high"]) > 0


def test_programs_beside_take_the_cores_that_are_left() -> None:
    found = run(Case(graph_a(1, high=1, low=1), warm_up=0.2, seconds=0.3, beside=CORES))
    assert found.host > 2 * found.total_cpu
    assert len(found.latency["high"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "measure",
    [
        run_1.measure,
        partial(run_2.measure, variants={"sporadic": run_2.VARIANTS["sporadic"]}),
        run_3.measure,
        run_4.measure,
        partial(run_5.measure, intervals=run_5.INTERVALS[:1]),
        partial(run_6.measure, operations=2_000, turns=1),
    ],
    ids=[f"set {number}" for number in range(1, 7)],
)
def test_each_set_gives_a_report(measure: Callable[[Form, Path], Report], tmp_path: Path) -> None:
    report = measure(MOMENT, tmp_path)
    _saved(report, tmp_path)
    assert list((tmp_path / "raw").glob("*.npz"))


@pytest.mark.slow
def test_the_overload_gives_a_report(tmp_path: Path) -> None:
    overload = importlib.import_module("overload.run")
    report = overload.measure(MOMENT, tmp_path)
    _saved(report, tmp_path)
    assert not [bar for bar in report.bars if "account" in bar.name and bar.value], report.notes
    assert not list(overload.unbalanced({"streams": {}, "operators": {}, "consumers": {}}))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (2, [3, 10, 20]),  # fails with the first already: 1.25 times 3 was passed by a load of ours
        (15, [3, 10, 20, 25]),
        (30, [3, 10, 20, 25, 32, 40]),
    ],
)
def test_beside_a_peer_loads_go_on_until_it_fails_and_to_an_overload(limit: int, expected: list[int]) -> None:
    loads = [3, 10, 20]
    for middle in run_1.beyond(loads, lambda place: loads[place] <= limit):
        loads.append(middle)  # noqa: PERF402 (it looks at what it made grow)
    assert loads == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(2, [3, 10, 20]), (15, [3, 10, 14, 15, 17, 20]), (19, [3, 10, 14, 17, 18, 20]), (30, [3, 10, 20])],
)
def test_the_highest_load_that_a_peer_sustains_is_known_to_a_step(limit: int, expected: list[int]) -> None:
    loads = [3, 10, 20]
    for middle in run_1.between(loads, lambda place: loads[place] <= limit):
        loads.insert(bisect(loads, middle), middle)
    assert loads == expected


def test_a_peer_that_never_fails_ends_the_steps() -> None:
    loads = [4]
    for middle in run_1.beyond(loads, lambda _: True):
        loads.append(middle)  # noqa: PERF402 (it looks at what it made grow)
    assert len(loads) == 1 + run_1.MOST_STEPS + 1


def _saved(report: Report, folder: Path) -> None:
    report.save(folder)
    assert report.bars
    assert report.runs
    assert report.plots
    page = (folder / "index.html").read_text()
    assert all((folder / f"{plot.name}.svg").exists() and f"{plot.name}.svg" in page for plot in report.plots)


def test_books_that_do_not_balance_are_named() -> None:
    overload = importlib.import_module("overload.run")
    edge = {"came": 3, "used": 1, "replaced": 1, "shed": 0, "expired": 0, "held": 0}
    books = {"streams": {}, "operators": {}, "consumers": {"plant": edge}}
    assert list(overload.unbalanced(books)) == ["consumer plant: 3 came, 2 are accounted for"]


def test_confidence_intervals() -> None:
    mean, half = mean_and_half([1.0, 2.0, 3.0])
    assert (mean, round(half, 3)) == (2.0, 2.484)
    assert math.isnan(mean_and_half([1.0])[1])
    assert student(9) == 2.262
    assert student(39) == 2.042
    assert in_nine_of_ten([*range(1, 11)]) == 9


def test_copies_follow_from_the_line_through_two_loads() -> None:
    line = Calibration(0.10, 0.01)
    assert [line.copies(share) for share in (0.05, 0.40, 0.97)] == [1, 30, 87]
