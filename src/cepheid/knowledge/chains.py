"""The triples along a property path, from where it begins to where it leads: of several ways one of the shortest.

    ee:D105 ^brick:hasPoint/brick:feeds+ bd:RTH105     ee:VAV1 brick:hasPoint ee:D105
                                                       ee:VAV1 brick:feeds bd:RTH105

A path is read into steps between numbered places, some of which need no triple; then one goes breadth first through
nodes at places.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pyoxigraph import BlankNode, NamedNode, Triple
from pyoxigraph import Literal as RdfLiteral

from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.terms import Term
from cepheid.language.path import A, Token, expand

#: The search ends at so many nodes: then nothing is shown.
_MOST: Final = 100_000

#: subject, property, object; an event's root is a subject like any other.
Link: TypeAlias = tuple[Term, str, Term]
#: A node, and a place of the path.
_State: TypeAlias = tuple[Term, int]


@dataclass(frozen=True)
class Graph:
    """The knowledge, and triples besides it."""

    knowledge: Knowledge
    beside: Sequence[Link] = ()

    def links(self, node: Term, name: str | None, *, is_back: bool) -> Iterator[Link]:
        """The triples from a node, or to it, by one property or by all."""
        for link in self.beside:
            if link[2 if is_back else 0] == node and name in (None, link[1]):
                yield link
        store, property_ = self.knowledge.store, None if name is None else NamedNode(name)
        if is_back:
            quads = store.quads_for_pattern(None, property_, node, None)
        elif isinstance(node, RdfLiteral):
            return
        else:
            quads = store.quads_for_pattern(node, property_, None, None)
        for quad in quads:
            if isinstance(quad.subject, NamedNode | BlankNode) and not isinstance(quad.object, Triple):
                yield quad.subject, quad.predicate.value, quad.object


@dataclass(frozen=True, slots=True)
class _Step:
    """From a place to another: by one of some properties or any but these, or (`names` None) by nothing."""

    to: int
    names: frozenset[str] | None = None
    is_back: bool = False
    is_negated: bool = False


@dataclass
class _Reader:
    """Reads a path: each method goes from a place on, and gives the place where it ends."""

    tokens: Sequence[Token]
    prefixes: Mapping[str, str]
    steps: list[list[_Step]] = field(default_factory=lambda: [[]])
    at: int = 0

    def alternatives(self, start: int, is_back: bool) -> int:
        ends = [self.sequence(start, is_back)]
        while self._took("|"):
            ends.append(self.sequence(start, is_back))
        end = self._place()
        for one in ends:
            self.steps[one].append(_Step(end))
        return end

    def sequence(self, start: int, is_back: bool) -> int:
        parts: list[tuple[int, int]] = []
        while True:
            begin = self._place()
            parts.append((begin, self.part(begin, is_back)))
            if not self._took("/"):
                break
        # Backwards the last comes first.
        here = start
        for begin, end in reversed(parts) if is_back else parts:
            self.steps[here].append(_Step(begin))
            here = end
        return here

    def part(self, start: int, is_back: bool) -> int:
        is_back ^= self._took("^")
        inner = self._place()
        self.steps[start].append(_Step(inner))
        end = self._primary(inner, is_back)
        out = self._place()
        self.steps[end].append(_Step(out))
        if self._took("*"):
            self.steps[start].append(_Step(out))
            self.steps[end].append(_Step(inner))
        elif self._took("+"):
            self.steps[end].append(_Step(inner))
        elif self._took("?"):
            self.steps[start].append(_Step(out))
        return out

    def _primary(self, start: int, is_back: bool) -> int:
        if self._took("("):
            end = self.alternatives(start, is_back)
            self.at += 1  # the bracket
            return end
        end = self._place()
        if not self._took("!"):
            self.steps[start].append(_Step(end, frozenset((self._name(),)), is_back))
            return end
        there, back = set[str](), set[str]()
        is_several = self._took("(")
        while True:
            (back if self._took("^") else there).add(self._name())
            if not is_several or not self._took("|"):
                break
        self.at += is_several
        # `!(:a|^:b)`: by anything but :a, or back by anything but :b.
        if there or not back:
            self.steps[start].append(_Step(end, frozenset(there), is_back, is_negated=True))
        if back:
            self.steps[start].append(_Step(end, frozenset(back), not is_back, is_negated=True))
        return end

    def _name(self) -> str:
        token = self.tokens[self.at]
        self.at += 1
        if token.kind == "iri":
            return token.text[1:-1]
        return A if token.text == "a" else expand(token.text, self.prefixes) or token.text

    def _place(self) -> int:
        self.steps.append([])
        return len(self.steps) - 1

    def _took(self, sign: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at].text == sign:
            self.at += 1
            return True
        return False


def chain(
    path: Sequence[Token], prefixes: Mapping[str, str], graph: Graph, start: Term, end: Term
) -> list[Link] | None:
    """The triples by which a path leads from one node to another; None if it does not, or that takes too long."""
    reader = _Reader(path, prefixes)
    last = reader.alternatives(0, False)
    before: dict[_State, tuple[_State, Link | None] | None] = {}
    unexplored: deque[tuple[_State, tuple[_State, Link | None] | None]] = deque([((start, 0), None)])
    while unexplored and len(before) <= _MOST:
        here, how = unexplored.popleft()
        if here in before:
            continue
        before[here] = how
        if here == (end, last):
            return _back(before, here)
        node, place = here
        for step in reader.steps[place]:
            for reached, link in _taken(graph, node, step):
                # What needs no triple comes first.
                put = unexplored.appendleft if link is None else unexplored.append
                put(((reached, step.to), (here, link)))
    return None


def _taken(graph: Graph, node: Term, step: _Step) -> Iterator[tuple[Term, Link | None]]:
    if step.names is None:
        yield node, None
        return
    names: Sequence[str | None] = [None] if step.is_negated else sorted(step.names)
    for name in names:
        for link in graph.links(node, name, is_back=step.is_back):
            if not step.is_negated or link[1] not in step.names:
                yield link[0] if step.is_back else link[2], link


def _back(before: Mapping[_State, tuple[_State, Link | None] | None], here: _State) -> list[Link]:
    found: list[Link] = []
    while (step := before[here]) is not None:
        here, link = step
        if link is not None:
            found.append(link)
    return found[::-1]
