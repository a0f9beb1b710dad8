"""Reads an application file and what it includes; finds everything wrong with it at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from cepheid.app import faults
from cepheid.app.application import Application, assemble, diagnose
from cepheid.app.schema import ApplicationSection
from cepheid.app.yaml import Document, Plain, compose, environment
from cepheid.language.errors import Diagnostic, Rejected, Span
from cepheid.model.collector import collector_paused
from cepheid.plan.problems import Path as Where
from cepheid.plan.problems import Problem

#: Sections that are mappings of names, which several files may fill together.
_NAMED: Final = ("prefixes", "streams", "graph", "consumers", "queries")


def load(path: str | Path) -> Application:
    """The application in a file. Raises Rejected, with every diagnostic, if anything in it is wrong."""
    return read(path)[0]


def read(path: str | Path) -> tuple[Application, dict[str, Plain]]:
    """The same, with what is written in the file and those that it includes."""
    with collector_paused():
        application, diagnostics, values = _examine(path, None)
    if application is None or any(d.severity == "error" for d in diagnostics):
        raise Rejected(diagnostics)
    return application, values


def examine(
    path: str | Path, variables: Mapping[str, str] | None = None
) -> tuple[Application | None, list[Diagnostic]]:
    """The application in a file, if it can be had, and everything to say about it, in the order it is written."""
    with collector_paused():
        return _examine(path, variables)[:2]


def _examine(
    path: str | Path, variables: Mapping[str, str] | None
) -> tuple[Application | None, list[Diagnostic], dict[str, Plain]]:
    reader = _Reader(environment() if variables is None else variables)
    try:
        reader.read(Path(path), str(path), ())
    except Rejected as rejected:
        return None, rejected.diagnostics, {}
    application, found = _understand(reader, Path(path).parent)
    diagnostics = reader.diagnostics + found
    return application, in_order(diagnostics), reader.values


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """As they are written, file by file."""
    return sorted(diagnostics, key=_position)


def _position(diagnostic: Diagnostic) -> tuple[bool, str, int, int]:
    span = diagnostic.span
    return (False, "", 0, 0) if span is None else (True, span.source.name, span.line, span.column)


def _understand(reader: _Reader, folder: Path) -> tuple[Application | None, list[Diagnostic]]:
    """Validate; if parts are wrong, go on without them, so that what is wrong elsewhere is said too."""
    found: list[Problem] = []
    broken: set[str] = set()
    values = reader.values
    while True:
        try:
            sections = ApplicationSection.model_validate(values)
            break
        except ValidationError as invalid:
            details = invalid.errors(include_url=False)
            if not found:  # what a second look finds is only what the first one's cuts have left open
                found = [faults.problem(detail) for detail in details]
            values = _without(values, [detail["loc"] for detail in details], broken)
    application, diagnostics = assemble(sections, folder, reader.locate, frozenset(broken))
    return application, diagnose(found, reader.locate) + diagnostics


#: What an entry can't do without, or what others refer to: if it is wrong, so is the entry.
_ESSENTIAL: Final = ("attributes", "spellings", "kind", "inputs", "input", "text", "file")


def _without(values: dict[str, Plain], faulty: list[Where], broken: set[str]) -> dict[str, Plain]:
    """The values less the fields at fault, or the entries where these can't be spared; their names go to `broken`."""
    left = {section: dict(v) if isinstance(v, dict) else v for section, v in values.items()}
    for where in faulty:
        section, entries = str(where[0]), left.get(str(where[0]))
        if section == "knowledge" and isinstance(entries, dict) and len(where) > 1:
            entries.pop(str(where[1]), None)  # all that it has can be spared
            continue
        if section not in _NAMED or not isinstance(entries, dict) or len(where) < 2:
            left.pop(section, None)
            broken.add(section)
            continue
        name = str(where[1])
        entry = entries.get(name)
        field_name = next((step for step in where[2:] if isinstance(entry, dict) and step in entry), None)
        if isinstance(entry, dict) and isinstance(field_name, str) and field_name not in _ESSENTIAL:
            entries[name] = {key: value for key, value in entry.items() if key != field_name}
        else:
            entries.pop(name, None)
            broken.add(name)
    left.setdefault("name", "unnamed")
    return left


@dataclass
class _Reader:
    """Collects the sections of a file and of those it includes."""

    variables: Mapping[str, str]
    values: dict[str, Plain] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _documents: list[Document] = field(default_factory=list)
    _origin: dict[Where, Document] = field(default_factory=dict)

    def read(self, path: Path, shown: str, chain: tuple[Path, ...]) -> None:
        document = compose(path, shown)
        self._documents.append(document)
        values = document.values(self.variables)
        self.diagnostics += document.problems
        if values is None:
            values = {}
        if not isinstance(values, dict):
            span = document.span(())
            hint = "such as `name: plant` and `streams: {...}`, a section on each line"
            raise Rejected([Diagnostic("error", "wrong-type", "an application is a mapping of sections", span, hint)])
        for section, value in values.items():
            self._add(document, section, value)
        include = values.get("include")
        for i, name in enumerate(
            [include] if isinstance(include, str) else include if isinstance(include, list) else []
        ):
            if isinstance(name, str):
                where: Where = ("include", i) if isinstance(include, list) else ("include",)
                self._include(document, where, name, (*chain, path.resolve()))

    def _include(self, document: Document, where: Where, name: str, chain: tuple[Path, ...]) -> None:
        path = document.path.parent / name
        span = document.span(where)
        if path.resolve() in chain:
            loop = [p.name for p in chain[chain.index(path.resolve()) :]] + [path.name]
            self.diagnostics.append(
                Diagnostic(
                    "error",
                    "include-loop",
                    "files include each other: " + " -> ".join(loop),
                    span,
                    "take this out: the sections of all these files are one application already",
                )
            )
            return
        if any(path.resolve() == read.path.resolve() for read in self._documents):
            return  # by two ways, which is no fault
        shown = str(Path(document.source.name).parent / name)
        try:
            self.read(path, shown, chain)
        except Rejected as rejected:
            self.diagnostics += [
                Diagnostic(d.severity, d.code, f"can't include {d.message}", span, d.hint) if d.span is None else d
                for d in rejected.diagnostics
            ]

    def _add(self, document: Document, section: str, value: Plain) -> None:
        if section == "include":
            if document is self._documents[0]:
                self.values[section] = value
                self._origin[(section,)] = document
            return
        present = self.values.get(section)
        if section in _NAMED and isinstance(present, dict) and isinstance(value, dict):
            for name, entry in value.items():
                if name in present:
                    self._twice(document, (section, name))
                else:
                    present[name] = entry
                    self._origin[(section, name)] = document
        elif section in self.values:
            self._twice(document, (section,))
        else:
            self.values[section] = dict(value) if isinstance(value, dict) else value
            self._origin[(section,)] = document
            if isinstance(value, dict):
                self._origin.update({(section, name): document for name in value})

    def _twice(self, document: Document, where: Where) -> None:
        first = self._origin.get(where) or self._origin[where[:1]]
        self.diagnostics.append(
            Diagnostic(
                "error",
                "duplicate-name",
                f"'{where[-1]}' is given twice; the first is at {first.span(where, key=True)}",
                document.span(where, key=True),
                "rename one of them" if len(where) > 1 else "write the section in one of the files",
            )
        )

    def locate(self, problem: Problem) -> Span | None:
        where = problem.where
        document = self._origin.get(where[:2]) or self._origin.get(where[:1]) or self._documents[0]
        if problem.inside is None:
            return document.span(where, key=problem.at_key)
        if document.has((*where[:2], "text")):
            return document.span_inside(where, problem.inside)
        return problem.inside  # the query has a file of its own
