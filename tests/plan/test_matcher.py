"""The native matcher finds what the reference finds, in order; and one query, event by event."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from cepheid import _native
from cepheid._native import BudgetExhausted
from cepheid.cli.engines import Beyond
from cepheid.language.checker import check
from cepheid.language.parser import parse
from cepheid.language.printer import normal_form
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.matches import MatchIds
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.compile import compile_query
from cepheid.plan.matcher import Budget, Matcher
from tests.plan.kept_cases import left_if_failing
from tests.plan.query_strategies import SECOND, Case, cases
from tests.plan.running import EXAMPLES, expected, matcher, plain


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False)
@given(cases())
def test_native_is_reference(case: Case) -> None:
    try:
        wanted = expected(case)
    except Beyond:
        return
    found = matcher(case).matches(case.events)
    with left_if_failing(case):
        assert [plain(m) for m in found] == wanted
        # As text too: 1, 1.0 and True are equal, and so are 0.0 and -0.0, but don't look so; and names have an order.
        assert [repr(plain(m)) for m in found] == list(map(repr, wanted))


@settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_ids_are_the_models(case: Case) -> None:
    ids = MatchIds(normal_form(case.checked.query))
    found = matcher(case).matches(case.events)
    with left_if_failing(case):
        for match in found:
            if match.window is None:
                assert match.id == ids.of_events(match.events)
            else:
                assert match.group is not None
                assert match.id == ids.of_window(list(match.group.values()), match.window.start)
        assert len({m.id for m in found}) == len(found)


# One query, event by event

STREAM = Stream("s", {"k": Type.STRING, "v": Type.FLOAT}, spellings={"v": ("value",)}, id_kind="int")
PAIRS = """
    SELECT ?a.v AS first, ?b.value AS second
    FROM (?a, s), (?b, s)
    FILTER (?a.v < 10)
    FILTER (?b.v >= 10)
    JOIN (?a.k = ?b.k)
    SEQ (?a, ?b)
    WINDOW (?a, ?b, 5s)
"""


def query(text: str, budget: Budget | None = None, *, eager: bool = False) -> Matcher:
    checked, problems = check(parse(text), Catalogue({"s": STREAM}, default_stream="s"))
    assert checked is not None, problems
    return Matcher(checked, budget=budget, eager=eager)


def event(id: int, seconds: float, v: float | None, k: str | None = "x") -> Event:
    return Event("s", id, round(seconds * SECOND), {"k": k, "v": v})


def test_a_match_comes_when_the_watermark_is_beyond_it() -> None:
    running = query(PAIRS)
    running.push([event(2, 2, 20.0), event(1, 1, 1.0), Event("other", 9, 0)])
    assert running.advance(2 * SECOND) == []
    (match,) = running.advance(2 * SECOND + 1)
    assert match.events == {"a": ("s", 1), "b": ("s", 2)}
    assert match.select == {"first": 1.0, "second": 20.0}


def test_an_eager_match_comes_with_its_last_event() -> None:
    running = query(PAIRS, eager=True)
    running.push([event(1, 1, 1.0), event(2, 2, 20.0)])
    assert len(running.advance(2 * SECOND)) == 1
    running.push([event(3, 2, 20.0)])
    assert len(running.advance(2 * SECOND)) == 1


def test_what_waits_behind_a_deadline_that_has_passed_is_saved() -> None:
    """A match that waits is made of events that are in no list any more."""
    text = "SELECT ?a.v FROM (?a, s), (?b, s), (?c, s) SEQ (?a, ?b, ?c?) WINDOW (?a, ?c, 0s)"
    running = query(text, eager=True)
    running.push([event(1, 0, 1.0), event(2, 1, 2.0)])
    assert running.advance(SECOND) == []
    saved = running.save()
    again = query(text, eager=True)
    again.restore(saved.head, dict(saved.changed))
    assert again.advance(None) == running.advance(None) != []


def test_not_waits_for_its_deadline() -> None:
    running = query("SELECT ?a.v FROM (?a, s), (?c, s) FILTER (?c.v > 5) SEQ (?a, NOT ?c) WINDOW (?a, ?c, 5s)")
    running.push([event(1, 1, 1.0)])
    assert running.advance(6 * SECOND) == []  # an event at the deadline could still come
    assert running.counters["pending"] == 1
    (match,) = running.advance(6 * SECOND + 1)
    assert match.time == 6 * SECOND
    assert running.counters["pending"] == 0


@pytest.mark.parametrize(
    "text",
    [
        PAIRS,
        PAIRS + "MATCH NEXT",
        PAIRS + "AFTER MATCH CONSUME",
        "SELECT ?a.v FROM (?a, s), (?c, s) JOIN (?a.k = ?c.k) SEQ (?a, NOT ?c) WINDOW (?a, ?c, 5s)",
        "SELECT COUNT(?b) AS n FROM (?a, s), (?b, s), (?c, s) JOIN (?a.k = ?b.k AND ?b.k = ?c.k)"
        " SEQ (?a, ?b+, ?c) WINDOW (?a, ?c, 5s)",
        "SELECT AVG(?a.v) AS mean FROM (?a, s) GROUP BY ?a.k WINDOW (?a, sliding, 5s)",
        "SELECT AVG(?a.v) AS mean FROM (?a, s) GROUP BY ?a.k WINDOW (?a, session, 5s)",
        "SELECT AVG(?a.v) AS mean FROM (?a, s) GROUP BY ?a.k WINDOW (?a, batch, 5s)",
    ],
)
def test_state_is_freed_as_windows_pass(text: str) -> None:
    running = query(text)
    empty = len(running.save().head)
    most = 0
    for i in range(300):
        running.push([event(i, i, float(i % 20), f"k{i % 50}")])
        running.advance(i * SECOND)
        most = max(most, running.counters["held"])
    assert most <= 24
    running.advance(1000 * SECOND)
    counters = running.counters
    left = [counters[name] for name in ("held", "kept", "partitions", "runs", "pending")]
    assert left == [0, 0, 0, 0, 0]
    state = running.save()
    assert (len(state.head), state.names) == (empty, ())


def test_a_save_writes_what_changed() -> None:
    running = query(PAIRS)
    chunks: dict[str, bytes] = {}
    for i in range(200):
        running.push([event(i, i / 10, float(i % 3), f"k{i % 50}")])
        running.advance(i * SECOND // 10)
        state = running.save(chunks)
        assert len(state.changed) <= 1
        assert len(state.head) < 1000
        chunks = state.chunks(chunks)
    assert len(chunks) > 10
    fresh = query(PAIRS)
    fresh.restore(state.head, chunks)
    assert fresh.counters["held"] == running.counters["held"]
    with pytest.raises(ValueError, match="is missing"):
        fresh.restore(state.head, dict(list(chunks.items())[1:]))
    name, other = list(chunks)[:2]
    with pytest.raises(ValueError, match="is not"):
        fresh.restore(state.head, {**chunks, name: chunks[other]})


def test_long_windows_equal_short_ones_computed_anew() -> None:
    """Followed aggregates (native/src/aggregate.rs) do not drift: each window equals one of its events alone."""
    values = [((i * 7919) % 101 - 50) * 10.0 ** (i % 13 - 6) for i in range(300)]
    text = (
        "SELECT SUM(?e.v) AS sum, AVG(?e.v) AS avg, MIN(?e.v) AS min, MAX(?e.v) AS max, COUNT(?e.v) AS n"
        " WINDOW (?e, length, 60)"
    )
    found = query(text).matches(event(i, i, None if i % 11 == 0 else v) for i, v in enumerate(values))
    for i, match in enumerate(found):
        window = [v for j, v in enumerate(values) if i - 60 < j <= i and j % 11]
        if window:
            total = math.fsum(window)
            wanted = {
                "sum": total,
                "avg": total / len(window),
                "min": min(window),
                "max": max(window),
                "n": len(window),
            }
            assert match.select == wanted


def test_a_late_event_is_counted_and_left_out() -> None:
    running = query(PAIRS)
    running.advance(10 * SECOND)
    running.push([event(1, 9, 1.0), event(2, 10, 20.0)])
    assert running.advance(None) == []
    assert running.counters["late"] == 1


def test_budget() -> None:
    events = [event(1, 1, 1.0), event(2, 2, 2.0), event(3, 3, 30.0)]
    with pytest.raises(BudgetExhausted, match="holds 2 events"):
        query(PAIRS, Budget(2)).push(events)
    refusing = query(PAIRS, Budget(2, "refuse-newest"))
    assert refusing.matches(events) == []
    assert refusing.counters["refused"] == 1
    shedding = query(PAIRS, Budget(2, "shed-oldest"))
    assert [m.events["a"] for m in shedding.matches(events)] == [("s", 2)]
    assert shedding.counters["shed"] == 1


def test_a_state_that_does_not_fit_is_refused() -> None:
    running = query(PAIRS)
    running.push([event(1, 1, 1.0)])
    running.advance(2 * SECOND)
    state = running.save()
    chunks = state.chunks()
    with pytest.raises(ValueError, match="another query"):
        query(PAIRS + "MATCH NEXT").restore(state.head, chunks)
    for size in range(len(state.head)):
        with pytest.raises(ValueError, match=r"state|version"):
            running.restore(state.head[:size], chunks)
    for name, chunk in chunks.items():
        for size in range(len(chunk)):
            with pytest.raises(ValueError, match=r"state|version"):
                running.restore(state.head, {**chunks, name: chunk[:size]})
    with pytest.raises(ValueError, match="longer"):
        running.restore(state.head + b"x", chunks)
    running.restore(state.head, chunks)
    running.push([event(2, 3, 20.0)])
    assert len(running.advance(None)) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), [1], 2**63, (float("nan"),)])
def test_what_is_no_value_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        query(PAIRS).push([Event("s", 1, 0, {"v": value})])


def test_a_damaged_plan_is_an_error() -> None:
    plan = compile_query(query(PAIRS).checked, 0)
    for size in range(0, len(plan), 7):
        with pytest.raises(ValueError, match=r"JSON|plan"):
            _native.Matcher(plan[:size], [], [])


def test_equality_joins_are_looked_up() -> None:
    """Also one that is not over all variables: 2,000 times 2,000 times 2,000 combinations are not tried."""
    text = """
        SELECT ?c.v FROM (?a, s), (?b, s), (?c, s)
        FILTER (?a.v < 1) FILTER (?b.v BETWEEN 1 AND 2) FILTER (?c.v > 2)
        JOIN (?a.k = ?b.k) JOIN (?b.id + 1 = ?c.id)
        WINDOW (?a, ?b, ?c, 1h)
    """
    events = [event(i, i / 1000, float(i % 3) * 1.3, f"k{i // 3}") for i in range(6000)]
    assert len(query(text).matches(events)) == 2000
