"""Rule: validity flows downstream, and bounds the rings of the EventStore (paper, sections 3.2 and 4.2).

An output is valid where all its inputs are, so for at most the shortest of their intervals. An operator fires as often
as its slowest input (`fire: any`: as all of them together). A ring holds the most instances that can be valid at once.

    vibration: {period: 5ms, valid_for: 10ms}     valid 10ms, every 5ms, ring 2
    fused reads vibration and a slow one of {period: 20ms, valid_for: 15ms}     valid 10ms, every 20ms, ring 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cepheid.model.intervals import most_valid_at_once
from cepheid.plan.graph import Graph, Stale

#: The slots of a ring where no period or no interval bounds it.
DEFAULT_RING: Final = 64
#: No ring is larger; where the bound is above, the oldest valid event is reclaimed, and that is counted.
MAX_RING: Final = 65_536


@dataclass(frozen=True, slots=True)
class Temporal:
    """How a producer's events behave in time (microseconds; None: unbounded or unknown), and its ring.

    `bound` says in words where the ring's size comes from. `stale` is what to do with an inconsistent event: shed only
    if every consumer downstream sheds, because a shed event reaches nobody.
    """

    valid_for: int | None
    period: int | None
    ring: int
    bound: str
    stale: Stale


def propagate(graph: Graph) -> dict[str, Temporal]:
    """Validity, period, ring and policy of each stream and operator: one pass up for the policy, one down for time."""
    stale = _policies(graph)
    temporal: dict[str, Temporal] = {}
    for name in graph.order:
        if (stream := graph.streams.get(name)) is not None:
            temporal[name] = _temporal(stream.valid_for, stream.period, stale[name])
        elif (operator := graph.operators.get(name)) is not None:
            inputs = [temporal[given] for given in operator.inputs if given in temporal]
            intervals = [i.valid_for for i in inputs if i.valid_for is not None]
            period = _period([i.period for i in inputs], operator.fire == "any")
            temporal[name] = _temporal(min(intervals, default=None), period, stale[name])
    return temporal


def _policies(graph: Graph) -> dict[str, Stale]:
    marks = set(graph.queries)  # an edge into a query never sheds (rule G7)
    marks.update(consumer.input for consumer in graph.consumers.values() if consumer.stale == "mark")
    sheds = {consumer.input for consumer in graph.consumers.values() if consumer.stale == "shed"}
    for name in reversed(graph.order):
        for given in graph.inputs_of(name):
            if name in marks:
                marks.add(given)
            elif name in sheds:
                sheds.add(given)
    return {name: "shed" if name in sheds and name not in marks else "mark" for name in graph.producers()}


def _period(periods: Sequence[int | None], any_input: bool) -> int | None:
    known = [period for period in periods if period is not None]
    if not known or len(known) < len(periods):
        return None
    if any_input:
        return max(1, int(1 / sum(1 / period for period in known)))
    return max(known)


def _temporal(valid_for: int | None, period: int | None, stale: Stale) -> Temporal:
    if valid_for is None or period is None:
        missing = "valid_for" if valid_for is None else "period"
        return Temporal(valid_for, period, DEFAULT_RING, f"default, no {missing}", stale)
    ring = most_valid_at_once(valid_for, period)
    if ring > MAX_RING:
        return Temporal(valid_for, period, MAX_RING, f"cut from {ring}", stale)
    return Temporal(valid_for, period, ring, "valid_for / period", stale)
