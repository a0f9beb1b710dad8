"""The partition of a query: whose events belong together (rule S7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cepheid.language import syntax
from cepheid.language.scope import Resolved
from cepheid.language.syntax import Expression, Query


@dataclass(frozen=True, slots=True)
class Partition:
    """The classes that make the key. Each has, for each variable it touches, the attributes that are equal.

    `ambiguous` is set where a class has more than one attribute of a stream: that stream and those attributes.
    """

    classes: tuple[Mapping[str, tuple[str, ...]], ...]
    ambiguous: tuple[str, frozenset[str]] | None = None


def partition(query: Query, attributes: Mapping[tuple[str, str], Resolved]) -> Partition:
    """The classes of attributes that top-level equality JOINs make equal and that touch every variable but NOT ones."""
    unsure = {s.variable for s in query.seq if isinstance(s, syntax.Absent | syntax.Maybe)}
    unsure |= {s.variable for s in query.seq if isinstance(s, syntax.Many) and s.least == 0}
    unsure |= {v for s in query.seq if isinstance(s, syntax.AnyOf) for v in s.variables}
    absent = {s.variable for s in query.seq if isinstance(s, syntax.Absent)}
    links = list(_equalities(query.joins))
    parent: dict[tuple[str, str], tuple[str, str]] = {}

    def root(node: tuple[str, str]) -> tuple[str, str]:
        parent.setdefault(node, node)
        while parent[node] != node:
            node = parent[node]
        return node

    for one, other in links:
        if one[0] not in unsure and other[0] not in unsure:
            parent[root(one)] = root(other)
    # A link to a variable that may be unbound puts it into a class, and joins no two classes.
    members: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for node in list(parent):
        members.setdefault(root(node), set()).add(node)
    for one, other in links:
        for sure, loose in ((one, other), (other, one)):
            if sure[0] not in unsure and loose[0] in unsure:
                members.setdefault(root(sure), {sure}).add(loose)
    wanted = {r.variable for r in query.ranges} - absent
    classes = []
    ambiguous = None
    for nodes in members.values():
        if not wanted <= {variable for variable, _ in nodes}:
            continue
        by_variable: dict[str, tuple[str, ...]] = {}
        for variable, name in sorted(nodes):
            by_variable[variable] = (*by_variable.get(variable, ()), name)
        classes.append(by_variable)
        ambiguous = ambiguous or _ambiguity(nodes, attributes)
    return Partition(tuple(classes), ambiguous)


def _equalities(joins: tuple[Expression, ...]) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    for join in joins:
        for conjunct in join.operands if isinstance(join, syntax.Logical) and join.word == "AND" else (join,):
            if not isinstance(conjunct, syntax.Compare) or conjunct.sign != "=":
                continue
            left, right = conjunct.left, conjunct.right
            if isinstance(left, syntax.Attribute) and isinstance(right, syntax.Attribute):
                yield (left.variable, left.name), (right.variable, right.name)


def _ambiguity(
    nodes: set[tuple[str, str]], attributes: Mapping[tuple[str, str], Resolved]
) -> tuple[str, frozenset[str]] | None:
    in_stream: dict[str, set[str]] = {}
    for node in nodes:
        if node in attributes:
            for stream, name in attributes[node].names.items():
                in_stream.setdefault(stream, set()).add(name)
    for stream, names in in_stream.items():
        if len(names) > 1:
            return stream, frozenset(names)
    return None
