"""The engines that `match` can run a query on: all find the same."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import cepheid
from cepheid.app.question import Question
from cepheid.cli.progress import Progress, rate
from cepheid.language.checker import Checked
from cepheid.language.functions import ValueType
from cepheid.model.events import Event
from cepheid.model.matches import Match, MatchIds, Window
from cepheid.model.types import Value

if TYPE_CHECKING:
    from cepheid.app.known import Known

ENGINES: Final = ("native", "spark", "reference")
#: So many events are matched between two words on how far it is, and before an interrupt is heard.
_CHUNK: Final = 16_384


class Beyond(click.ClickException):
    """A query that the reference does not judge."""


def find_matches(
    engine: str, query: Question | Checked, events: Sequence[Event], now: int, progress: Progress | None = None
) -> Sequence[Match]:
    """The matches of a query among events that are complete, in the order of rule O2."""
    question = query if isinstance(query, Question) else Question(query, query)
    progress = progress or Progress(shown=False)
    try:
        return _find(engine, question, events, now, progress)
    except ValueError as fault:
        if type(fault).__name__ != "TooMuch":
            raise
        raise click.ClickException(str(fault)) from None


def _find(engine: str, question: Question, events: Sequence[Event], now: int, progress: Progress) -> Sequence[Match]:
    if engine == "native":
        return _native(question, events, now, progress)
    progress.show(f"matching {len(events):,} events on {engine}", now=True)
    if engine == "spark":
        from cepheid.spark.local import match_on_spark
        from cepheid.spark.session import session

        return match_on_spark(session("cepheid match"), question.known_for(events).checked, events, now)
    return _reference(question, events, now)


def _native(question: Question, events: Sequence[Event], now: int, progress: Progress) -> list[Match]:
    """As `Matcher.matches` does it, with a word between."""
    from cepheid.plan.matcher import Matcher

    matcher = Matcher(question.checked, now, semantic=question.filter())
    ordered = sorted(events, key=attrgetter("time"))
    found: list[Match] = []
    began = time.monotonic()
    for start in range(0, len(ordered), _CHUNK):
        chunk = ordered[start : start + _CHUNK]
        matcher.push(chunk)
        found += matcher.advance(chunk[-1].time)
        done = start + len(chunk)
        progress.show(f"{done:,} of {len(ordered):,} events matched{rate(done, began)}, {len(found):,} matches")
    found += matcher.advance(None)
    progress.show(f"{len(ordered):,} events matched, {len(found):,} matches", now=True)
    return found


def _reference(question: Question, events: Sequence[Event], now: int) -> list[Match]:
    """The brute-force matcher of the source tree: slow, and obviously right."""
    reference = _reference_module()
    checked = question.original
    plain = [reference.Event(e.stream, e.id, e.time, {**e.attributes, **_aliases(checked, e)}) for e in events]
    ids = MatchIds(checked.normal_form)
    floats = frozenset(place for place, resolved in checked.attributes.items() if resolved.type is ValueType.FLOAT)
    float_outputs = {output.name for output in checked.outputs if output.type is ValueType.FLOAT}
    matches = []
    knowledge = None if question.known is None else _knowledge(reference, question.known, checked.prefixes)
    try:
        rows = reference.find_matches(checked.query, plain, now, floats, knowledge)
    except reference.Refused as refused:
        raise Beyond(f"{refused}: leave --engine reference out") from refused
    for found in rows:
        window = Window(*found.window) if found.window is not None else None
        if window is not None and not found.events:
            match_id = ids.of_window(list((found.group or {}).values()), window.start)
        else:
            match_id = ids.of_events(found.events, found.bindings)
        select = {n: float(v) if n in float_outputs and isinstance(v, int) else v for n, v in found.select.items()}
        # The reference knows attributes by the names that streams declare.
        group = None if found.group is None else dict(zip(checked.groups, found.group.values(), strict=True))
        matches.append(Match(match_id, found.time, found.events, select, window, group))
    return matches


def _knowledge(reference: Any, known: Known, prefixes: Mapping[str, str]) -> object:
    """What an application knows, as the reference uses it: all triples in one graph, and those of an event."""
    import pyoxigraph

    from cepheid.knowledge.asking import value_of

    store = pyoxigraph.Store()
    store.extend(pyoxigraph.Quad(q.subject, q.predicate, q.object) for q in known.knowledge.store)

    def facts(event: Any) -> list[tuple[str, object]]:
        plain = Event(event.stream, event.id, event.time, dict(event.attributes))
        return [(t.predicate.value, t.object) for t in known.annotations.triples(plain, known.knowledge)]

    return reference.Knowledge(store, facts, prefixes, value_of)


def _aliases(checked: Checked, event: Event) -> dict[str, Value]:
    """The values of an event by the names that the query uses for them: other spellings, and properties."""
    return {
        name: event.attributes.get(resolved.names[event.stream])
        for (_, name), resolved in checked.attributes.items()
        if name not in ("id", "time") and event.stream in resolved.names
    }


def _reference_module() -> Any:
    root = Path(cepheid.__file__).parents[2]
    if not (root / "tests" / "reference" / "matcher.py").exists():
        raise click.ClickException("the reference is in the source tree: clone the project to use --engine reference")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module("tests.reference.matcher")
