"""Jobs: what an engine's process is told of an application, as JSON (running/engine.py).

Loading, checking and planning take more memory than an engine has, so that another process does it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cepheid.app.application import Application
from cepheid.plan.planner import Plan
from cepheid.service.derived import derived_job
from cepheid.service.lanes import queries_of
from cepheid.service.lowering import lower


def job_of(app: Application, plan: Plan, log: Path) -> dict[str, Any]:
    """The job of an application and its plan, over the log in a folder. ValueError for what can't be run."""
    section = app.sections.service
    cores = None if section is None else section.cores
    prioritised = section is None or section.prioritised
    replace = section is not None and section.replace
    return graph_job(plan, app.name, cores, prioritised=prioritised, replace=replace) | log_job(
        plan, log, archived=app.sections.archive is not None
    )


def graph_job(plan: Plan, name: str, cores: int | None = None, **options: bool) -> dict[str, Any]:
    """What the graph is: `spec` for the native core, and `functions`, the operators of the user's own."""
    return {"spec": lower(plan, name, cores, **options), "functions": own_operators(plan)}


def log_job(plan: Plan, log: Path, *, archived: bool = False) -> dict[str, Any]:
    """What there is to do over a log: `queries` by name, the names of `levels`, and what is `derived`.

    `archived` says that what the log forgets can be brought back (history/restore.py).
    """
    return {
        "levels": list(plan.graph.levels),
        "queries": queries_of(plan, log),
        "derived": derived_job(plan),
        "archived": archived,
    }


def own_operators(plan: Plan) -> dict[str, Any]:
    """The operators that call functions of the user's own, by name, with where those are."""
    own = (operator for operator in plan.graph.operators.values() if operator.kind in ("python", "native"))
    wanted = ("function", "library", "symbol")
    return {
        operator.name: {"kind": operator.kind}
        | {key: str(value) for key, value in dict(operator.parameters).items() if key in wanted and value is not None}
        for operator in own
    }
