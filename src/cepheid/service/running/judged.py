"""By what knowledge the events of a log are judged, and from which offset on; kept beside the log.

So events that are gone through again, after a crash or a restart, are judged as they were. A line has what queries
learned, by key and by what their attributes mean; the next one says from where it holds, and is written before any
query goes by it (native/src/service/knowing.rs). What is not followed by an offset was never in force.

    {"version": 3, "learned": [["offices 91f2", "6b0e", plan, []]]}
    {"from": 0}
    {"version": 4, "learned": [["offices 91f2", "6b0e", null, [[0, rows]]]]}
    {"from": 4711}
"""

from __future__ import annotations

import os

from cepheid._native import LogFollower, read_json, write_json

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, TypeAlias

    #: How a query is judged from an offset on: `from`, `version`, `meaning`, `plan` if that is another, and `tables`.
    Step: TypeAlias = dict[str, Any]

#: After so many steps that say only what differs, the next start writes the whole: then the log can outlive the others.
_MOST = 256


class Judged:
    """What is kept of a log's queries. One writes at a time."""

    def __init__(self, log: str, archived: bool) -> None:
        """`archived`: what the log has forgotten may be brought back."""
        self._archived = archived
        self.path = f"{log}/judged.jsonl"
        self._log = log

    def begin(self, queries: Iterable[Mapping[str, Any]], running: set[str]) -> dict[str, list[Step]]:
        """How queries are judged, by key, the first step a whole one: as before, and from now on as they are to be.

        Those in `running` go on as they do; any but these queries are forgotten.
        """
        wanted = {query["key"]: query for query in queries if query["spec"]["knowledge"]}
        kept = self._read()
        if not wanted and not kept:
            return {}
        first, end = LogFollower(self._log, None).offset, LogFollower(self._log, -1).offset
        found = {}
        for key, query in wanted.items():
            steps = _needed(kept.get(key, []), 0 if self._archived else first)
            now = (query["spec"]["knowledge"], query["meaning"])
            is_other = not steps or now != (steps[-1]["version"], steps[-1]["meaning"]) or _partial(steps) > _MOST
            if is_other and key not in running:
                steps.append(
                    {
                        "from": end if steps else 0,
                        "version": now[0],
                        "meaning": now[1],
                        "plan": query["spec"]["plan"],
                        "tables": [],
                    }
                )
            found[key] = steps
        if found != kept:
            self._write(found)
        return found

    def say(self, version: int, learned: list[tuple[str, str, str | None, list[tuple[int, str]]]]) -> None:
        """What queries learn: key, meaning, plan and tables. Whoever puts it in force says from where on."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{write_json({'version': version, 'learned': learned})}\n")

    def _read(self) -> dict[str, list[Step]]:
        found: dict[str, list[Step]] = {}
        said: Any = None
        try:
            with open(self.path, "rb") as file:
                for line in file:
                    content = read_json(line)
                    if "from" not in content:
                        said = content
                        continue
                    if said is not None:
                        for key, meaning, plan, tables in said["learned"]:
                            step = {"from": content["from"], "version": said["version"], "meaning": meaning}
                            found.setdefault(key, []).append(step | {"plan": plan, "tables": tables})
                    said = None
        except FileNotFoundError:
            pass
        except ValueError:
            pass  # the machine stopped while it was written: what comes after was in force for no event
        return {key: steps for key, steps in found.items() if steps[0]["plan"] is not None}

    def _write(self, found: Mapping[str, list[Step]]) -> None:
        with open(f"{self.path}.new", "w", encoding="utf-8") as file:
            for key, steps in found.items():
                for step in steps:
                    learned = [[key, step["meaning"], step["plan"], step["tables"]]]
                    file.write(f"{write_json({'version': step['version'], 'learned': learned})}\n")
                    file.write(f"{write_json({'from': step['from']})}\n")
        os.replace(f"{self.path}.new", self.path)


def _needed(steps: list[Step], first: int) -> list[Step]:
    """Without those that were in force before the first event that the log still has."""
    whole = [place for place, step in enumerate(steps) if step["plan"] is not None and step["from"] <= first]
    return steps[whole[-1] :] if whole else steps


def _partial(steps: list[Step]) -> int:
    """How many steps there are since the last whole one."""
    return next((number for number, step in enumerate(reversed(steps)) if step["plan"] is not None), len(steps))
