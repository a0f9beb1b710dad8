"""An order of the graph in which every node comes after its inputs, or the cycle that prevents it."""

from __future__ import annotations

from collections import deque

from cepheid.plan.graph import Graph


def topological(graph: Graph) -> list[str]:
    """The producers, each after what it reads; nodes on a cycle, or after one, are left out.

    Linear in nodes and edges. Among nodes that are ready the declared order is kept.
    """
    waiting: dict[str, int] = {}
    readers: dict[str, list[str]] = {}
    for name in graph.producers():
        inputs = [i for i in graph.inputs_of(name) if graph.producer(i) is not None]
        waiting[name] = len(inputs)
        for given in inputs:
            readers.setdefault(given, []).append(name)
    ready = deque(name for name, count in waiting.items() if count == 0)
    order = []
    while ready:
        name = ready.popleft()
        order.append(name)
        for reader in readers.get(name, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    return order


def cycles(graph: Graph) -> list[list[str]]:
    """Each cycle once, as the names along it, beginning with the one declared first: `[["a", "b"]]` for a -> b -> a.

    Cycles that share a node are reported as one: mending it shows the next.
    """
    left = dict.fromkeys(graph.producers())
    for name in topological(graph):
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
