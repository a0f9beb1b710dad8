"""A query that was asked of an application: found right, its PATHs judged, with the streams that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cepheid.app.application import Application
from cepheid.app.question import Question, ask, needs_knowledge
from cepheid.history.times import Times, judge_times, times_of
from cepheid.language import syntax
from cepheid.language.checker import Checked, check
from cepheid.language.errors import Diagnostic, Rejected, Source
from cepheid.language.parser import examine
from cepheid.language.scope import Catalogue
from cepheid.model.names import suggestion
from cepheid.model.streams import Stream
from cepheid.plan.typing import derive


class NoSuchQuery(LookupError):
    """The application has no query of that name."""

    def __str__(self) -> str:  # a LookupError shows its message in quotes
        return str(self.args[0])


@dataclass(frozen=True)
class Asked:
    """A query and what it is asked of. `warnings` are what its user should know before the answer."""

    app: Application
    question: Question
    streams: Mapping[str, Stream]
    now: int
    times: Times
    warnings: tuple[Diagnostic, ...]

    @property
    def checked(self) -> Checked:
        return self.question.checked


def named(app: Application, name: str) -> syntax.Query:
    """The query that an application has under a name."""
    found = app.graph.queries.get(name)
    if found is None:
        others = list(app.graph.queries)
        hint = (suggestion(name, others) or "ask with -q TEXT") if others else "it has none; ask with -q TEXT"
        raise NoSuchQuery(f"{app.name} has no query '{name}'; {hint}")
    assert found.tree is not None  # an application that was loaded has no broken query
    return found.tree


def parsed(query: str | syntax.Query) -> syntax.Query:
    """The tree of a query. Raises Rejected."""
    if not isinstance(query, str):
        return query
    tree, problems = examine(Source("query", query))
    if tree is None:
        raise Rejected(problems)
    return tree


def asked(app: Application, query: str | syntax.Query, now: int, *, follows: bool = False) -> Asked:
    """A query, as text or as the application has it, ready to be answered. Raises Rejected."""
    tree = parsed(query)
    graph = app.graph
    streams = derive(graph).streams
    catalogue = Catalogue(streams, graph.default_stream, graph.prefixes, graph.properties)
    known = app.known() if needs_knowledge(tree) else None
    checked, problems = check(tree, catalogue if known is None else known.catalogue(catalogue), live=follows)
    if checked is None:
        raise Rejected(problems)
    question = ask(checked, known)
    retain = app.sections.archive.retain if app.sections.archive is not None else None
    warnings = (*problems, *question.warnings, *judge_times(checked, now, retain, follows=follows))
    return Asked(app, question, {n: streams[n] for n in checked.streams}, now, times_of(checked, now), warnings)
