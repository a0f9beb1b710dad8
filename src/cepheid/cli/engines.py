"""The engines that `match` can run a query on: all find the same."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

import cepheid
from cepheid.language.checker import Checked
from cepheid.language.printer import normal_form
from cepheid.model.events import Event
from cepheid.model.matches import Match, MatchIds, Window
from cepheid.model.types import Value

ENGINES: Final = ("native", "spark", "reference")


def find_matches(engine: str, checked: Checked, events: Sequence[Event], now: int) -> Sequence[Match]:
    """The matches of a query among events that are complete and sorted, in the order of rule O2."""
    if engine == "native":
        from cepheid.plan.matcher import Matcher

        return Matcher(checked, now).matches(events)
    if engine == "spark":
        from cepheid.spark.local import match_on_spark
        from cepheid.spark.session import session

        return match_on_spark(session("cepheid match"), checked, events, now)
    return _reference(checked, events, now)


def _reference(checked: Checked, events: Sequence[Event], now: int) -> list[Match]:
    """The brute-force matcher of the source tree: slow, and obviously right."""
    reference = _reference_module()
    plain = [reference.Event(e.stream, e.id, e.time, {**e.attributes, **_aliases(checked, e)}) for e in events]
    ids = MatchIds(normal_form(checked.query))
    matches = []
    for found in reference.find_matches(checked.query, plain, now):
        window = Window(*found.window) if found.window is not None else None
        if window is not None and not found.events:
            match_id = ids.of_window(list((found.group or {}).values()), window.start)
        else:
            match_id = ids.of_events(found.events)
        matches.append(Match(match_id, found.time, found.events, found.select, window, found.group))
    return matches


def _aliases(checked: Checked, event: Event) -> dict[str, Value]:
    """The values of an event by the names that the query uses for them: other spellings, and properties."""
    return {
        name: event.attributes[resolved.names[event.stream]]
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
