"""The cycles of a graph, which keep it from having an order."""

from __future__ import annotations

from cepheid.plan.graph import Graph


def cycles(graph: Graph) -> list[list[str]]:
    """Each cycle once, as the names along it, beginning with the one declared first: `[["a", "b"]]` for a -> b -> a.

    Cycles that share a node are reported as one: mending it shows the next.
    """
    left = dict.fromkeys(graph.producers())
    for name in graph.order:
        del left[name]
    position = {name: i for i, name in enumerate(left)}
    found = []
    seen: set[str] = set()
    for start in left:
        path: list[str] = []
        at: str | None = start
        here: dict[str, int] = {}
        while at is not None and at not in seen:
            seen.add(at)
            here[at] = len(path)
            path.append(at)
            at = next((given for given in graph.inputs_of(at) if given in left), None)
        if at is not None and at in here:
            cycle = path[here[at] :][::-1]  # data flows from an input to its reader
            first = min(range(len(cycle)), key=lambda i: position[cycle[i]])
            found.append(cycle[first:] + cycle[:first])
    return found
