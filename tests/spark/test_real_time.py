"""Queries in Real-Time Mode: plans of the JVM alone, with the matches of the native matcher, to the id."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import cepheid.spark
from cepheid.model.matches import MatchIds
from cepheid.plan.real_time import hindrance
from cepheid.spark.blake import with_match_id
from cepheid.spark.clocks import Live
from cepheid.spark.real_time import NotRealTime
from tests.spark.test_matching import EVENTS, QUERIES, expected
from tests.spark.test_slices import checked
from tests.spark.test_streaming import read, write

pytestmark = pytest.mark.spark
QUERY = (
    "SELECT ?p.x, ?p.since, ?p.time FROM (?p, a) FILTER (?p.x > 3 AND ?p.ok IS NOT NULL) FILTER (NOT ?p.n IN (1, 2))"
)


def test_ids_are_those_of_the_native_core(spark: SparkSession) -> None:
    """Where the id's bytes lie in one word, in two, in two blocks, and behind several blocks."""
    numbers = [0, 1, -1, 2**63 - 1, -(2**63), 123_456_789_012]
    frame = spark.createDataFrame([(n,) for n in numbers], "n bigint")
    for form in ("q" * 8, "q" * 93, "q" * 101, "q" * 300):
        found = {row["n"]: row["match"] for row in with_match_id(frame, "match", form, "e", "air", "n").collect()}
        assert found == {n: MatchIds(form).of_events({"e": ("air", n)}) for n in numbers}


def test_a_stream_is_planned_in_the_jvm(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", EVENTS, [0, 200, 400])
    query = cepheid.spark.match(QUERY, stream="stream", live=Live(real_time=True))
    matches = read(spark, tmp_path / "in").transform(query)
    plan = matches._jdf.queryExecution().analyzed().toString()
    assert "InArrow" not in plan
    assert "Python" not in plan
    writer = matches.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).outputMode("update")
    writer.format("memory").queryName("real_time").trigger(availableNow=True).start().awaitTermination()
    columns = "id", "events.p", "select.x", sf.unix_micros("select.since").alias("since"), sf.unix_micros("time")
    rows = sorted(tuple(row) for row in spark.table("real_time").select(*columns).collect())
    wanted = expected(QUERY)
    assert len(wanted) > 10
    assert rows == sorted((m.id, m.events["p"][1], m.select["x"], m.select["since"], m.time) for m in wanted)  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        (QUERIES["pair"], "SEQ: "),
        (QUERIES["several"], "WINDOW: "),
        (QUERIES["sliding"], "WINDOW: "),
        (QUERIES["expressions"], "FILTER: arithmetic"),
        ("SELECT ?p.x + 1 AS y FROM (?p, a)", "SELECT: only attributes"),
        ("SELECT ?p.x FROM (?p, a | b)", "FROM: several streams"),
    ],
)
def test_what_prevents_it_is_said(text: str, clause: str) -> None:
    assert (hindrance(checked(text)) or "").startswith(clause)


def test_a_query_that_qualifies() -> None:
    assert hindrance(checked(QUERY)) is None


def test_a_query_that_does_not_qualify_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotRealTime, match=r"can't run in Real-Time Mode\. SEQ: events of one match have to be kept"):
        read(spark, tmp_path).transform(
            cepheid.spark.match(QUERIES["pair"], stream="stream", live=Live(real_time=True))
        )
