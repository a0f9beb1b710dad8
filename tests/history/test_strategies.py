"""Every strategy finds what the native matcher finds, in its order, on random queries and streams."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import HealthCheck, assume, given, settings
from pyspark.sql import SparkSession

from cepheid.history.answer import STRATEGIES, Answer
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
