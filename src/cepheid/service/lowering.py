"""From a plan to what the engine reads: streams, operators and consumers, with numbers, levels and sizes.

Streams have numbers in the order of their names, as in the log; operators follow in the order of the plan. The text is
JSON, because it is read once a start and can be looked at; its reader is native/src/service/spec.rs. Queries are not
here: they run in lanes of their own (lanes.py). One that the graph reads is a stream to it; an operator that a query
reads has a consumer whose events go into the log (derived.py).

Sizes. A ring begins with as many slots as the plan says can be valid at once, and may grow, a slot at a time, to one
for each place that can hold an event of it (the InputQ, sets that wait at its readers, the queues of its consumers).
At most WAITING events of a stream wait to be taken, DEPTH sets at an operator, CAPACITY events at a consumer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cepheid.model.streams import Stream
from cepheid.plan.expressions import checked, compiled
from cepheid.plan.graph import Operator
from cepheid.plan.operators import KINDS, Schema, payload
from cepheid.plan.planner import Plan
from cepheid.plan.validity import DEFAULT_RING
from cepheid.service.derived import CAPACITY as CAPACITY_TO_LOG
from cepheid.service.derived import PREFIX, derived_streams, operator_of

#: How many events of a stream can wait to be taken; then the engine refuses more, unless newer ones replace them.
WAITING: Final = 256
#: How many times an operator can be ready before it runs, at most; then the oldest set is replaced.
DEPTH: Final = 64
#: How many events can wait for a consumer; then the oldest is lost, and counted. With a known period those of a second,
#: but at least LEAST_CAPACITY: events are large where they are rare.
CAPACITY: Final = 1024
LEAST_CAPACITY: Final = 16


class NotYet(ValueError):
    """Something in the plan that the engine can't run yet."""


def lower(plan: Plan, name: str = "application", cores: int | None = None, **options: bool) -> str:
    """The engine's spec of a plan. `options` are `prioritised` and `replace`, as in the application's `service`."""
    streams = _streams(plan)
    numbers = {name: number for number, name in enumerate([*streams, *plan.graph.operators])}
    replace = options.get("replace", False)
    spec = {
        "name": name,
        "levels": list(plan.graph.levels),
        "cores": cores or len(os.sched_getaffinity(0)),
        "prioritised": options.get("prioritised", True),
        "streams": [_stream(plan, stream, replace) for stream in streams.values()],
        "operators": [_operator(plan, operator, numbers) for operator in plan.graph.operators.values()],
        "consumers": list(_consumers(plan, numbers)),
    }
    return json.dumps(spec, ensure_ascii=False, separators=(",", ":"))


def _streams(plan: Plan) -> dict[str, Stream]:
    """Suppliers' streams, and the queries that the graph reads, in the order of their names."""
    found = dict(plan.graph.streams)
    found |= {name: stream for name, stream in derived_streams(plan).items() if name in plan.graph.queries}
    return dict(sorted(found.items()))


def _attributes(schema: Schema) -> list[list[str]]:
    return [[name, kind.value] for name, kind in schema.items()]


def _stream(plan: Plan, stream: Stream, replace: bool) -> dict[str, Any]:
    return {
        "name": stream.name,
        "level": plan.ranks[stream.name],
        "valid_for": stream.valid_for,
        "ring": _ring(plan, stream.name),
        "replace": replace and stream.name in plan.graph.streams,
        "waiting": WAITING,
        "attributes": _attributes(stream.attributes),
    }


def _operator(plan: Plan, operator: Operator, numbers: Mapping[str, int]) -> dict[str, Any]:
    temporal = plan.temporal[operator.name]
    return {
        "name": operator.name,
        "kind": operator.kind,
        "level": plan.ranks[operator.name],
        "inputs": [numbers[given] for given in operator.inputs],
        "relative": [
            {"inputs": [operator.inputs.index(given) for given in r.inputs], "within": r.within}
            for r in operator.relative
        ],
        "fire": operator.fire,
        "stale": temporal.stale,
        "ring": temporal.ring,
        "depth": min(DEPTH, max(_ring(plan, given) for given in operator.inputs)),
        "attributes": _attributes(plan.schemas[operator.name]),
        "parameters": _parameters(plan, operator),
    }


def _ring(plan: Plan, name: str) -> int:
    return plan.temporal[name].ring if name in plan.temporal else DEFAULT_RING  # a query's matches have no period


def _parameters(plan: Plan, operator: Operator) -> dict[str, Any]:
    """What is said of the operator, and which attributes of its inputs that means."""
    kind = KINDS[operator.kind]
    parameters: dict[str, Any] = dict(operator.parameters)
    inputs = [(given, plan.schemas[given]) for given in operator.inputs]
    if kind.fitting:
        found = payload(kind, parameters, inputs)
        parameters["payload"] = [list(schema).index(name) for (name, _), (_, schema) in zip(found, inputs, strict=True)]
    elif operator.kind in ("filter", "map"):
        ((source, schema),) = inputs
        expressions = checked(parameters.get("select"), parameters.get("where"), source, schema)
        parameters |= compiled(expressions, schema)
    return parameters


def _consumers(plan: Plan, numbers: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for consumer in plan.graph.consumers.values():
        temporal = plan.temporal.get(consumer.input)
        yield {
            "name": consumer.name,
            "input": numbers[consumer.input],
            "level": plan.graph.level_of(consumer.level),
            "stale": consumer.stale,
            "capacity": _capacity(None if temporal is None else temporal.period),
        }
    for name in derived_streams(plan):
        operator = operator_of(plan, name)
        if operator is not None:
            yield {
                "name": f"{PREFIX}{name}",
                "input": numbers[operator],
                "level": plan.ranks[operator],
                "stale": "mark",
                "capacity": CAPACITY_TO_LOG,
            }


def _capacity(period: int | None) -> int:
    return CAPACITY if period is None else min(CAPACITY, max(LEAST_CAPACITY, 1_000_000 // period))
