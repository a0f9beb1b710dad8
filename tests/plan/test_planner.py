"""Properties of the rules on random graphs: each against the plainest statement of what it should do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cepheid.model.intervals import Validity
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan import priority, pruning, sharing, validity, wellformed
from cepheid.plan.cycles import cycles
from cepheid.plan.graph import Consumer, Graph, Operator, Stale
from cepheid.plan.planner import plan

LEVELS = ("high", "middle", "low")
DURATIONS = st.sampled_from([None, 1_000, 5_000, 7_000, 20_000])


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Acyclic graphs of a few streams, operators declared in any order, and consumers of any node."""
    streams = {
        name: Stream(name, {"x": Type.UINT8_ARRAY}, period=draw(DURATIONS), valid_for=draw(DURATIONS))
        for name in ("s1", "s2", "s3")
    }
    operators: list[Operator] = []
    names = list(streams)
    for i in range(draw(st.integers(0, 10))):
        inputs = tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)))
        share = draw(st.integers(0, 4)) > 0
        fire = "any" if draw(st.integers(0, 4)) == 0 else "all"
        kind = draw(st.sampled_from(["cat", "ekf"]))
        operators.append(Operator(f"o{i}", kind, inputs, share=share, fire=fire))  # type: ignore[arg-type]
        names.append(f"o{i}")
    operators = draw(st.permutations(operators))
    consumers = {}
    for i in range(draw(st.integers(0, 4))):
        stale: Stale = draw(st.sampled_from(["mark", "shed"]))
        consumers[f"c{i}"] = Consumer(f"c{i}", draw(st.sampled_from(names)), draw(st.sampled_from(LEVELS)), stale)
    return Graph(LEVELS, streams, {o.name: o for o in operators}, {}, consumers)


def downstream(graph: Graph, name: str) -> set[str]:
    """The node and everything that reads it, directly or not: by plain recursion."""
    readers = {o.name for o in graph.operators.values() if name in o.inputs}
    return {name}.union(*(downstream(graph, reader) for reader in readers))


def suppliers(graph: Graph, name: str) -> set[str]:
    """The streams that a node depends on."""
    inputs = graph.inputs_of(name)
    return {name} if not inputs else set().union(*(suppliers(graph, given) for given in inputs))


def consumers_of(graph: Graph, name: str) -> list[Consumer]:
    return [c for c in graph.consumers.values() if c.input in downstream(graph, name)]


@given(graphs())
def test_priority_is_the_highest_of_the_downstream_consumers(graph: Graph) -> None:
    ranks = priority.prioritise(graph)
    for name in graph.producers():
        levels = [graph.level_of(c.level) for c in consumers_of(graph, name)]
        assert ranks[name] == min(levels, default=len(LEVELS) - 1)


@given(graphs())
def test_validity_is_the_shortest_of_the_suppliers(graph: Graph) -> None:
    temporal = validity.propagate(graph)
    for name in graph.operators:
        intervals = [graph.streams[s].valid_for for s in suppliers(graph, name)]
        assert temporal[name].valid_for == min((i for i in intervals if i is not None), default=None)
        sheds = [c.stale == "shed" for c in consumers_of(graph, name)]
        assert temporal[name].stale == ("shed" if sheds and all(sheds) else "mark")


@given(graphs())
def test_an_operator_is_kept_if_a_consumer_needs_it(graph: Graph) -> None:
    kept, pruned = pruning.prune(graph)
    for name in graph.operators:
        assert (name in kept.operators) == bool(consumers_of(graph, name))
        assert (name in pruned) != (name in kept.operators)


def meaning(graph: Graph, name: str) -> object:
    """What a node computes, as a tree down to the streams; operators that are not shared are themselves."""
    if name in graph.streams:
        return name
    o = graph.operators[name]
    return (o.kind, tuple(meaning(graph, i) for i in o.inputs), o.fire, None if o.share else name)


@given(graphs())
def test_sharing_leaves_one_operator_for_each_meaning_and_changes_no_consumer(graph: Graph) -> None:
    shared, members = sharing.share(graph)
    meanings = [meaning(shared, name) for name in shared.operators]
    assert len(meanings) == len(set(meanings))
    for consumer in graph.consumers.values():
        now = shared.consumers[consumer.name].input
        assert meaning(graph, consumer.input) == meaning(shared, now)
    position = {name: i for i, name in enumerate(graph.operators)}
    for kept, others in members.items():
        assert all(position[kept] < position[other] for other in others)
    assert len(graph.operators) == len(shared.operators) + sum(map(len, members.values()))
    assert sharing.share(shared)[0] == shared


@given(graphs())
def test_an_acyclic_graph_has_an_order_and_no_cycle(graph: Graph) -> None:
    assert cycles(graph) == []
    place = {name: i for i, name in enumerate(graph.order)}
    assert len(place) == len(graph.streams) + len(graph.operators)
    for operator in graph.operators.values():
        assert all(place[given] < place[operator.name] for given in operator.inputs)


@given(graphs(), st.data())
def test_a_cycle_is_found_and_is_one(graph: Graph, data: st.DataObject) -> None:
    if not graph.operators:
        return
    name = data.draw(st.sampled_from(sorted(graph.operators)))
    back = data.draw(st.sampled_from(sorted(downstream(graph, name))))
    changed = graph.operators[name]
    looped = {
        **graph.operators,
        name: Operator(name, changed.kind, (*changed.inputs, back), share=changed.share, fire=changed.fire),
    }
    broken = Graph(LEVELS, graph.streams, looped, {}, graph.consumers)
    found = cycles(broken)
    assert found
    for cycle in found:
        for here, after in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert here in broken.inputs_of(after)
    assert any(problem.code == "cycle" for problem in wellformed.check(broken))


@given(graphs())
def test_a_ring_holds_every_valid_event(graph: Graph) -> None:
    """Simulated: at no instant are more events of a strictly periodic stream valid than its ring has slots."""
    temporal = validity.propagate(graph)
    for stream in graph.streams.values():
        if stream.period is None or stream.valid_for is None:
            continue
        events = [Validity.of_supplier_event(i * stream.period, stream.valid_for) for i in range(60)]
        most = max(sum(e.begin <= now and not e.is_stale(now) for e in events) for now in (e.begin for e in events))
        assert most == min(temporal[stream.name].ring, 60)


def test_a_plan_of_nothing() -> None:
    assert plan(Graph(LEVELS)).ranks == {}


def test_a_chain_deeper_than_the_stack() -> None:
    """No rule may recurse: graphs can be deeper than Python's stack."""
    deep = 20_000
    operators = {"o0": Operator("o0", "fft", ("s",))}
    operators |= {f"o{i}": Operator(f"o{i}", "fft", (f"o{i - 1}",)) for i in range(1, deep)}
    stream = Stream("s", {"x": Type.UINT8_ARRAY}, period=1000, valid_for=1000)
    graph = Graph(LEVELS, {"s": stream}, operators, {}, {"c": Consumer("c", f"o{deep - 1}", "high")})
    assert wellformed.check(graph) == []
    made = plan(graph)
    assert made.level("s") == "high"
    assert made.temporal[f"o{deep - 1}"].ring == 1
