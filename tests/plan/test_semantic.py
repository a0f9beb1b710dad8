"""All ways of judging PATHs find what plain SPARQL finds (rules P1 to P5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hypothesis import HealthCheck, given, settings

from cepheid.app.question import ask
from cepheid.cli.engines import Beyond, find_matches
from cepheid.knowledge.modes import SemanticFilter
from cepheid.model.matches import Match
from cepheid.plan.matcher import Matcher
from cepheid.plan.semantic import Mode
from tests.plan.path_strategies import PathCase, cases, cases_together
from tests.plan.running import EXAMPLES, run_in_batches

MODES: Final[tuple[Mode, ...]] = ("auto", "naive", "buffer", "cache", "buffer+cache")


def expected(case: PathCase) -> list[Match] | None:
    """What the reference finds; None if it does not judge such a query."""
    question = ask(case.checked, case.known("auto"))
    try:
        return list(find_matches("reference", question, case.events, 0))
    except Beyond:
        return None


def shown(matches: list[Match]) -> list[str]:
    return [f"{m.id} {m.time} {dict(m.events)} {dict(m.select)} {m.window}" for m in matches]


@given(case=cases())
@settings(max_examples=EXAMPLES // 2, suppress_health_check=list(HealthCheck), deadline=None)
def test_every_mode_finds_what_sparql_finds(case: PathCase) -> None:
    agree(case, MODES)


@given(case=cases_together())
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
def test_events_that_share_one_of_several_values_go_together(case: PathCase) -> None:
    wanted = agree(case, ("auto", "cache"))
    lowered = replace(case, checked=ask(case.checked, case.known("auto")).checked)
    found = run_in_batches(lowered, case.events, (1, 2), restoring=True)
    assert wanted is None or shown(found) == wanted


def agree(case: PathCase, modes: Sequence[Mode]) -> list[str] | None:
    """What all ways of judging find, as text; None if the reference does not judge it."""
    matches = expected(case)
    if matches is None:
        return None
    wanted = shown(matches)
    for mode in modes:
        question = ask(case.checked, case.known(mode))
        semantic = question.filter()
        if semantic is not None:
            semantic = SemanticFilter(semantic.lookups, case.knowledge, semantic.mode, size=2)
        found = Matcher(question.checked, 0, semantic=semantic).matches(case.events)
        assert shown(found) == wanted, (mode, case.text, case.turtle)
    return wanted
