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

from pyoxigraph import DefaultGraph, NamedNode, RdfFormat, Store, Triple, parse

from cepheid.knowledge.errors import KnowledgeError
from cepheid.knowledge.terms import OWL, RDF
from cepheid.language.errors import Diagnostic, Rejected, Source, Span
from cepheid.model.names import suggestion

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
            raise KnowledgeError(f"{self.name}: can't tell the format by the ending; known: {', '.join(FORMATS)}")
        return found

    @cached_property
    def content(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise KnowledgeError(f"{self.name}: {error.strerror or error}") from None

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
            raise KnowledgeError(f"{self.name}: not UTF-8 text: {error.reason}") from None
        graph = next(store.named_graphs(), None)
        if graph is not None:
            raise KnowledgeError(f"{self.name}: has the named graph {graph}; knowledge is one graph, without a name")
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
    source = Source(name, content.decode(errors="replace"))
    message = str(error.msg).split(": ", 1)[-1] if str(error.msg).startswith("Parser error at") else str(error.msg)
    span = None
    in_sparql = re.match(r"error at (\d+):(\d+): (.*)", str(error.msg), re.DOTALL)
    if in_sparql:
        line, column = int(in_sparql[1]), int(in_sparql[2])
        # What was expected is a list of everything that SPARQL allows, characters one by one.
        message = "this is not SPARQL" if in_sparql[3].startswith("expected") else in_sparql[3]
        span = Span(source, line, column, line, column + 1)
    elif error.lineno is not None:
        column = error.offset or 1
        end = error.end_offset if error.end_lineno == error.lineno and error.end_offset else column + 1
        span = Span(source, error.lineno, column, error.lineno, max(end, column + 1))
    where = "" if span else f"{name}: "
    hint = None
    if "prefix" in message.lower():
        hint = "declare it at the top: @prefix name: <iri> ."
    if "LoadDocumentCallback" in message:
        message, hint = "the @context is an address", "nothing is fetched: write the context into the file"
    return Diagnostic("error", "broken-knowledge", where + message, span, hint)


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
    """The files of these names and all that they import, directly or not; a cycle of imports is no harm."""
    waiting = [find(str(name), folder) for name in names]
    beside = _Beside(list(dict.fromkeys(file.path.parent for file in waiting if not file.is_bundled)))
    done: dict[Path, tuple[SourceFile, Part]] = {}
    missing: list[str] = []
    faults: list[Diagnostic] = []
    while waiting:
        file = waiting.pop(0)
        if file.path.resolve() in done:
            continue
        try:
            part = _part(file, kept)
        except Rejected as rejected:
            faults += rejected.diagnostics
            part = Part("", "", "")
        done[file.path.resolve()] = (file, part)
        if file.is_bundled:
            continue  # Brick imports QUDT and others, which it ships only as far as it needs them
        for iri in part.imports:
            found = beside.find(iri)
            if found is None:
                missing.append(iri)
            else:
                waiting.append(found)
    if faults:
        raise Rejected(faults)
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
    path = located(name, folder)
    if not path.is_file():
        siblings = [p.name for p in path.parent.iterdir() if p.suffix in FORMATS] if path.parent.is_dir() else []
        hint = suggestion(path.name, siblings)
        raise KnowledgeError(f"no such source: {name}" + (f"; {hint}" if hint else ""))
    return SourceFile(shown(path), path)


def located(name: str | Path, folder: Path) -> Path:
    """A path that is relative to the folder; one that an application was already asked for is relative to us."""
    path = folder / name
    return path if path.exists() or not Path(name).exists() else Path(name)


def shown(path: Path) -> str:
    """The name of a file in messages: relative where it is below us."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def brick(version: str) -> Path:
    """The Brick of that version, as the package `brickschema` ships it, which is not imported: it is heavy."""
    spec = importlib.util.find_spec("brickschema")
    if spec is None or spec.origin is None:
        raise KnowledgeError("Brick comes with the package brickschema, which is not installed")
    shipped = Path(spec.origin).parent / "ontologies"
    path = shipped / version / "Brick.ttl"
    if not path.is_file():
        known = sorted(p.parent.name for p in shipped.glob("*/Brick.ttl"))
        raise KnowledgeError(f"no Brick of version '{version}'; there are {', '.join(known)}")
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
