"""An application that was read or built: its sections, the graph they mean, and where each thing was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cepheid.app.check import check as check_sections
from cepheid.app.lower import lower
from cepheid.app.schema import ApplicationSection, KafkaSink, KafkaSource
from cepheid.language import syntax
from cepheid.language.errors import Diagnostic, Rejected, Span
from cepheid.language.scope import expand
from cepheid.plan import planner
from cepheid.plan.graph import Graph
from cepheid.plan.planner import Plan
from cepheid.plan.problems import Problem

if TYPE_CHECKING:
    from cepheid.app.known import Known

#: Finds the place of a problem in what the user wrote.
Locator: TypeAlias = Callable[[Problem], Span | None]


@dataclass(frozen=True, slots=True)
class Application:
    """A checked application. `warnings` are what its user may want to look at."""

    sections: ApplicationSection
    graph: Graph
    folder: Path
    warnings: tuple[Diagnostic, ...] = field(default=(), compare=False)
    #: Where things are written, for what is found out later.
    locate: Locator = field(default=lambda problem: None, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.sections.name

    @property
    def topics(self) -> frozenset[str]:
        """The streams that Spark reads from topics of Kafka itself, and the queries whose matches it writes to one.

        With a service a bridge brings topics into its log instead.
        """
        service = self.sections.service
        reads = service is None or service.log is None
        read = (name for name, s in self.sections.streams.items() if reads and isinstance(s.source, KafkaSource))
        return frozenset([*read, *(name for name, q in self.sections.queries.items() if isinstance(q.sink, KafkaSink))])

    def known(self) -> Known | None:
        """What the application knows; None if it has no knowledge. Raises Rejected."""
        if self.sections.knowledge is None:
            return None
        from cepheid.app.known import known

        return known(self)

    @property
    def enriched(self) -> dict[str, dict[str, dict[str, str]]]:
        """What the archive's tables get from the knowledge: by stream and attribute, columns and their paths."""
        if self.sections.knowledge is None:
            return {}
        return {name: section.enrich for name, section in self.sections.streams.items() if section.enrich}

    @property
    def asks(self) -> bool:
        """Whether a query has PATHs, and there is knowledge to judge them by."""
        paths = (q.tree.path for q in self.graph.queries.values() if q.tree is not None)
        return self.sections.knowledge is not None and any(path is not None for path in paths)

    def plan(self, known: Known | None = None) -> Plan:
        """The plan of the graph, by every rule. Where a query has PATHs the knowledge is read, unless it is given."""
        if known is None and self.asks:
            known = self.known()
        return planner.plan(self.graph, None if known is None else known.lower)


def assemble(
    sections: ApplicationSection, folder: Path, locate: Locator, broken: frozenset[str] = frozenset()
) -> tuple[Application, list[Diagnostic]]:
    """The application of these sections, and everything wrong with it.

    `broken` names exist in the application but could not be read; nothing is said about references to them.
    """
    problems = check_sections(sections, broken)
    graph, faults = lower(sections, broken)
    problems += faults
    graph = _normalised(sections, graph, folder)
    problems += planner.check(graph)
    diagnostics = diagnose(problems, locate)
    warnings = tuple(d for d in diagnostics if d.severity == "warning")
    return Application(sections, graph, folder, warnings, locate), diagnostics


def _normalised(sections: ApplicationSection, graph: Graph, folder: Path) -> Graph:
    """The graph in which attributes go by all properties that are the same, where a query uses another (rule P5)."""
    if sections.knowledge is None or not _names_other_properties(graph):
        return graph
    from cepheid.app.known import known
    from cepheid.knowledge.errors import KnowledgeError
    from cepheid.plan.path_normalisation import normalise

    try:
        found = known(Application(sections, graph, folder))
    except (Rejected, KnowledgeError):
        return graph  # said where the knowledge itself is asked for, or of the annotation
    return graph if found is None else replace(graph, properties=normalise(graph.properties, found.knowledge))


def _names_other_properties(graph: Graph) -> bool:
    """Whether a query names an attribute by a property that no stream is annotated with."""
    annotated = {iri for own in graph.properties.values() for iri in own}
    for query in graph.queries.values():
        if query.tree is not None:
            prefixes = {**graph.prefixes, **dict(query.tree.prefixes)}
            names = {a.name for a in syntax.attributes(query.tree) if ":" in a.name}
            if any(expand(name, prefixes) not in (None, *annotated) for name in names):
                return True
    return False


def diagnose(problems: Iterable[Problem], locate: Locator) -> list[Diagnostic]:
    """Problems with their places."""
    return [Diagnostic(p.severity, p.code, p.message, locate(p), p.hint) for p in problems]
