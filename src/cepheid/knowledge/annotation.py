"""What events mean: the triples of an event, by the properties and entities that an application gives to attributes.

Static semantics name the property of an attribute; dynamic ones also lead from its value to an entity, by a template,
a lookup property or a table (rule P1). A value with no entity contributes no triple, and is counted.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from pyoxigraph import Literal as RdfLiteral
from pyoxigraph import NamedNode, Triple

from cepheid.knowledge.errors import Fault, KnowledgeError, Unreadable, gathering
from cepheid.knowledge.sources import located, shown
from cepheid.knowledge.terms import XSD, Term, escaped, iri_of
from cepheid.language.errors import Diagnostic, Rejected, Source, Span
from cepheid.model.events import Event
from cepheid.model.names import near_file
from cepheid.model.time import format_instant
from cepheid.model.types import Type, Value

if TYPE_CHECKING:
    from cepheid.knowledge.store import Knowledge

Kind: TypeAlias = Literal["literal", "template", "lookup", "table"]
#: The entities of values.
EntityTable: TypeAlias = Mapping[str, tuple[NamedNode, ...]]
_VALUE: Final = "{value}"
#: A character that no one writes, and that an IRI may hold.
_STANDS_IN: Final = "\ufdcf"
#: So many broken lines of a table are told; the first few are what a user mends.
_SHOWN_LINES: Final = 20


class Section(Protocol):
    """How the application file says what an attribute means."""

    @property
    def entity(self) -> str | None: ...
    @property
    def lookup(self) -> str | None: ...
    @property
    def table(self) -> str | None: ...
    @property
    def property(self) -> str: ...


class Annotated(Protocol):
    """A stream with semantics."""

    @property
    def attributes(self) -> Mapping[str, Type]: ...
    @property
    def semantics(self) -> Mapping[str, Section]: ...


@dataclass(frozen=True, slots=True)
class Annotation:
    """One attribute's meaning: its property, and how a value leads to what stands in the triple.

    `template` is an IRI with `{value}` in it, `lookup` the IRI of a property, `table` has entities by value.
    """

    property: str
    kind: Kind
    type: Type
    template: str = ""
    lookup: str = ""
    table: EntityTable = field(default_factory=dict)

    def entities(self, value: Value, knowledge: Knowledge) -> tuple[Term, ...]:
        """What the value stands for: one literal, or its entities; nothing for null, or where there is no entity."""
        if value is None:
            return ()
        if self.kind == "literal":
            found = literal(value, self.type)
            return () if found is None else (found,)
        text = plain(value, self.type)
        if text is None:
            return ()
        if self.kind == "template":
            return (NamedNode(self.template.replace(_VALUE, escaped(text))),)
        if self.kind == "lookup":
            return knowledge.having(self.lookup).get(text, ())
        return self.table.get(text, ())


class Annotations:
    """The semantics of an application's streams. `unknown` counts values without an entity by (stream, attribute)."""

    def __init__(self, streams: Mapping[str, Mapping[str, Annotation]]) -> None:
        self._streams = streams
        self.unknown: Counter[tuple[str, str]] = Counter()

    @classmethod
    def of(cls, streams: Mapping[str, Annotated], prefixes: Mapping[str, str], folder: Path) -> Annotations:
        """The annotations that the streams of an application ask for; tables are read now.

        Raises Unreadable with every fault of the tables.
        """
        tables = read_tables(streams, prefixes, folder)
        return cls(
            {
                name: {
                    attribute: _annotation(section, stream.attributes[attribute], prefixes, tables)
                    for attribute, section in stream.semantics.items()
                    if attribute in stream.attributes
                }
                for name, stream in streams.items()
            }
        )

    @property
    def streams(self) -> Mapping[str, Mapping[str, Annotation]]:
        """The annotations of all streams, by attribute."""
        return self._streams

    @property
    def only_stream(self) -> str | None:
        """The stream that has annotations, if there is just one."""
        found = [name for name, own in self._streams.items() if own]
        return found[0] if len(found) == 1 else None

    def properties(self, stream: str) -> Mapping[str, Annotation]:
        """The annotations of a stream, by attribute."""
        return self._streams.get(stream, {})

    def all(self) -> list[Annotation]:
        """The annotations of all streams."""
        return [annotation for stream in self._streams.values() for annotation in stream.values()]

    def strangers(self, events: Iterable[Event], knowledge: Knowledge) -> Counter[tuple[str, str, Value]]:
        """The values with no entity, by stream and attribute, and how many events have each (rule P1)."""
        found: Counter[tuple[str, str, Value]] = Counter()
        led: dict[tuple[str, str, Value], bool] = {}
        for event in events:
            for attribute, annotation in self.properties(event.stream).items():
                value = event.attributes.get(attribute)
                if annotation.kind in ("literal", "template") or value is None:
                    continue
                key = (event.stream, attribute, value)
                if key not in led:
                    led[key] = bool(annotation.entities(value, knowledge))
                found[key] += not led[key]
        return +found

    def triples(self, event: Event, knowledge: Knowledge) -> list[Triple]:
        """The triples of an event, as rule P1 has them."""
        root = root_of(event)
        triples = []
        for attribute, annotation in self.properties(event.stream).items():
            value = event.attributes.get(attribute)
            entities = annotation.entities(value, knowledge)
            if value is not None and not entities:
                self.unknown[event.stream, attribute] += 1
            triples += [Triple(root, NamedNode(annotation.property), entity) for entity in entities]
        return triples


def root_of(event: Event) -> NamedNode:
    """The node that stands for an event in its triples."""
    return NamedNode(f"urn:cepheid:event:{escaped(event.stream)}:{escaped(str(event.id))}")


def literal(value: Value, kind: Type) -> RdfLiteral | None:
    """A value as RDF: numbers, text, truth and times; None for arrays, which RDF has no literals for."""
    if kind is Type.TIMESTAMP and isinstance(value, int):
        return RdfLiteral(format_instant(value), datatype=NamedNode(XSD + "dateTime"))
    if isinstance(value, bool):
        return RdfLiteral(value)
    if isinstance(value, int) and kind is not Type.FLOAT:
        return RdfLiteral(value)
    if isinstance(value, int | float):
        return RdfLiteral(float(value))
    if isinstance(value, str):
        return RdfLiteral(value)
    if isinstance(value, bytes) and kind is Type.BYTES:
        import base64

        return RdfLiteral(base64.b64encode(value).decode(), datatype=NamedNode(XSD + "base64Binary"))
    return None


def plain(value: Value, kind: Type) -> str | None:
    """A value as the plain text that templates, lookups and tables know it by."""
    if isinstance(value, str):
        return value
    found = literal(value, kind)
    return None if found is None else found.value


def _annotation(
    section: Section, kind: Type, prefixes: Mapping[str, str], tables: Mapping[str, EntityTable]
) -> Annotation:
    property_ = iri_of(section.property, prefixes)
    if section.entity is not None:
        return Annotation(property_, "template", kind, template=_template(section.entity, prefixes))
    if section.lookup is not None:
        return Annotation(property_, "lookup", kind, lookup=iri_of(section.lookup, prefixes))
    if section.table is not None:
        return Annotation(property_, "table", kind, table=tables[section.table])
    return Annotation(property_, "literal", kind)


def _template(text: str, prefixes: Mapping[str, str]) -> str:
    # Braces can't stand in an IRI, so the IRI is checked with something harmless in their place.
    return _VALUE.join(iri_of(text.replace(_VALUE, _STANDS_IN), prefixes).split(_STANDS_IN))


def read_tables(streams: Mapping[str, Annotated], prefixes: Mapping[str, str], folder: Path) -> dict[str, EntityTable]:
    """The tables that the semantics of streams name, each read once. Raises Unreadable with every fault."""
    tables: dict[str, EntityTable] = {}
    faults: list[Fault] = []
    for name, stream in streams.items():
        for attribute, section in stream.semantics.items():
            if section.table is not None and section.table not in tables:
                with gathering(faults, ("streams", name, "semantics", attribute, "table")):
                    tables[section.table] = read_table(located(section.table, folder), prefixes)
    if faults:
        raise Unreadable(faults)
    return tables


def read_table(path: Path, prefixes: Mapping[str, str]) -> dict[str, tuple[NamedNode, ...]]:
    """A CSV of value and entity; a value may stand on several lines. A first line whose entity is no IRI has names.

    Raises Rejected with every broken line.
    """
    source = Source(shown(path), _table_text(path))
    rows = csv.reader(io.StringIO(source.text, newline=""))
    table: dict[str, tuple[NamedNode, ...]] = {}
    faults: list[Diagnostic] = []
    try:
        for number, row in enumerate(rows):
            is_of_names = number == 0 and not (len(row) == 2 and ":" in row[1])
            if not row or is_of_names:
                continue
            if len(row) != 2:
                message = f"expected value and entity, found {len(row)} field{'s' if len(row) != 1 else ''}"
                faults.append(_broken_line(source, rows.line_num, "", message, "such as D105VOLUME,ee:D105VOLUME"))
                continue
            try:
                entity = NamedNode(iri_of(row[1], prefixes))
            except KnowledgeError as error:
                faults.append(_broken_line(source, rows.line_num, row[1], error.fact, error.hint))
                continue
            known = table.get(row[0], ())
            table[row[0]] = known if entity in known else (*known, entity)
    except csv.Error as error:
        faults.append(_broken_line(source, rows.line_num, "", f"not CSV: {error}", "two fields a line: value,entity"))
    if len(faults) > _SHOWN_LINES:
        last, left = faults[_SHOWN_LINES - 1], len(faults) - _SHOWN_LINES
        message = f"{last.message}; {left:,} more lines are broken"
        faults[_SHOWN_LINES - 1 :] = [Diagnostic("error", last.code, message, last.span, last.hint)]
    if faults:
        raise Rejected(faults)
    return table


def _table_text(path: Path) -> str:
    name = shown(path)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise KnowledgeError(f"no such table: {name}", near_file(path, [".csv"])) from None
    except OSError as error:
        raise KnowledgeError(f"{name}: {error.strerror or error}", "a table is a CSV of value and entity") from None
    except UnicodeDecodeError as error:
        hint = f"convert it: iconv -f latin1 -t utf-8 {path.name}"
        raise KnowledgeError(f"{name}: not UTF-8 text (byte {error.start + 1})", hint) from None


def _broken_line(source: Source, number: int, word: str, message: str, hint: str | None) -> Diagnostic:
    line = source.line(number)
    column = line.rfind(word) + 1 if word and word in line else 1
    end = column + len(word) if column > 1 else len(line) + 1
    return Diagnostic("error", "broken-table", message, Span(source, number, column, number, end), hint)
