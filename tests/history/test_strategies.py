"""Every strategy finds what the native matcher finds, in its order, on random queries and streams."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings
from pyspark.sql import SparkSession

from cepheid.history.answer import STRATEGIES, Answer
from cepheid.history.frames import Layout
from cepheid.history.rewrite import rewritten_of
from cepheid.history.sql import NotExact
from cepheid.language import syntax
from cepheid.language.output import MatchPrinter
from cepheid.plan.matcher import Matcher
from tests.history.held import Held, asked_of
from tests.history.simpler import simpler
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
    asked = asked_of(case.checked, case.catalogue.streams, NOW)
    expected = wanted(case)
    for strategy in STRATEGIES:
        assert list(Answer(past, asked, strategy).lines()) == expected, strategy


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
    for selected in query.select:
        yield from syntax.walk(selected.expression)
