"""Every strategy finds what the native matcher finds, in its order, on random queries and streams."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from pyspark.sql import DataFrame, SparkSession

from cepheid.app import Application, load
from cepheid.app.question import ask
from cepheid.cli.engines import find_matches
from cepheid.history.answer import STRATEGIES, Answer
from cepheid.history.asked import asked
from cepheid.history.frames import Layout, gathered, selected
from cepheid.history.rewrite import rewritten_of
from cepheid.history.sql import NotExact
from cepheid.language import syntax
from cepheid.language.output import MatchPrinter
from cepheid.model.events import Event
from cepheid.model.types import Value
from cepheid.plan.matcher import Matcher
from tests.history.held import Held, asked_of
from tests.history.simpler import simpler
from tests.plan.path_strategies import STREAM, PathCase, cases_together
from tests.plan.query_strategies import NOW, Case, cases

#: A query is a few Spark jobs; CEPHEID_SPARK_EXAMPLES=500 for a long run.
EXAMPLES = int(os.environ.get("CEPHEID_SPARK_EXAMPLES", "10"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    derandomize="CEPHEID_SPARK_EXAMPLES" not in os.environ,
)


def wanted(case: Case) -> list[str]:
    printer = MatchPrinter(case.checked)
    found = Matcher(case.checked, NOW).matches(case.events)
    return [json.dumps(printer.as_json(match), ensure_ascii=False) for match in found]


@pytest.mark.spark
@SETTINGS
@given(case=cases())
def test_strategies_agree(spark: SparkSession, case: Case) -> None:
    past = Held(spark, case.events)
    question = asked_of(case.checked, case.catalogue.streams, NOW)
    expected = wanted(case)
    for strategy in STRATEGIES:
        assert list(Answer(past, question, strategy).lines()) == expected, strategy


@pytest.mark.spark
@settings(SETTINGS, max_examples=max(3, EXAMPLES // 3))
@given(case=cases_together())
def test_strategies_agree_on_what_events_share(spark: SparkSession, case: PathCase) -> None:
    judged = ask(case.checked, case.known("auto")).checked
    past, question, printer = Held(spark, case.events), asked_of(judged, {"a": STREAM}, NOW), MatchPrinter(judged)
    found = Matcher(judged, NOW).matches(case.events)
    expected = [json.dumps(printer.as_json(match), ensure_ascii=False) for match in found]
    for strategy in STRATEGIES:
        assert list(Answer(past, question, strategy).lines()) == expected, strategy


@pytest.mark.spark
@SETTINGS
@given(case=cases())
def test_sql_is_exact(spark: SparkSession, case: Case) -> None:
    """Of queries that are simple enough to be rewritten."""
    simple = simpler(case)
    assume(simple is not None)
    assert simple is not None
    answer = Answer(Held(spark, simple.events), asked_of(simple.checked, simple.catalogue.streams, NOW), "rewrite")
    assume(answer.refused is None)
    assert list(answer.lines()) == wanted(simple)


STREAMS = """
name: plant
default_stream: a
streams:
  a: {attributes: {k: string, v: int, f: float}}
  b: {attributes: {k: string, v: int}}
"""
#: A query for each kind of thing that SQL says.
KINDS = {
    "session": "SELECT ?e.k, SUM(?e.v) AS s, COUNT(?e) AS n FILTER (?e.v > 0) WINDOW (?e, session, 3s) GROUP BY ?e.k",
    "length": "SELECT SUM(?e.f) AS s, MAX(?e.v) AS m FILTER (?e.v > 0) WINDOW (?e, length, 3) GROUP BY ?e.k",
    "sliding": "SELECT AVG(?e.f) AS m, COUNT(?e) AS n WINDOW (?e, sliding, 4s) GROUP BY ?e.k",
    "batch": "SELECT ?e.k, MIN(?e.f) AS m, SUM(?e.v) AS s WINDOW (?e, batch, 10s) GROUP BY ?e.k",
    "having": "SELECT ?e.k, SUM(?e.v) AS s WINDOW (?e, batch, 10s) GROUP BY ?e.k HAVING (SUM(?e.v) > 9)",
    "maybe": "SELECT ?p.v, ?m.f FILTER (?p.v < 2) FILTER (?m.v = 2) FILTER (?q.v > 2)"
    " JOIN (?p.k = ?m.k AND ?p.k = ?q.k) SEQ (?p, ?m?, ?q) WINDOW (?p, ?q, 12s)",
    "any": "SELECT ?p.v FROM (?p, a), (?q, a), (?s, b) FILTER (?p.v > 3) FILTER (?q.v = 0) JOIN (?p.k = ?q.k)"
    " JOIN (?p.k = ?s.k) SEQ (?p, ANY(?q, ?s)) WINDOW (?p, ?q, ?s, 6s)",
    "all": "SELECT ?p.v FROM (?p, a), (?q, a), (?s, b) FILTER (?p.v > 3) FILTER (?q.v < 3)"
    " JOIN (?p.k = ?q.k AND ?p.k = ?s.k) SEQ (?p, ALL(?q, ?s)) WINDOW (?p, ?q, ?s, 6s)",
    "not between": "SELECT ?p.v FROM (?p, a), (?n, b), (?q, a) FILTER (?p.v > 2) FILTER (?n.v > 3)"
    " JOIN (?p.k = ?n.k AND ?p.k = ?q.k) SEQ (?p, NOT ?n, ?q) WINDOW (?p, ?q, 4s)",
    "not at the end": "SELECT ?p.v FROM (?p, a), (?n, b) FILTER (?p.v > 2) FILTER (?n.v > 2) JOIN (?p.k = ?n.k)"
    " SEQ (?p, NOT ?n) WINDOW (?p, ?n, 5s)",
    "not at the beginning": "SELECT ?p.v FROM (?n, b), (?p, a) FILTER (?p.v > 2) FILTER (?n.v > 2) JOIN (?p.k = ?n.k)"
    " SEQ (NOT ?n, ?p) WINDOW (?n, ?p, 5s)",
    "many": "SELECT ?p.k, COUNT(?m) AS n, SUM(?m.f) AS s FILTER (?p.v = 4) FILTER (?m.v < 4) FILTER (?q.v = 5)"
    " JOIN (?p.k = ?m.k AND ?p.k = ?q.k) SEQ (?p, ?m+, ?q) WINDOW (?p, ?q, 12s)",
}


def plant(folder: Path) -> tuple[Application, list[Event]]:
    """Two streams of little, and 60 events of them, some with nulls."""
    (folder / "app.yaml").write_text(STREAMS)
    r, events = random.Random(2), []
    for number in range(60):
        values: dict[str, Value] = {"k": r.choice(["x", "x", "y", None]), "v": r.choice([0, 1, 2, 3, 4, 5, None])}
        stream = "a" if r.random() < 0.75 else "b"
        values |= {"f": r.choice([None, 0.1, 1.25, 1e16])} if stream == "a" else {}
        events.append(Event(stream, number, number // 2 * 1_000_000, values))
    return load(folder / "app.yaml"), events


def test_sql_of_every_kind_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever chance may bring into the tests before."""
    app, events = plant(tmp_path)
    past = Held(spark, events)
    for kind, text in KINDS.items():
        question = asked(app, text, NOW)
        printer = MatchPrinter(question.checked)
        wanted = [printer.as_json(match) for match in find_matches("reference", question.question, events, NOW)]
        answer = Answer(past, question, "rewrite")
        assert answer.refused is None, kind
        assert len(wanted) > 1, kind
        assert list(answer) == wanted, kind


#: Queries without a key, and whether time divides their events.
KEYLESS = {
    "pair": ("SELECT ?p.v, ?q.f FILTER (?p.v > 2) FILTER (?q.v < 3) SEQ (?p, ?q) WINDOW (?p, ?q, 1s)", True),
    "two streams": (
        "SELECT ?p.v FROM (?p, a), (?q, b) JOIN (?p.v < ?q.v) SEQ (?p, ?q) WINDOW (?p, ?q, 2s)",
        True,
    ),
    "not at the end": (
        "SELECT ?p.v FROM (?p, a), (?n, b) FILTER (?p.v > 2) SEQ (?p, NOT ?n) WINDOW (?p, ?n, 1s)",
        True,
    ),
    "batch": ("SELECT SUM(?e.f) AS s, COUNT(?e) AS n WINDOW (?e, batch, 2s)", True),
    "next": ("SELECT ?p.v FILTER (?p.v > 2) FILTER (?q.v < 3) SEQ (?p, ?q) WINDOW (?p, ?q, 2s) MATCH NEXT", False),
    "session": ("SELECT SUM(?e.v) AS s FILTER (?e.v = 0) WINDOW (?e, session, 1s)", False),
}


@pytest.mark.parametrize("kind", KEYLESS)
def test_events_without_a_key_are_divided_by_time(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Slices of `hybrid` give each match once, and what depends on all that went before is matched in order."""
    app, events = plant(tmp_path)
    text, is_divided = KEYLESS[kind]
    question = asked(app, text, NOW)
    layout = Layout(question.checked, question.streams)
    assert not layout.keys
    frames = [selected(Held(spark, events).events(layout.streams[name]), layout, name) for name in layout.names]
    together = gathered(reduce(DataFrame.unionByName, frames), layout)
    assert ("since" in together.columns) == is_divided
    if is_divided:
        assert together.select("since").distinct().count() > 1
    printer = MatchPrinter(question.checked)
    wanted = [printer.as_json(match) for match in find_matches("reference", question.question, events, NOW)]
    assert len(wanted) > 3
    assert list(Answer(Held(spark, events), question, "hybrid")) == wanted


def test_most_are_rewritten() -> None:
    """Steps of every kind, moving windows and aggregates: what is refused is the exception, and has its reason."""
    refused: Counter[str] = Counter()
    rewritten: Counter[str] = Counter()

    @settings(max_examples=150, database=None, derandomize=True, suppress_health_check=list(HealthCheck), deadline=None)
    @given(case=cases())
    def examine(case: Case) -> None:
        simple = simpler(case)
        assert simple is not None
        query = simple.checked.query
        kinds = {type(step).__name__ for step in query.seq}
        kinds |= {w.kind for w in query.windows if isinstance(w, syntax.EventWindow)}
        kinds |= {"NOT at the end"} if query.seq and isinstance(query.seq[-1], syntax.Absent) else set()
        kinds |= {"aggregate"} if any(isinstance(e, syntax.Aggregate) for e in _expressions(query)) else set()
        try:
            rewritten_of(Layout(simple.checked, simple.catalogue.streams))
        except NotExact as reason:
            refused[str(reason)] += 1
        else:
            rewritten.update(kinds | {"all"})

    examine()
    wanted = {"One", "Maybe", "Many", "Absent", "AllOf", "AnyOf", "sliding", "batch", "session", "length"}
    assert {*wanted, "NOT at the end", "aggregate"} <= set(rewritten)
    assert rewritten["all"] > 3 * refused.total(), refused


def _expressions(query: syntax.Query) -> Iterator[syntax.Expression]:
    for item in query.select:
        yield from syntax.walk(item.expression)
