"""What is derived and read by queries: outputs of operators, matches of other queries, as streams of the log.

Rule G7: such an output is a stream like any other, logged and archived. So the engine is a supplier of its own intake
(native/src/service/supply.rs). A match keeps its id, and what an operator makes again after a crash has the id that it
had, so that both are duplicates then.

Such a stream never follows the clock: what is derived may be long on its way, after a crash above all. Its watermark is
announced to the lanes, once all that came before is in the log: a query's own watermark; for an operator, that of the
streams it comes from, when the engine has done with their events.

A graph that reads a query gets its matches from the log too, as a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cepheid.model.streams import Stream
from cepheid.plan.planner import Plan

#: Before the name of an operator, the name of the consumer whose events go into the log.
PREFIX: Final = "log:"
#: How many events of an operator can wait for the intake. From 8,192 on the engine reads no more of the log; the rest
#: is room for what is on its way through the graph then, so that nothing is lost (native/src/service/feeder.rs). Less
#: than a ring of the EventStore can hold, so that where one run gives more than that, the oldest are lost and counted.
CAPACITY: Final = 32_768


def derived_streams(plan: Plan) -> dict[str, Stream]:
    """The streams of the log that the service itself supplies, by name."""
    graph = plan.graph
    read = {stream for checked in plan.queries.values() for stream in checked.streams} - set(graph.streams)
    by_graph = {given for operator in graph.operators.values() for given in operator.inputs}
    by_graph |= {consumer.input for consumer in graph.consumers.values()}
    read |= by_graph & set(graph.queries)
    return {name: _stream(plan, name) for name in sorted(read)}


def streams_of(plan: Plan) -> list[Stream]:
    """All streams of the log: suppliers' and derived ones."""
    return [*plan.graph.streams.values(), *derived_streams(plan).values()]


def operator_of(plan: Plan, name: str) -> str | None:
    """The operator that produces a derived stream, which may bear the name of an equal one; None for a query's."""
    if name in plan.graph.operators:
        return name
    return next((kept for kept, others in plan.shared.items() if name in others), None)


def is_derived_here(plan: Plan, name: str) -> bool:
    """Whether the service derives it, and not Spark."""
    return operator_of(plan, name) is not None or plan.placement[name].engine == "service"


def _stream(plan: Plan, name: str) -> Stream:
    sources = [plan.graph.streams[source] for source in _sources(plan, name)]
    operator = operator_of(plan, name)
    idle = [source.idle for source in sources if source.idle is not None]
    return Stream(
        name,
        plan.schemas[name],
        id_kind="string" if operator is None else "int",
        valid_for=plan.queries[name].query.valid if operator is None else plan.temporal[operator].valid_for,
        lateness=max((source.lateness for source in sources), default=0),
        idle=max(idle) if len(idle) == len(sources) and idle else None,
    )


def _sources(plan: Plan, name: str) -> Iterator[str]:
    """The suppliers' streams that a derived one comes from."""
    seen, unexplored = {name}, [name]
    while unexplored:
        node = unexplored.pop()
        if node in plan.graph.streams:
            yield node
        for given in plan.logical.inputs_of(node):
            if given not in seen:
                seen.add(given)
                unexplored.append(given)


def derived_job(plan: Plan) -> list[dict[str, Any]]:
    """For native/src/service/supply.rs: what the service itself derives, and which streams each comes from."""
    return [
        {
            "name": name,
            "attributes": [[attribute, kind.value] for attribute, kind in stream.attributes.items()],
            "operator": operator_of(plan, name) is not None,
            "sources": [
                {"name": source, "lateness": given.lateness, "idle": given.idle}
                for source in _sources(plan, name)
                for given in [plan.graph.streams[source]]
            ],
        }
        for name, stream in derived_streams(plan).items()
        if is_derived_here(plan, name)  # Spark supplies what it finds
    ]
