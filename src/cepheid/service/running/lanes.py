"""The lanes of an engine over a log: queries are added and removed while the others go on.

Queries that come together stand together in a lane of their level. One that is added later gets a lane beside the
others, so that it delays none of them, until the next start puts them together.
"""

from __future__ import annotations

import os

from cepheid._native import read_json, write_json
from cepheid.service.running.judged import Judged

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias

    from cepheid import _native
    from cepheid.service.running.judged import Step

    #: A query as service/lanes.py prepares it. Equal ones go on: its plan says what it means, and since when.
    Query: TypeAlias = Mapping[str, Any]
    #: A query, its plan if that is another, and by table what is known of keys (service/knowing.py).
    Learned: TypeAlias = tuple[str, str | None, list[tuple[int, str]]]


#: Of a query whose matches nobody has read (native/src/service/reads.rs).
_NOTHING = {"offset": 0, "watermark": -(1 << 63)}


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
        for name in os.listdir(log):
            if name.endswith(".wanted"):  # of an engine that was killed; lanes that need something ask again
                os.remove(f"{log}/{name}")

    def find(self, wanted: Mapping[str, Query]) -> NextLanes:
        """What a job's queries change; nothing is changed yet."""
        return NextLanes(wanted, self._running)

    def go_on(self, levels: list[str], found: NextLanes) -> None:
        """Ends what is not to run any more, and starts what is new. OSError if the log can't be read."""
        wanted = found.wanted
        _write(f"{self._log}/queries.json", {query["key"]: query["registered"] for query in wanted.values()})
        self._engine.remove_queries([*found.removed, *found.changed])
        for name in (*found.removed, *found.changed):
            del self._running[name]
        for name in found.learning:
            spec = wanted[name]["spec"]
            self._running[name] = wanted[name]
            self.learn(spec["knowledge"], [(name, spec["plan"], [])])
        judged = self._judged.begin(wanted.values(), {query["key"] for query in self._running.values()})
        by_level: dict[str, list[str]] = {}
        for name in (*found.added, *found.changed):
            by_level.setdefault(wanted[name]["level"], []).append(name)
        known = read(f"{self._log}/lanes.json")
        lanes = {query["key"]: known[query["key"]] for query in wanted.values() if query["key"] in known}
        in_use = {lanes[query["key"]] for query in self._running.values()}
        for level in sorted(by_level, key=levels.index):
            queries = {name: wanted[name] for name in by_level[level]}
            lane = _free(level, in_use)
            self._start(lane, levels.index(level), queries, lanes, judged)
            in_use.add(lane)
            self._running |= queries
            lanes |= {query["key"]: lane for query in queries.values()}
        _write(f"{self._log}/lanes.json", lanes)

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

    def _start(
        self,
        lane: str,
        level: int,
        queries: Mapping[str, Query],
        lanes: Mapping[str, str],
        judged: Mapping[str, list[Step]],
    ) -> None:
        # What was found before is silent up to where it was read; of a new query nothing was.
        keys = [query["key"] for query in queries.values()]
        before = {name: _points(f"{self._log}/{name}.read") for name in {lanes[key] for key in keys if key in lanes}}
        points = {key: before[lanes[key]].get(key, _NOTHING) if key in lanes else _NOTHING for key in keys}
        _write(f"{self._log}/{lane}.read", points)
        spec = {
            "level": level,
            "consumer": lane,
            "archived": self._archived,
            "queries": [
                query["spec"]
                | {"key": query["key"], "silent": points[query["key"]]}
                | _as_judged(judged.get(query["key"]))
                for query in queries.values()
            ],
            "streams": list({s["name"]: s for query in queries.values() for s in query["streams"]}.values()),
        }
        named = [(name, query["spec"]["plan"], query["outputs"], query["groups"]) for name, query in queries.items()]
        self._engine.start_lane(self._log, write_json(spec), named)


def _as_judged(steps: list[Step] | None) -> dict[str, Any]:
    """How a query begins that was judged in so many steps, and how it goes on."""
    if steps is None:
        return {"later": []}
    return {"plan": steps[0]["plan"], "knowledge": steps[0]["version"], "later": steps[1:]}


def _free(level: str, in_use: set[str]) -> str:
    """The first name of a lane of a level that none has."""
    name, number = f"queries-{level}", 1
    while name in in_use:
        number += 1
        name = f"queries-{level}-{number}"
    return name


def read(path: str) -> dict[str, Any]:
    """What is written down beside the log; nothing, if there is none."""
    try:
        with open(path, "rb") as file:
            content: dict[str, Any] = read_json(file.read())
    except FileNotFoundError:
        return {}
    return content


def _points(path: str) -> dict[str, Any]:
    """How far queries were read. Lanes write that often, and a machine that dies may leave half of it: then nothing."""
    try:
        return read(path)
    except ValueError:
        return {}


def _write(path: str, content: dict[str, Any]) -> None:
    if _points(path) == content:
        return  # so a full disk does not keep an engine from coming back
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(write_json(content))
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)
