"""Rule: a query in the service runs at its level; where a more important one has the same pattern, with that.

    alarm:  level: critical      SELECT ?b.id SEQ (?a, ?b) ...
    report: level: background    SELECT ?b.id, ?b.v SEQ (?a, ?b) ...      runs with alarm: the pattern runs once

As an operator has the highest level among its consumers (paper, section 4). Only what is delivered waits for its own
level. A query whose matches are events of the log may have to wait for that, and stays where it is; so does one with
PATHs, whose knowledge is its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from cepheid.language.checker import Checked
from cepheid.plan.graph import Graph
from cepheid.plan.matcher import Budget
from cepheid.plan.placement import Placement
from cepheid.plan.standing import Standing


def homes(
    queries: Mapping[str, Checked], graph: Graph, ranks: Mapping[str, int], placed: Mapping[str, Placement]
) -> dict[str, int]:
    """By query, the rank of the level that it runs at."""
    found = {name: ranks[name] for name in queries}
    alike: dict[tuple[object, ...], dict[str, Checked]] = {}
    for name, checked in queries.items():
        if placed[name].engine == "service" and checked.query.path is None and not checked.lookups:
            same = graph.queries[name].limit, *sorted(checked.streams)
            alike.setdefault(same, {})[name] = checked
    read = {given for checked in queries.values() for given in checked.streams}
    read |= {given for operator in graph.operators.values() for given in operator.inputs}
    read |= {consumer.input for consumer in graph.consumers.values()}
    for (limit, *_), together in alike.items():
        if len({ranks[name] for name in together}) < 2:
            continue
        standing = Standing(together, budget=None if limit is None else Budget(limit))  # type: ignore[arg-type]
        for pattern in standing.patterns:
            highest = min((ranks[name] for name in pattern.queries), default=0)
            found |= dict.fromkeys((name for name in pattern.queries if name not in read), highest)
    return found
