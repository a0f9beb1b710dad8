"""Spark finds what the native matcher finds, on random queries and streams."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, assume, given, settings
from pyspark.sql import SparkSession

from cepheid.model.matches import Match
from cepheid.plan.matcher import Matcher
from cepheid.spark.columns import UnsuitableColumns
from cepheid.spark.local import match_on_spark
from tests.plan.query_strategies import SECOND, Case, cases

NOW = 2 * SECOND
#: A query is a Spark job of half a second; CEPHEID_SPARK_EXAMPLES=500 for a long run.
EXAMPLES = int(os.environ.get("CEPHEID_SPARK_EXAMPLES", "15"))


def plain(match: Match) -> tuple[object, ...]:
    return match.id, match.time, dict(match.events), dict(match.select), match.window, match.group


def is_beyond_a_frame(case: Case) -> bool:
    """Whether a query reads what one DataFrame does not tell: a property of streams that have other names for it, or an
    id where one stream's are numbers and another's are texts."""
    names = {name for _, name in case.checked.attributes}
    kinds = {case.catalogue.streams[stream].id_kind for stream in case.checked.streams}
    return any(":" in name for name in names) or ("id" in names and len(kinds) > 1)


@pytest.mark.spark
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    derandomize="CEPHEID_SPARK_EXAMPLES" not in os.environ,
)
@given(case=cases())
def test_spark_is_native(spark: SparkSession, case: Case) -> None:
    assume(not is_beyond_a_frame(case))
    try:
        found = match_on_spark(spark, case.checked, case.events, NOW)
    except UnsuitableColumns:
        assume(False)
    wanted = Matcher(case.checked, NOW).matches(case.events)
    assert [plain(m) for m in found] == [plain(m) for m in wanted]
