"""Which strategy is the cheapest, by how many events there are: each wins where it should."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cepheid.app import load
from cepheid.history import cost
from cepheid.history.asked import asked
from cepheid.history.cost import Choice, Extent, choose
from cepheid.history.frames import Layout

PAIR = "SELECT ?q.flow SEQ (?p, ?q) WINDOW (?p, ?q, 1min)"


@pytest.fixture
def choice_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "app.yaml").write_text(
        "name: plant\ndefault_stream: air\nstreams: {air: {attributes: {sensor: string, flow: float}}}\n"
    )
    app = load(tmp_path / "app.yaml")
    past: Any = SimpleNamespace(spark=SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=4)))

    def choice_of(text: str, events: int) -> Choice:
        monkeypatch.setattr(cost, "count_events", lambda *_: Extent(events, events, 0, 86_400_000_000))
        question = asked(app, text, 0)
        return choose(past, question, Layout(question.checked, question.streams))

    return choice_of


@pytest.mark.parametrize(
    ("best", "text", "events"),
    [
        # Few are left of many, and their key divides them.
        ("hybrid", f"{PAIR} FILTER (?p.flow = 3) FILTER (?q.flow = 4) JOIN (?p.sensor = ?q.sensor)", 10_000_000),
        # All are related, in slices of time; in one task a matcher that gets them in order has less to do.
        ("hybrid", PAIR, 4_000_000),
        ("replay", f"{PAIR} MATCH NEXT", 4_000_000),
        # A window of half the range leaves nothing to divide.
        ("replay", "SELECT ?q.flow SEQ (?p, ?q) WINDOW (?p, ?q, 12h)", 4_000_000),
        ("replay", f"{PAIR} MATCH STRICT FILTER (?p.flow = 3)", 1_000_000),
        # Each event is a match by itself, and SQL alone tells.
        ("rewrite", "SELECT ?e.flow FILTER (?e.sensor != 'D105')", 10_000_000),
        ("hybrid", "SELECT ?e.flow FILTER (?e.sensor != 'D105')", 1_000),
    ],
)
def test_the_cheapest_is_chosen(choice_of: Any, best: str, text: str, events: int) -> None:
    found: Choice = choice_of(text, events)
    assert found.best == best, found.reason
    assert found.reason.startswith(f"{best}: about ")
    assert [e.seconds for e in found.estimates] == sorted(e.seconds for e in found.estimates)
    assert all(e.events == events >= e.related for e in found.estimates)


def test_what_is_not_possible_is_said(choice_of: Any) -> None:
    found: Choice = choice_of(f"{PAIR} MATCH NEXT", 100)
    assert {e.strategy for e in found.estimates} == {"hybrid", "replay"}
    assert "rewrite can't give MATCH NEXT" in found.reason


def test_a_long_window_is_added_up_anew_for_each_event(choice_of: Any) -> None:
    """So it is dear in SQL, and the dearer the longer it is."""
    seconds = []
    for size in (10, 1_000):
        found: Choice = choice_of(f"SELECT SUM(?e.flow) AS s WINDOW (?e, length, {size})", 100_000)
        seconds.append(next(e.seconds for e in found.estimates if e.strategy == "rewrite"))
    assert seconds[1] > 5 * seconds[0]
    assert found.best != "rewrite"
