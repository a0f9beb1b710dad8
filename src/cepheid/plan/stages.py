"""Rule: a query is a chain of operators, and equal ones are one, across queries.

Each variable's events come from a source through a filter; a pattern or a window binds them; a projection selects. A
filter is the same for every query that asks the same of the same streams, whatever it calls the variable; so is a
pattern up to its variables' names, which its matches bear.

    hot:  SELECT ?a.id FILTER (?a.x > 5)                 filter s: ?e.x > 5    project id
    rise: SELECT ?b.id FILTER (?b.x > 5) SEQ (?b, ?c)    filter s: ?e.x > 5 (shared)    pattern ...    project id
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from cepheid.knowledge.tables import Lookup
from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.printer import normal_form, print_expression, print_path, print_query
from cepheid.language.syntax import Query
from cepheid.plan.compile import is_looked_up


@dataclass(frozen=True, slots=True)
class Stage:
    """An operator of a query. `meaning` is equal for equal ones; `inputs` are streams, or the meanings of other stages.

    `rank` is that of the most important query that it serves.
    """

    kind: Literal["filter", "path", "pattern", "window", "project"]
    label: str
    meaning: str
    inputs: tuple[str, ...]
    queries: tuple[str, ...]
    rank: int


def stages(queries: Mapping[str, Checked], ranks: Mapping[str, int]) -> dict[str, Stage]:
    """The operators of all queries by their meaning, each once, in the order they are first needed."""
    found: dict[str, Stage] = {}
    for name, checked in queries.items():
        for stage in _of(name, checked, ranks[name]):
            known = found.get(stage.meaning)
            if known is not None:
                stage = replace(known, queries=(*known.queries, name), rank=min(known.rank, ranks[name]))
            found[stage.meaning] = stage
    return found


def _of(name: str, checked: Checked, rank: int) -> Iterator[Stage]:
    # What a query is called by, and binds, is said with its PATHs; what its filters are, with what became of them.
    query = checked.origin or checked.query
    feeds: list[str] = []
    for given in query.ranges:
        feed = _filter(checked.query, given, name, rank)
        if feed is not None:
            yield feed
        feeds += [feed.meaning] if feed is not None else list(given.streams)
    inputs = tuple(dict.fromkeys(feeds))
    looked_up = {lookup.meaning: lookup for lookup in checked.lookups if isinstance(lookup, Lookup)}
    for lookup in looked_up.values():
        path = Stage("path", lookup.label, f"path {lookup.meaning}", (lookup.stream,), (name,), rank)
        yield path
        inputs = (*inputs, path.meaning)
    if query.path is not None and checked.origin is None:
        text = print_path(query.path)
        path = Stage("path", text, f"path {text} of {' '.join(inputs)}", inputs, (name,), rank)
        yield path
        inputs = (path.meaning,)
    binding = _binding(query, name, inputs, rank)
    if binding is not None:
        yield binding
        inputs = (binding.meaning,)
    selected = ", ".join(output.name for output in checked.outputs)
    meaning = f"project {normal_form(query)}"
    yield Stage("project", selected, meaning, inputs, (name,), rank)


def _filter(query: Query, given: syntax.Range, name: str, rank: int) -> Stage | None:
    """What one variable's events must be, said of `?e`."""

    def renamed(attribute: syntax.Attribute) -> syntax.Attribute:
        return replace(attribute, variable="e")

    own = [f for f in query.filters if syntax.variables(f) == (given.variable,) and not is_looked_up(f)]
    conditions = sorted({print_expression(syntax.rebuilt(f, renamed)) for f in own})
    if not conditions or query.match == "STRICT":  # STRICT judges neighbours before it filters (rule S10)
        return None
    streams = " | ".join(sorted(given.streams))
    label = f"{streams}: {' AND '.join(conditions)}"
    return Stage("filter", label, f"filter {label}", given.streams, (name,), rank)


def _binding(query: Query, name: str, inputs: tuple[str, ...], rank: int) -> Stage | None:
    """What puts events together: a pattern, or a moving window with its aggregates."""
    moving = next((w for w in query.windows if isinstance(w, syntax.EventWindow)), None)
    if moving is not None:
        label = " ".join(_clauses(query, "WINDOW", "GROUP BY"))
        return Stage("window", label, f"window {_without_select(query)}", inputs, (name,), rank)
    if len(query.ranges) < 2 and not query.seq:
        return None
    label = " ".join(_clauses(query, "SEQ", "JOIN", "WINDOW", "MATCH", "AFTER"))
    return Stage("pattern", label, f"pattern {_without_select(query)}", inputs, (name,), rank)


def _clauses(query: Query, *words: str) -> list[str]:
    lines = print_query(query).splitlines()
    return [line for word in words for line in lines if line.startswith(word)]


def _without_select(query: Query) -> str:
    """The query but for what it reports of its matches."""
    return normal_form(replace(query, prefixes=())).partition("\n")[2]
