"""Rule: where queries look as if they had something in common, and it runs for each of them, say why.

one: SEQ (?a, ?b)        SEQ (?a, ?b) runs apart for one and two: a limit counts what a query holds by itself
two: SEQ (?a, ?b, ?c)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.printer import print_expression, print_within
from cepheid.language.syntax import Query, conjuncts, step_variables
from cepheid.plan.graph import Graph
from cepheid.plan.placement import Placement
from cepheid.plan.stages import Lane, Stage, beginning, conditions_of, lane, print_beginning


@dataclass(frozen=True, slots=True)
class Apart:
    """Something that several queries have: those that have it together, and why each other group has it apart."""

    what: str
    together: tuple[str, ...]
    others: tuple[tuple[tuple[str, ...], str], ...]


def apart(
    queries: Mapping[str, Checked],
    found: Mapping[str, Stage],
    graph: Graph,
    homes: Mapping[str, int],
    placed: Mapping[str, Placement],
) -> tuple[Apart, ...]:
    """What runs more than once although it is the same; of patterns that begin alike, the longest beginning."""
    own: dict[str, list[Stage]] = {name: [] for name in queries}
    for stage in found.values():
        for name in stage.queries:
            own[name].append(stage)
    common: dict[tuple[int, object], dict[str, list[str]]] = {}
    for name, checked in queries.items():
        for key, stage in (*_filters(own[name]), *_patterns(checked, own[name])):
            names = common.setdefault(key, {}).setdefault(stage.meaning, [])
            names += [] if name in names else [name]
    result: list[Apart] = []
    told: list[set[str]] = []
    for (steps, _), by_stage in sorted(common.items(), key=lambda item: -item[0][0]):
        groups = tuple(tuple(names) for names in by_stage.values())
        every = {name for group in groups for name in group}
        if len(groups) == 1 or (steps > 0 and any(every <= known for known in told)):
            continue
        told += [every] if steps > 0 else []
        first = found[next(iter(by_stage))]
        whole = f"{first.kind} {first.label}"
        what = whole if steps < 1 or steps == first.steps else print_beginning(queries[groups[0][0]].query, steps)

        def reason(other: str, one: str = groups[0][0], steps: int = steps) -> str:
            one_lane, other_lane = (lane(name, queries[name], homes, placed) for name in (one, other))
            is_limited = any(graph.queries[name].limit is not None for name in (one, other))
            is_divided = steps > 0 and _key(queries[one], steps) != _key(queries[other], steps)
            return _reason(one_lane, other_lane, is_limited, is_divided, queries[other].query)

        result.append(Apart(what, groups[0], tuple((group, reason(group[0])) for group in groups[1:])))
    return tuple(result)


def _reason(one: Lane, other: Lane, is_limited: bool, is_divided: bool, query: Query) -> str:
    if "spark" in (one[0], other[0]):
        return "on Spark each query runs by itself"
    if one[1] != other[1]:
        return "they run at different levels"
    if one != other:
        return "they read different streams, and so wait for different watermarks"
    if is_limited:
        return "a limit counts what a query holds by itself"
    if query.match == "STRICT":
        return "MATCH STRICT judges a match as a whole"
    if query.match == "ANY":
        if is_divided:
            return "their JOINs divide events by different keys"
        return "the others have as many variables as a pattern can"
    if query.after != "KEEP":
        return "AFTER MATCH chooses among whole matches"
    return "one goes on with a step that waits or looks back"


def _filters(own: list[Stage]) -> Iterator[tuple[tuple[int, object], Stage]]:
    for stage in own:
        if stage.kind == "filter":
            yield (-1, stage.label), stage


def _patterns(checked: Checked, own: list[Stage]) -> Iterator[tuple[tuple[int, object], Stage]]:
    """What the query's patterns do, and each of their beginnings, with the stage that does it."""
    query = checked.query
    if query.path is not None:
        return
    binding = [stage for stage in own if stage.kind in ("events", "pattern", "window")]
    doing = sorted(binding, key=lambda stage: (stage.steps, stage.kind != "events"))
    if doing and not query.seq:
        yield (0, _meaning(checked, query)), doing[0]
    for steps in range(2, len(query.seq) + 1):
        yield (steps, _meaning(checked, beginning(query, steps))), next(s for s in doing if s.steps >= steps)


def _key(checked: Checked, steps: int) -> list[list[tuple[str, ...] | None]]:
    """The attributes by which the events of the first steps are divided."""
    order = [v for step in checked.query.seq[:steps] for v in step_variables(step)]
    return [[members.get(v) for v in order] for members in checked.partition.classes]


def _meaning(checked: Checked, query: Query) -> object:
    """All that decides what matches, whatever the variables are called."""
    order = [v for step in query.seq for v in step_variables(step)]
    order += [r.variable for r in query.ranges if r.variable not in order]

    def renamed(attribute: syntax.Attribute) -> syntax.Attribute:
        return syntax.Attribute(f"v{order.index(attribute.variable)}", attribute.name)

    joins = [part for join in query.joins for part in conjuncts(join) if len(syntax.variables(part)) != 1]
    streams = {r.variable: tuple(sorted(r.streams)) for r in query.ranges}
    windows = [
        (sorted(order.index(v) for v in w.variables), w.width) if isinstance(w, syntax.SpanWindow) else (w.kind, w.size)
        for w in query.windows
    ]
    return (
        (query.match, query.after, "" if query.within is None else print_within(query.within)),
        tuple(
            (type(step).__name__, len(step_variables(step)), getattr(step, "least", None), getattr(step, "most", None))
            for step in query.seq
        ),
        tuple(sorted(map(str, windows))),
        tuple(sorted({print_expression(syntax.rebuilt(join, renamed)) for join in joins})),
        tuple((streams[v], tuple(conditions_of(checked, v))) for v in order),
        tuple(attribute.name for attribute in query.group_by),
    )
