"""Rule: each operator has the highest level among its downstream consumers (paper, section 4).

A supplier's events have the highest level among the operators that read them, so they enter the InputQ of that level.
A query counts as a consumer of its own level, and passes on that of its readers. Levels are ranks: 0 is the highest.

    consumers: {plant: {input: a, level: critical}, log: {input: b, level: background}}     b reads a, a reads s
    a: critical, b: background, s: critical
"""

from __future__ import annotations

from cepheid.plan.graph import Graph


def prioritise(graph: Graph) -> dict[str, int]:
    """The rank of each stream, operator and query: one pass up the graph. What nobody reads has the lowest."""
    lowest = len(graph.levels) - 1
    ranks: dict[str, int] = {}
    for query in graph.queries.values():
        ranks[query.name] = graph.level_of(query.level)
    for consumer in graph.consumers.values():
        ranks[consumer.input] = min(ranks.get(consumer.input, lowest), graph.level_of(consumer.level))
    for name in reversed(graph.order):
        rank = ranks.setdefault(name, lowest)
        for given in graph.inputs_of(name):
            ranks[given] = min(ranks.get(given, lowest), rank)
    return ranks
