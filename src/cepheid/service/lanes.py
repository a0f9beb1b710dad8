"""The fast lane: which queries run in the service, by level, and how the native core is told (native/.../lane.rs).

A lane follows the event log by itself, so queries need one. `now` in a query is when it was first registered (rule Q5);
that is written down beside the log, so that a restart does not change the answer. One that was removed and comes back
is registered anew.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from cepheid import _native
from cepheid._native import log_commit, log_committed
from cepheid.model.matches import Match, Window
from cepheid.plan.matcher import compiled
from cepheid.plan.planner import Plan
from cepheid.service.derived import derived_streams, is_derived_here, streams_of
from cepheid.service.lowering import NotYet


@dataclass(frozen=True, slots=True)
class Found:
    """A match that was delivered: valid until `end` (None: forever), and `stale` if that was past already."""

    query: str
    match: Match
    end: int | None
    stale: bool


def fast_queries(plan: Plan) -> list[str]:
    """The queries that run in the service."""
    return [name for name in plan.queries if plan.placement[name].engine == "service"]


class Lanes:
    """The lanes of an engine over a log: queries are added and removed while the others go on.

    Queries that come together stand together in a lane of their level. One that is added later gets a lane beside the
    others, so that it delays none of them, until the next start puts them together.
    """

    def __init__(self, engine: _native.Engine, log: Path) -> None:
        self._engine = engine
        self._log = log
        self._running: dict[str, _Query] = {}

    def find(self, plan: Plan) -> NextLanes:
        """What is to run by a plan, and what that changes; nothing is changed yet. NotYet if a query can't be run."""
        registered = _registered(plan, self._log)
        wanted = {name: _query(plan, name, registered[name]) for name in fast_queries(plan)}
        kept = [name for name, query in wanted.items() if self._running.get(name) == query]
        return NextLanes(
            wanted,
            added=[name for name in wanted if name not in self._running],
            removed=[name for name in self._running if name not in wanted],
            changed=[name for name in wanted if name in self._running and name not in kept],
            kept=kept,
        )

    def go_on(self, plan: Plan, found: NextLanes) -> None:
        """Ends what is not to run any more, and starts what is new. OSError if the log can't be read."""
        _write(self._log / "queries.json", {query.key: query.registered for query in found.wanted.values()})
        self._engine.remove_queries([*found.removed, *found.changed])
        for name in (*found.removed, *found.changed):
            del self._running[name]
        by_level: dict[str, list[str]] = {}
        for name in (*found.added, *found.changed):
            by_level.setdefault(found.wanted[name].level, []).append(name)
        known = _read(self._log / "lanes.json")
        lanes = {query.key: known[query.key] for query in found.wanted.values() if query.key in known}
        in_use = {lanes[query.key] for query in self._running.values()}
        for level in sorted(by_level, key=plan.graph.levels.index):
            queries = {name: found.wanted[name] for name in by_level[level]}
            silent = {name: self._silent_to(lanes.get(query.key)) for name, query in queries.items()}
            names = (f"queries-{level}" + (f"-{number}" if number > 1 else "") for number in count(1))
            lane = next(name for name in names if name not in in_use)
            log_commit(self._log, lane, min(silent.values()))
            spec = {
                "level": plan.graph.levels.index(level),
                "consumer": lane,
                "queries": [query.spec | {"silent": silent[name]} for name, query in queries.items()],
                "streams": list({s["name"]: s for query in queries.values() for s in query.streams}.values()),
            }
            named = [(name, *query.compiled) for name, query in queries.items()]
            self._engine.start_lane(self._log, json.dumps(spec), named)
            in_use.add(lane)
            self._running |= queries
            lanes |= {query.key: lane for query in queries.values()}
        _write(self._log / "lanes.json", lanes)

    def _silent_to(self, lane: str | None) -> int:
        """What was found before is silent up to where its lane had come; a new query has delivered nothing."""
        return 0 if lane is None else log_committed(self._log, lane) or 0


@dataclass(frozen=True, slots=True)
class NextLanes:
    """The queries that are to run, and what that changes, by name."""

    wanted: dict[str, _Query]
    added: list[str]
    removed: list[str]
    changed: list[str]
    kept: list[str]


@dataclass(frozen=True, slots=True)
class _Query:
    """A query of a lane. Equal ones go on: its plan says what it means, and since when it is registered."""

    key: str
    registered: int
    level: str
    compiled: tuple[str, list[str], list[str]]
    spec: dict[str, Any]
    streams: list[dict[str, Any]]


def _query(plan: Plan, name: str, registered: int) -> _Query:
    _check(plan, name)
    derived = derived_streams(plan)
    checked = plan.queries[name]
    text, outputs, groups = compiled(checked, registered, live=True)
    spec = {
        "plan": text,
        "limit": plan.graph.queries[name].limit,
        "valid": checked.query.valid,
        "stale": (checked.query.stale or "MARK").lower(),
        "read": name in derived,
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
    level = plan.graph.levels[plan.ranks[name]]
    return _Query(_key(plan, name), registered, level, (text, outputs, groups), spec, streams)


def _check(plan: Plan, name: str) -> None:
    if plan.queries[name].query.path is not None:
        raise NotYet(f"query '{name}' has a PATH, which the service can't judge yet")


def _key(plan: Plan, name: str) -> str:
    """What a query is known by beside the log: its name and its meaning."""
    return f"{name} {hashlib.blake2b(plan.queries[name].normal_form.encode(), digest_size=8).hexdigest()}"


def _registered(plan: Plan, log: Path) -> dict[str, int]:
    """When each query was first registered, by its name and meaning; one that is not known is registered now."""
    known = _read(log / "queries.json")
    moment = time.time_ns() // 1000
    return {name: known.get(_key(plan, name), moment) for name in fast_queries(plan)}


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    written = path.with_suffix(".new")
    written.write_text(json.dumps(content), encoding="utf-8")
    written.replace(path)


def match_of(query: str, found: tuple[Any, int | None, bool]) -> Found:
    """As the native core gives it."""
    (number, at, events, select, window, group), end, stale = found
    match = Match(number, at, events, select, None if window is None else Window(*window), group)
    return Found(query, match, end, stale)
