"""The graphs of the experiments are those of the paper, as the design reads it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml
from cpep.graphs import LEVELS, Workload, graph_a, graph_b

from cepheid.app import load
from cepheid.plan.planner import Plan


def planned(work: Workload, folder: Path) -> Plan:
    path = folder / "app.yaml"
    path.write_text(yaml.safe_dump(work.sections("graph")))
    return load(path).plan()


def operators(plan: Plan) -> Counter[tuple[str, str]]:
    """How many operators there are, by level and kind."""
    graph = plan.graph
    return Counter((graph.levels[plan.ranks[name]], operator.kind) for name, operator in graph.operators.items())


def test_graph_a_is_the_papers(tmp_path: Path) -> None:
    plan = planned(graph_a(6), tmp_path)
    assert operators(plan) == {
        ("high", "ekf"): 3,
        ("high", "aes"): 3,
        ("middle", "ekf"): 12,
        ("middle", "fft"): 12,
        ("middle", "cat"): 6,
        ("low", "ekf"): 12,
        ("low", "fft"): 12,
        ("low", "aes"): 12,
    }
    assert Counter(consumer.level for consumer in plan.graph.consumers.values()) == {"high": 3, "middle": 6, "low": 12}
    assert plan.graph.operators["m0cat"].inputs == ("m0fft0", "m0fft1")
    assert plan.graph.operators["m0ekf1"].inputs == ("m0s5", "m0s6")


def test_events_of_graph_a_have_the_papers_sizes_and_periods() -> None:
    work = graph_a(1, high=1, low=1)
    pushed = {tuple(g["streams"]): (set(g["bytes"]), g["period"]) for g in work.suppliers()}
    assert pushed == {
        ("h0s1", "h0s2"): ({512}, 5_000),
        ("m0s3", "m0s4", "m0s5", "m0s6"): ({1_024}, 10_000),
        ("l0s7", "l0s8"): ({2_048}, 20_000),
    }
    assert work.streams["h0s1"]["period"] == "5000us"
    assert [work.due(level) for level in LEVELS] == [200, 100, 50]


def test_graph_b_shares_across_levels_or_doubles(tmp_path: Path) -> None:
    shared = planned(graph_b(2), tmp_path)
    assert operators(shared) == {
        ("high", "ekf"): 4,
        ("high", "fft"): 4,
        ("high", "cat"): 2,
        ("middle", "ekf"): 4,
        ("middle", "fft"): 4,
        ("middle", "cat"): 2,
        ("low", "cat"): 2,
        ("low", "aes"): 2,
    }
    assert shared.graph.operators["b0catlow"].inputs == ("b0fft2", "b0fft4")
    apart = planned(graph_b(2, shared=False), tmp_path)
    assert operators(apart) == operators(shared) + Counter({("low", "ekf"): 4, ("low", "fft"): 4})
    assert apart.graph.operators["b0ekf2low"].inputs == ("b0s3", "b0s4")


def test_events_of_graph_b_have_the_papers_sizes_and_period() -> None:
    (group,) = graph_b(1).suppliers()
    assert group["bytes"] == [512] * 4 + [1_024] * 4
    assert group["period"] == 10_000
    assert all(stream["valid_for"] == "10000us" for stream in graph_b(1).streams.values())


@pytest.mark.parametrize("work", [graph_a(2), graph_b(2)])
def test_suppliers_that_are_not_coordinated_have_timers_of_their_own(work: Workload) -> None:
    alone = work.suppliers(coordinated=False, sporadic=True)
    assert [group["streams"] for group in alone] == [[name] for name in work.streams]
    assert {group["jitter"] for group in alone} == {2_500}
    assert {group["jitter"] for group in work.suppliers()} == {0}


def test_relative_intervals_are_where_streams_meet(tmp_path: Path) -> None:
    relative = {"high": 5_000, "middle": 7_000, "low": 5_000}
    plan = planned(graph_a(3, valid_for=None, relative=relative), tmp_path)
    within = {(o.kind, r.within) for o in plan.graph.operators.values() for r in o.relative}
    assert within == {("ekf", 5_000), ("ekf", 7_000), ("cat", 7_000)}


@pytest.mark.parametrize("coordinated", [True, False])
def test_behind_a_gateway_all_suppliers_share_a_connection(coordinated: bool) -> None:
    work = graph_a(2)
    apart = work.suppliers(coordinated=coordinated)
    behind = work.suppliers(coordinated=coordinated, gateway=True)
    assert {group["connection"] for group in apart} == {0, 1, 2}
    assert behind == [group | {"connection": 0} for group in apart]
