"""The model of growth finds the costs that made its points, and predicts by them."""

from __future__ import annotations

import random

import pytest
from common import Report
from spark.growing import Case
from spark.run_growth import GROWN, TERMS, TIMES, fitted, told

COSTS = {
    "a batch": 0.4,
    "tasks, planned by the driver": 0.01,
    "events, over the executors": 2e-6,
    "keys, over the executors": 3e-5,
    "rows packed (files x buckets), over the executors": 0.0,
    "buckets, over the executors": 0.002,
}


def points(noise: float) -> list[tuple[Case, int, float]]:
    r = random.Random(1)
    found = []
    for case in GROWN:
        for executors in (1, 2):
            seconds = sum(cost * TERMS[name](case, executors) for name, cost in COSTS.items())
            found.append((case, executors, seconds * r.uniform(1 - noise, 1 + noise)))
    return found


def test_costs_are_found_again() -> None:
    model = fitted(points(0))
    for name, cost in COSTS.items():
        assert model.costs.get(name, 0.0) == pytest.approx(cost, rel=1e-6, abs=1e-9)
    assert model.error < 1e-6
    noisy = fitted(points(0.1))
    assert all(cost >= 0 for cost in noisy.costs.values())
    assert noisy.seconds(Case(), 1) == pytest.approx(model.seconds(Case(), 1), rel=0.2)


def test_what_is_predicted_is_in_the_report() -> None:
    report = Report(name="spark-growth", question="", method="")
    given = points(0)
    told(report, given, [{"state_bytes": 1000, "held": 10} for _ in given])
    measured, model, predicted = report.tables
    assert len(measured.rows) == len(given)
    assert len(model.rows) >= 3
    grown = predicted.rows[1]
    assert grown[1] == f"{Case().keys * TIMES:,}"
    assert float(grown[5].replace(",", "")) > 2 * TIMES * COSTS["tasks, planned by the driver"]
    assert "None of that was seen" in report.notes[0]
