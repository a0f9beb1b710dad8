"""Shows a plan: the graph as written, what the rules made of it, and where each part runs, with the reasons.

`describe` gives the plan as plain data, which is the JSON form; `as_text` and `as_mermaid` are views of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from cepheid.model.time import format_duration
from cepheid.plan.apart import Apart
from cepheid.plan.division import division, live_division
from cepheid.plan.graph import Graph, Operator, Query
from cepheid.plan.operators import KINDS, Schema
from cepheid.plan.planner import Plan
from cepheid.plan.real_time import QUALIFIES, verdict
from cepheid.plan.stages import Stage

Described: TypeAlias = dict[str, Any]


def describe(
    plan: Plan,
    name: str,
    only: str | None = None,
    topics: Collection[str] = (),
    past: Mapping[str, Mapping[str, str | None]] | None = None,
) -> Described:
    """The logical, optimised and physical plan; `only` keeps what one query, operator or consumer depends on.

    `topics` are streams and queries that are topics of Kafka to Spark (real_time.py). `past`, where the application has
    one to ask: by query and strategy, why that is not possible; None: it is.
    """
    optimised_names = _upstream(plan.graph, only)
    logical_names = _upstream(plan.logical, only)
    return {
        "application": name,
        "levels": list(plan.graph.levels),
        "logical": _logical(plan.logical, plan.schemas, logical_names),
        "optimised": {
            **_logical(plan.graph, plan.schemas, optimised_names),
            "shared": {k: list(v) for k, v in plan.shared.items() if only is None or k in optimised_names},
            "pruned": [n for n in plan.pruned if only is None],
            "paths": [p for name in plan.semantic if name in optimised_names for p in _paths(plan, name)],
            "stages": [_stage(plan, s) for s in plan.stages.values() if optimised_names.intersection(s.queries)],
            "apart": [_apart(a) for a in plan.apart if _concerns(a, optimised_names)],
        },
        "physical": [_physical(plan, n, topics) for n in plan.graph.producers() if n in optimised_names]
        + [_physical_consumer(plan, n) for n in plan.graph.consumers if n in optimised_names],
        **({} if past is None else {"past": {n: dict(past[n]) for n in past if n in optimised_names}}),
    }


def _upstream(graph: Graph, only: str | None) -> set[str]:
    """The names of a query or consumer and of all it depends on; of everything if none is given."""
    if only is None:
        return {*graph.producers(), *graph.consumers}
    consumer = graph.consumers.get(only) if graph.producer(only) is None else None
    found = {only} if consumer is None else {only, consumer.input}
    unexplored = list(found)
    while unexplored:
        for given in graph.inputs_of(unexplored.pop()):
            if given not in found:
                found.add(given)
                unexplored.append(given)
    return found


def _logical(graph: Graph, schemas: Mapping[str, Schema], names: set[str]) -> Described:
    return {
        "streams": [
            {"name": s.name, "attributes": _attributes(s.attributes), "key": list(s.key)}
            for s in graph.streams.values()
            if s.name in names
        ],
        "operators": [_operator(o, schemas) for o in graph.operators.values() if o.name in names],
        "queries": [_query(q) for q in graph.queries.values() if q.name in names],
        "consumers": [
            {"name": c.name, "input": c.input, "level": graph.levels[graph.level_of(c.level)], "stale": c.stale}
            for c in graph.consumers.values()
            if c.name in names
        ],
    }


def _attributes(schema: Schema) -> dict[str, str]:
    return {name: kind.value for name, kind in schema.items()}


def _operator(operator: Operator, schemas: Mapping[str, Schema]) -> Described:
    kind = KINDS[operator.kind]
    given = {name: value for name, value in operator.parameters if value is not None}
    return {
        "name": operator.name,
        "kind": operator.kind,
        "inputs": list(operator.inputs),
        "parameters": {name: "(secret)" if kind.is_secret(name) else value for name, value in given.items()},
        "relative": [{"inputs": list(r.inputs), "within": format_duration(r.within)} for r in operator.relative],
        "fire": operator.fire,
        "share": operator.share,
        "output": _attributes(schemas.get(operator.name, {})),
    }


def _query(query: Query) -> Described:
    return {"name": query.name, "inputs": list(query.inputs), "level": query.level, "text": query.text}


def _stage(plan: Plan, stage: Stage) -> Described:
    """An operator of queries; its inputs are streams, or the labels of other operators."""
    labels = {meaning: f"{s.kind} {s.label}" for meaning, s in plan.stages.items()}
    return {
        "kind": stage.kind,
        "does": stage.label,
        "inputs": [labels.get(given, given) for given in stage.inputs],
        "level": plan.graph.levels[stage.rank],
        "queries": list(stage.queries),
    }


def _concerns(apart: Apart, names: set[str]) -> bool:
    return any(names.intersection(group) for group in (apart.together, *(group for group, _ in apart.others)))


def _apart(apart: Apart) -> Described:
    others = [{"queries": list(group), "reason": reason} for group, reason in apart.others]
    return {"what": apart.what, "queries": list(apart.together), "apart": others}


def _paths(plan: Plan, name: str) -> list[Described]:
    """What became of a query's PATHs, step by step."""
    return [
        {"query": name, "rule": step.rule, "path": step.text, "reason": step.reason}
        for step in plan.semantic[name].steps
    ]


def _is_derived(plan: Plan, name: str) -> bool:
    """Whether what an operator or a query gives is a stream of the log, for queries; or a query's, for the graph."""
    graph = plan.graph
    readers = [*graph.queries] if name in graph.operators else [*graph.queries, *graph.operators]
    to_consumers = name in graph.queries and any(consumer.input == name for consumer in graph.consumers.values())
    return to_consumers or any(name in graph.inputs_of(reader) for reader in readers)


def _physical(plan: Plan, name: str, topics: Collection[str]) -> Described:
    graph = plan.graph
    what = "stream" if name in graph.streams else "operator" if name in graph.operators else "query"
    node: Described = {"name": name, "type": what, "level": plan.level(name), "inputs": list(graph.inputs_of(name))}
    if what == "operator":
        node["kind"] = graph.operators[name].kind
        node["stands_for"] = list(plan.shared.get(name, ()))
    if what == "stream":
        node["read_by"] = list(plan.readers[name])
    elif graph.archived and _is_derived(plan, name):
        node["archived"] = True
    if (temporal := plan.temporal.get(name)) is not None:
        node["valid_for"] = _duration(temporal.valid_for)
        node["period"] = _duration(temporal.period)
        if what != "stream" or "service" in plan.readers[name]:  # rings are the service's
            node["ring"] = temporal.ring
            node["ring_bound"] = temporal.bound
            node["stale"] = temporal.stale
    if (placement := plan.placement.get(name)) is not None:
        node["engine"] = placement.engine
        node["reason"] = placement.reason
        if placement.engine == "spark" and name in plan.queries:
            node["real_time"] = verdict(name, plan.queries[name], graph.streams, topics)
            node["batch"] = division(plan.queries[name])
            node["live"] = live_division(plan.queries[name])
    return node


def _physical_consumer(plan: Plan, name: str) -> Described:
    consumer = plan.graph.consumers[name]
    return {
        "name": name,
        "type": "consumer",
        "level": plan.graph.levels[plan.graph.level_of(consumer.level)],
        "inputs": [consumer.input],
        "stale": consumer.stale,
    }


def _duration(microseconds: int | None) -> str | None:
    return None if microseconds is None else format_duration(microseconds)


def as_text(described: Described) -> str:
    """The graph as written, what the rules changed, a table of what runs where, and how the past can be asked."""
    parts = [*_logical_text(described), "", *_optimised_text(described), "", *_physical_text(described)]
    return "\n".join([*parts, *_past_text(described)])


def _past_text(described: Described) -> Iterator[str]:
    if not described.get("past"):
        return
    yield ""
    yield "Back in time: strategies. `cepheid query APP NAME --explain` has SQL, plan and cost of each, and the choice"
    yield "And on, with what comes: `--follow`, over the log, in the process that asks, wherever NAME itself runs"
    width = max(map(len, described["past"]))
    for name, strategies in described["past"].items():
        possible = ", ".join(strategy for strategy, hindrance in strategies.items() if hindrance is None)
        others = (f"; {strategy} can't give {why} exactly" for strategy, why in strategies.items() if why is not None)
        yield f"  {name:{width}}  {possible}{''.join(others)}"


def _logical_text(described: Described) -> Iterator[str]:
    logical = described["logical"]
    yield "Logical plan: as written"
    nodes: dict[str, Described] = {}
    for section in ("streams", "operators", "queries"):
        for node in logical[section]:
            nodes.setdefault(node["name"], {**node, "section": section})
    shown: set[str] = set()
    read = {given for section in ("operators", "queries") for node in logical[section] for given in node["inputs"]}
    for consumer in logical["consumers"]:
        yield f"  {consumer['name']}  consumer, {consumer['level']}, {consumer['stale']}"
        yield from _tree([consumer["input"]], nodes, shown, "  ")
        read.add(consumer["input"])
    yield from _tree([name for name in nodes if name not in read], nodes, shown, None)


def _tree(roots: Sequence[str], nodes: Mapping[str, Described], shown: set[str], indent: str | None) -> Iterator[str]:
    """The nodes and what they read, each drawn once. Iterative: a graph can be deeper than Python's stack."""
    stack = [(name, indent, i == len(roots) - 1) for i, name in reversed(list(enumerate(roots)))]
    while stack:
        name, lead, last = stack.pop()
        node = nodes[name]
        again = name in shown and bool(node.get("inputs"))
        branch = "  " if lead is None else f"{lead}{'└─ ' if last else '├─ '}"
        yield f"{branch}{name}  {_label(node)}" + ("  (above)" if again else "")
        if again:
            continue
        shown.add(name)
        below = "  " if lead is None else f"{lead}{'   ' if last else '│  '}"
        inputs = node.get("inputs", [])
        stack += [(given, below, i == len(inputs) - 1) for i, given in reversed(list(enumerate(inputs)))]


def _label(node: Described) -> str:
    if node["section"] == "streams":
        return "stream " + ", ".join(f"{name}: {kind}" for name, kind in node["attributes"].items())
    if node["section"] == "queries":
        return f"query{', ' + node['level'] if node['level'] else ''}"
    parts = [node["kind"]]
    parts += [f"{' and '.join(r['inputs'])} within {r['within']}" for r in node["relative"]]
    parts += [] if node["fire"] == "all" else ["fires on any input"]
    parts += [] if node["share"] else ["not shared"]
    return ", ".join(parts)


def _optimised_text(described: Described) -> Iterator[str]:
    optimised = described["optimised"]
    yield "Optimised plan: what the rules changed"
    for kept, others in optimised["shared"].items():
        yield f"  share   {kept} stands for {', '.join(others)}: the same kind, parameters and inputs"
    for name in optimised["pruned"]:
        yield f"  prune   {name} is not run: no consumer or query needs it"
    if not optimised["shared"] and not optimised["pruned"]:
        yield "  nothing: no operator is equal to another, and all are needed"
    if optimised["paths"]:
        yield ""
        yield "PATHs: what became of them"
        rows = [["rule", "for", "because"]]
        rows += [[p["rule"], p["query"], " ".join(p["reason"].split())] for p in optimised["paths"]]
        yield from _aligned(rows)
    if optimised["stages"]:
        yield ""
        yield "Operators of the queries: each runs once, for all the queries beside it"
        rows = [["kind", "level", "for", "does"]]
        rows += [[s["kind"], s["level"], ", ".join(s["queries"]), s["does"]] for s in optimised["stages"]]
        yield from _aligned(rows)
    for apart in optimised["apart"]:
        yield f"  apart   {apart['what']}, for {', '.join(apart['queries'])}; and again"
        for other in apart["apart"]:
            yield f"            for {', '.join(other['queries'])}: {other['reason']}"


_COLUMNS: Final = (
    ("name", "name"),
    ("what", "what"),
    ("level", "level"),
    ("valid_for", "valid for"),
    ("period", "every"),
    ("ring", "ring"),
    ("stale", "if stale"),
    ("engine", "runs in"),
    ("reason", "because"),
)


def _physical_text(described: Described) -> Iterator[str]:
    yield "Physical plan: what runs where, and why"
    rows = [[title for _, title in _COLUMNS]]
    for node in described["physical"]:
        cells = {**node, "what": node.get("kind", node["type"])}
        if node["type"] in ("stream", "operator"):
            cells["valid_for"] = node["valid_for"] or "forever"
            cells["period"] = node["period"] or "-"
            if node.get("ring_bound", "valid_for / period") != "valid_for / period":
                cells["ring"] = f"{node['ring']} ({node['ring_bound']})"
        if node["type"] == "stream":
            cells["reason"] = f"read by {', '.join(node['read_by']) or 'nobody'}"
        if node.get("archived"):
            cells["reason"] += "; read as a stream, so archived (rule G7)"
        rows.append([str(cells.get(key) if cells.get(key) is not None else "") for key, _ in _COLUMNS])
    yield from _aligned(rows)
    for node in described["physical"]:
        if "real_time" in node:
            mode = node["real_time"] if node["real_time"].startswith(QUALIFIES) else f"no. {node['real_time']}"
            yield f"  {node['name']}  Real-Time Mode: {mode}"
            yield f"  {node['name']}  a batch is divided {node['batch']}"
            if node["live"] != node["batch"]:
                yield f"  {node['name']}  a stream is divided {node['live']}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()


#: Fill and stroke of the levels in a drawing, highest first; further levels take the last.
_COLOURS: Final = ("#fde0dd,#c51b8a", "#fee8c8,#e34a33", "#e0f3db,#43a2ca", "#f0f0f0,#969696")
_SHAPES: Final = {"stream": ("([", "])"), "operator": ("[", "]"), "query": ("{{", "}}"), "consumer": ("[/", "/]")}


def as_mermaid(described: Described) -> str:
    """A flowchart of the physical plan: a box an engine, a colour a level; what queries share stands before them."""
    nodes = described["physical"]
    ids = {(node["type"] == "consumer", node["name"]): f"n{i}" for i, node in enumerate(nodes)}
    shared = [s for s in described["optimised"]["stages"] if len(s["queries"]) > 1]
    archived = [node["name"] for node in nodes if "archive" in node.get("read_by", ()) or node.get("archived")]
    lines = ["flowchart LR"]
    for engine in ("service", "spark"):
        inside = [node for node in nodes if node.get("engine") == engine]
        if inside or (engine == "spark" and archived):
            title = "real-time service" if engine == "service" else "Spark"
            lines += [f'  subgraph {engine}["{title}"]', *("  " + _mermaid_node(n, ids) for n in inside)]
            lines += [f"    {_mermaid_stage(number, s)}" for number, s in enumerate(shared) if engine == "service"]
            lines += ['    archive[("<b>archive</b>")]'] if engine == "spark" and archived else []
            lines += ["  end"]
    lines += [_mermaid_node(node, ids) for node in nodes if "engine" not in node]
    for node in nodes:
        reader = ids[node["type"] == "consumer", node["name"]]
        lines += [f"  {ids[False, given]} --> {reader}" for given in node["inputs"]]
    lines += _mermaid_sharing(shared, ids)
    lines += [f"  {ids[False, name]} -.-> archive" for name in archived]
    used = {node["level"] for node in nodes}
    for rank, level in enumerate(described["levels"]):
        if level in used:
            fill, stroke = _COLOURS[min(rank, len(_COLOURS) - 1)].split(",")
            lines.append(f"  classDef {level} fill:{fill},stroke:{stroke}")
    return "\n".join(lines)


def _mermaid_node(node: Described, ids: Mapping[tuple[bool, str], str]) -> str:
    opening, closing = _SHAPES[node["type"]]
    details = [node.get("kind", node["type"]), node["level"]]
    if node.get("valid_for"):
        details.append(f"valid {node['valid_for']}")
    if "ring" in node:
        details.append(f"ring {node['ring']}")
    stands_for = _also(node.get("stands_for", ()))
    label = f"<b>{node['name']}</b>{stands_for}<br/>{', '.join(details)}"
    return f'  {ids[node["type"] == "consumer", node["name"]]}{opening}"{label}"{closing}:::{node["level"]}'


def _mermaid_stage(number: int, stage: Described) -> str:
    does = stage["does"].replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return f'o{number}["<b>{stage["kind"]}</b><br/>{does}"]:::{stage["level"]}'


def _mermaid_sharing(shared: Sequence[Described], ids: Mapping[tuple[bool, str], str]) -> Iterator[str]:
    """What queries share: from the streams that it reads, through each other, to the queries."""
    for number, stage in enumerate(shared):
        label = f"{stage['kind']} {stage['does']}"
        yield from (f"  {ids[False, given]} --> o{number}" for given in stage["inputs"] if (False, given) in ids)
        left = set(stage["queries"])
        for other, later in enumerate(shared):
            if label in later["inputs"] and left.intersection(later["queries"]):
                yield f"  o{number} --> o{other}"
                left.difference_update(later["queries"])
        served = [name for name in stage["queries"] if name in left and (False, name) in ids]
        yield from (f"  o{number} --> {ids[False, name]}" for name in served)


def _also(names: Iterable[str]) -> str:
    listed = list(names)
    return f" = {', '.join(listed[:4])}{' ...' if len(listed) > 4 else ''}" if listed else ""
