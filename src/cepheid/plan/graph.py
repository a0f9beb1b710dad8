"""The graph: streams, operators, queries and consumers, as every front end builds it and every engine runs it.

Edges are by name. Streams, operators and queries produce events, so they share one space of names; consumers have
their own. The order in which things were declared is kept: it is the position in the plan that rule G6 speaks of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from cepheid.language import syntax
from cepheid.model.streams import Stream

Engine: TypeAlias = Literal["auto", "spark", "service"]
Stale: TypeAlias = Literal["mark", "shed"]
Parameter: TypeAlias = "str | int | float | bool | tuple[Parameter, ...] | None"


@dataclass(frozen=True, slots=True)
class Relative:
    """Inputs of one operator that must have begun at most `within` microseconds apart (rule G2)."""

    inputs: tuple[str, ...]
    within: int


@dataclass(frozen=True, slots=True)
class Operator:
    """A step of processing: fires when its inputs are bound, and produces an event."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    parameters: tuple[tuple[str, Parameter], ...] = ()
    relative: tuple[Relative, ...] = ()
    share: bool = True
    fire: Literal["all", "any"] = "all"


@dataclass(frozen=True, slots=True)
class Query:
    """A χ-CEP query: its text, what it reads, and what it asks of the planner.

    `tree` is None where the text is faulty, `level` where nobody said one. `limit` is the most events that are kept.
    """

    name: str
    text: str
    tree: syntax.Query | None
    inputs: tuple[str, ...]
    level: str | None = None
    engine: Engine = "auto"
    limit: int | None = None

    @property
    def fast_clauses(self) -> tuple[str, ...]:
        """The clauses in the text that ask for the fast lane."""
        tree = self.tree
        if tree is None:
            return ()
        given = {"PRIORITY": tree.priority is not None, "VALID": tree.valid is not None, "ALIGN": bool(tree.align)}
        return tuple(word for word, is_given in given.items() if is_given)


@dataclass(frozen=True, slots=True)
class Consumer:
    """Who receives the events of `input`, how important that is, and what to do with stale ones."""

    name: str
    input: str
    level: str | None = None
    stale: Stale = "mark"


Producer: TypeAlias = Stream | Operator | Query


@dataclass(frozen=True)
class Graph:
    """The logical plan of an application.

    `levels` are highest first; `archived` says whether streams are kept. `default_stream`, `prefixes` and `properties`
    (the attribute of each stream that stands for a property, by its IRI) give queries their names. `broken` names exist
    but could not be read, so that nothing is said about references to them.
    """

    levels: tuple[str, ...]
    streams: Mapping[str, Stream] = field(default_factory=dict)
    operators: Mapping[str, Operator] = field(default_factory=dict)
    queries: Mapping[str, Query] = field(default_factory=dict)
    consumers: Mapping[str, Consumer] = field(default_factory=dict)
    archived: bool = False
    default_stream: str | None = None
    prefixes: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()

    def producer(self, name: str) -> Producer | None:
        """The stream, operator or query of that name."""
        return self.streams.get(name) or self.operators.get(name) or self.queries.get(name)

    def producers(self) -> Iterator[str]:
        """The names that an input can have."""
        yield from self.streams
        yield from self.operators
        yield from self.queries

    def inputs_of(self, name: str) -> tuple[str, ...]:
        """What a producer reads; a stream reads nothing."""
        node = self.operators.get(name) or self.queries.get(name)
        return node.inputs if node else ()

    @cached_property
    def order(self) -> list[str]:
        """The producers, each after what it reads; nodes on a cycle, or behind one, are left out.

        Linear in nodes and edges. Among nodes that are ready the declared order is kept.
        """
        readers: dict[str, list[str]] = {name: [] for name in self.producers()}
        waiting: dict[str, int] = {}
        for name in readers:
            inputs = [given for given in self.inputs_of(name) if given in readers]
            waiting[name] = len(inputs)
            for given in inputs:
                readers[given].append(name)
        order = [name for name, count in waiting.items() if count == 0]
        for name in order:  # grows while it is read
            for reader in readers[name]:
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    order.append(reader)
        return order

    def level_of(self, level: str | None) -> int:
        """The rank of a level, 0 the highest; the lowest where none was given."""
        return len(self.levels) - 1 if level is None else self.levels.index(level)
