"""Expressions of graph operators: `?e` stands for the operator's only input, in the words of the query language.

filter: {where: "?e.flowrate > 500"}     map: {select: "?e.flowrate * 0.47 AS litres, ?e.sensorID"}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cepheid.language.checker import Checked, check
from cepheid.language.errors import Source
from cepheid.language.parser import examine
from cepheid.language.scope import Catalogue
from cepheid.model.streams import IMPLIED, Stream
from cepheid.model.types import Type
from cepheid.plan.compile import compile_query


class ExpressionFault(ValueError):
    """An expression that can't be read, or does not fit the input."""

    def __init__(self, message: str, hint: str | None) -> None:
        super().__init__(message)
        self.hint = hint


def checked(select: str | None, where: str | None, input: str, schema: Mapping[str, Type]) -> Checked:
    """What `SELECT select FILTER (where)` means over an input; ExpressionFault if nothing."""
    text = f"SELECT {select or '?e.id'}\nFROM (?e, {input})" + (f"\nFILTER ({where})" if where else "")
    tree, problems = examine(Source("expression", text))
    found = None
    if tree is not None and not any(problem.severity == "error" for problem in problems):
        found, problems = check(tree, Catalogue({input: Stream(input, schema)}))
    fault = next((problem for problem in problems if problem.severity == "error"), None)
    if fault is not None:
        raise ExpressionFault(fault.message, fault.hint)
    if found is None or found.event_variables != ("e",):
        raise ExpressionFault("can only read its input, ?e", None)
    if json.loads(compile_query(found, 0))["aggregates"]:
        raise ExpressionFault("can't aggregate: it sees one event", "the kind aggregate works over the last n events")
    implied = next((output.name for output in found.outputs if select and output.name in IMPLIED), None)
    if implied is not None:
        raise ExpressionFault(f"every event has '{implied}' already", "select it AS something else, or leave it out")
    return found


def compiled(expressions: Checked, schema: Mapping[str, Type]) -> dict[str, Any]:
    """The expressions as the native core reads them; `slots` are the places of what they read in the schema."""
    plan = json.loads(compile_query(expressions, 0))
    (stream,) = plan["streams"]
    ((where, _),) = plan["filters"]
    places = list(schema)
    return {
        "slots": [places.index(name) for name in stream["attributes"]],
        "where": where,
        "select": [output["expression"] for output in plan["outputs"]],
        **({"zones": plan["zones"]} if "zones" in plan else {}),
    }
