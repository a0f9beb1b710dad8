"""What the knowledge adds to rows, a row for each answer; tests/history/test_enriched.py has the archive's columns."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cepheid.app.known import Known
from cepheid.spark import enrich
from cepheid.spark.columns import UnsuitableColumns
from cepheid.spark.knowledge import NotKnown
from tests.plan.path_strategies import NS, PREFIXES, knowledge
from tests.plan.test_paths import MEANINGS, ROOMS


@pytest.fixture(scope="module")
def kb() -> Known:
    return Known(knowledge(ROOMS), MEANINGS, prefixes=PREFIXES)


@pytest.fixture
def readings(spark: SparkSession) -> DataFrame:
    rows = [(1, "s1", 5.0), (2, "s2", 7.0), (3, "s3", 9.0), (4, None, 9.0)]
    return spark.createDataFrame(rows, "id long, sensor string, flow double")


def test_enrich(readings: DataFrame, kb: Known) -> None:
    found = readings.transform(enrich(kb, "sensor", room=":in", kind=":in/a")).orderBy("id", "room")
    rows = [(r.id, (r.room or "").removeprefix(NS), (r.kind or "").removeprefix(NS)) for r in found.collect()]
    assert rows == [(1, "r1", "Office"), (2, "r1", "Office"), (2, "r2", "Office"), (3, "r3", "Hall"), (4, "", "")]
    with pytest.raises(NotKnown, match="'flwo' of 'a' is not annotated; did you mean 'flow'"):
        enrich(kb, "flwo", room=":in")
    with pytest.raises(NotKnown, match="'flow' of 'a' is a reading, and no path leads on from its values"):
        enrich(kb, "flow", room=":in")
    for path in (":in } . { ?x :in", ":in/", "in"):
        with pytest.raises(NotKnown, match="is no path: "):
            enrich(kb, "sensor", room=path)


def test_columns_may_have_any_name(readings: DataFrame, kb: Known) -> None:
    found = readings.where("id = 1").transform(enrich(kb, "sensor", e=":in", entity=":in/a"))
    assert [(row.e, row.entity) for row in found.collect()] == [(f"{NS}r1", f"{NS}Office")]


def test_an_annotated_column_that_enrich_can_not_take(readings: DataFrame, kb: Known) -> None:
    with pytest.raises(UnsuitableColumns, match="no column 'sensor', an annotated attribute of stream 'a'"):
        readings.drop("sensor").transform(enrich(kb, "sensor", room=":in"))
    with pytest.raises(UnsuitableColumns, match=r"column 'sensor', .*: expected string, found bigint; cast it"):
        readings.withColumn("sensor", sf.col("id")).transform(enrich(kb, "sensor", room=":in"))
