"""Where knowledge comes from: files in four formats, Brick by name, and what they import if it is on this machine."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol
from xml.parsers import expat

from pyoxigraph import DefaultGraph, NamedNode, RdfFormat, Store, Triple, parse

from cepheid.knowledge.errors import Fault, KnowledgeError, Unreadable, gathering
from cepheid.knowledge.terms import OWL, RDF
from cepheid.language.errors import Diagnostic, Rejected, Source, Span
from cepheid.model.names import near_file

#: The format of a file by its ending.
FORMATS: Final = {
    ".ttl": RdfFormat.TURTLE,
    ".nt": RdfFormat.N_TRIPLES,
    ".rdf": RdfFormat.RDF_XML,
    ".owl": RdfFormat.RDF_XML,
    ".xml": RdfFormat.RDF_XML,
    ".jsonld": RdfFormat.JSON_LD,
    ".json": RdfFormat.JSON_LD,
}
_BRICK: Final = "brick:"
_INSTALL: Final = "pip install brickschema, or name a file of Brick as a source"
#: What Brick calls itself in owl:imports, with and without a version.
_BRICK_IRI: Final = "https://brickschema.org/schema/"


@dataclass(frozen=True)
class SourceFile:
    """A file of triples. `name` is what the user wrote, or where an import was found."""

    name: str
    path: Path
    is_bundled: bool = False

    @property
    def format(self) -> RdfFormat:
        found = FORMATS.get(self.path.suffix.lower())
        if found is None:
            known = f"known: {', '.join(FORMATS)}"
            raise KnowledgeError(f"{self.name}: can't tell the format by the ending", known)
        return found

    @cached_property
    def content(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError as error:
            hint = "whoever runs Cepheid must be able to read its sources"
            raise KnowledgeError(f"{self.name}: {error.strerror or error}", hint) from None

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def key(self) -> str:
        """Names what the file says: relative IRIs in it depend on where it is."""
        return hashlib.sha256(f"{self.hash} {self.path.absolute().as_uri()} {self.format}".encode()).hexdigest()

    def load(self) -> Part:
        """What the file says. Raises Rejected, with the place, if it is broken."""
        store = Store()
        try:
            store.bulk_load(self.content, self.format, base_iri=self.path.absolute().as_uri())
        except SyntaxError as error:
            raise Rejected([broken(self.name, self.content, error)]) from None
        except UnicodeDecodeError as error:
            hint = f"convert it: iconv -f latin1 -t utf-8 {self.path.name}"
            raise KnowledgeError(f"{self.name}: not UTF-8 text: {error.reason}", hint) from None
        graph = next(store.named_graphs(), None)
        if graph is not None:
            hint = "knowledge is one graph, without a name: take its triples out of @graph"
            raise KnowledgeError(f"{self.name}: has the named graph {graph}", hint)
        text = store.dump(format=RdfFormat.N_TRIPLES, from_graph=DefaultGraph()) or b""
        return Part(self.key, self.hash, text.decode(), tuple(sorted(ontologies(store))), tuple(sorted(imports(store))))


@dataclass(frozen=True)
class Part:
    """What one file says, as N-Triples; blank nodes have names that are nobody else's.

    `ontologies` are what it calls itself, `imports` what it asks for. A part that was kept is read when it is needed.
    """

    key: str
    hash: str
    kept: str | Path
    ontologies: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    known_text_hash: str | None = None

    @property
    def text(self) -> str:
        return self.kept if isinstance(self.kept, str) else self.kept.read_text(encoding="utf-8")

    @cached_property
    def text_hash(self) -> str:
        return self.known_text_hash or hashlib.sha256(self.text.encode()).hexdigest()


class Parts(Protocol):
    """Keeps parts between runs."""

    def part(self, key: str) -> Part | None:
        """The part of that key, if it is kept."""

    def keep(self, part: Part) -> None:
        """Keep a part."""


def broken(name: str, content: bytes, error: SyntaxError) -> Diagnostic:
    """What a parser said about a file, at its place."""
    source = Source(name, content.decode(errors="replace").removeprefix("\ufeff"))
    said = str(error.msg)
    in_sparql = re.match(r"error at (\d+):(\d+): (.*)", said, re.DOTALL)
    if in_sparql:
        return _broken_sparql(source, int(in_sparql[1]), int(in_sparql[2]), in_sparql[3])
    message = said.split(": ", 1)[-1] if said.startswith("Parser error") else said
    hint = next((hint for part, hint in _MENDED.items() if part in message.lower()), _FORM)
    if "LoadDocumentCallback" in message:
        message, hint = "the @context is an address", "nothing is fetched: write the context into the file"
    if error.lineno is not None:
        column = error.offset or 1
        end = error.end_offset if error.end_lineno == error.lineno and error.end_offset else column + 1
        span = Span(source, error.lineno, column, error.lineno, max(end, column + 1))
    else:
        span = _place(source, content, message)
    return Diagnostic("error", "broken-knowledge", message, span, hint)


#: What to do about a message of a parser that has these words.
_MENDED: Final = {
    "unknown prefix": 'declare it in the first element: xmlns:name="iri"',
    "ill-formed": "an element ends before the one that it is in: <a><b></b></a>",
    "prefix": "declare it at the top: @prefix name: <iri> .",
    "dot is expected": "a statement is `subject property value .`; is the dot of the one before missing?",
    "unexpected end of file": "a text ends with the quote that it began with",
    "unexpected end": "a statement is `subject property value .`, with a dot at its end",
    "invalid iri": 'an IRI has no spaces and none of <>"{}|^`; write %20 for a space',
    "utf-8": "the file must be UTF-8 text: iconv -f latin1 -t utf-8 converts it",
    "is not a valid": "names are `prefix:name` or <iri>, text is in quotes",
    "should end with": "each [ needs its ], each ( its )",
}
#: What to do about any other.
_FORM: Final = "Turtle is .ttl, N-Triples .nt, RDF/XML .rdf, JSON-LD .jsonld: is this file what its ending says?"


def _broken_sparql(source: Source, line: int, column: int, message: str) -> Diagnostic:
    before = source.text.split("\n")[:line]
    while len(before) > 1 and not before[-1].strip():  # it is incomplete at its end
        before.pop()
        line, column = len(before), len(before[-1].rstrip()) + 1
    span = Span(source, line, column, line, column + 1)
    hint = "such as CONSTRUCT { ?s ex:in ?room } WHERE { ?s ex:of ?box . ?box ex:feeds ?room }"
    undeclared = re.search(r"([\w.-]*):[\w.-]*$", source.line(line)[: column - 1])
    if "Prefix not found" in message and undeclared:
        span = Span(source, line, undeclared.start() + 1, line, column)
        message, hint = f"the prefix {undeclared[1]}: is not declared", f"begin with PREFIX {undeclared[1]}: <iri>"
    elif message.startswith("expected"):
        # A list of everything that SPARQL allows, characters one by one.
        message = "this is not SPARQL"
    return Diagnostic("error", "broken-knowledge", message, span, hint)


def _place(source: Source, content: bytes, message: str) -> Span:
    """Where a fault is of which the parser does not say it: what XML is against, or what the message names first."""
    if source.text.lstrip().startswith("<"):
        parser = expat.ParserCreate()
        try:
            parser.Parse(content, True)
        except expat.ExpatError as error:
            return Span(source, error.lineno, error.offset + 1, error.lineno, error.offset + 2)
    named = re.search(r"@\w+|[\w-]+:|'[^']+'", message if "@context" not in message else "@context")
    word = named[0].strip("'") if named else ""
    at = max(source.text.find(word), 0) if word else 0
    line, column = source.text.count("\n", 0, at) + 1, at - source.text.rfind("\n", 0, at)
    return Span(source, line, column, line, column + max(1, len(word)))


@dataclass(frozen=True, slots=True)
class Sources:
    """Every file that was read, imports included, each once; and what could not be found."""

    files: tuple[tuple[SourceFile, Part], ...]
    missing: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(part for _, part in self.files)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was imported and is not on this machine."""
        return tuple(
            f"{iri} is imported but not here: put a copy into the folder of the sources, or name it among them"
            for iri in self.missing
        )


def read(names: Sequence[str | Path], folder: Path, kept: Parts | None = None) -> Sources:
    """The files of these names and all that they import, directly or not; a cycle of imports is no harm.

    Raises Unreadable with every fault.
    """
    faults: list[Fault] = []
    waiting: list[tuple[int, SourceFile]] = []
    for number, name in enumerate(names):
        with gathering(faults, ("knowledge", "sources", number)):
            waiting.append((number, find(str(name), folder)))
    beside = _Beside(list(dict.fromkeys(file.path.parent for _, file in waiting if not file.is_bundled)))
    done: dict[Path, tuple[SourceFile, Part]] = {}
    missing: list[str] = []
    while waiting:
        number, file = waiting.pop(0)
        if file.path.resolve() in done:
            continue
        part = Part("", "", "")
        with gathering(faults, ("knowledge", "sources", number)):
            part = _part(file, kept)
        done[file.path.resolve()] = (file, part)
        if file.is_bundled:
            continue  # Brick imports QUDT and others, which it ships only as far as it needs them
        for iri in part.imports:
            found = beside.find(iri)
            if found is None:
                missing.append(iri)
            else:
                waiting.append((number, found))
    if faults:
        raise Unreadable(faults)
    declared = {iri for _, part in done.values() for iri in part.ontologies}
    return Sources(tuple(done.values()), tuple(dict.fromkeys(iri for iri in missing if iri not in declared)))


def _part(file: SourceFile, kept: Parts | None) -> Part:
    found = kept.part(file.key) if kept is not None else None
    if found is None:
        found = file.load()
        if kept is not None:
            kept.keep(found)
    return found


def find(name: str, folder: Path) -> SourceFile:
    """The file that a source names: `brick:1.4`, or a path relative to the folder."""
    if name.startswith(_BRICK):
        return SourceFile(name, brick(name.removeprefix(_BRICK)), is_bundled=True)
    if re.match(r"\w+:/+", name):
        raise KnowledgeError(f"{name} is an address, and nothing is fetched", "put a copy beside the application")
    path = located(name, folder)
    if not path.is_file():
        raise KnowledgeError(f"no such source: {name}", near_file(path, FORMATS))
    return SourceFile(shown(path), path)


def located(name: str | Path, folder: Path) -> Path:
    """A path that is relative to the folder; one that an application was already asked for is relative to us."""
    path, given = folder / name, Path(name)
    return given if not path.exists() and (given.exists() or given.is_relative_to(folder)) else path


def shown(path: Path) -> str:
    """The name of a file in messages: relative where it is below us."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def brick(version: str) -> Path:
    """The Brick of that version, as the package `brickschema` ships it, which is not imported: it is heavy."""
    spec = importlib.util.find_spec("brickschema")
    if spec is None or spec.origin is None:
        raise KnowledgeError("Brick comes with the package brickschema, which is not installed", _INSTALL)
    shipped = Path(spec.origin).parent / "ontologies"
    path = shipped / version / "Brick.ttl"
    if not path.is_file():
        known = sorted(p.parent.name for p in shipped.glob("*/Brick.ttl"))
        raise KnowledgeError(f"no Brick of version '{version}'", f"there are {', '.join(known)}")
    return path


def ontologies(store: Store) -> Iterator[str]:
    """The IRIs that the ontologies in a file call themselves, with those of their versions."""
    for quad in store.quads_for_pattern(None, NamedNode(RDF + "type"), NamedNode(OWL + "Ontology"), None):
        if isinstance(quad.subject, NamedNode):
            yield quad.subject.value
            for version in store.quads_for_pattern(quad.subject, NamedNode(OWL + "versionIRI"), None, None):
                if isinstance(version.object, NamedNode):
                    yield version.object.value


def imports(store: Store) -> Iterator[str]:
    """What the ontologies in a file import."""
    for quad in store.quads_for_pattern(None, NamedNode(OWL + "imports"), None, None):
        if isinstance(quad.object, NamedNode):
            yield quad.object.value


class _Beside:
    """Finds imported ontologies among the files of some folders: by the file's name, else by what it declares."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def find(self, iri: str) -> SourceFile | None:
        if iri.startswith("file://"):
            path = Path(iri.removeprefix("file://"))
            return SourceFile(shown(path), path) if path.is_file() else None
        if iri.startswith(_BRICK_IRI) and iri.endswith("Brick"):
            version = iri.removeprefix(_BRICK_IRI).removesuffix("Brick").strip("/") or "1.4"
            try:
                return SourceFile(f"{_BRICK}{version}", brick(version), is_bundled=True)
            except KnowledgeError:
                return None
        last = iri.rstrip("#/").rsplit("/", 1)[-1].rsplit("#", 1)[-1]
        for path in self._files:
            if path.name == last or path.stem == last:
                return SourceFile(shown(path), path)
        declared = self._declared.get(iri) or self._declared.get(iri.rstrip("#/"))
        return SourceFile(shown(declared), declared) if declared else None

    @cached_property
    def _files(self) -> list[Path]:
        return sorted(p for folder in self._folders for p in folder.iterdir() if p.suffix.lower() in FORMATS)

    @cached_property
    def _declared(self) -> dict[str, Path]:
        """Only asked for when no name fits: every file of the folders is read for it. Broken ones declare nothing."""
        declared: dict[str, Path] = {}
        for path in self._files:
            try:
                declared |= {iri.rstrip("#/"): path for iri in SourceFile(path.name, path).load().ontologies}
            except (Rejected, KnowledgeError):
                continue
        return declared


def read_triples(path: Path) -> list[Triple]:
    """The triples of a file of changes; blank nodes get names that are nobody else's."""
    file = SourceFile(str(path), path)
    base = path.absolute().as_uri()
    try:
        quads = list(parse(file.content, file.format, base_iri=base, rename_blank_nodes=True))
    except SyntaxError as error:
        raise Rejected([broken(file.name, file.content, error)]) from None
    return [Triple(quad.subject, quad.predicate, quad.object) for quad in quads]
