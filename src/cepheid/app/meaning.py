"""What the knowledge has to say about an application: files that can't be used, names that it does not know, PATHs that
are never true or too much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from cepheid.app.application import Application, diagnose
from cepheid.app.load import examine, in_order
from cepheid.app.question import FEWER, OTHERWISE
from cepheid.language.errors import Diagnostic, Rejected
from cepheid.plan.problems import Problem


def examine_all(
    path: str | Path, variables: Mapping[str, str] | None = None
) -> tuple[Application | None, list[Diagnostic]]:
    """As `examine`, with what the application's knowledge has to say."""
    application, diagnostics = examine(path, variables)
    if application is not None:
        is_sound = not any(d.severity == "error" for d in diagnostics)
        diagnostics = in_order([*diagnostics, *judged(application, is_sound=is_sound)])
    return application, diagnostics


def judged(application: Application, *, is_sound: bool = True) -> Iterator[Diagnostic]:
    """Everything that the application's knowledge is against.

    Its files are read in any case; what follows from them only where a query asks for it, and all else is sound.
    """
    sections = application.sections
    asking = [q for q in application.graph.queries.values() if q.tree is not None and q.tree.path is not None]
    if sections.knowledge is None and "knowledge" not in application.graph.broken:
        for query in asking:
            span = None if query.tree is None else query.tree.spans.get("path")
            hint = "add `knowledge: {sources: [...]}`"
            said = Diagnostic("error", "no-knowledge", "PATH needs knowledge, and there is none", span, hint)
            yield _placed(application, query.name, said)
    if sections.knowledge is not None and asking and is_sound:
        yield from _concluded(application)
    elif sections.knowledge is not None or any(
        a.table for s in sections.streams.values() for a in s.semantics.values()
    ):
        from cepheid.app.known import unreadable

        yield from unreadable(application)


def _placed(application: Application, query: str, said: Diagnostic) -> Diagnostic:
    """With its place in the application file, where the query may be written."""
    where = ("queries", query, "text" if application.sections.queries[query].file is None else "file")
    inside = Problem(said.severity, said.code, said.message, where, said.hint, inside=said.span)
    return diagnose([inside], application.locate)[0]


def _concluded(application: Application) -> Iterator[Diagnostic]:
    """What is against the PATHs of queries."""
    from cepheid.knowledge.errors import KnowledgeError
    from cepheid.plan import typing
    from cepheid.plan.semantic import NotIndexed

    try:
        known = application.known()
    except Rejected as fault:
        yield from fault.diagnostics
        return
    assert known is not None
    for name, checked in typing.derive(application.graph).queries.items():
        if checked.query.path is None:
            continue
        try:
            for said in known.lower(checked).warnings:
                yield _placed(application, name, said)
        except (KnowledgeError, NotIndexed) as fault:
            span = checked.query.spans.get("path")
            if isinstance(fault, KnowledgeError):
                said = Diagnostic("error", "too-much", fault.fact, span, fault.hint or FEWER)
            else:
                said = Diagnostic("error", "not-indexed", str(fault), span, OTHERWISE)
            yield _placed(application, name, said)
