"""Judges parts of PATHs by SPARQL: one event, or any number of them in one execution.

The triples of events (rule P1) stand in a graph of their own beside the knowledge while the question is asked; `?e` is
the root of each. In one execution for many roots, each root is marked with its number, and every group that speaks of
`?e` asks for the mark: so what is said inside an OPTIONAL or a UNION is said of that root alone, as if no other were
there. MINUS compares what two groups bind, the mark included; with it each root is asked for by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, TypeAlias, TypeVar

from pyoxigraph import BlankNode, DefaultGraph, NamedNode, Quad, QuerySolutions, Store, Triple
from pyoxigraph import Literal as RdfLiteral

from cepheid.knowledge.errors import TooMuch
from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.terms import XSD, Term, short
from cepheid.language.parts import ROOT, Part
from cepheid.language.path import Element, Token, written
from cepheid.model.time import TimeError, format_instant, parse_instant
from cepheid.model.types import INT64_MAX, INT64_MIN, Value

#: What is known of a root: its properties and what they lead to.
Facts: TypeAlias = Sequence[tuple[str, Term]]
#: What the variables that are asked for are bound to; None where one is not bound.
Solution: TypeAlias = tuple[Term | None, ...]

_MARK: Final = "urn:cepheid:root"
_NUMBER: Final = "cepheid_root"
_graphs = count()

#: What an event is called outside of its PATH.
EVENT: Final = "urn:cepheid:event"

#: How long one question may take, and how many solutions it may have.
SECONDS: Final = 30.0
SOLUTIONS: Final = 5_000_000
#: A question that is over says so itself, a moment before who waits for it gives up.
_GRACE: Final = 0.5

T = TypeVar("T")


def ask_all(
    knowledge: Knowledge, part: Part, prefixes: Mapping[str, str], roots: Sequence[Facts], columns: Sequence[str]
) -> list[list[Solution]]:
    """For each root the distinct solutions of a part, as far as the columns go. One execution, but with MINUS."""
    if (
        part.variable is None
        or len(roots) == 1
        or any(t.text.upper() == "MINUS" for e in part.elements for t in e.tokens)
    ):
        return ask_each(knowledge, part, prefixes, roots, columns)
    found: list[list[Solution]] = [[] for _ in roots]
    mark, number_of = NamedNode(_MARK), next(_graphs)
    graph, marks = NamedNode(f"{_MARK}:graph:{number_of}"), NamedNode(f"{_MARK}:marks:{number_of}")
    quads = []
    for number, facts in enumerate(roots):
        root = NamedNode(f"{_MARK}:{number}")
        quads.append(Quad(root, mark, RdfLiteral(number), marks))
        quads += [Quad(root, NamedNode(name), term, graph) for name, term in facts]
    names = " ".join(f"?{name}" for name in (_NUMBER, *columns))
    query = f"SELECT DISTINCT {names} {{ {_marked(part, marks)} }}"
    with knowledge.reading():
        store = knowledge.store

        def ask(watch: _Watch) -> list[list[Term | None]]:
            store.extend(quads)
            return watch.collected(
                store.query(query, prefixes=dict(prefixes), default_graph=_seen(graph), named_graphs=[marks])
            )

        rows = _watched(part, store, (graph, marks), ask)
    for mark_of, *solution in rows:
        assert isinstance(mark_of, RdfLiteral)
        found[int(mark_of.value)].append(tuple(solution))
    return found


def ask_each(
    knowledge: Knowledge, part: Part, prefixes: Mapping[str, str], roots: Sequence[Facts], columns: Sequence[str]
) -> list[list[Solution]]:
    """The same, one execution for each root, whose node stands wherever the variable did."""
    names = " ".join(f"?{name}" for name in columns) or "(1 AS ?one)"
    query = f"SELECT DISTINCT {names} {{ {part.text_of_root} }}" + ("" if columns else " LIMIT 1")
    root, graph = NamedNode(ROOT), NamedNode(f"{_MARK}:graph:{next(_graphs)}")
    quads = [[Quad(root, NamedNode(name), term, graph) for name, term in facts] for facts in roots]
    seen, known = _seen(graph), dict(prefixes)
    with knowledge.reading():
        store = knowledge.store

        def ask(watch: _Watch) -> list[list[Solution]]:
            found: list[list[Solution]] = []
            for own in quads:
                for quad in own:
                    store.add(quad)
                rows = watch.collected(store.query(query, prefixes=known, default_graph=seen))
                for quad in own:
                    store.remove(quad)
                found.append([tuple(row) for row in rows] if columns else [()] * len(rows))
            return found

        return _watched(part, store, (graph,), ask)


def _seen(graph: NamedNode) -> list[NamedNode | BlankNode | DefaultGraph]:
    return [DefaultGraph(), graph]


def _marked(part: Part, marks: NamedNode) -> str:
    """The part with marks, which are in a graph of their own: no pattern of the part sees them."""
    assert part.variable is not None
    mark = f"GRAPH {marks} {{ ?{part.variable} <{_MARK}> ?{_NUMBER} }}"
    inside = ["\n".join(_marked_element(e, part.variable, mark) for e in group) for group in part.groups]
    if len(inside) == 1:
        return f"{mark}\n{inside[0]}"
    return "\n".join(f"{{ {mark}\n{text} }}" for text in inside)


def _marked_element(element: Element, variable: str, mark: str) -> str:
    """An element with the mark in each of its groups that speaks of the event."""
    if element.kind == "triple":
        return element.text
    tokens = list(element.tokens)
    result: list[Token] = []
    for i, token in enumerate(tokens):
        result.append(token)
        if token.text == "{" and any(t.kind == "variable" and t.text[1:] == variable for t in _inside(tokens, i)):
            result.append(Token("mark", mark, -1, -2))
    return written(result)


def _inside(tokens: Sequence[Token], start: int) -> Iterator[Token]:
    depth = 0
    for token in tokens[start:]:
        depth += (token.text == "{") - (token.text == "}")
        if depth == 0:
            return
        yield token


class _Watch:
    """Follows questions in a thread of their own: since when the last one is asked, and whether anyone waits for it."""

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.is_over = False

    def collected(self, solutions: object) -> list[list[Term | None]]:
        """The solutions of a question, within its bounds; then the next one begins."""
        assert isinstance(solutions, QuerySolutions)
        rows: list[list[Term | None]] = []
        for solution in solutions:
            rows.append([None if isinstance(term, Triple) else term for term in solution])
            if len(rows) > SOLUTIONS:
                raise TooMuch(f"more than {SOLUTIONS:,} solutions")
            if self.is_over or time.monotonic() > self.since + SECONDS:
                raise TooMuch(f"no answer in {SECONDS:g} s")
        self.since = time.monotonic()
        return rows


def _watched(part: Part, store: Store, graphs: Sequence[NamedNode], ask: Callable[[_Watch], T]) -> T:
    """What `ask` finds, with each question bounded; what it put beside the knowledge, in these graphs, is taken out."""
    outcome: list[T | BaseException] = []
    watch = _Watch()

    def run() -> None:
        try:
            outcome.append(ask(watch))
        except BaseException as error:
            # Its frames hold the solutions, which no other thread may touch.
            outcome.append(error.with_traceback(None))

    # Oxigraph can't be interrupted between two solutions: past its time, the thread is left to its end.
    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    try:
        while worker.is_alive() and (left := watch.since + SECONDS + _GRACE - time.monotonic()) > 0:
            worker.join(left)
    finally:
        watch.is_over = True
        for graph in graphs:
            store.remove_graph(graph)
    found = outcome[0] if outcome else TooMuch(f"no answer in {SECONDS:g} s")
    if isinstance(found, TooMuch):
        raise TooMuch(f"PATH {{{part.text}}}: {found}; its parts may be a cartesian product, or a path without an end")
    if isinstance(found, BaseException):
        raise found
    return found


_INTEGERS: Final = frozenset(
    f"{XSD}{name}"
    for name in """integer int long short byte nonNegativeInteger positiveInteger nonPositiveInteger negativeInteger
    unsignedInt unsignedLong unsignedShort unsignedByte""".split()  # noqa: SIM905
)
_FLOATS: Final = frozenset(XSD + name for name in ("decimal", "double", "float"))


def is_root(term: Term | None) -> bool:
    """Whether a term is an event's root: the same event has others elsewhere."""
    return isinstance(term, NamedNode) and term.value.startswith(f"{_MARK}:")


def value_of(term: Term | None) -> Value:
    """What a term is outside of the PATH: an IRI in full, a number, truth, text (rule O3); a time is text as in O1.

    The event itself, which a path can lead back to, has no IRI that is known outside: it is EVENT.
    """
    if is_root(term):
        return EVENT
    if not isinstance(term, RdfLiteral):
        return None if term is None else term.value if isinstance(term, NamedNode) else str(term)
    text, kind = term.value, term.datatype.value
    try:
        if kind in _INTEGERS and INT64_MIN <= int(text) <= INT64_MAX:
            return int(text)
        if kind in _FLOATS and abs(float(text)) < float("inf"):
            return float(text)
        if kind == XSD + "boolean":
            return text in ("true", "1")
        if kind == XSD + "dateTime":
            return format_instant(parse_instant(text))
    except (ValueError, TimeError):
        pass
    return text


def shown_term(term: Term, prefixes: Mapping[str, str]) -> str:
    """A term for people: a number as a number, an IRI by its prefix."""
    value = value_of(term)
    return str(value) if isinstance(term, RdfLiteral) and not isinstance(value, str) else short(term, prefixes)
