"""From a logical graph to a plan: every rule in its order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cepheid.language.checker import Checked
from cepheid.model.collector import collector_paused
from cepheid.plan import apart, placement, priority, pruning, sharing, stages, typing, validity, wellformed
from cepheid.plan.apart import Apart
from cepheid.plan.graph import Graph
from cepheid.plan.operators import Schema
from cepheid.plan.placement import Placement
from cepheid.plan.problems import Problem
from cepheid.plan.stages import Stage
from cepheid.plan.validity import Temporal


@dataclass(frozen=True, slots=True)
class Plan:
    """What every engine needs to know, by name.

    `logical` is the graph as written, `graph` the one that runs. `shared` names, for an operator, those it stands for
    besides its own; `pruned` are not run. `readers` are the engines that read a stream; `stages` the operators of the
    queries, by their meaning; `apart` what these seem to share, and don't.
    """

    logical: Graph
    graph: Graph
    schemas: Mapping[str, Schema]
    queries: Mapping[str, Checked]
    shared: Mapping[str, tuple[str, ...]]
    pruned: tuple[str, ...]
    ranks: Mapping[str, int]
    temporal: Mapping[str, Temporal]
    placement: Mapping[str, Placement]
    readers: Mapping[str, tuple[str, ...]]
    stages: Mapping[str, Stage]
    apart: tuple[Apart, ...]

    def level(self, name: str) -> str:
        return self.graph.levels[self.ranks[name]]


def check(graph: Graph) -> list[Problem]:
    """Everything wrong with a graph, in names, shape and types."""
    with collector_paused():
        return wellformed.check(graph) + typing.derive(graph).problems


def plan(graph: Graph) -> Plan:
    """Plan a graph in which `check` found no error. Linear in its nodes and edges."""
    with collector_paused():
        return _plan(graph)


def _plan(graph: Graph) -> Plan:
    typed = typing.derive(graph)
    pruned_graph, pruned = pruning.prune(graph)
    optimised, shared = sharing.share(pruned_graph)
    placed = placement.place(optimised)
    ranks = priority.prioritise(optimised)
    operators = stages.stages(typed.queries, optimised, ranks, placed)
    return Plan(
        logical=graph,
        graph=optimised,
        schemas=typed.schemas,
        queries=typed.queries,
        shared=shared,
        pruned=pruned,
        ranks=ranks,
        temporal=validity.propagate(optimised),
        placement=placed,
        readers=placement.readers(optimised, placed),
        stages=operators,
        apart=apart.apart(typed.queries, operators, optimised, ranks, placed),
    )
