"""Rule: an operator that no consumer and no query depends on is not run.

graph: {a: {kind: fft, inputs: [s]}, b: {kind: fft, inputs: [s], attribute: x}}
consumers: {c: {input: a}}
keeps a, drops b
"""

from __future__ import annotations

from dataclasses import replace

from cepheid.plan.graph import Graph


def prune(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    """The graph without the operators that nothing needs, and their names."""
    needed = {consumer.input for consumer in graph.consumers.values()} | set(graph.queries)
    unexplored = list(needed)
    while unexplored:
        for given in graph.inputs_of(unexplored.pop()):
            if given not in needed:
                needed.add(given)
                unexplored.append(given)
    if needed.issuperset(graph.operators):
        return graph, ()
    kept = {name: operator for name, operator in graph.operators.items() if name in needed}
    return replace(graph, operators=kept), tuple(name for name in graph.operators if name not in kept)
