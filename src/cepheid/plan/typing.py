"""Rule: every producer has a schema, derived from its inputs'; an operator that cannot read them is an error.

streams: {flow: {attributes: {rate: float}}}
graph: {spectrum: {kind: fft, inputs: [flow]}}
error: fft 'spectrum' reads an array, but 'flow' has rate: float
"""

from __future__ import annotations

from cepheid.plan.graph import Graph
from cepheid.plan.operators import KINDS, Mismatch, Schema
from cepheid.plan.problems import Problem, error


def schemas(graph: Graph) -> tuple[dict[str, Schema], list[Problem]]:
    """The schema of each stream and operator, and the mismatches. What follows a mismatch is not reported."""
    known: dict[str, Schema] = {stream.name: stream.attributes for stream in graph.streams.values()}
    problems = []
    for name in graph.order:
        operator = graph.operators.get(name)
        if operator is None or not KINDS[operator.kind].takes(len(operator.inputs)):
            continue
        if any(given not in known for given in operator.inputs):
            continue
        try:
            inputs = [(given, known[given]) for given in operator.inputs]
            known[name] = KINDS[operator.kind].output(dict(operator.parameters), inputs)
        except Mismatch as mismatch:
            where = ("graph", name) if mismatch.input is None else ("graph", name, "inputs", mismatch.input)
            problems.append(error("type-mismatch", f"{operator.kind} '{name}' {mismatch}", where, mismatch.hint))
    return known, problems
