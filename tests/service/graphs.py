"""Random graphs and supplier events for Hypothesis, and the same graph for the reference and the native engines.

All operators are CAT on array<uint8>, and a supplier event carries its own number, so that what a consumer receives
says which supplier events are in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hypothesis import strategies as st

from tests.reference.graph import Consumer, Graph, Operator, Stale, Stream

STALE: Final[tuple[Stale, ...]] = ("mark", "shed")
FIRE: Final[tuple[Literal["all", "any"], ...]] = ("all", "all", "all", "any")

#: A supplier event (stream, time), or what the clock says when all that waits is run.
Action: TypeAlias = tuple[str, int] | int


@dataclass(frozen=True)
class Case:
    graph: Graph
    actions: tuple[Action, ...]


def spec_of(graph: Graph, cores: int = 2, prioritised: bool = True, capacity: int = 4096) -> str:
    """The graph as the native engines read it."""
    names = [s.name for s in graph.streams] + [o.name for o in graph.operators]
    numbers = {name: i for i, name in enumerate(names)}
    # A producer's level is the highest of its readers'.
    levels: dict[str, int] = {operator.name: operator.level for operator in graph.operators}
    for stream in graph.streams:
        readers = [o.level for o in graph.operators if stream.name in o.inputs]
        levels[stream.name] = min(readers, default=2)
    attributes = [["parts", "array<uint8>"]]
    return json.dumps(
        {
            "name": "random",
            "levels": ["high", "middle", "low"],
            "cores": cores,
            "prioritised": prioritised,
            "streams": [
                {
                    "name": s.name,
                    "level": levels[s.name],
                    "valid_for": s.valid_for,
                    "ring": 2,
                    "replace": s.replace,
                    "waiting": 1024,
                    "attributes": attributes,
                }
                for s in graph.streams
            ],
            "operators": [
                {
                    "name": o.name,
                    "kind": "cat",
                    "level": o.level,
                    "inputs": [numbers[i] for i in o.inputs],
                    "relative": [{"inputs": [o.inputs.index(i) for i in q], "within": r} for q, r in o.relative],
                    "fire": o.fire,
                    "stale": o.stale,
                    "ring": 1,
                    "depth": o.depth,
                    "attributes": attributes,
                    "parameters": {"payload": [0] * len(o.inputs)},
                }
                for o in graph.operators
            ],
            "consumers": [
                {"name": c.name, "input": numbers[c.input], "level": 0, "stale": c.stale, "capacity": capacity}
                for c in graph.consumers
            ],
        }
    )


@st.composite
def graphs(draw: st.DrawFn, ordered_only: bool = False) -> Graph:
    """Up to four streams and six operators on three levels, with whatever shares whatever.

    `ordered_only`: a supplier event reaches each operator on one way only and nothing fires or waits by itself, so that
    the order in which operators run is no matter.
    """
    stale: st.SearchStrategy[Stale] = st.sampled_from(STALE)
    streams = tuple(
        Stream(f"s{i}", draw(st.none() | st.integers(1, 12)), not ordered_only and draw(st.booleans()))
        for i in range(draw(st.integers(1, 4)))
    )
    names = [stream.name for stream in streams]
    levels = dict.fromkeys(names, 0)
    suppliers = {name: {name} for name in names}
    operators: list[Operator] = []
    for i in range(draw(st.integers(1, 6))):
        inputs = tuple(draw(st.lists(st.sampled_from(names), min_size=draw(st.sampled_from((1, 2, 2))), max_size=3)))
        if ordered_only:
            inputs = _apart(inputs, suppliers)
        sources = list(dict.fromkeys(inputs))
        relative = []
        if len(sources) > 1:
            for _ in range(draw(st.sampled_from((0, 1, 1, 2)))):
                within = draw(st.integers(0, 3))
                chosen = st.lists(st.sampled_from(sources), min_size=2, unique=True)
                relative.append((tuple(draw(chosen)), within))
        level = draw(st.integers(max(levels[name] for name in sources), 2))
        fire = "all" if ordered_only else draw(st.sampled_from(FIRE))
        depth = draw(st.integers(1, 3))
        operators.append(Operator(f"o{i}", inputs, level, tuple(relative), fire, draw(stale), depth))
        names.append(f"o{i}")
        levels[f"o{i}"] = level
        suppliers[f"o{i}"] = set[str]().union(*(suppliers[name] for name in sources))
    # The plan's order need not be that of the data.
    ordered = tuple(draw(st.permutations(operators)))
    consumers = tuple(
        Consumer(f"c{i}", draw(st.sampled_from(names)), draw(stale)) for i in range(draw(st.integers(1, 4)))
    )
    return Graph(streams, ordered, consumers)


def _apart(inputs: tuple[str, ...], suppliers: Mapping[str, set[str]]) -> tuple[str, ...]:
    """Those of the inputs that have no supplier in common with one before them, unless they are the same."""
    kept: list[str] = []
    for name in inputs:
        if name in kept or all(suppliers[name].isdisjoint(suppliers[other]) for other in kept):
            kept.append(name)
    return tuple(kept)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A graph, and events whose times wander while the clock goes forward."""
    graph = draw(graphs())
    stream = st.sampled_from([s.name for s in graph.streams])
    now = 100
    actions: list[Action] = []
    for _ in range(draw(st.integers(1, 40))):
        if draw(st.integers(0, 3)):
            actions.append((draw(stream), now + draw(st.integers(-6, 1))))
        if draw(st.integers(0, 2)):
            now += draw(st.integers(0, 6))
            actions.append(now)
    actions.append(now + draw(st.integers(0, 4)))
    return Case(graph, tuple(actions))
