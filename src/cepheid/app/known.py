"""What an application knows, as its queries use it: the knowledge, what attributes mean by it, and how it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cepheid.app.check import WELL_KNOWN_PREFIXES
from cepheid.knowledge.annotation import Annotations
from cepheid.knowledge.cache import default_cache
from cepheid.knowledge.errors import KnowledgeError
from cepheid.knowledge.modes import ENTRIES, Percent, SemanticFilter
from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.tables import Table
from cepheid.language.checker import Checked
from cepheid.language.errors import Diagnostic, Rejected
from cepheid.language.scope import Catalogue
from cepheid.plan.path_normalisation import normalise
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
    prefixes = application.graph.prefixes if application is not None else WELL_KNOWN_PREFIXES
    folder = application.folder if application is not None else Path.cwd()
    sources = [*(section.sources if section is not None else []), *(_absolute(name) for name in more)]
    knowledge = knowledge or _loaded(
        sources,
        folder=folder,
        rules=[Path(rule) for rule in section.rules] if section is not None else [],
        reasoning=section.reasoning if section is not None else "owl-rl",
        cache=default_cache(),
        prefixes=prefixes,
    )
    streams = application.sections.streams if application is not None else {}
    annotations = Annotations.of(streams, prefixes, folder)
    if section is None:
        return Known(knowledge, annotations, prefixes=prefixes)
    wanted = section.semantics
    size = Percent(wanted.size) if isinstance(wanted.size, float) else wanted.size
    return Known(knowledge, annotations, wanted.mode, prefixes, size, wanted.interval)


def _loaded(sources: Sequence[str], **options: Any) -> Knowledge:
    try:
        return Knowledge.load(sources, **options)
    except KnowledgeError as fault:
        raise Rejected([Diagnostic("error", "knowledge", str(fault))]) from None


def _absolute(name: str) -> str:
    """Names from a command line are relative to where it was given; `brick:1.4` is no file."""
    return name if name.startswith("brick:") else str(Path.cwd() / name)
