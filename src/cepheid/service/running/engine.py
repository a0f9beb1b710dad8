"""A job at work: the native engine, the queries over its log, and what goes into the log from here.

A job is JSON that service/job.py makes of a plan: `spec` for the graph, `functions` of the user's own operators, and
over a log `levels`, `queries` and `derived`.
"""

from __future__ import annotations

from cepheid import _native
from cepheid.service.running.functions import Functions
from cepheid.service.running.lanes import Lanes

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias

    from cepheid.service.running.functions import Function
    from cepheid.service.running.lanes import Learned

    Job: TypeAlias = Mapping[str, Any]
    #: By kind of part: names of those that were added, removed, changed and kept.
    ChangedNames: TypeAlias = dict[str, tuple[list[str], list[str], list[str], list[str]]]


class Running:
    """An engine that runs a job. `given` are functions of the program's own, by operator."""

    def __init__(self, job: Job, given: Mapping[str, Function] | None = None) -> None:
        found = Functions(job["functions"], given or {})
        self._functions = [found]  # a numba cfunc or a library has to stay loaded
        self.native = _native.Engine(job["spec"], found.python, found.addresses)
        self._lanes: Lanes | None = None
        self._job = job
        self._intake: tuple[str, str | None] | None = None

    def follow(self, job: Job, log: str, intake: str | None = None, token: str | None = None) -> None:
        """Takes events from the log in a folder, with the queries of a job; what is derived goes to the intake."""
        _check_derived(job, intake)
        lanes = Lanes(self.native, log, job["archived"])
        lanes.go_on(job["levels"], lanes.find(job["queries"]))
        self._lanes = lanes
        self._job = job
        self.native.follow(log)
        self._intake = None if intake is None else (intake, token)
        self._supply(job)

    def change(self, job: Job, given: Mapping[str, Function] | None = None) -> ChangedNames:
        """Goes on with another job, and says what that changed. ValueError if it can't; then nothing has changed."""
        before = self._functions[-1]
        found = Functions(job["functions"], {**before.own, **(given or {})})
        renewed = [name for name, function in found.own.items() if before.own.get(name, function) is not function]
        queries = None
        if self._lanes is not None:
            queries = self._lanes.find(job["queries"])
            _check_derived(job, None if self._intake is None else self._intake[0])
        parts = self.native.change(job["spec"], found.python, found.addresses, renewed)
        changed: ChangedNames = {kind: names for kind, names in parts.items()}  # noqa: C416 (for the types)
        self._functions.append(found)
        self._job = job
        if self._lanes is not None and queries is not None:
            self._lanes.go_on(job["levels"], queries)
            self._supply(job)
            changed["queries"] = (queries.added, queries.removed, queries.changed, queries.kept)
        return changed

    def learn(self, version: int, learned: list[Learned]) -> int:
        """Queries are judged by another version of the knowledge, from an offset of the log on, which is given."""
        return 0 if self._lanes is None else self._lanes.learn(version, learned)

    def again(self, query: str) -> bool:
        """A query finds again what was not kept for who acknowledges its matches; False if there is no such thing."""
        if self._lanes is None or not self._lanes.again(self._job["levels"], query):
            return False
        self._supply(self._job)
        return True

    def _supply(self, job: Job) -> None:
        """What is derived and read goes into the log."""
        if self._intake is not None and job["derived"]:
            self.native.supply(_native.write_json(job["derived"]), *self._intake)

    def stats(self) -> dict[str, Any]:
        """The books (every event's fate, at every reader and in all) and the latencies; see docs/service.md."""
        found: dict[str, Any] = _native.read_json(self.native.stats().encode())
        fed = self.native.fed()
        if fed is not None:
            found["log"] = fed
        found["queries"] = self.queries()
        return found

    def queries(self) -> dict[str, Any]:
        """The books of the queries in the fast lane, by name."""
        found: dict[str, Any] = _native.read_json(self.native.query_stats().encode())
        for name, (version, strangers) in self.native.knowledge().items():
            if name in found:  # it may have come meanwhile
                found[name]["knowledge"], found[name]["unknown"] = version, strangers
        return found

    def close(self, timeout: float = 5.0) -> bool:
        """Ends the threads; False if one did not end in time, because an operator does not return."""
        return self.native.stop(timeout)


def _check_derived(job: Job, intake: str | None) -> None:
    if job["derived"] and intake is None:
        names = ", ".join(stream["name"] for stream in job["derived"])
        raise ValueError(f"{names} are to be logged: give the address of the intake")
