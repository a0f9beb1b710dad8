"""`match --why ID`: why an event is in matches, or where it stopped.

Nothing is evaluated here: the matcher is asked smaller questions. Whether a FILTER holds is a query of that FILTER over
that event; what stands in the way of a match is the clause without which there would be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cepheid.app.question import Question, ask
from cepheid.language import syntax
from cepheid.language.checker import check
from cepheid.language.printer import print_expression, print_step, print_window
from cepheid.language.scope import Catalogue
from cepheid.language.syntax import conjuncts
from cepheid.model.events import Event
from cepheid.model.matches import Bound, Match
from cepheid.plan.matcher import Matcher

if TYPE_CHECKING:
    from cepheid.app.known import Known

#: So many matches of an event are named.
_MOST_NAMED = 3


def find_events(events: Sequence[Event], name: str) -> list[Event]:
    """The events that a user means by `7` or `airflow/7`."""
    return [e for e in events if name in (str(e.id), f"{e.stream}/{e.id}")]


def why(question: Question, catalogue: Catalogue, events: Sequence[Event], event: Event, now: int) -> Iterator[str]:
    """What became of an event, in a few lines: for each variable, and for the matches as a whole."""
    checked = question.original
    asking = _Asking(checked.query, catalogue, events, event, now, question.known)
    yield f"{event.stream}/{event.id}"
    if question.known is not None and checked.query.path is not None:
        knowledge = question.known.knowledge
        number = knowledge.known_as
        yield f"  by the knowledge {knowledge.digest[:16]}" + (f", version {number}" if number is not None else "")
    if not asking.holds(syntax.Range("e", (event.stream,)), ()):
        yield "  is outside of WITHIN, so it does not exist for the query (rule Q5)"
        return
    candidate = False
    for given in checked.query.ranges:
        if event.stream not in given.streams:
            yield f"  ?{given.variable}: no, it ranges over {' | '.join(given.streams)}"
            continue
        failed = [c for c in _conditions(checked.query, given) if not asking.holds(given, (c,))]
        for condition in failed:
            yield f"  ?{given.variable}: no, {print_expression(condition)} is not true{_values(condition, event)}"
        lines, stopped = _paths(question, given.variable, event)
        yield from lines
        if not failed and not stopped:
            candidate = True
            yield f"  ?{given.variable}: yes, it qualifies"
    found = asking.matches(checked.query)
    if found:
        named = ", ".join(f"{m.id} as {_roles(m, event)}" for m in found[:_MOST_NAMED])
        count = f"{len(found)} match{'es' if len(found) != 1 else ''}"
        yield f"  in {count}: {named}{' ...' if len(found) > _MOST_NAMED else ''}"
    elif candidate:
        yield "  in no match"
        for clause, rest in _without_a_clause(checked.query):
            others = asking.matches(rest)
            if others:
                yield f"  without {clause} it would be in {len(others)}"


def _paths(question: Question, variable: str, event: Event) -> tuple[list[str], bool]:
    """The triples by which an event fits the PATHs of a variable, or where it stopped; and whether it did."""
    lines: list[str] = []
    stopped = False
    for part in question.original.paths.parts:
        if part.variable != variable or question.known is None or part.flag is not None:
            continue
        from cepheid.knowledge.tracing import trace

        known = question.known
        properties = known.annotations.properties(event.stream)
        facts = [
            (annotation.property, term)
            for attribute, annotation in properties.items()
            for term in annotation.entities(event.attributes.get(attribute), known.knowledge)
        ]
        found = trace(part, facts, known.knowledge, question.original.prefixes)
        lines += [f"  ?{variable}: {line}" for line in found.found]
        if found.stopped is not None:
            stopped = True
            lines.append(f"  ?{variable}: no, it stops at {found.stopped}")
    return lines, stopped


def _conditions(query: syntax.Query, given: syntax.Range) -> list[syntax.Expression]:
    parts = [part for f in query.filters for part in conjuncts(f)]
    return [part for part in parts if syntax.variables(part) == (given.variable,)]


@dataclass(frozen=True, slots=True)
class _Asking:
    """Asks the matcher about one event."""

    query: syntax.Query
    catalogue: Catalogue
    events: Sequence[Event]
    event: Event
    now: int
    known: Known | None = None

    def holds(self, given: syntax.Range, conditions: tuple[syntax.Expression, ...]) -> bool:
        """Whether the conditions, and WITHIN, hold for the event."""
        selected = syntax.Selected(syntax.Attribute(given.variable, "id"), "id")
        small = syntax.Query(
            (selected,), prefixes=self.query.prefixes, ranges=(given,), within=self.query.within, filters=conditions
        )
        return bool(self._run(small, [self.event]))

    def matches(self, query: syntax.Query) -> list[Match]:
        """The matches of a query that the event is in; none if the query is none."""
        found = self._run(query, self.events)
        return [m for m in found if any(_binds(bound, self.event) for bound in m.events.values())]

    def _run(self, query: syntax.Query, events: Sequence[Event]) -> list[Match]:
        catalogue = self.catalogue if self.known is None else self.known.catalogue(self.catalogue)
        checked, _ = check(query, catalogue)
        if checked is None:
            return []
        question = ask(checked, self.known)
        return Matcher(question.checked, self.now, semantic=question.filter()).matches(events)


def _values(condition: syntax.Expression, event: Event) -> str:
    names = dict.fromkeys(e.name for e in syntax.walk(condition) if isinstance(e, syntax.Attribute))
    shown = [f"{n} = {event.attributes[n]!r}" for n in names if n in event.attributes]
    return f" ({', '.join(shown)})" if shown else ""


def _without_a_clause(query: syntax.Query) -> Iterator[tuple[str, syntax.Query]]:
    """The query without each JOIN, NOT and WINDOW in turn."""
    for i, join in enumerate(query.joins):
        yield f"JOIN ({print_expression(join)})", replace(query, joins=query.joins[:i] + query.joins[i + 1 :])
    for step in query.seq:
        if isinstance(step, syntax.Absent):
            name = step.variable
            yield (
                print_step(step),
                replace(
                    query,
                    ranges=tuple(r for r in query.ranges if r.variable != name),
                    seq=tuple(s for s in query.seq if s is not step),
                    joins=tuple(j for j in query.joins if name not in syntax.variables(j)),
                    filters=tuple(f for f in query.filters if name not in syntax.variables(f)),
                    windows=tuple(w for w in query.windows if name not in _listed(w)),
                ),
            )
    if query.path is not None:
        yield "PATH", replace(query, path=None)
    for i, window in enumerate(query.windows):
        yield print_window(window), replace(query, windows=query.windows[:i] + query.windows[i + 1 :])


def _listed(window: syntax.Window) -> tuple[str, ...]:
    return window.variables if isinstance(window, syntax.SpanWindow) else (window.variable,)


def _binds(bound: Bound, event: Event) -> bool:
    return (event.stream, event.id) in (bound if isinstance(bound, list) else [bound])


def _roles(match: Match, event: Event) -> str:
    return ", ".join(f"?{variable}" for variable, bound in match.events.items() if _binds(bound, event))
