"""What the knowledge has to say about an application: names it does not know, PATHs that are never true or too much."""

from __future__ import annotations

from collections.abc import Iterator

from cepheid.app.application import Application
from cepheid.language.errors import Diagnostic, Rejected


def judged(application: Application) -> Iterator[Diagnostic]:
    """Everything that the application's knowledge is against; nothing is read where no query asks for it."""
    asking = [q for q in application.graph.queries.values() if q.tree is not None and q.tree.path is not None]
    if not asking:
        return
    from cepheid.knowledge.errors import KnowledgeError
    from cepheid.plan import typing
    from cepheid.plan.semantic import NotIndexed

    spans = {q.name: q.tree.spans.get("path") for q in asking if q.tree is not None}
    try:
        known = application.known()
    except Rejected as fault:
        yield from fault.diagnostics
        return
    if known is None:
        for query in asking:
            hint = "add `knowledge: {sources: [...]}`"
            yield Diagnostic(
                "error", "no-knowledge", "PATH needs knowledge, and there is none", spans[query.name], hint
            )
        return
    for name, checked in typing.derive(application.graph).queries.items():
        if checked.query.path is None:
            continue
        try:
            yield from known.lower(checked).warnings
        except (KnowledgeError, NotIndexed) as fault:
            yield Diagnostic(
                "error", "too-much" if isinstance(fault, KnowledgeError) else "not-indexed", str(fault), spans[name]
            )
