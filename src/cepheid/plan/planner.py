"""From a logical graph to a plan: every rule in its order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from cepheid.language.checker import Checked
from cepheid.model.collector import collector_paused
from cepheid.plan import apart, homes, placement, priority, pruning, sharing, stages, typing, validity, wellformed
from cepheid.plan.apart import Apart
from cepheid.plan.graph import Graph
from cepheid.plan.operators import Schema
from cepheid.plan.placement import Placement
from cepheid.plan.problems import Problem
from cepheid.plan.stages import Stage
from cepheid.plan.validity import Temporal

if TYPE_CHECKING:
    from cepheid.knowledge.tables import Table
    from cepheid.plan.semantic import Semantic


@dataclass(frozen=True, slots=True)
class Plan:
    """What every engine needs to know, by name.

    `logical` is the graph as written, `graph` the one that runs. `shared` names, for an operator, those it stands for
    besides its own; `pruned` are not run. `ranks` are the levels of all. `readers` are the engines that read a stream;
    `stages` the operators of the queries, by their meaning; `apart` what these seem to share, and don't.
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
    #: What became of the PATHs of the queries that have some; `queries` has these without them.
    semantic: Mapping[str, Semantic] = field(default_factory=dict)

    def level(self, name: str) -> str:
        return self.graph.levels[self.ranks[name]]


def check(graph: Graph) -> list[Problem]:
    """Everything wrong with a graph, in names, shape and types."""
    with collector_paused():
        return wellformed.check(graph) + typing.derive(graph).problems


#: Judges the PATHs of a query by what is known, with the tables of those before it.
Lower: TypeAlias = "Callable[[Checked, dict[str, Table]], Semantic]"


def plan(graph: Graph, lower: Lower | None = None) -> Plan:
    """Plan a graph in which `check` found no error. Linear in its nodes and edges.

    `lower` judges PATHs; without knowledge they stay as they are.
    """
    with collector_paused():
        return _plan(graph, lower)


def _plan(graph: Graph, lower: Lower | None) -> Plan:
    typed = typing.derive(graph)
    semantic: dict[str, Semantic] = {}
    tables: dict[str, Table] = {}
    for name, checked in typed.queries.items():
        if lower is not None and checked.query.path is not None:
            semantic[name] = lower(checked, tables)
    queries = {name: semantic[name].checked if name in semantic else q for name, q in typed.queries.items()}
    pruned_graph, pruned = pruning.prune(graph)
    optimised, shared = sharing.share(pruned_graph)
    placed = placement.place(optimised)
    ranks = priority.prioritise(optimised)
    at_home = homes.homes(queries, optimised, ranks, placed)
    operators = stages.stages(queries, optimised, ranks, at_home, placed)
    return Plan(
        logical=graph,
        graph=optimised,
        schemas=typed.schemas,
        queries=queries,
        shared=shared,
        pruned=pruned,
        ranks=ranks,
        temporal=validity.propagate(optimised),
        placement=placed,
        readers=placement.readers(optimised, placed),
        stages=operators,
        apart=apart.apart(queries, operators, optimised, at_home, placed),
        semantic=semantic,
    )
