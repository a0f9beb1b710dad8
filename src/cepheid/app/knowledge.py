"""The knowledge of an application, and what its streams mean."""

from __future__ import annotations

from pathlib import Path

from cepheid.app.application import Application
from cepheid.app.known import loaded
from cepheid.knowledge.annotation import Annotations
from cepheid.knowledge.errors import KnowledgeError
from cepheid.knowledge.store import Knowledge


def load_knowledge(app: Application, *, cache: Path | None = None) -> Knowledge:
    """The knowledge that the application names. Raises KnowledgeError if it names none, else Rejected."""
    section = app.sections.knowledge
    if section is None or not section.sources:
        raise KnowledgeError(f"{app.name} has no knowledge", "name its sources: 'knowledge: {sources: [campus.ttl]}'")
    return loaded(app, cache=cache)


def annotations_of(app: Application) -> Annotations:
    """What the application says that attributes mean."""
    return Annotations.of(app.sections.streams, app.graph.prefixes, app.folder)
