"""Knowledge for DataFrames: where and match with PATHs, planned by Catalyst as broadcast joins."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cepheid.app.known import Known
from cepheid.app.question import ask
from cepheid.cli.engines import find_matches
from cepheid.knowledge.annotation import Annotation, Annotations
from cepheid.language.checker import check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.types import Type
from cepheid.plan.matcher import Matcher
from cepheid.spark import enrich, match, where
from cepheid.spark.columns import UnsuitableColumns
from cepheid.spark.knowledge import NotKnown
from cepheid.spark.local import match_on_spark
from tests.plan.path_strategies import NS, PREFIXES, SECOND, STREAM, PathCase, cases, cases_together, groups, knowledge
from tests.plan.test_paths import MEANINGS, ROOMS, checked_query

#: A query is a Spark job or two; CEPHEID_SPARK_EXAMPLES=500 for a long run.
EXAMPLES = int(os.environ.get("CEPHEID_SPARK_EXAMPLES", "12"))
CATALOGUE = Catalogue({"a": STREAM}, "a", PREFIXES)


@pytest.fixture(scope="module")
def kb() -> Known:
    return Known(knowledge(ROOMS), MEANINGS, prefixes=PREFIXES)


@pytest.fixture
def readings(spark: SparkSession) -> DataFrame:
    rows = [
        (1, 1 * SECOND, "s1", 5.0),
        (2, 2 * SECOND, "s2", 7.0),
        (3, 3 * SECOND, "s3", 9.0),
        (4, 4 * SECOND, None, 9.0),
    ]
    return spark.createDataFrame(rows, "id long, time long, sensor string, flow double")


OFFICE = "PATH {?e :src ?s . ?s :in ?r . ?r a :Office . ?e :flow ?f . FILTER (?f > 6)}"


def test_where(readings: DataFrame, kb: Known) -> None:
    found = readings.transform(where(OFFICE, kb))
    assert [row.id for row in found.collect()] == [2]
    assert found.columns == readings.columns


def test_few_keys_are_a_condition_and_many_a_broadcast_join(
    readings: DataFrame, kb: Known, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = readings.transform(where(OFFICE, kb))
    listed.explain()
    assert "sensor#" in (told := capsys.readouterr().out)
    assert "Join" not in told
    monkeypatch.setattr("cepheid.spark.knowledge._MOST_LISTED", 1)
    joined = readings.transform(where(OFFICE, kb))
    joined.explain()
    assert "BroadcastHashJoin" in capsys.readouterr().out
    assert sorted(map(tuple, joined.collect())) == sorted(map(tuple, listed.collect()))


def test_where_and_enrich_on_a_stream(spark: SparkSession, readings: DataFrame, kb: Known, tmp_path: Path) -> None:
    readings.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(readings.schema).parquet(str(tmp_path / "in"))
    offices = stream.transform(where(OFFICE, kb)).transform(enrich(kb, "sensor", room=":in"))
    query = offices.writeStream.format("memory").queryName("offices")
    running = query.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
    running.awaitTermination()
    rows = sorted((row.id, row.room.removeprefix(NS)) for row in spark.table("offices").collect())
    assert rows == [(2, "r1"), (2, "r2")]
    with pytest.raises(NotKnown, match="on a stream only what is indexed"):
        stream.transform(where("PATH {?e :src ?s . ?e :flow ?f . ?s :limit ?f}", kb))


@pytest.mark.parametrize("path", [OFFICE, "PATH {?e :src ?s . ?e :flow ?f . ?s :limit ?f}"], ids=["indexed", "asked"])
def test_an_annotated_column_that_is_not_there_or_of_another_type(readings: DataFrame, kb: Known, path: str) -> None:
    for apply in (where(path, kb), match(f"SELECT ?e.id FROM (?e, a) {path}", knowledge=kb)):
        for frame, message in [
            (
                readings.withColumnRenamed("sensor", "sensors"),
                r"no column 'sensor', an annotated attribute of stream 'a': expected string; rename .*'sensors'\?",
            ),
            (
                readings.withColumn("sensor", sf.col("id")),
                r"column 'sensor', an .* of stream 'a': expected string, found bigint; cast it: .*cast\(\"string\"\)",
            ),
            (readings.withColumn("sensor", sf.current_date()), "'sensor', .*: expected string, found date; cast it"),
            (readings.withColumnRenamed("flow", "rate"), "no column 'flow', .*: expected double; rename"),
            (readings.withColumn("flow", sf.lit("7")), "column 'flow', .*: expected double, found string"),
        ]:
            with pytest.raises(UnsuitableColumns, match=message):
                frame.transform(apply)
    taken = match(f"SELECT ?e.id FROM (?e, a) {path}", id="sensor", knowledge=kb)
    with pytest.raises(UnsuitableColumns, match="no column 'sensor', an annotated attribute"):
        readings.transform(taken)


def test_a_smaller_integer_is_an_annotated_int(readings: DataFrame) -> None:
    meanings = Annotations({"a": {"number": Annotation(f"{NS}src", "template", Type.INT, template=NS + "s{value}")}})
    known = Known(knowledge(ROOMS), meanings, prefixes=PREFIXES)
    path = "PATH {?e :src/:in ?r . ?r a :Hall}"
    for kind in ("tinyint", "int", "bigint"):
        frame = readings.withColumn("number", sf.col("id").cast(kind))
        assert [row.id for row in frame.transform(where(path, known)).collect()] == [3]
        found = frame.transform(match(f"SELECT ?e.id FROM (?e, a) {path}", knowledge=known))
        assert [row.select.id for row in found.collect()] == [3]
        rooms = frame.transform(enrich(known, "number", room=":in")).where("id = 3").collect()
        assert [row.room for row in rooms] == [f"{NS}r3"]


@pytest.mark.parametrize("held", ["timestamp_micros(time)", "time"], ids=["timestamp", "microseconds"])
def test_readings_and_times_that_a_path_asks_about(readings: DataFrame, held: str) -> None:
    turtle = f"""@prefix : <{NS}> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
        :s1 :limit 7.0e0 ; :since "1970-01-01T00:00:00Z"^^xsd:dateTime .
        :s2 :limit 5.0e0 ; :since "1970-01-01T00:00:05Z"^^xsd:dateTime .
        :s3 :since "1970-01-01T00:00:02Z"^^xsd:dateTime ."""
    meanings = Annotations({"a": {**MEANINGS.properties("a"), "at": Annotation(f"{NS}at", "literal", Type.TIMESTAMP)}})
    known = Known(knowledge(turtle), meanings, prefixes=PREFIXES)
    frame = readings.withColumn("at", sf.expr(held))
    for path, wanted in [
        ("PATH {?e :flow ?f . :s1 :limit ?f}", [2]),
        ("PATH {?e :at ?t . :s3 :since ?i . FILTER (?t > ?i)}", [3, 4]),
        ("PATH {?e :src ?s . ?s :since ?i . ?e :at ?t . FILTER (?t > ?i)}", [1, 3]),
    ]:
        assert sorted(row.id for row in frame.transform(where(path, known)).collect()) == wanted, path
        found = frame.transform(match(f"SELECT ?e.id FROM (?e, a) {path}", knowledge=known))
        assert sorted(row.select.id for row in found.collect()) == wanted, path


@pytest.fixture
def several_tasks(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


SAME_ROOM = "SEQ (?a, ?b) WINDOW (?a, ?b, 1min) PATH {?a :src/:in ?r . ?b :src/:in ?r}"


@pytest.mark.usefixtures("several_tasks")
def test_match_divides_events_by_what_they_mean(
    readings: DataFrame, kb: Known, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    found = readings.transform(match(f"SELECT ?a.id AS x, ?b.id AS y, ?r {SAME_ROOM}", knowledge=kb))
    assert [(row.select.x, row.select.y, row.select.r) for row in found.collect()] == [(1, 2, f"{NS}r1")]
    assert not [one for one in recwarn if "one task" in str(one.message)]
    found.explain()
    plan = capsys.readouterr().out
    assert "BroadcastHashJoin" in plan
    assert "hashpartitioning(bucket" in plan


@pytest.mark.spark
@pytest.mark.usefixtures("several_tasks")
@pytest.mark.parametrize(
    "text",
    [
        f"SELECT ?a.id AS x, ?b.id AS y, ?r {SAME_ROOM}",
        f"SELECT ?a.id AS x, ?b.id AS y {SAME_ROOM}",  # two rooms in common are one match
        "SELECT ?a.id AS x, ?p, ?q WINDOW (?a, ?b, 3s) JOIN (?p = ?q) PATH {?a :src/:in ?p} PATH {?b :src/:in ?q}",
        "SELECT ?a.id AS x, ?r SEQ (?a, NOT ?n, ?b) WINDOW (?a, ?b, 5s) "
        "PATH {?a :src/:in ?r . ?b :src/:in ?r . ?n :src/:in ?r} FILTER (?n.flow > 8)",
        "SELECT ?a.id AS x, COUNT(?b) AS n SEQ (?a, ?b+) WINDOW (?a, ?b, 4s) PATH {?a :src/:in ?r . ?b :src/:in ?r}",
        "SELECT ?a.id AS x, ?r SEQ (?a, ?b?) WINDOW (?a, ?b, 4s) PATH {?a :src/:in ?r . ?b :src/:in ?r}",
    ],
)
def test_divided_or_not_the_matches_are_the_same(spark: SparkSession, kb: Known, text: str) -> None:
    turtle = f"@prefix : <{NS}> . " + " ".join(f":s{n} :in :r{n % 5}, :r{n * 3 % 7} ." for n in range(12))
    known = Known(knowledge(turtle), MEANINGS, prefixes=PREFIXES)
    draw = random.Random(7)
    rows = [
        (
            n,
            draw.randrange(60) * SECOND,
            draw.choice([f"s{draw.randrange(12)}", "s99", None]),
            float(draw.randrange(10)),
        )
        for n in range(150)
    ]
    frame = spark.createDataFrame(rows, "id long, time long, sensor string, flow double")
    found = frame.transform(match(text, knowledge=known)).collect()
    checked, said = checked_query(text)
    assert checked is not None, said
    given_events = [Event("a", n, t, {"sensor": s, "flow": f}) for n, t, s, f in rows]
    wanted = Matcher(ask(checked, known).checked).matches(given_events)
    assert len(wanted) > 10
    assert sorted((row.id, str(row.select.asDict())) for row in found) == sorted(
        (m.id, str(dict(m.select))) for m in wanted
    )


@pytest.mark.filterwarnings("ignore:.*in one bucket")
def test_events_of_a_stream_share_one_of_several_values(spark: SparkSession, kb: Known, tmp_path: Path) -> None:
    sensors = ("s2", "s3", "s1", "s2", "s9")  # s2 is in two rooms, in one of them with s1
    rows = [(n, n * SECOND, sensor, 1.0) for n, sensor in enumerate(sensors, 1)]
    given = spark.createDataFrame(rows, "id long, time long, sensor string, flow double")
    given.withColumn("time", sf.timestamp_micros("time")).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("id long, time timestamp, sensor string, flow double").parquet(
        str(tmp_path / "in")
    )
    text = f"SELECT ?a.id AS x, ?b.id AS y {SAME_ROOM} MATCH NEXT"
    found = stream.withWatermark("time", "0 seconds").transform(match(text, knowledge=kb))
    writer = found.writeStream.format("memory").queryName("sharing").outputMode("append")
    writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start().awaitTermination()
    assert sorted((row.select.x, row.select.y) for row in spark.table("sharing").collect()) == [(1, 3), (3, 4)]


@pytest.mark.spark
@given(case=cases() | cases_together())
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_spark_is_native(spark: SparkSession, case: PathCase) -> None:
    question = ask(case.checked, case.known("auto")).known_for(case.events)
    wanted = Matcher(question.checked, 0).matches(case.events)
    found = match_on_spark(spark, question.checked, case.events, 0)
    shown = [
        [(m.id, m.time, dict(m.events), {k: str(v) for k, v in m.select.items()}) for m in ms] for ms in (found, wanted)
    ]
    assert shown[0] == shown[1]


@pytest.mark.spark
@given(asked=st.lists(groups("e", "1"), min_size=4, max_size=4), case=cases())
@settings(max_examples=EXAMPLES // 3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_where_keeps_the_rows_that_plain_sparql_does(spark: SparkSession, asked: list[str], case: PathCase) -> None:
    known = Known(case.knowledge, case.annotations, prefixes=PREFIXES)
    rows = [(e.id, *(e.attributes[name] for name in ("sensor", "room", "value", "weight"))) for e in case.events]
    frame = spark.createDataFrame(rows, "id long, sensor string, room string, value double, weight long")
    frames, wanted = [], []
    for number, group in enumerate(asked):
        try:
            kept = frame.transform(where(group, known, stream="a"))
        except NotKnown:
            continue  # a FILTER that is left to `match`
        frames.append(kept.select("id", sf.lit(number).alias("number")))
        checked, problems = check(parse(f"SELECT ?e.id FROM (?e, a) PATH {{{group}}}"), CATALOGUE)
        assert checked is not None, problems
        reference = find_matches("reference", ask(checked, known), case.events, 0)
        wanted += [(number, m.select["id"]) for m in reference]
    if frames:
        found = reduce(DataFrame.union, frames).collect()
        assert sorted((row.number, row.id) for row in found) == sorted(wanted), asked
