"""The suite of queries on the reference, and on Spark streaming at several cuts, against the native matcher.

Spark batch has a test for each of its queries in test_matching.py; the cluster runs it in test_cluster.py, some of it
as a stream at other cuts; test_buckets.py cuts streams at random, without Spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cepheid.cli.engines import find_matches
from cepheid.language.checker import check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.spark.clocks import Live
from tests.plan.running import shown
from tests.spark.suite import by_name, together
from tests.spark.test_matching import EVENTS, QUERIES, STREAMS, expected
from tests.spark.test_streaming import NOW, arrivals, finished, read, run, write


@pytest.mark.parametrize("name", QUERIES)
def test_the_reference_finds_what_the_native_matcher_finds(name: str) -> None:
    query = parse(QUERIES[name])
    checked, problems = check(query, Catalogue(STREAMS, query.ranges[0].streams[0]))
    assert checked is not None, problems
    events = EVENTS[:120]  # it enumerates
    assert shown(find_matches("reference", checked, events, NOW)) == shown(expected(QUERIES[name], NOW, events))


def test_streams_find_what_the_native_matcher_finds(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", arrivals(), [0, 150, 151, 400])
    stream = read(spark, tmp_path / "in").withWatermark("time", "2 seconds")
    rows = run(together(stream, Live(buckets=2)).selectExpr("name", "id", "0 AS time"), tmp_path)
    found = by_name((row["name"], row["id"]) for row in rows)
    for name in QUERIES:
        assert found[name] == sorted(finished(name)), name
    assert sum(map(len, found.values())) > 500
