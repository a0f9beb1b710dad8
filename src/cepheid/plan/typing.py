"""Rule: every producer has a schema, derived from its inputs'; what cannot read them is an error.

    streams: {flow: {attributes: {rate: float}}}
    graph: {spectrum: {kind: fft, inputs: [flow]}}
    error: fft 'spectrum' reads an array, but 'flow' has rate: float

A query is checked against the schemas of what it reads; what it selects is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cepheid.language.checker import Checked, check
from cepheid.language.functions import ValueType
from cepheid.language.scope import Catalogue
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.graph import Graph, Operator, Query
from cepheid.plan.operators import KINDS, Mismatch, Schema
from cepheid.plan.problems import Path, Problem, error

#: What an attribute of a match is, where the language knows more types than attributes have.
_AS_ATTRIBUTE: Final = {ValueType.DURATION: Type.INT, ValueType.NODE: Type.STRING, ValueType.NULL: Type.STRING}


@dataclass(frozen=True, slots=True)
class Typed:
    """The schema of each stream, operator and query that has one, the checked queries, and what is wrong.

    `streams` are what a query can read: an operator's or a query's events are a stream like any other (rule G7).
    """

    schemas: Mapping[str, Schema]
    streams: Mapping[str, Stream]
    queries: Mapping[str, Checked]
    problems: list[Problem]


def derive(graph: Graph) -> Typed:
    """The types of a graph, in one pass down. What follows a mistake is not reported."""
    known: dict[str, Schema] = {stream.name: stream.attributes for stream in graph.streams.values()}
    streams: dict[str, Stream] = dict(graph.streams)
    queries: dict[str, Checked] = {}
    problems: list[Problem] = []
    for name in graph.order:
        schema: Schema | None = None
        if (operator := graph.operators.get(name)) is not None:
            schema = _operator(operator, known, problems)
        elif (query := graph.queries.get(name)) is not None:
            checked = _query(graph, query, streams, problems)
            if checked is not None:
                queries[name] = checked
                schema = {o.name: _attribute_type(o.type) for o in checked.outputs}
        if schema is not None:
            known[name] = schema
            streams[name] = Stream(name, schema, id_kind="string" if name in graph.queries else None)
    return Typed(known, streams, queries, problems)


def _operator(operator: Operator, known: Mapping[str, Schema], problems: list[Problem]) -> Schema | None:
    kind = KINDS[operator.kind]
    if not kind.takes(len(operator.inputs)) or any(given not in known for given in operator.inputs):
        return None
    try:
        return kind.output(dict(operator.parameters), [(given, known[given]) for given in operator.inputs])
    except Mismatch as mismatch:
        where: Path = ("graph", operator.name)
        if mismatch.input is not None:
            where = (*where, "inputs", mismatch.input)
        problems.append(error("type-mismatch", f"{operator.kind} '{operator.name}' {mismatch}", where, mismatch.hint))
        return None


def _query(graph: Graph, query: Query, streams: Mapping[str, Stream], problems: list[Problem]) -> Checked | None:
    unreadable = graph.broken.union(set(graph.producers()) - set(streams))
    if query.tree is None or any(given in unreadable for given in query.inputs):
        return None
    if not query.inputs and graph.broken:
        return None  # its stream may be among those
    if not query.tree.ranges and graph.default_stream not in (None, *streams):
        return None  # there is no such stream, which is said where it is named
    catalogue = Catalogue(streams, graph.default_stream, graph.prefixes, graph.properties)
    ends = query.tree.within is not None and query.tree.within.high is not None
    checked, diagnostics = check(query.tree, catalogue, live=query.limit is None and not ends)
    problems += [
        Problem(d.severity, d.code, d.message, ("queries", query.name, "text"), d.hint, inside=d.span)
        for d in diagnostics
    ]
    return checked


def _attribute_type(kind: ValueType) -> Type:
    return _AS_ATTRIBUTE[kind] if kind in _AS_ATTRIBUTE else Type(kind.value)
