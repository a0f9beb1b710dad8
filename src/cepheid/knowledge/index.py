"""What is known of events, by the values of their attributes: the semantic index.

A lookup answers a part of a PATH for the events of a variable in one stream. Its key are the annotated attributes that
the part can reach, so events with equal keys have equal solutions (the paper's query root properties). Where the key
ranges over entities of the knowledge base, the table is filled with all of them at registration, by one execution of
the part's SPARQL; then it is complete, and nothing else fills it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import unquote

from pyoxigraph import Literal as RdfLiteral
from pyoxigraph import NamedNode, QuerySolutions

from cepheid.knowledge.annotation import Annotation, Annotations
from cepheid.knowledge.asking import Facts, Solution, ask_all, ask_each, is_root, value_of
from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.tables import (
    BETWEEN_SOLUTIONS,
    BETWEEN_TERMS,
    FLAG,
    RELATED,
    RELATED_AT_ALL,
    VALUE,
    Key,
    Lookup,
    Row,
    Table,
)
from cepheid.knowledge.terms import Term
from cepheid.language.parts import Part
from cepheid.language.path import Element, Token
from cepheid.model.types import Type, Value


@dataclass(frozen=True)
class PartLookup(Lookup):
    """A lookup that can be asked for the rows of a key: by which part, and by what the attributes mean."""

    part: Part
    annotations: Mapping[str, Annotation] = field(repr=False)
    prefixes: Mapping[str, str] = field(repr=False)

    @property
    def label(self) -> str:
        return f"{self.stream}: {self._said_of_e} (by {', '.join(self.key) or 'nothing'})"

    @property
    def meaning(self) -> str:
        return f"{self.stream} {self.key} {self.columns} {self._said_of_e}"

    @property
    def _said_of_e(self) -> str:
        """The part with its event called ?e, and its own variables ?v1, ?v2, ...: equal parts read the same."""
        names = {} if self.part.variable is None else {self.part.variable: "?e"}
        for element in self.part.elements:
            for token in element.tokens:
                name = token.text[1:]
                if token.kind == "variable" and name not in names:
                    names[name] = token.text if name in self.part.columns else f"?v{len(names)}"
        return " ".join(element.renamed(names).text for element in self.part.elements)

    def facts(self, key: Key, knowledge: Knowledge) -> Facts:
        """The triples of an event with this key, as far as the part can see them (rule P1)."""
        found: list[tuple[str, Term]] = []
        for attribute, value in zip(self.key, key, strict=True):
            annotation = self.annotations[attribute]
            found += [(annotation.property, term) for term in annotation.entities(value, knowledge)]
        return found

    def rows_of(self, keys: Sequence[Key], knowledge: Knowledge, *, each: bool = False) -> list[tuple[Row, ...]]:
        """The rows of keys, in one execution of the part's SPARQL, or in one for each of them."""
        asked = (name for column in self.columns if column[0] != FLAG for name in column[1:].split())
        names = list(dict.fromkeys(name.removeprefix(VALUE) for name in asked))
        facts = [self.facts(key, knowledge) for key in keys]
        ask = ask_each if each else ask_all
        return [self.rows(names, found) for found in ask(knowledge, self.part, self.prefixes, facts, names)]

    def rows(self, names: Sequence[str], solutions: Sequence[Solution]) -> tuple[Row, ...]:
        """Solutions as rows, each once, in one order."""
        if self.columns and self.columns[0][0] == FLAG:
            return ((bool(solutions),),)
        if not self.columns:
            return ((),) if solutions else ()
        plain = [column for column in self.columns if column[0] not in (RELATED, RELATED_AT_ALL)]
        alike: dict[Row, list[Solution]] = {}
        for solution in solutions:
            row = tuple(_cell(column, names, solution) for column in plain)
            alike.setdefault(row, []).append(solution)
        found = []
        for row, own in alike.items():
            cells = dict(zip(plain, row, strict=True))
            cells |= {
                c: _related(c, names, own if c[0] == RELATED else solutions) for c in self.columns if c not in cells
            }
            found.append(tuple(cells[column] for column in self.columns))
        return tuple(sorted(found, key=_order))


def _cell(column: str, names: Sequence[str], solution: Solution) -> Value:
    term = solution[names.index(column[1:])]
    return value_of(term) if column[0] == VALUE else _shared(term)


def _related(column: str, names: Sequence[str], solutions: Iterable[Solution]) -> Value:
    """The terms, or values, that some variables have together, in one order; null if there are none."""
    wanted = [(name[0] == VALUE, names.index(name.removeprefix(VALUE))) for name in column[1:].split()]
    found: set[str] = set()
    for solution in solutions:
        cells = (
            json.dumps(value_of(solution[place])) if is_value else _shared(solution[place])
            for is_value, place in wanted
        )
        terms = [cell for cell in cells if cell is not None]
        if len(terms) == len(wanted):
            found.add(BETWEEN_TERMS.join(terms))
    return BETWEEN_SOLUTIONS.join(sorted(found)) or None


def _shared(term: Term | None) -> str | None:
    """A term that another event may have too; no two events are one (rule Q3)."""
    return None if term is None or is_root(term) else str(term)


def _order(row: Row) -> list[tuple[str, str]]:
    return [("" if value is None else type(value).__name__, str(value)) for value in row]


def lookup_of(
    part: Part, stream: str, columns: Sequence[str], annotations: Annotations, prefixes: Mapping[str, str], owner: str
) -> PartLookup:
    """The lookup of a part for a variable's events of a stream."""
    own = annotations.properties(stream)
    reached = _reached(part, prefixes)
    key = tuple(a for a, annotation in own.items() if reached is None or annotation.property in reached)
    if part.variable is None:
        key = ()
    return PartLookup(owner, stream, key, tuple(columns), Table(), part, own, prefixes)


def _reached(part: Part, prefixes: Mapping[str, str]) -> frozenset[str] | None:
    """The properties that a part can reach from its event; None if any."""
    event = part.variable
    for element in part.elements:
        if event not in element.variables:
            continue
        if element.ends is None:
            path: Iterable[Token] = element.tokens
            if any(t.kind == "variable" and t.text[1:] != event for t in path):
                # A clause: predicates inside it may be variables, and are not told from subjects here.
                if _has_variable_predicate(element) or any(t.text == "!" for t in path):
                    return None
                continue
        else:
            path = element.ends[1]
            if any(t.kind == "variable" or t.text == "!" for t in path):
                return None
    return frozenset(iri for element in part.elements for _, iri in element.names(prefixes) if iri is not None) | {
        "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
    }


def _has_variable_predicate(element: Element) -> bool:
    """Whether a variable stands where a predicate may: between two terms. Rather too often than not often enough."""
    terms = ("variable", "iri", "name", "blanknode")
    tokens = element.tokens
    return any(
        tokens[i].kind == "variable"
        and tokens[i - 1].kind in terms
        and tokens[i + 1].kind in (*terms, "string", "number")
        for i in range(1, len(tokens) - 1)
    )


# the index


def fill(lookup: PartLookup, knowledge: Knowledge) -> bool:
    """Fills a lookup's table with all that can be known, if that is so much and no more; says whether."""
    table = lookup.table
    domain = _domain(lookup, knowledge)
    if domain is None:
        return False
    with knowledge.reading() as version:
        keys, otherwise = domain()
        asked: list[Key] = [*keys, *([otherwise] if otherwise is not None else [])]
        rows = lookup.rows_of(asked, knowledge)
    if otherwise is not None:
        table.otherwise = rows.pop()
    else:
        table.otherwise = _nothing(lookup)
    table.rows = dict(zip(keys, rows, strict=True))
    table.complete, table.version = True, version
    return True


def empty(lookup: PartLookup) -> None:
    """Makes a lookup's table that of a part that nothing fits."""
    lookup.table.rows, lookup.table.otherwise, lookup.table.complete = {}, _nothing(lookup), True


def _nothing(lookup: PartLookup) -> tuple[Row, ...]:
    return ((False,),) if lookup.columns[:1] == (f"{FLAG}{lookup.part.flag}",) else ()


_Domain: TypeAlias = "Callable[[], tuple[list[Key], Key | None]]"


def _domain(lookup: PartLookup, knowledge: Knowledge) -> _Domain | None:
    """All keys that are different from others, and one that stands for all others; None if they can't be told.

    An attribute that is null has no triple, and neither has a value with no entity: the key (None,) stands for both. An
    entity by template that the knowledge base does not know has one triple; a part that asks anything of it fails.
    """
    if not lookup.key:
        return lambda: ([()], None)
    if len(lookup.key) > 1:
        return None
    annotation = lookup.annotations[lookup.key[0]]
    if annotation.kind == "literal" or annotation.type not in (Type.STRING, Type.INT):
        return None

    if annotation.kind == "template" and not _asks_of_entity(lookup, annotation):
        return None

    def domain() -> tuple[list[Key], Key | None]:
        keys: list[Key] = [(value,) for value in keys_in(annotation, knowledge)]
        # By template an entity that is not known fails; so does null, whose key is there to be found.
        return ([(None,), *keys], None) if annotation.kind == "template" else (keys, (None,))

    return domain


def keys_in(annotation: Annotation, knowledge: Knowledge) -> list[Value]:
    """The values of an attribute whose entities the knowledge speaks of; none for readings."""
    match annotation.kind:
        case "lookup":
            texts: Iterable[str] = knowledge.having(annotation.lookup)
        case "table":
            texts = annotation.table
        case "template":
            texts = _values_of(annotation, knowledge)
        case _:
            texts = ()
    found = (_as_key(text, annotation.type) for text in texts)
    return [value for value in dict.fromkeys(found) if value is not None]


def _as_key(text: str, kind: Type) -> Value:
    if kind is Type.STRING:
        return text
    return int(text) if text.lstrip("-").isdigit() and str(int(text)) == text and len(text) < 19 else None


def _values_of(annotation: Annotation, knowledge: Knowledge) -> Iterator[str]:
    """The values whose entity, by template, the knowledge base speaks of."""
    before = RdfLiteral(annotation.template.partition("{value}")[0])
    begins = f"FILTER (isIRI(?t) && STRSTARTS(STR(?t), {before}))"
    found = knowledge.store.query(f"SELECT DISTINCT ?t {{ {{ ?t ?p ?o }} UNION {{ ?s ?p ?t }} {begins} }}")
    assert isinstance(found, QuerySolutions)
    for (term,) in found:
        assert isinstance(term, NamedNode)
        yield from (str(value) for value in values_of(annotation, term.value, knowledge))


def values_of(annotation: Annotation, entity: str, knowledge: Knowledge) -> list[Value]:
    """The values of an attribute that lead to an entity."""
    texts: Iterable[str] = ()
    if annotation.kind == "template":
        before, _, after = annotation.template.partition("{value}")
        if entity.startswith(before) and entity.endswith(after) and len(entity) > len(before) + len(after):
            inside = entity[len(before) : len(entity) - len(after)]
            texts = dict.fromkeys((inside, unquote(inside))) if "%" in inside else (inside,)
    elif annotation.kind == "lookup":
        found = knowledge.store.quads_for_pattern(NamedNode(entity), NamedNode(annotation.lookup), None, None)
        texts = [quad.object.value for quad in found if isinstance(quad.object, RdfLiteral)]
    elif annotation.kind == "table":
        texts = [text for text, entities in annotation.table.items() if NamedNode(entity) in entities]
    keys = (_as_key(text, annotation.type) for text in texts)
    return [k for k in keys if k is not None and NamedNode(entity) in annotation.entities(k, knowledge)]


def _asks_of_entity(lookup: PartLookup, annotation: Annotation) -> bool:
    """Whether the part demands a triple of the entity itself, by a path that can't be empty."""
    event = lookup.part.variable
    entities: set[str] = set()
    for element in lookup.part.elements:
        if element.ends is not None and [t.text[1:] for t in element.ends[0] if t.kind == "variable"] == [event]:
            _, path, target = element.ends
            names = [iri for t in path for _, iri in Element("triple", (t,)).names(lookup.prefixes)]
            if (
                len(path) > 1
                and names[:1] == [annotation.property]
                and path[1].text == "/"
                and not _can_be_empty(path[2:])
            ):
                return True  # ?e p/q ...
            if len(path) == 1 and names == [annotation.property]:
                entities |= {t.text for t in target if t.kind == "variable"}
    return any(
        element.ends is not None
        and not _can_be_empty(element.ends[1])
        and any(t.text in entities for end in (element.ends[0], element.ends[2]) for t in end)
        and event not in element.variables
        for element in lookup.part.elements
    )


def _can_be_empty(path: Sequence[Token]) -> bool:
    """Whether a path may lead from a node to itself without a triple; said of any with brackets or alternatives."""
    if any(t.text in ("(", "|") for t in path):
        return True
    text = " ".join(t.text for t in path)
    return all(step.rstrip().endswith(("*", "?")) for step in text.split("/"))
