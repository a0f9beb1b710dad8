"""PATHs by plain SPARQL: the knowledge, the triples of the events that are bound, and the group as it is written.

AND is a join of groups, OR their UNION (rule P4), and an event variable is its event's root node wherever it stands.
Nothing is split, indexed or remembered. What is said of one variable alone is its condition (rule Q2); everything is
judged again on the match, where it also gives the values of the variables that are used outside (rule P3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyoxigraph as ox

from cepheid.language import syntax
from cepheid.language.syntax import Query
from tests.reference.events import Binding, Event, Refused, Value


@dataclass(frozen=True)
class Knowledge:
    """A store with nothing but the knowledge; the (property, term) pairs of an event (rule P1); prefixes."""

    store: ox.Store
    facts: Callable[[Event], Sequence[tuple[str, Any]]]
    prefixes: Mapping[str, str]
    value: Callable[[Any], Value]


def variables(path: syntax.Path) -> set[str]:
    if isinstance(path, syntax.PathLogical):
        return set[str]().union(*map(variables, path.operands))
    bare = re.sub(r"<[^<>\s]*>|\"(\\.|[^\"\\])*\"|'(\\.|[^'\\])*'|#[^\n]*", " ", path.text)
    return set(re.findall(r"[?$](\w+)", bare))


def sparql(path: syntax.Path) -> str:
    """A PATH, or several, as a group."""
    if isinstance(path, syntax.PathGroup):
        return f"{{ {path.text}\n }}"
    joint = " UNION " if path.word == "OR" else " "
    return f"{{ {joint.join(map(sparql, path.operands))} }}"


def conjuncts(path: syntax.Path | None) -> Sequence[syntax.Path]:
    if path is None:
        return []
    return path.operands if isinstance(path, syntax.PathLogical) and path.word == "AND" else [path]


def uses(query: Query) -> list[str]:
    """The PATH variables that are used outside."""
    expressions = [*(s.expression for s in query.select), *query.filters, *query.joins]
    expressions += [query.having] if query.having is not None else []
    found = {v for e in expressions for v in plain_variables(e)}
    return sorted(found)


def plain_variables(expression: syntax.Expression) -> set[str]:
    """The PATH variables in an expression; an event alone stands only in COUNT(?e)."""
    if isinstance(expression, syntax.Aggregate) and isinstance(expression.argument, syntax.Variable):
        return set()
    if isinstance(expression, syntax.Variable):
        return {expression.name}
    return set[str]().union(*map(plain_variables, syntax.children(expression)))


def solutions(
    knowledge: Knowledge, paths: Iterable[syntax.Path], bound: Mapping[str, Event], wanted: Sequence[str]
) -> list[tuple[Value, ...]]:
    """The distinct values of the wanted variables, where the PATHs hold for these events; in order."""
    text = " ".join(map(sparql, paths))
    roots = {v: ox.NamedNode(f"urn:cepheid:root:{number}") for number, v in enumerate(sorted(bound))}
    for variable, root in roots.items():
        text = re.sub(rf"[?$]{variable}\b", str(root), text)
    quads = [
        ox.Quad(root, ox.NamedNode(name), term)
        for variable, root in roots.items()
        for name, term in knowledge.facts(bound[variable])
    ]
    store = knowledge.store
    store.extend(quads)
    try:
        names = " ".join(f"?{name}" for name in wanted) or "(1 AS ?one)"
        query = store.query(f"SELECT DISTINCT {names} WHERE {{ {text} }}", prefixes=dict(knowledge.prefixes))
        assert isinstance(query, ox.QuerySolutions)
        found = {tuple(knowledge.value(term) for term in solution) for solution in query}
    finally:
        for quad in quads:
            store.remove(quad)
    return [row if wanted else () for row in sorted(found, key=_order)]


def _order(row: tuple[Value, ...]) -> list[tuple[int, Any]]:
    """Null, truth, integers, floats, text: the order of the output among matches of the same events."""
    kinds = [type(None), bool, int, float, str]
    return [(kinds.index(type(v)), 0 if v is None else v) for v in row]


def qualifies(query: Query, knowledge: Knowledge, variable: str, event: Event) -> bool:
    """Whether what is said of this variable alone is true of an event (rules P2 and Q2)."""
    events = {r.variable for r in query.ranges}
    own = [p for p in conjuncts(query.path) if variables(p) & events == {variable}]
    return not own or bool(solutions(knowledge, own, {variable: event}, []))


def bindings(query: Query, knowledge: Knowledge, binding: Binding) -> list[dict[str, Value]]:
    """For each way in which the PATHs hold for a match, the values of the variables that are used."""
    events = {r.variable for r in query.ranges}
    bound = {v: e for v, e in binding.items() if isinstance(e, Event)}
    judged = []
    for path in conjuncts(query.path):
        own = variables(path) & events
        if own <= set(bound):
            judged.append(path)
        elif len(own) > 1 or len([p for p in conjuncts(query.path) if (variables(p) - events) & variables(path)]) > 1:
            raise Refused("a PATH of several events, one of which is not bound to one event, is not judged here")
    wanted = [v for v in uses(query) if any(v in variables(p) for p in judged)]
    rows = solutions(knowledge, judged, bound, wanted) if judged else [()]
    return [{**dict.fromkeys(uses(query)), **dict(zip(wanted, row, strict=True))} for row in rows]
