"""The lanes of an engine over a log: queries are added and removed while the others go on.

Queries that come together stand together in a lane of their level; one whose pattern a more important one has, too, in
the lane of that, where the pattern runs once. One that is added later gets a lane beside the others, so that it delays
none of them, until the next start puts them together.
"""

from __future__ import annotations

import _thread
import os
import sys

from cepheid._native import LogFollower, equal_patterns, read_json, write_json
from cepheid.service.running.judged import Judged

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, TypeAlias

    from cepheid import _native
    from cepheid.service.running.judged import Step

    #: A query as service/lanes.py prepares it. Equal ones go on: its plan says what it means, and since when.
    Query: TypeAlias = Mapping[str, Any]
    #: A query, its plan if that is another, and by table what is known of keys (service/knowing.py).
    Learned: TypeAlias = tuple[str, str | None, list[tuple[int, str]]]


#: Of the files beside the log: what is written in another way than this has another number. Without one it is 1.
_VERSION = 1
#: Of a query whose matches nobody has read (native/src/service/reads.rs).
_NOTHING = {"offset": 0, "watermark": -(1 << 63), "acks": False}


class NextLanes:
    """The queries that are to run, and what that changes, by name."""

    def __init__(self, wanted: Mapping[str, Query], running: Mapping[str, Query]) -> None:
        self.wanted = wanted
        self.added = [name for name in wanted if name not in running]
        self.removed = [name for name in running if name not in wanted]
        known = [name for name in wanted if name in running]
        self.kept = [name for name in known if _meaning(running[name]) == _meaning(wanted[name])]
        self.changed = [name for name in known if name not in self.kept]
        #: Of those that are kept, the ones that are judged by other knowledge.
        self.learning = [name for name in self.kept if running[name]["spec"] != wanted[name]["spec"]]


def _meaning(query: Query) -> dict[str, Any]:
    """A query less what it is judged by, which may change while it runs: the end of its plan (plan/compile.py)."""
    spec = dict(query["spec"])
    plan, _, _ = spec["plan"].partition(',"tables":[')
    return {**query, "meaning": "", "spec": {**spec, "plan": plan, "knowledge": spec["knowledge"] > 0}}


class Lanes:
    """Which queries run, and in which lane each. `levels` of a job have the names of all, the highest first."""

    def __init__(self, engine: _native.Engine, log: str, archived: bool) -> None:
        self._engine = engine
        self._log = log
        self._judged = Judged(log, archived)
        self._archived = archived
        self._running: dict[str, Query] = {}
        self._lock = _thread.allocate_lock()
        for name in os.listdir(log):
            if name.endswith(".wanted"):  # of an engine that was killed; lanes that need something ask again
                os.remove(f"{log}/{name}")

    def find(self, wanted: Mapping[str, Query]) -> NextLanes:
        """What a job's queries change; nothing is changed yet."""
        return NextLanes(wanted, self._running)

    def go_on(self, levels: list[str], found: NextLanes) -> None:
        """Ends what is not to run any more, and starts what is new. OSError if the log can't be read."""
        with self._lock:
            self._go_on(levels, found)

    def again(self, levels: list[str], name: str) -> bool:
        """A query goes through the log again, from where its matches are acknowledged; False if it need not.

        More was found than was kept. It gets a lane of its own, which delays no other while it comes back.
        """
        with self._lock:
            point = self._engine.spent(name)
            query = self._running.get(name)
            if point is None or query is None:
                return False
            lanes = read(f"{self._log}/lanes.json")
            running = {query["key"] for query in self._running.values()}
            judged = self._judged.begin(self._running.values(), running)
            before, lane = lanes[query["key"]], _free(query["level"], {lanes[key] for key in running})
            _begin_at(self._log, {before}, lane)
            points = {query["key"]: {"offset": point[0], "watermark": point[1], "acks": True}}
            _write(f"{self._log}/{lane}.read", points)
            _write(f"{self._log}/lanes.json", lanes | {query["key"]: lane})
            self._start(levels, lane, levels.index(query["level"]), {name: query}, points, judged)
            return True

    def _go_on(self, levels: list[str], found: NextLanes) -> None:
        wanted = found.wanted
        for text in _anew(self._log, {name: wanted[name] for name in found.added}):
            print(text, file=sys.stderr, flush=True)
        known_before = read(f"{self._log}/queries.json")
        _write(f"{self._log}/queries.json", {query["key"]: query["registered"] for query in wanted.values()})
        self._engine.remove_queries([*found.removed, *found.changed])
        for name in (*found.removed, *found.changed):
            del self._running[name]
        for name in found.learning:
            spec = wanted[name]["spec"]
            self._running[name] = wanted[name]
            self.learn(spec["knowledge"], [(name, spec["plan"], [])])
        judged = self._judged.begin(wanted.values(), {query["key"] for query in self._running.values()})
        known = read(f"{self._log}/lanes.json")
        lanes = {query["key"]: known[query["key"]] for query in wanted.values() if query["key"] in known}
        in_use = {lanes[query["key"]] for query in self._running.values()}
        points = self._points({name: wanted[name] for name in (*found.added, *found.changed)}, lanes)
        # Queries that somebody acknowledges apart from the others: one that is behind does not delay those.
        starting_now = {name: wanted[name] for name in (*found.added, *found.changed)}
        acknowledged = {name for name, query in starting_now.items() if points[query["key"]]["acks"]}
        # One that begins before the log waits for the archive, and one that is that far back goes through much: neither
        # delays the others.
        first, came = _begin_of(self._log)
        early = {
            name for name, query in starting_now.items() if _begins_before(query, points[query["key"]], first, came)
        }
        back = {name for name, query in starting_now.items() if 0 < points[query["key"]]["offset"] < first}
        for name in early:
            if self._archived:
                print(_awaited(name, first), file=sys.stderr, flush=True)
            elif wanted[name]["key"] not in known_before:
                print(begins_before(name, first), file=sys.stderr, flush=True)
        if not self._archived:
            early = back = set()
        together: dict[tuple[int, bool, bool, str], list[str]] = {}
        for name, level in _lane_levels(levels, starting_now, acknowledged | early | back).items():
            apart = (name in acknowledged, name in back, name if name in early else "")
            together.setdefault((level, *apart), []).append(name)
        starting = []
        for (level, *_), names in sorted(together.items()):
            lane = _free(levels[level], in_use)
            in_use.add(lane)
            own = {wanted[name]["key"]: points[wanted[name]["key"]] for name in names}
            _begin_at(self._log, {lanes[key] for key in own if key in lanes}, lane)
            # What others have there is needed until it is written where they are.
            _write(f"{self._log}/{lane}.read", _points(f"{self._log}/{lane}.read") | own)
            starting.append((lane, level, {name: wanted[name] for name in names}))
        lanes |= {query["key"]: lane for lane, _, queries in starting for query in queries.values()}
        _write(f"{self._log}/lanes.json", lanes)
        _end_lanes(self._log, set(lanes.values()))
        for lane, level, queries in starting:
            self._start(levels, lane, level, queries, points, judged)
            self._running |= queries

    def learn(self, version: int, learned: list[Learned]) -> int:
        """Queries are judged by another version of the knowledge, from an offset of the log on, which is given."""
        known = [
            (name, plan, [(table, rows) for table, rows in tables])
            for name, plan, tables in learned
            if name in self._running
        ]
        running = self._running
        by_key = [(running[n]["key"], running[n]["meaning"], plan, tables) for n, plan, tables in known]
        self._judged.say(version, by_key)
        return self._engine.learn(version, known, self._judged.path)

    def _points(self, queries: Mapping[str, Query], lanes: Mapping[str, str]) -> dict[str, Any]:
        """What was found before is silent up to where it was read; of a new query nothing was."""
        keys = [query["key"] for query in queries.values()]
        before = {name: _points(f"{self._log}/{name}.read") for name in {lanes[key] for key in keys if key in lanes}}
        return {key: _NOTHING | (before[lanes[key]].get(key, {}) if key in lanes else {}) for key in keys}

    def _start(
        self,
        levels: list[str],
        lane: str,
        level: int,
        queries: Mapping[str, Query],
        points: Mapping[str, Any],
        judged: Mapping[str, list[Step]],
    ) -> None:
        spec = {
            "level": level,
            "consumer": lane,
            "archived": self._archived,
            "since": self._since(queries, points),
            "queries": [
                query["spec"]
                | {"key": query["key"], "silent": points[query["key"]]}
                | _as_judged(judged.get(query["key"]))
                for query in queries.values()
            ],
            "streams": list({s["name"]: s for query in queries.values() for s in query["streams"]}.values()),
        }
        named = [
            (name, levels.index(query["level"]), query["spec"]["plan"], query["outputs"], query["groups"])
            for name, query in queries.items()
        ]
        self._engine.start_lane(self._log, write_json(spec), named)

    def _since(self, queries: Mapping[str, Query], points: Mapping[str, Any]) -> int | None:
        """From when on queries of a lane need what the log has no longer; None if they don't, or nothing has it."""
        first, came = _begin_of(self._log)
        had_read = any(points[query["key"]]["offset"] > 0 for query in queries.values())
        is_early = any(_begins_before(query, points[query["key"]], first, came) for query in queries.values())
        return min(map(_low, queries.values())) if self._archived and (had_read or is_early) else None


def _lane_levels(levels: list[str], queries: Mapping[str, Query], acknowledged: set[str]) -> dict[str, int]:
    """By query, the level of its lane: the highest of those that have the same pattern, which so runs once.

    One that may have to wait, for who acknowledges it or for the log, stays at its own: it would delay the others.
    """
    ranks = {name: levels.index(query["level"]) for name, query in queries.items()}
    sharing = [name for name in queries if name not in acknowledged]
    firsts = equal_patterns([(queries[name]["spec"]["plan"], queries[name]["spec"]["limit"]) for name in sharing])
    found = dict(zip(sharing, firsts, strict=True))
    highest: dict[int, int] = {}
    for name, first in found.items():
        highest[first] = min(highest.get(first, len(levels)), ranks[name])
    return ranks | {name: highest[first] for name, first in found.items() if not queries[name]["spec"]["read"]}


def _as_judged(steps: list[Step] | None) -> dict[str, Any]:
    """How a query begins that was judged in so many steps, and how it goes on."""
    if steps is None:
        return {"later": []}
    return {"plan": steps[0]["plan"], "knowledge": steps[0]["version"], "later": steps[1:]}


def _anew(log: str, added: Mapping[str, Query]) -> Iterator[str]:
    """What is to be known of queries that are new to a log, and are called as others were."""
    known = read(f"{log}/queries.json")
    for name, query in added.items():
        if query["key"] not in known and any(key.rpartition(" ")[0] == name for key in known):
            yield (
                f"{name}: not the query that ran over this log before (its text is another, or this version of Cepheid "
                "reads it otherwise). It begins anew, and what the other one had not found yet is not made good; "
                "`cepheid query` finds it"
            )


def _begin_of(log: str) -> tuple[int, int | None]:
    """The first offset that a log has, and when that came; None: it has none, or begins with the very first."""
    follower = LogFollower(log, None)
    rows = follower.next() if follower.offset > 0 else None
    return (rows[0][0], rows[0][6]) if rows else (follower.offset, None)


def _low(query: Query) -> int:
    """Where a query's WITHIN begins."""
    return int(read_json(query["spec"]["plan"].encode())["within"][0])


def _begins_before(query: Query, point: Mapping[str, Any], first: int, came: int | None) -> bool:
    """Whether a query of which nothing was read asks about what happened before a log's first event came."""
    return first > 0 and point["offset"] == 0 and _low(query) < (query["registered"] if came is None else came)


def _awaited(name: str, first: int) -> str:
    return (
        f"{name}: WITHIN begins before the log does. What came before offset {first} is awaited from the archive "
        "(cepheid pipeline); until then it finds nothing"
    )


def begins_before(name: str, first: int) -> str:
    """What a query does not find whose WITHIN begins before the first offset of a log."""
    return (
        f"{name}: WITHIN begins before the log does. Live it finds nothing of what came before offset {first}; "
        "`cepheid query --follow` asks the archive, too"
    )


def _free(level: str, in_use: set[str]) -> str:
    """The first name of a lane of a level that none has."""
    name, number = f"queries-{level}", 1
    while name in in_use:
        number += 1
        name = f"queries-{level}-{number}"
    return name


def read(path: str) -> dict[str, Any]:
    """What is written down beside the log; nothing, if there is none. ValueError if a later version wrote it."""
    try:
        with open(path, "rb") as file:
            content: dict[str, Any] = read_json(file.read())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        reason = f"{path} is not what was written there ({error})"
        raise ValueError(f"{reason}; move it away, and queries begin anew, with what comes from then on") from None
    if content.pop("version", _VERSION) > _VERSION:
        raise ValueError(f"{path} was written by a later version of Cepheid; use that, or begin with another log")
    return content


def _points(path: str) -> dict[str, Any]:
    """How far queries were read. Lanes write that often, and a machine that dies may leave half of it: then nothing."""
    try:
        return read(path)
    except ValueError:
        return {}


def _begin_at(log: str, before: set[str], lane: str) -> None:
    """A lane begins again where the queries of others can (native/src/service/restart.rs): at the earliest place."""
    if before <= {lane}:
        return
    try:
        places = []
        for name in before:
            with open(f"{log}/{name}.restart", encoding="utf-8") as file:
                places.append(file.read().splitlines())
        first = min(places, key=lambda lines: int(lines[0].removeprefix("offset ")))
        lines = [line for line in first if not line.startswith(("keep ", "query "))]
        kept = [int(line.removeprefix("keep ")) for place in places for line in place if line.startswith("keep ")]
        lines += [f"keep {min(kept)}"] if kept else []
        lines += {line for place in places for line in place if line.startswith("query ")}
        with open(f"{log}/{lane}.restart", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except (OSError, ValueError, IndexError):
        # Then with the whole log.
        if os.path.exists(f"{log}/{lane}.restart"):
            os.remove(f"{log}/{lane}.restart")


def _end_lanes(log: str, in_use: set[str]) -> None:
    """The log does not wait for lanes that are not there any more."""
    for name in os.listdir(log):
        lane, _, kind = name.rpartition(".")
        if kind == "restart" and lane not in in_use:
            os.remove(f"{log}/{name}")


def _write(path: str, content: dict[str, Any]) -> None:
    if _points(path) == content:
        return  # so a full disk does not keep an engine from coming back
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(write_json({"version": _VERSION, **content}))
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
