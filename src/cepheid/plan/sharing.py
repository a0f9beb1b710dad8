"""Rule: operators of one kind, parameters and inputs are one operator, across consumers and queries.

The one declared first stands for all; `share: false` keeps an operator apart. Inputs are compared after they were
themselves shared, so whole branches fall together.

    fft1: {kind: fft, inputs: [s]}     fft2: {kind: fft, inputs: [s]}     cat: {kind: cat, inputs: [fft2, t]}
    fft1 stands for fft2, and cat reads fft1
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from cepheid.plan.graph import Graph, Operator, Relative


def share(graph: Graph) -> tuple[Graph, dict[str, tuple[str, ...]]]:
    """The graph with equal operators made one, and the names that each remaining one stands for besides its own."""
    class_of: dict[str, int] = {}
    class_with: dict[Hashable, int] = {}
    for name in graph.order:
        operator = graph.operators.get(name)
        meaning = _meaning(operator, class_of) if operator is not None and operator.share else name
        class_of[name] = class_with.setdefault(meaning, len(class_with))

    members: dict[int, list[str]] = {}
    for name in graph.producers():
        members.setdefault(class_of[name], []).append(name)

    def kept(name: str) -> str:
        return members[class_of[name]][0]

    operators = {
        name: replace(
            operator,
            inputs=tuple(map(kept, operator.inputs)),
            relative=tuple(Relative(tuple(map(kept, r.inputs)), r.within) for r in operator.relative),
        )
        for name, operator in graph.operators.items()
        if kept(name) == name
    }
    shared = replace(
        graph,
        operators=operators,
        queries={q.name: replace(q, inputs=tuple(map(kept, q.inputs))) for q in graph.queries.values()},
        consumers={c.name: replace(c, input=kept(c.input)) for c in graph.consumers.values()},
    )
    return shared, {names[0]: tuple(names[1:]) for names in members.values() if len(names) > 1}


def _meaning(operator: Operator, class_of: dict[str, int]) -> Hashable:
    """Equal for two operators that would always produce the same events. The order of inputs counts."""
    relative = frozenset((frozenset(class_of[i] for i in r.inputs), r.within) for r in operator.relative)
    inputs = tuple(class_of[i] for i in operator.inputs)
    return (operator.kind, operator.parameters, inputs, relative, operator.fire)
