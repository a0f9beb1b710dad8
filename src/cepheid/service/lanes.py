"""The fast lane: which queries run in the service, by level, as running/lanes.py and native/.../lane/ are told.

A lane follows the event log by itself, so queries need one. `now` in a query is when it was first registered (rule Q5);
that is written down beside the log, so that a restart does not change the answer. One that was removed and comes back
is registered anew.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cepheid.model.matches import Match, Window
from cepheid.plan.compile import tables
from cepheid.plan.matcher import compiled
from cepheid.plan.planner import Plan
from cepheid.service.derived import derived_streams, is_derived_here, streams_of
from cepheid.service.lowering import NotYet
from cepheid.service.running.lanes import read


@dataclass(frozen=True, slots=True)
class Found:
    """A match that was delivered: valid until `end` (None: forever).

    `marks` has `stale` if that was past already, and `relative` if its events are further apart than ALIGN says.
    `match.knowledge` is the version of the knowledge by which events were judged when it was found, if it has PATHs.
    """

    query: str
    match: Match
    end: int | None
    marks: frozenset[str]


def fast_queries(plan: Plan) -> list[str]:
    """The queries that run in the service."""
    return [name for name in plan.queries if plan.placement[name].engine == "service"]


def queries_of(plan: Plan, log: Path) -> dict[str, dict[str, Any]]:
    """The queries that are to run over a log, by name, for running/lanes.py. NotYet if one can't be run."""
    registered = _registered(plan, log)
    return {name: _query(plan, name, registered[name]) for name in fast_queries(plan)}


def query_of(plan: Plan, name: str, log: Path) -> dict[str, Any]:
    """One of them."""
    return _query(plan, name, _registered(plan, log)[name])


def _query(plan: Plan, name: str, registered: int) -> dict[str, Any]:
    _check(plan, name)
    derived = derived_streams(plan)
    checked = plan.queries[name]
    text, outputs, groups = compiled(checked, registered, live=True)
    spec = {
        "plan": text,
        "limit": plan.graph.queries[name].limit,
        "valid": checked.query.valid,
        "stale": (checked.query.stale or "MARK").lower(),
        "align": [{"variables": list(align.variables), "within": align.within} for align in checked.query.align],
        "read": name in derived,
        "knowledge": plan.semantic[name].version if name in plan.semantic else 0,
    }
    streams = [
        {
            "name": s.name,
            "lateness": s.lateness,
            "idle": s.idle,
            "valid_for": s.valid_for,
            "derived": s.name in derived and is_derived_here(plan, s.name),
        }
        for s in streams_of(plan)
        if s.name in checked.streams
    ]
    return {
        "key": _key(plan, name),
        "meaning": _meaning(plan, name),
        "registered": registered,
        "level": plan.graph.levels[plan.ranks[name]],
        "outputs": outputs,
        "groups": groups,
        "spec": spec,
        "streams": streams,
    }


def _check(plan: Plan, name: str) -> None:
    if plan.queries[name].query.path is not None:
        raise NotYet(
            f"query '{name}' has a PATH, and the application no knowledge: add `knowledge: {{sources: [...]}}`"
        )
    if not all(table.complete for table in tables(plan.queries[name])):
        raise NotYet(
            f"query '{name}' has a PATH that is not indexed, so the service can't judge it; use engine: spark, or see "
            "`cepheid explain`"
        )


def _key(plan: Plan, name: str) -> str:
    """What a query is known by beside the log: its name and its meaning."""
    return f"{name} {hashlib.blake2b(plan.queries[name].normal_form.encode(), digest_size=8).hexdigest()}"


def _meaning(plan: Plan, name: str) -> str:
    """What attributes mean to a query with PATHs: besides the knowledge, all that its tables depend on."""
    if name not in plan.semantic:
        return ""
    properties = [
        (stream, sorted(plan.graph.properties.get(stream, {}).items())) for stream in plan.queries[name].streams
    ]
    ways = [(look.stream, [(a, look.annotations[a]) for a in look.key]) for look in plan.semantic[name].lookups]
    return hashlib.blake2b(repr((properties, ways)).encode(), digest_size=8).hexdigest()


def _registered(plan: Plan, log: Path) -> dict[str, int]:
    """When each query was first registered, by its name and meaning; one that is not known is registered now."""
    known = read(f"{log}/queries.json")
    moment = time.time_ns() // 1000
    return {name: known.get(_key(plan, name), moment) for name in fast_queries(plan)}


def match_of(query: str, found: tuple[Any, int | None, list[str], int | None]) -> Found:
    """As the native core gives it."""
    (number, at, events, select, window, group), end, marks, knowledge = found
    match = Match(number, at, events, select, None if window is None else Window(*window), group, knowledge)
    return Found(query, match, end, frozenset(marks))
