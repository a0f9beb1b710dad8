"""What must hold within the sections of an application, beyond their types: names that name something."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from cepheid.app.schema import AnnotationSection, ApplicationSection, KafkaSink, QuerySection, StreamSection
from cepheid.language.path import path_fault
from cepheid.model.names import suggestion
from cepheid.plan.problems import Path, Problem, error

#: What an IRI is made of (RFC 3987): brackets only in the address of a host, # once.
_CHARACTERS: Final = r"(?:[^\x00-\x20<>\"{}|^`\\\[\]%#\x7f-\x9f]|%[0-9A-Fa-f]{2})*"
_ABSOLUTE: Final = re.compile(
    rf"[A-Za-z][A-Za-z0-9+.-]*:(?://\[[0-9A-Fa-f:.]+\])?{_CHARACTERS}(?:#{_CHARACTERS})?",
)
#: Prefixes that need no declaration.
WELL_KNOWN_PREFIXES: Final = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "brick": "https://brickschema.org/schema/Brick#",
}


def check(app: ApplicationSection, broken: frozenset[str] = frozenset()) -> list[Problem]:
    """Everything wrong within the sections. `broken` names exist but could not be read."""
    prefixes = {**WELL_KNOWN_PREFIXES, **app.prefixes}
    return [
        *_levels(app),
        *_prefixes(app),
        *_default_stream(app, broken),
        *(problem for name, stream in app.streams.items() for problem in _stream(name, stream, prefixes)),
        *(problem for name, query in app.queries.items() for problem in _query(name, query)),
        *(problem for name, stream in app.streams.items() for problem in _columns(name, stream) if app.archive),
        *(problem for name in app.streams for problem in _enrich(app, name, prefixes, broken)),
    ]


def _levels(app: ApplicationSection) -> Iterator[Problem]:
    for i, level in enumerate(app.levels):
        if level in app.levels[:i]:
            yield error(
                "duplicate-name", f"level '{level}' is given twice", ("levels", i), "name each once, highest first"
            )


def _prefixes(app: ApplicationSection) -> Iterator[Problem]:
    for prefix, iri in app.prefixes.items():
        if not _ABSOLUTE.fullmatch(iri):
            message = f"'{iri}' is no absolute IRI, for which a prefix stands"
            yield error("not-an-iri", message, ("prefixes", prefix), "such as http://example.org/plant#")


def _default_stream(app: ApplicationSection, broken: frozenset[str]) -> Iterator[Problem]:
    name = app.default_stream
    if name is not None and name not in app.streams and name not in broken:
        hint = suggestion(name, {*app.streams, *broken}) or "name one of `streams`, or leave it out and write FROM"
        yield error("unknown-stream", f"unknown stream '{name}'", ("default_stream",), hint)


def _stream(name: str, stream: StreamSection, prefixes: Mapping[str, str]) -> Iterator[Problem]:
    where: Path = ("streams", name)
    for i, attribute in enumerate(stream.key):
        yield from _known(attribute, stream, (*where, "key", i), at_key=False)
    for attribute, annotation in stream.semantics.items():
        yield from _known(attribute, stream, (*where, "semantics", attribute))
        yield from _annotation(annotation, (*where, "semantics", attribute), prefixes)
    taken = dict.fromkeys(stream.attributes, "an attribute") | dict.fromkeys(("id", "time", "stream"), "implied")
    for attribute, spellings in stream.spellings.items():
        yield from _known(attribute, stream, (*where, "spellings", attribute))
        for i, spelling in enumerate(spellings):
            if spelling in taken:
                yield error(
                    "duplicate-name",
                    f"'{spelling}' can't be a spelling of '{attribute}': it is {taken[spelling]} already",
                    (*where, "spellings", attribute, i),
                    "a name in a record means one attribute: leave it out here or there",
                )
            taken[spelling] = f"a spelling of '{attribute}'"


def _columns(name: str, stream: StreamSection) -> Iterator[Problem]:
    """The archive's tables have a column an attribute; they are partitioned by `day`, and know no capitals."""
    taken = {"day": "the archive's column of days", "id": "the event's id", "time": "the event's time"}
    for attribute in stream.attributes:
        folded = attribute.lower()
        if folded in taken:
            message = f"'{attribute}' can't be a column of the archive, which has {taken[folded]} already"
            hint = f"call it otherwise, and keep '{attribute}' among its `spellings`"
            yield error("column-clash", message, ("streams", name, "attributes", attribute), hint, at_key=True)
        taken.setdefault(folded, f"'{attribute}'")


def _enrich(
    app: ApplicationSection, name: str, prefixes: Mapping[str, str], broken: frozenset[str]
) -> Iterator[Problem]:
    """What the archive's table gets from the knowledge: columns that nothing else is, from attributes with entities."""
    stream, where = app.streams[name], ("streams", name, "enrich")
    if not stream.enrich:
        return
    if app.knowledge is None and "knowledge" not in broken:
        hint = "add `knowledge: {sources: [...]}`"
        yield error("no-knowledge", "enrich needs knowledge, and there is none", where, hint, at_key=True)
    if app.archive is None and "archive" not in broken:
        hint = "add `archive: {path: ...}`; in a query PATH asks, and SELECT has the answer"
        yield error("no-archive", "what is enriched is the archive, and there is none", where, hint, at_key=True)
    taken = {attribute.lower(): f"the attribute '{attribute}'" for attribute in stream.attributes}
    taken |= {"day": "the archive's column of days"}
    for attribute, paths in stream.enrich.items():
        yield from _known(attribute, stream, (*where, attribute))
        meaning = stream.semantics.get(attribute)
        if attribute in stream.attributes and (
            meaning is None or not (meaning.entity or meaning.lookup or meaning.table)
        ):
            message = f"'{attribute}' stands for no entity, from which a path could lead on"
            hint = f'say in `semantics` which one it is: `{attribute}: {{property: ..., entity: "ee:{{value}}"}}`'
            yield error("no-entity", message, (*where, attribute), hint, at_key=True)
        for column, path in paths.items():
            if column.lower().startswith("log_"):
                taken.setdefault(column.lower(), "one of those that the archive has of the log")
            if column.lower() in taken:
                message = f"'{column}' can't be a column, since it is {taken[column.lower()]} already"
                yield error("column-clash", message, (*where, attribute, column), "call it otherwise", at_key=True)
            taken.setdefault(column.lower(), f"'{column}' of another path")
            if fault := path_fault(path, prefixes):
                hint = "such as bd:hasLocation/bd:belongsTo"
                yield error("path-syntax", f"'{path}' is no path: {fault}", (*where, attribute, column), hint)


def _known(attribute: str, stream: StreamSection, where: Path, *, at_key: bool = True) -> Iterator[Problem]:
    if attribute not in stream.attributes:
        yield error(
            "unknown-attribute",
            f"unknown attribute '{attribute}'",
            where,
            suggestion(attribute, stream.attributes) or "name one of the stream's `attributes`, or add it to them",
            at_key=at_key,
        )


def _annotation(annotation: AnnotationSection, where: Path, prefixes: Mapping[str, str]) -> Iterator[Problem]:
    ways = [w for w in ("entity", "lookup", "table") if getattr(annotation, w) is not None]
    if len(ways) > 1:
        message = f"a value leads to its entity in one way, not by {' and '.join(ways)}"
        yield error("too-many-ways", message, where, f"keep one of {', '.join(ways)}")
    if annotation.entity is not None and "{value}" not in annotation.entity:
        yield error("no-value", "the template of an entity holds {value}", (*where, "entity"), "such as ee:{value}")
    for field in ("property", "entity", "lookup"):
        text = getattr(annotation, field)
        if text is not None:
            yield from _prefix(text, (*where, field), prefixes)


def _prefix(text: str, where: Path, prefixes: Mapping[str, str]) -> Iterator[Problem]:
    prefix, colon, rest = text.partition(":")
    stands_for = prefixes.get(prefix) if not rest.startswith("//") else None
    iri = text.strip().removeprefix("<").removesuffix(">") if stands_for is None else stands_for + rest
    if not colon:
        hint = f"such as brick:{text.strip() or 'value'}, with a prefix of `prefixes`"
        yield error("no-prefix", f"'{text}' is neither prefix:name nor an IRI", where, hint)
    elif prefix not in prefixes and not rest.startswith("//") and prefix not in ("urn", "http", "https"):
        hint = suggestion(prefix, prefixes) or f"declare it: `prefixes: {{{prefix}: http://example.org/plant#}}`"
        yield error("unknown-prefix", f"unknown prefix '{prefix}'", where, hint)
    elif not _ABSOLUTE.fullmatch(iri.replace("{value}", "")) and _ABSOLUTE.fullmatch(stands_for or "x:"):
        hint = 'it has no spaces, none of <>"{}[]|^`\\ and # once; write %20 for a space'
        yield error("not-an-iri", f"'{text}' is not an IRI", where, hint)


def _query(name: str, query: QuerySection) -> Iterator[Problem]:
    if query.text is None and query.file is None:
        hint = "such as text: SELECT ?e.id FROM (?e, stream), or file: name.chi"
        yield error("missing", f"query '{name}' has no 'text' and no 'file'", ("queries", name), hint, at_key=True)
    if query.text is not None and query.file is not None:
        message = f"query '{name}' has both 'text' and 'file'"
        yield error("too-many-ways", message, ("queries", name), "keep one of the two", at_key=True)
    if query.real_time and query.engine == "service":
        message = "Real-Time Mode is Spark's, and the query is to run in the service"
        yield error("not-real-time", message, ("queries", name, "real_time"), "leave out one of `real_time`, `engine`")
    elif query.real_time and not isinstance(query.sink, KafkaSink):
        message = "in Real-Time Mode matches go to a topic of Kafka"
        hint = "give the query `sink: {kind: kafka, brokers: ..., topic: ...}`"
        yield error("not-real-time", message, ("queries", name, "real_time"), hint)
