"""What an application knows, as its queries use it: the knowledge, what attributes mean by it, and how it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cepheid.app.check import WELL_KNOWN_PREFIXES
from cepheid.app.schema import KnowledgeSection
from cepheid.knowledge.annotation import Annotations, read_tables
from cepheid.knowledge.cache import Cache, default_cache
from cepheid.knowledge.errors import Fault, Inconsistent, KnowledgeError, Unreadable, Where, gathering
from cepheid.knowledge.modes import ENTRIES, Percent, SemanticFilter
from cepheid.knowledge.store import Knowledge, Request, read_files
from cepheid.knowledge.tables import Table
from cepheid.language.checker import Checked
from cepheid.language.errors import Diagnostic, Rejected
from cepheid.language.scope import Catalogue
from cepheid.plan.path_normalisation import normalise
from cepheid.plan.problems import Problem
from cepheid.plan.semantic import Mode, Semantic, lower

if TYPE_CHECKING:
    from cepheid.app.application import Application


@dataclass(frozen=True)
class Known:
    """What is known, what attributes mean, and how semantic conditions are to be evaluated."""

    knowledge: Knowledge
    annotations: Annotations
    mode: Mode = "auto"
    prefixes: Mapping[str, str] = field(default_factory=lambda: WELL_KNOWN_PREFIXES)
    #: Of a cache.
    size: int | Percent = ENTRIES
    #: How long a buffer gathers events, in microseconds.
    interval: int = 0

    def catalogue(self, catalogue: Catalogue) -> Catalogue:
        """The catalogue in which an attribute goes by every property that is the same (rule P5)."""
        return replace(catalogue, properties=normalise(catalogue.properties, self.knowledge))

    def lower(self, checked: Checked, tables: dict[str, Table] | None = None, like: Semantic | None = None) -> Semantic:
        """The query with its PATHs judged by what is known; `tables` are those of queries that stand together.

        `like` is what an earlier version of the knowledge made of it.
        """
        return lower(checked, self.knowledge, self.annotations, self.mode, tables, like)

    def filter(self, semantic: Semantic) -> SemanticFilter | None:
        """What judges the PATHs that are not indexed; None if all are."""
        open_ends = [lookup for lookup in semantic.lookups if not lookup.table.complete]
        if not open_ends:
            return None
        mode = "buffer+cache" if self.mode in ("auto", "index") else self.mode
        return SemanticFilter(open_ends, self.knowledge, mode, self.size)  # type: ignore[arg-type]


def known(
    application: Application | None, more: Sequence[str] = (), knowledge: Knowledge | None = None
) -> Known | None:
    """The knowledge of an application and of more files; None if there is none. Raises Rejected.

    `knowledge` is the application's, if it is loaded already.
    """
    section = application.sections.knowledge if application is not None else None
    if section is None and not more:
        return None
    request = _request(application, more)
    prefixes, folder = request.prefixes, request.folder
    streams = application.sections.streams if application is not None else {}
    try:
        annotations = Annotations.of(streams, prefixes, folder)
    except Unreadable as unreadable_tables:
        # The other files are read too, but conclusions from them would be in vain.
        faults = list(unreadable_tables.faults)
        if knowledge is None:
            with gathering(faults, ("knowledge",)):
                read_files(request, Cache(default_cache()))
        raise Rejected(_placed(faults, application)) from None
    knowledge = knowledge or loaded(application, more)
    if section is None:
        return Known(knowledge, annotations, prefixes=prefixes)
    wanted = section.semantics
    size = Percent(wanted.size) if isinstance(wanted.size, float) else wanted.size
    return Known(knowledge, annotations, wanted.mode, prefixes, size, wanted.interval)


def loaded(application: Application | None, more: Sequence[str] = (), cache: Path | None = None) -> Knowledge:
    """The knowledge of an application and of more files. Raises Rejected, with places in the application file."""
    request = _request(application, more)
    try:
        return Knowledge.load(
            request.names,
            folder=request.folder,
            rules=request.rules,
            reasoning=request.reasoning,
            cache=cache or default_cache(),
            prefixes=request.prefixes,
        )
    except Unreadable as unreadable_files:
        raise Rejected(_placed(unreadable_files.faults, application)) from None
    except KnowledgeError as fault:
        clash = "take back one of the two that clash, or the axiom that forbids them together"
        hint = clash if isinstance(fault, Inconsistent) else fault.hint
        said = Diagnostic("error", "knowledge", fault.fact, None, hint)
        raise Rejected(_placed([Fault(("knowledge",), said)], application)) from None


def unreadable(application: Application) -> list[Diagnostic]:
    """What is wrong with the files that an application's knowledge is made of; nothing is concluded from them."""
    faults: list[Fault] = []
    request = _request(application, ())
    with gathering(faults, ("knowledge",)):
        read_files(request, Cache(default_cache()))
    with gathering(faults, ("streams",)):
        read_tables(application.sections.streams, request.prefixes, request.folder)
    return _placed(faults, application)


def _request(application: Application | None, more: Sequence[str]) -> Request:
    """The files that an application and a command line name."""
    named = tuple(_absolute(name) for name in more)
    if application is None:
        return Request(named, Path.cwd(), prefixes=WELL_KNOWN_PREFIXES)
    section = application.sections.knowledge or KnowledgeSection()
    rules = tuple(Path(rule) for rule in section.rules)
    prefixes = application.graph.prefixes
    return Request((*section.sources, *named), application.folder, rules, section.reasoning, prefixes)


def _placed(faults: Iterable[Fault], application: Application | None) -> list[Diagnostic]:
    """Faults at their places: in their own files, or else where the application file names these."""
    placed: dict[Diagnostic, None] = {}
    for where, said in ((fault.where, fault.said) for fault in faults):
        span = said.span
        if span is None and application is not None and _is_written(where, application):
            span = application.locate(Problem(said.severity, said.code, said.message, where, at_key=len(where) == 1))
        placed[replace(said, span=span)] = None
    return list(placed)


def _is_written(where: Where, application: Application) -> bool:
    """Whether the application itself names the file, not the command line."""
    section = application.sections.knowledge
    from_file = 0 if section is None else len(section.sources)
    return where[:2] != ("knowledge", "sources") or len(where) < 3 or int(where[2]) < from_file


def _absolute(name: str) -> str:
    """Names from a command line are relative to where it was given; `brick:1.4` is no file."""
    return name if name.startswith("brick:") else str(Path.cwd() / name)
