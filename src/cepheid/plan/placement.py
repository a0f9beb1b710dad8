"""Rule: everything runs on Spark unless it asks for the fast lane; each placement says why.

graph operator                          service   graph operators run in the real-time service
query, no fast clause, engine: auto     spark     nothing in it asks for the fast lane
query with PRIORITY                     service   PRIORITY asks for the fast lane
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cepheid.plan.graph import Graph, Query


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a node runs, and the reason in words."""

    engine: Literal["spark", "service"]
    reason: str


def place(graph: Graph) -> dict[str, Placement]:
    """The engine of each operator and query, by name. Streams are read by whichever engines need them."""
    placed = dict.fromkeys(graph.operators, Placement("service", "graph operators run in the real-time service"))
    for query in graph.queries.values():
        placed[query.name] = _place(query)
    return placed


def readers(graph: Graph, placed: Mapping[str, Placement]) -> dict[str, tuple[str, ...]]:
    """Who reads each stream: `service`, `spark`, and `archive`, which Spark writes. Rings exist only in the service."""
    found: dict[str, dict[str, None]] = {name: {} for name in graph.streams}
    for consumer in graph.consumers.values():
        found.get(consumer.input, {})["service"] = None
    for name, placement in placed.items():
        for given in graph.inputs_of(name):
            found.get(given, {})[placement.engine] = None
    if graph.archived:
        for reading in found.values():
            reading["archive"] = None
    return {name: tuple(reading) for name, reading in found.items()}


def _place(query: Query) -> Placement:
    if query.engine != "auto":
        return Placement(query.engine, f"engine: {query.engine}")
    if query.fast_clauses:
        verb = "asks" if len(query.fast_clauses) == 1 else "ask"
        return Placement("service", f"{' and '.join(query.fast_clauses)} {verb} for the fast lane")
    return Placement("spark", "nothing in it asks for the fast lane")
