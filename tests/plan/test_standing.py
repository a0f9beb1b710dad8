"""Queries that stand together find what each finds alone."""

from __future__ import annotations

import os

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cepheid.language.checker import Checked, check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.matcher import Budget, Matcher
from cepheid.plan.standing import Standing
from tests.plan.query_strategies import SECOND, Case, cases

NOW = 2 * SECOND
EXAMPLES = int(os.environ.get("CEPHEID_EXAMPLES", "200"))
ATTRIBUTES = {"k": Type.STRING, "n": Type.INT, "v": Type.FLOAT, "ok": Type.BOOL}
STREAMS = {name: Stream(name, ATTRIBUTES, id_kind="int") for name in ("s", "t")}

#: What can be looked up, and what can't; over one stream, over two, with an alternative that hides an equality.
FILTERS = (
    "?{v}.k = 'x'",
    "'y' = ?{v}.k",
    "?{v}.k = 'x' AND ?{v}.v > 1",
    "?{v}.n = 2",
    "?{v}.n = 2.0",
    "?{v}.v > 1",
    "?{v}.v >= 1",
    "1 > ?{v}.v",
    "?{v}.v <= 1.5",
    "?{v}.v BETWEEN 1 AND 2",
    "?{v}.v NOT BETWEEN 1 AND 2",
    "?{v}.k IN ('x', 'y')",
    "?{v}.k NOT IN ('x', 'y')",
    "?{v}.n IN (1, 2.0)",
    "?{v}.k = 'x' OR ?{v}.v > 1",
    "?{v}.ok = TRUE",
    "?{v}.v IS NULL",
    "?{v}.k != 'x'",
)
SHAPES = (
    "SELECT ?a.id AS one FROM (?a, s) FILTER ({a})",
    "SELECT ?a.id AS one FROM (?a, s | t) FILTER ({a})",
    "SELECT ?a.id AS one FROM (?a, s), (?b, s) FILTER ({a}) FILTER ({b}) SEQ (?a, ?b) WINDOW (?a, ?b, 3s)",
    "SELECT ?a.id AS one FROM (?a, s), (?b, t) FILTER ({a}) FILTER ({b}) JOIN (?a.k = ?b.k) WINDOW (?a, ?b, 3s)",
    "SELECT ?a.id AS one FROM (?a, s), (?b, s) FILTER ({a}) FILTER ({b}) SEQ (?a, NOT ?b) WINDOW (?a, ?b, 2s)",
    "SELECT ?a.id AS one FROM (?a, s), (?b, t) FILTER ({a}) FILTER ({b}) SEQ (?a, ?b) WINDOW (?a, ?b, 3s) MATCH NEXT",
    "SELECT ?a.id AS one FROM (?a, s), (?b, s) FILTER ({a}) FILTER ({b}) JOIN (?a.k = ?b.k) SEQ (?a, ?b)"
    " WINDOW (?a, ?b, 3s) MATCH STRICT",
    "SELECT COUNT(?a) AS one FROM (?a, s) FILTER ({a}) WINDOW (?a, batch, 2s) GROUP BY ?a.k",
    "SELECT SUM(?a.v) AS one FROM (?a, t) FILTER ({a}) WINDOW (?a, sliding, 2s)",
)


def checked(text: str) -> Checked:
    found, problems = check(parse(text), Catalogue(STREAMS))
    assert found is not None, problems
    return found


@st.composite
def query_texts(draw: st.DrawFn) -> str:
    shape = draw(st.sampled_from(SHAPES))
    one, other = draw(st.sampled_from(FILTERS)), draw(st.sampled_from(FILTERS))
    return shape.format(a=one.format(v="a"), b=other.format(v="b"))


EVENTS = st.lists(
    st.tuples(
        st.sampled_from("st"),
        st.integers(0, 6),
        st.sampled_from(["x", "x", "y", "z", None]),
        st.sampled_from([1, 2, 3, None]),
        st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, None]),
        st.sampled_from([True, False, None]),
    ),
    max_size=14,
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(query_texts(), min_size=1, max_size=12), EVENTS, st.integers(1, 4))
def test_together_is_alone(texts: list[str], rows: list[tuple[object, ...]], size: int) -> None:
    events = [
        Event(str(stream), i, second * SECOND, {"k": k, "n": n, "v": v, "ok": ok})  # type: ignore[operator,dict-item]
        for i, (stream, second, k, n, v, ok) in enumerate(rows)
    ]
    events.sort(key=lambda e: e.time)
    queries = {f"q{i}": checked(text) for i, text in enumerate(texts)}
    standing = Standing(queries, NOW)
    found: dict[str, list[Match]] = {name: [] for name in queries}
    for start in range(0, len(events), size):
        batch = events[start : start + size]
        standing.push(batch)
        for name, matches in standing.advance(batch[-1].time).items():
            found[name] += matches
    for name, matches in standing.advance(None).items():
        found[name] += matches
    assert found == {name: Matcher(query, NOW).matches(events) for name, query in queries.items()}


@settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_any_query_stands_as_it_runs(case: Case) -> None:
    standing = Standing({"one": case.checked, "two": case.checked}, NOW)
    alone = Matcher(case.checked, NOW).matches(case.events)
    standing.push(case.events)
    found = standing.advance(None)
    assert [found.get("one", []), found.get("two", [])] == [alone, alone]


def test_what_waits_for_time_comes_without_events_and_memory_is_freed() -> None:
    lonely = (
        "SELECT ?a.id AS one FROM (?a, s), (?b, s) FILTER (?a.k = '{}') FILTER (?b.k = '{}')"
        " SEQ (?a, NOT ?b) WINDOW (?a, ?b, 2s)"
    )
    queries = {f"q{i}": checked(lonely.format(i, i)) for i in range(100)}
    standing = Standing(queries, NOW)
    standing.push([Event("s", i, 0, {"k": str(i)}) for i in range(100)])
    standing.push([Event("s", 100, SECOND, {"k": "7"})])
    assert standing.advance(2 * SECOND) == {}
    found = standing.advance(2 * SECOND + 1)
    assert sorted(found) == sorted(set(queries) - {"q7"})
    standing.advance(100 * SECOND)
    assert standing.kept == 0


def test_a_query_that_fails_leaves_the_others() -> None:
    pair = (
        "SELECT ?a.id AS one FROM (?a, s), (?b, s) FILTER (?a.k = '{}') FILTER (?b.k = 'end')"
        " SEQ (?a, ?b) WINDOW (?a, ?b, 9s)"
    )
    standing = Standing({k: checked(pair.format(k)) for k in "xy"}, NOW, Budget(2))
    standing.push([Event("s", i, i * SECOND, {"k": k}) for i, k in enumerate("xyxx")])
    assert list(standing.failed) == ["x"]
    assert "holds 2 events" in standing.failed["x"]
    standing.push([Event("s", 9, 5 * SECOND, {"k": "end"})])
    assert [m.events["a"] for m in standing.advance(None)["y"]] == [("s", 1)]


def test_columns() -> None:
    queries = {name: checked(f"SELECT ?a.v FROM (?a, s) FILTER (?a.k = '{name}')") for name in "xyz"}
    standing = Standing(queries, NOW)
    standing.push_batch(
        pa.record_batch({"id": [1, 2, 3], "time": [1, 2, 3], "k": ["x", "y", "x"], "v": [1.0, 2.0, 3.0]})
    )
    found = standing.advance_batches(None)
    values = {
        name: [r["select"]["v"] for b in batches for r in pa.record_batch(b).to_pylist()]
        for name, batches in found.items()
    }
    assert values == {"x": [1.0, 3.0], "y": [2.0]}
    with pytest.raises(ValueError, match="row 0: 'v' has NaN"):
        Standing(queries, NOW).push_batch(pa.record_batch({"id": [1], "time": [9], "k": ["x"], "v": [float("nan")]}))
