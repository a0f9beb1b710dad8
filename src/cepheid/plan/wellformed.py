"""Rule: a graph must make sense before it is planned.

No cycle, no unknown name, no duplicate, no operator with the wrong number of inputs, no relative set that names a
stranger. Everything found is reported at once; what is unused is a warning. What is inside a query is typing's subject.

    graph: {a: {kind: fft, inputs: [b]}, b: {kind: fft, inputs: [a]}}
    error: cycle: a -> b -> a
"""

from __future__ import annotations

from collections.abc import Iterator

from cepheid.model.names import suggestion
from cepheid.plan.cycles import cycles
from cepheid.plan.graph import Graph, Operator
from cepheid.plan.operators import KINDS
from cepheid.plan.problems import Path, Problem, error, warning


def check(graph: Graph) -> list[Problem]:
    """All that is wrong with the names and the shape of a graph; its types are the next rule's subject."""
    return [
        *_names(graph),
        *_levels(graph),
        *(problem for operator in graph.operators.values() for problem in _operator(graph, operator)),
        *_inputs_of_consumers(graph),
        *_cycles(graph),
        *(() if graph.broken else _unused(graph)),
    ]


def _names(graph: Graph) -> Iterator[Problem]:
    sections = {"streams": graph.streams, "graph": graph.operators, "queries": graph.queries}
    owner: dict[str, str] = {}
    for section, nodes in sections.items():
        for name in nodes:
            if name in owner:
                yield error(
                    "duplicate-name",
                    f"'{name}' is already the name of {_ARTICLE[owner[name]]}",
                    (section, name),
                    "streams, operators and queries are all inputs by name, so each needs its own",
                    at_key=True,
                )
            owner.setdefault(name, section)


_ARTICLE = {"streams": "a stream", "graph": "an operator", "queries": "a query"}


def _levels(graph: Graph) -> Iterator[Problem]:
    for section, nodes in (("queries", graph.queries), ("consumers", graph.consumers)):
        for name, node in nodes.items():
            if node.level is not None and node.level not in graph.levels:
                yield error(
                    "unknown-level",
                    f"unknown level '{node.level}'",
                    (section, name, "level"),
                    suggestion(node.level, graph.levels) or "name one of `levels`, or add it to them",
                )


def _known_input(graph: Graph, name: str, where: Path) -> Iterator[Problem]:
    if graph.producer(name) is None and name not in graph.broken:
        hint = suggestion(name, graph.producers())
        if hint is None and name in graph.consumers:
            hint = f"'{name}' is a consumer, which produces nothing"
        elif hint is None:
            hint = "name a stream, an operator or a query"
        yield error("unknown-input", f"unknown input '{name}'", where, hint)


def _operator(graph: Graph, operator: Operator) -> Iterator[Problem]:
    where: Path = ("graph", operator.name)
    kind = KINDS[operator.kind]
    if not kind.takes(len(operator.inputs)):
        code = "too-few-inputs" if len(operator.inputs) < kind.least else "too-many-inputs"
        count = f"{len(operator.inputs)} input" + ("s" if len(operator.inputs) != 1 else "")
        message = f"operator '{operator.name}' has {count}, but {kind.name} takes {kind.arity}"
        hint = f"make one {kind.name} of each input"
        if code == "too-few-inputs":
            hint = "name what it reads: `inputs: [stream]`" if kind.least == 1 else "such as `inputs: [left, right]`"
        yield error(code, message, (*where, "inputs"), hint)
    for i, name in enumerate(operator.inputs):
        yield from _known_input(graph, name, (*where, "inputs", i))
    for j, relative in enumerate(operator.relative):
        for k, name in enumerate(relative.inputs):
            if name not in operator.inputs:
                yield error(
                    "not-an-input",
                    f"'{name}' is not an input of '{operator.name}', so no relative interval can bind it",
                    (*where, "relative", j, "inputs", k),
                    suggestion(name, operator.inputs) or "name some of its `inputs`",
                )
        if len(set(relative.inputs)) < 2:
            yield error(
                "relative-of-one",
                "a relative interval binds two or more different inputs",
                (*where, "relative", j, "inputs"),
                "add the input that it must be close to, or take this out",
            )


def _inputs_of_consumers(graph: Graph) -> Iterator[Problem]:
    for consumer in graph.consumers.values():
        yield from _known_input(graph, consumer.input, ("consumers", consumer.name, "input"))


def _cycles(graph: Graph) -> Iterator[Problem]:
    for cycle in cycles(graph):
        first = cycle[0]
        section = "graph" if first in graph.operators else "queries"
        shown = cycle if len(cycle) <= 12 else [*cycle[:10], f"... {len(cycle) - 11} more ...", cycle[-1]]
        yield error(
            "cycle",
            "cycle: " + " -> ".join([*shown, first]),
            (section, first),
            "events must flow one way: take one of these inputs out",
            at_key=True,
        )


def _unused(graph: Graph) -> Iterator[Problem]:
    used = {consumer.input for consumer in graph.consumers.values()}
    for operator in graph.operators.values():
        used.update(operator.inputs)
    for query in graph.queries.values():
        used.update(query.inputs)
    for name in graph.operators:
        if name not in used:
            yield warning(
                "unused",
                f"operator '{name}' has no reader, so it is not run",
                ("graph", name),
                "give it a consumer, or take it out",
                at_key=True,
            )
    if not graph.archived:
        for name in graph.streams:
            if name not in used:
                yield warning(
                    "unused",
                    f"stream '{name}' is read by nothing and not archived",
                    ("streams", name),
                    "add an archive, a query or a consumer",
                    at_key=True,
                )
