"""PATHs by plain SPARQL: the knowledge, the triples of the events that are bound, and the group as it is written.

AND is a join of groups, OR their UNION (rule P4), and an event variable is its event's root node wherever it stands.
Nothing is split or indexed. What is said of one variable alone is its condition (rule Q2). What is said of several is
a JOIN: there are values of the variables that fit all the events that are bound to one each (rules P2 and P3).
Everything is judged again on the match, where it also gives the values of the variables that are used outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyoxigraph as ox

from cepheid.language import syntax
from cepheid.language.syntax import Query
from tests.reference.events import Binding, Bound, Event, Refused, Value


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


def fits(query: Query, knowledge: Knowledge, binding: Mapping[str, Bound]) -> bool:
    """Whether the PATHs of the variables that are bound to one event each have a solution together.

    Of what is not bound they say nothing, as a JOIN does (rule S2); a list's events are judged each by itself (S3).
    """
    bound = {v: e for v, e in binding.items() if isinstance(e, Event)}
    judged = [p for p in conjuncts(query.path) if variables(p) & {r.variable for r in query.ranges} <= set(bound)]
    return not judged or bool(solutions(knowledge, judged, bound, []))


def refuse(query: Query) -> None:
    """Refuses what can't be judged like this: a PATH of several events of which one may be bound when others are not,
    and values that the match has of variables that lists and NOT share, by which those would have to be judged."""
    events = {r.variable for r in query.ranges}
    owners: dict[str, set[str]] = {}
    for path in conjuncts(query.path):
        for name in variables(path) - events:
            owners.setdefault(name, set()).update(variables(path) & events)
    several = {v for s in query.seq if isinstance(s, syntax.Many | syntax.Absent) for v in syntax.step_variables(s)}
    loose = {v for s in query.seq if isinstance(s, syntax.Maybe | syntax.AnyOf) for v in syntax.step_variables(s)}
    for path in conjuncts(query.path):
        own = variables(path) & events
        if len(own) > 1 and (own & (several | loose) or (len(own) > 2 and query.match == "NEXT")):
            raise Refused("a PATH of several events, one of which is not bound to one event, is not judged here")
    for name in uses(query):
        if len(owners.get(name, ())) > 1 and owners[name] & several:
            raise Refused("what a list or NOT shares with an event, and is used, is not judged here")


def bindings(query: Query, knowledge: Knowledge, binding: Binding) -> list[dict[str, Value]]:
    """For each way in which the PATHs hold for a match, the values of the variables that are used."""
    events = {r.variable for r in query.ranges}
    bound = {v: e for v, e in binding.items() if isinstance(e, Event)}
    judged = [path for path in conjuncts(query.path) if variables(path) & events <= set(bound)]
    wanted = [v for v in uses(query) if any(v in variables(p) for p in judged)]
    rows = solutions(knowledge, judged, bound, wanted) if judged else [()]
    return [{**dict.fromkeys(uses(query)), **dict(zip(wanted, row, strict=True))} for row in rows]
