"""What the knowledge has to say about an application: names it does not know, PATHs that are never true or too much."""

from __future__ import annotations

from collections.abc import Iterator

from cepheid.app.application import Application, diagnose
from cepheid.language.errors import Diagnostic, Rejected
from cepheid.plan.problems import Problem


def judged(application: Application) -> Iterator[Diagnostic]:
    """Everything that the application's knowledge is against; nothing is read where no query asks for it."""
    asking = [q for q in application.graph.queries.values() if q.tree is not None and q.tree.path is not None]
    if not asking:
        return
    from cepheid.knowledge.errors import KnowledgeError
    from cepheid.plan import typing
    from cepheid.plan.semantic import NotIndexed

    spans = {q.name: q.tree.spans.get("path") for q in asking if q.tree is not None}

    def placed(query: str, said: Diagnostic) -> Iterator[Diagnostic]:
        """With its place in the application file, where the query may be written."""
        where = ("queries", query, "text" if application.sections.queries[query].file is None else "file")
        inside = Problem(said.severity, said.code, said.message, where, said.hint, inside=said.span)
        yield from diagnose([inside], application.locate)

    try:
        known = application.known()
    except Rejected as fault:
        yield from fault.diagnostics
        return
    if known is None:
        for query in asking:
            hint = "add `knowledge: {sources: [...]}`"
            message = "PATH needs knowledge, and there is none"
            yield from placed(query.name, Diagnostic("error", "no-knowledge", message, spans[query.name], hint))
        return
    for name, checked in typing.derive(application.graph).queries.items():
        if checked.query.path is None:
            continue
        try:
            for said in known.lower(checked).warnings:
                yield from placed(name, said)
        except (KnowledgeError, NotIndexed) as fault:
            code = "too-much" if isinstance(fault, KnowledgeError) else "not-indexed"
            yield from placed(name, Diagnostic("error", code, str(fault), spans[name]))
