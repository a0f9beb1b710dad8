"""The suite of queries on the reference, and on Spark streaming at several cuts, against the native matcher.

Spark batch has a test for each of its queries in test_matching.py; the cluster runs it in test_cluster.py, some of it
as a stream at other cuts; test_buckets.py cuts streams at random, without Spark.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cepheid.cli.engines import find_matches
from cepheid.spark.clocks import Live
from tests.plan.running import shown
from tests.spark.suite import ON_CLUSTER, by_name, together
from tests.spark.test_buckets import judged
from tests.spark.test_matching import EVENTS, QUERIES, expected, question
from tests.spark.test_streaming import LATENESS, NOW, arrivals, delta_rows, finished, read, run, write


@pytest.mark.parametrize("name", QUERIES)
def test_the_reference_finds_what_the_native_matcher_finds(name: str) -> None:
    asked = question(QUERIES[name])
    assert shown(find_matches("reference", asked, EVENTS, NOW)) == shown(expected(QUERIES[name], NOW))


OTHERS = [name for name in QUERIES if name not in ON_CLUSTER]


#: Those that the cluster runs as streams have other cuts there.
@pytest.mark.parametrize(
    ("cuts", "names"),
    [([0, 150, 151, 400], list(QUERIES)), pytest.param([0, 260, 400], OTHERS, marks=pytest.mark.soak)],
    ids=["all", "others"],
)
def test_streams_find_what_the_native_matcher_finds(
    spark: SparkSession, tmp_path: Path, cuts: list[int], names: list[str]
) -> None:
    write(tmp_path / "in", arrivals(), cuts)
    stream = read(spark, tmp_path / "in").withWatermark("time", "2 seconds")
    rows = run(together(stream, Live(buckets=2), names).selectExpr("name", "id", "0 AS time"), tmp_path)
    found = by_name((row["name"], row["id"]) for row in rows)
    for name in names:
        assert found[name] == sorted(finished(name)), name
    assert sum(map(len, found.values())) > 300


def test_silence_is_an_answer_too(spark: SparkSession, tmp_path: Path) -> None:
    """The clock calls the operators: what waits for something not to happen comes without another event (rule E5)."""
    names = ("absent", "batch")
    write(tmp_path / "in", arrivals(), [0, 400])
    stream = read(spark, tmp_path / "in").withWatermark("time", "2 seconds")
    writer = together(stream, Live(buckets=2, idle="1s"), names).writeStream.format("delta")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
    timely, _ = judged(arrivals(), ("a", "b"), LATENESS)
    wanted = {name: sorted(m.id for m in expected(QUERIES[name], NOW, timely)) for name in names}
    deadline, found = time.monotonic() + 120, by_name([])
    try:
        while {name: found[name] for name in names} != wanted and time.monotonic() < deadline and query.isActive:
            time.sleep(0.5)
            found = by_name(delta_rows(tmp_path / "out", "name", "id"))
    finally:
        query.stop()
    for name in names:
        assert found[name] == wanted[name], query.exception()
        assert len(wanted[name]) > len(finished(name)), "nothing of it waited for the end"
