"""The fast lane: which queries run in the service, by level, and how the native core is told (native/.../lane.rs).

A lane follows the event log by itself, so queries need one. `now` in a query is when it was first registered (rule Q5);
that is written down beside the log, so that a restart does not change the answer.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cepheid.model.matches import Match, Window
from cepheid.plan.matcher import compiled
from cepheid.plan.planner import Plan
from cepheid.service.lowering import NotYet


@dataclass(frozen=True, slots=True)
class Found:
    """A match that was delivered: valid until `end` (None: forever), and `stale` if that was past already."""

    query: str
    match: Match
    end: int | None
    stale: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """A level's queries: what the native core is told, and for each query its name, plan and names."""

    spec: str
    queries: list[tuple[str, str, list[str], list[str]]]


def fast_queries(plan: Plan) -> list[str]:
    """The queries that run in the service."""
    return [name for name in plan.queries if plan.placement[name].engine == "service"]


def lanes(plan: Plan, log: Path) -> Iterator[Lane]:
    """The lanes of a plan, the most important level first."""
    registered = _registered(plan, log)
    by_level: dict[int, list[str]] = {}
    for name in fast_queries(plan):
        _check(plan, name)
        by_level.setdefault(plan.ranks[name], []).append(name)
    for level, names in sorted(by_level.items()):
        queries = [(name, *compiled(plan.queries[name], registered[name], live=True)) for name in names]
        spec = {
            "level": level,
            "queries": [
                {
                    "plan": text,
                    "limit": plan.graph.queries[name].limit,
                    "valid": plan.queries[name].query.valid,
                    "stale": (plan.queries[name].query.stale or "MARK").lower(),
                }
                for name, text, _, _ in queries
            ],
            "streams": [
                {"name": s.name, "lateness": s.lateness, "idle": s.idle, "valid_for": s.valid_for}
                for s in plan.graph.streams.values()
            ],
        }
        yield Lane(json.dumps(spec), queries)


def _check(plan: Plan, name: str) -> None:
    checked = plan.queries[name]
    if checked.query.path is not None:
        raise NotYet(f"query '{name}' has a PATH, which the service can't judge yet")
    for stream in checked.streams:
        if stream not in plan.graph.streams:
            raise NotYet(f"query '{name}' reads '{stream}', which is no stream of suppliers; that can't be run yet")


def _registered(plan: Plan, log: Path) -> dict[str, int]:
    """When each query was first registered, by its name and meaning."""
    path = log / "queries.json"
    known: dict[str, int] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    moment = time.time_ns() // 1000
    found = {}
    for name in fast_queries(plan):
        key = f"{name} {hashlib.blake2b(plan.queries[name].normal_form.encode(), digest_size=8).hexdigest()}"
        found[name] = known.setdefault(key, moment)
    written = path.with_suffix(".new")
    written.write_text(json.dumps(known), encoding="utf-8")
    written.replace(path)
    return found


def match_of(query: str, found: tuple[Any, int | None, bool]) -> Found:
    """As the native core gives it."""
    (number, at, events, select, window, group), end, stale = found
    match = Match(number, at, events, select, None if window is None else Window(*window), group)
    return Found(query, match, end, stale)
