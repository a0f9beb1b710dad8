"""Graphs of operators on the virtual clock, straight from rules G1-G7: what every graph engine is compared with.

Processing takes no time. Supplier events wait until `run`, which takes them in the order of their arrival; all that one
makes ready runs before the next is taken. An operator is invoked when all its inputs were bound; both kinds of
consistency are judged then. What is computed is not the subject: an event's `parts` are the supplier events in it.

Every event has one fate at each of its readers: used, replaced, shed (it broke a relative set), expired (it was stale),
or it is still held. A whole event is held while some reader holds it; then the first of FATES that one said counts.

An output's id follows from the ids of its inputs, so that what is made again has the id that it had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Stale: TypeAlias = Literal["mark", "shed"]
FATES: Final = ("used", "expired", "shed", "replaced", "held")


@dataclass(frozen=True)
class Stream:
    """`valid_for` None is forever. `replace`: an event that was not yet taken gives way to a newer one (rule G5)."""

    name: str
    valid_for: int | None = None
    replace: bool = False


@dataclass(frozen=True)
class Operator:
    """`level` 0 is the highest; `depth` is how many times it can be ready and not yet have run."""

    name: str
    inputs: tuple[str, ...]
    level: int = 0
    relative: tuple[tuple[tuple[str, ...], int], ...] = ()
    fire: Literal["all", "any"] = "all"
    stale: Stale = "mark"
    depth: int = 64


@dataclass(frozen=True)
class Consumer:
    name: str
    input: str
    stale: Stale = "mark"


@dataclass(frozen=True)
class Graph:
    """The order of operators is their position in the plan."""

    streams: tuple[Stream, ...]
    operators: tuple[Operator, ...]
    consumers: tuple[Consumer, ...]


@dataclass(eq=False)
class Event:
    """An event of a stream or an operator; `end` None is forever."""

    producer: str
    id: int
    begin: int
    end: int | None
    marks: frozenset[str]
    parts: tuple[int, ...]
    readers: int = 0
    fates: list[str] = field(default_factory=list)

    def is_stale(self, now: int) -> bool:
        return self.end is not None and now >= self.end

    @property
    def fate(self) -> str:
        if self.readers > len(self.fates):
            return "held"
        return next((fate for fate in FATES if fate in self.fates), "used")


@dataclass(frozen=True)
class Delivery:
    """What a consumer received."""

    consumer: str
    id: int
    begin: int
    end: int | None
    marks: frozenset[str]
    parts: tuple[int, ...]


@dataclass
class Node:
    """An operator at work: what is bound, and the sets of inputs with which it is ready."""

    operator: Operator
    bound: dict[str, Event] = field(default_factory=dict)
    ready: list[dict[str, Event]] = field(default_factory=list)


class VirtualClock:
    """Runs a graph. `deliveries` and the counts grow; the counts are by (operator or consumer, what happened)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.now = 0
        self.streams = {stream.name: stream for stream in graph.streams}
        self.nodes = [Node(operator) for operator in graph.operators]
        self.input_queue: list[Event] = []
        self.events: list[Event] = []
        self.deliveries: list[Delivery] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        #: Fates by (reader, what it reads).
        self.books: Counter[tuple[str, str, str]] = Counter()

    def push(self, stream: str, number: int, time: int) -> None:
        """A supplier's event arrives. It is not taken before `run`."""
        valid_for = self.streams[stream].valid_for
        end = None if valid_for is None else time + valid_for
        event = Event(stream, number, time, end, frozenset(), (number,))
        self.events.append(event)
        event.readers = 1  # the InputQ, until it is taken
        waiting = [i for i, other in enumerate(self.input_queue) if other.producer == stream]
        if self.streams[stream].replace and waiting:
            self._end(self.input_queue[waiting[0]], "InputQ", "replaced")
            self.input_queue[waiting[0]] = event
        else:
            self.input_queue.append(event)

    def run(self, now: int) -> None:
        """The clock says `now`, and everything that can run does."""
        self.now = now
        while self.input_queue:
            event = self.input_queue.pop(0)
            event.readers = 0
            self._share(event)
            while ready := [node for node in self.nodes if node.ready]:
                self._invoke(min(ready, key=lambda node: (node.operator.level, self.nodes.index(node))))

    def fates(self) -> Mapping[str, Counter[str]]:
        """How many events of each stream and operator ended how."""
        found: dict[str, Counter[str]] = {}
        for event in self.events:
            found.setdefault(event.producer, Counter())[event.fate] += 1
        return found

    def held(self) -> Counter[tuple[str, str]]:
        """How many events each reader still holds, by (reader, what it reads)."""
        found: Counter[tuple[str, str]] = Counter()
        for event in self.input_queue:
            found["InputQ", event.producer] += 1
        for node in self.nodes:
            for inputs in (node.bound, *node.ready):
                for source in inputs:
                    found[node.operator.name, source] += 1
        return found

    def _end(self, event: Event, reader: str, fate: str) -> None:
        event.fates.append(fate)
        self.books[reader, event.producer, fate] += 1

    def _share(self, event: Event) -> None:
        """An event was created or taken: its consumers receive it, its operators bind it."""
        consumers = [consumer for consumer in self.graph.consumers if consumer.input == event.producer]
        nodes = [node for node in self.nodes if event.producer in node.operator.inputs]
        event.readers += len(consumers) + len(nodes)
        for consumer in consumers:
            self._deliver(event, consumer)
        for node in nodes:
            self._bind(event, node)

    def _deliver(self, event: Event, consumer: Consumer) -> None:
        marks = event.marks
        if event.is_stale(self.now):
            self.counts[consumer.name, "stale"] += 1
            if consumer.stale == "shed":
                self._end(event, consumer.name, "expired")
                return
            marks |= {"stale"}
        self._end(event, consumer.name, "used")
        self.deliveries.append(Delivery(consumer.name, event.id, event.begin, event.end, marks, event.parts))

    def _bind(self, event: Event, node: Node) -> None:
        if node.operator.fire == "any":
            self._make_ready(node, {event.producer: event})
            return
        if event.producer in node.bound:
            self._end(node.bound[event.producer], node.operator.name, "replaced")
        node.bound[event.producer] = event
        if set(node.bound) == set(node.operator.inputs):
            self._make_ready(node, node.bound)
            node.bound = {}

    def _make_ready(self, node: Node, inputs: dict[str, Event]) -> None:
        if len(node.ready) == node.operator.depth:
            for event in node.ready.pop(0).values():
                self._end(event, node.operator.name, "replaced")
        node.ready.append(inputs)

    def _invoke(self, node: Node) -> None:
        operator, inputs = node.operator, node.ready.pop(0)
        self.counts[operator.name, "invoked"] += 1
        marks = frozenset[str]().union(*(event.marks for event in inputs.values()))

        stale = [source for source, event in inputs.items() if event.is_stale(self.now)]
        self.counts[operator.name, "stale"] += len(stale)
        if stale:
            if operator.stale == "shed":
                self._release(node, inputs, stale, "expired")
                return
            marks |= {"stale"}

        for sources, within in operator.relative:
            begins = {
                source: inputs[source].begin for source in operator.inputs if source in sources and source in inputs
            }
            if begins and max(begins.values()) - min(begins.values()) > within:
                self.counts[operator.name, "relative"] += 1
                if operator.stale == "shed":
                    earliest = min(begins, key=lambda source: begins[source])
                    self._release(node, inputs, [earliest], "shed")
                    return
                marks |= {"relative"}

        for event in inputs.values():
            self._end(event, operator.name, "used")
        self.counts[operator.name, "fired"] += 1
        self._emit(operator, inputs, marks)

    def _release(self, node: Node, inputs: dict[str, Event], sources: Sequence[str], fate: str) -> None:
        """Some inputs go; the others stay bound, unless newer events have come in their place."""
        for source, event in inputs.items():
            if source in sources:
                self._end(event, node.operator.name, fate)
            elif node.ready or source in node.bound:
                self._end(event, node.operator.name, "replaced")
            else:
                node.bound[source] = event
        if node.bound and set(node.bound) == set(node.operator.inputs):
            self._make_ready(node, node.bound)
            node.bound = {}

    def _emit(self, operator: Operator, inputs: Mapping[str, Event], marks: frozenset[str]) -> None:
        ends = [event.end for event in inputs.values() if event.end is not None]
        parts = [inputs[source].parts for source in operator.inputs if source in inputs]
        output = Event(
            operator.name,
            made_of(operator, inputs),
            begin=max(event.begin for event in inputs.values()),
            end=min(ends, default=None),
            marks=marks,
            parts=tuple(part for some in parts for part in some),
        )
        self.events.append(output)
        self._share(output)


def made_of(operator: Operator, inputs: Mapping[str, Event]) -> int:
    """The id of an output: its input's, if the operator has one; else theirs, mixed with their places."""
    sources = list(dict.fromkeys(operator.inputs))
    if len(sources) == 1:
        return inputs[sources[0]].id
    state = 0
    for place, source in enumerate(sources):
        if source in inputs:
            state = _mixed(_mixed(state, place), inputs[source].id)
    return state >> 1


def _mixed(state: int, value: int) -> int:
    """Two numbers of 64 bits as one, by splitmix64."""
    most = (1 << 64) - 1
    mixed = (state + 0x9E3779B97F4A7C15 & most) ^ (value & most)
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & most
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & most
    return mixed ^ mixed >> 31
