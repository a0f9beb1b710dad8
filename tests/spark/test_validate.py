"""Validation in the executors gives the verdicts of `RecordDecoder`, whatever the bytes are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from cepheid.model.streams import Stream
from cepheid.model.time import MAX_INSTANT, MIN_INSTANT
from cepheid.model.types import Type
from cepheid.spark.sources import read_files
from cepheid.spark.validate import ColumnClash, dead_letters, events_of, validate
from tests.spark.samples import AIR, EVERYTHING, STREAMS, airflow, events_in, letters_in, truth

odd_text = st.text(st.characters(), max_size=8) | st.sampled_from(
    ["", "é", "\x00", "\u2028", "\ud800", "👩‍🚀", "\ufeff"]
)
numbers = st.integers(-(2**65), 2**65) | st.sampled_from([0, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**400])
floats = st.floats() | st.integers(-10, 10)
times = (
    st.integers(MIN_INSTANT - 1, MIN_INSTANT + 1)
    | st.integers(MAX_INSTANT - 1, MAX_INSTANT + 1)
    | st.datetimes().map(lambda moment: moment.isoformat())
    | st.sampled_from(["0001-01-01", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59.9999999Z", "soon", ""])
)
anything = st.recursive(
    st.none() | st.booleans() | numbers | floats | odd_text | times,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_text, inner, max_size=2),
    max_leaves=4,
)
values = {
    Type.BOOL: st.booleans(),
    Type.INT: numbers,
    Type.FLOAT: floats,
    Type.STRING: odd_text,
    Type.TIMESTAMP: times,
    Type.BYTES: st.sampled_from(["", "AA==", "AA", "é"]),
    Type.UINT8_ARRAY: st.lists(st.integers(-1, 256), max_size=3) | st.just("AA=="),
    Type.FLOAT_ARRAY: st.lists(floats, max_size=3),
}


@st.composite
def records(draw: st.DrawFn) -> bytes:
    stream = draw(st.sampled_from(STREAMS))
    record: dict[str, object] = {"stream": stream.name, "time": draw(times), "id": "a" if stream.id_kind else 1}
    for name, kind in stream.attributes.items():
        if draw(st.booleans()):
            record[name] = draw(values[kind])
    if draw(st.integers(0, 3)) == 0:
        record[draw(st.sampled_from(["id", "time", "stream", "airflow", "flowrat"]) | odd_text)] = draw(anything)
    return json.dumps(record).encode()


lines = (
    records()
    | st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b""))
    | anything.map(json.dumps).map(str.encode)
)

EXTREMES = [
    b"",
    b" \t\r",
    b"\x0b\x0c",
    b"\r",
    b"\xff\xfe",
    b'{"a": "\xed\xa0\x80"}',
    b"{}",
    b"[" * 100_000,
    b'{"stream": "airflowReport", "stream": "everything"}',
    b"x" * 10_000_000,
    b"1" * 10_000,
    airflow(1) + b"\r",
    b"nonsense\r",
    b"  " + airflow(2) + b"  ",
    airflow(3),
    airflow(3),  # a tie, and a duplicate: not validation's matter
    airflow(4, time="0001-01-01T00:00:00Z"),
    airflow(5, time="9999-12-31T23:59:59.999999Z"),
    airflow(6, time="2012-05-07T09:00"),
    airflow(7, flowrate=float("nan")),
    airflow(8, flowrate=float("inf")),
    airflow(9, flowrate=10**400),
    airflow(10, id=None),
    airflow(11, id="x"),
    airflow(12, airflow=1),
    airflow(13, sensorID="\ud800"),
    airflow(14, **{"\ud800": 1}),
    airflow(15, stream="\ud800"),
    airflow(16, time="\ud800"),
    airflow(17, sensorID="\u2028\x00👩‍🚀\r"),
]


def validated(spark: SparkSession, folder: Path, content: bytes) -> DataFrame:
    (folder / "lines.jsonl").write_bytes(content)
    return read_files(spark, folder).transform(validate(STREAMS))


def assert_verdicts(result: DataFrame, lines: list[bytes]) -> None:
    expected = truth(lines)
    result = result.persist()
    assert result.count() == expected.read
    for stream in STREAMS:
        assert events_in(result.transform(events_of(stream)), stream) == expected.events[stream.name]
    assert letters_in(result.transform(dead_letters())) == expected.letters
    result.unpersist()


def test_extremes(spark: SparkSession, tmp_path: Path) -> None:
    assert_verdicts(validated(spark, tmp_path, b"\n".join(EXTREMES)), EXTREMES)
    assert truth(EXTREMES).archived[AIR.name] == 8


@given(batch=st.lists(lines, min_size=60, max_size=120))
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_lines(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, batch: list[bytes]) -> None:
    assert_verdicts(validated(spark, tmp_path_factory.mktemp("lines"), b"\n".join(batch)), batch)


def test_every_row_is_an_event_or_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    result = validated(spark, tmp_path, b"\n".join(EXTREMES))
    kinds = "int(event_airflowReport IS NOT NULL) + int(event_everything IS NOT NULL) + int(code IS NOT NULL)"
    assert result.where(f"{kinds} <> 1").count() == 0


def test_a_byte_order_mark_is_no_part_of_the_first_record(spark: SparkSession, tmp_path: Path) -> None:
    assert_verdicts(validated(spark, tmp_path, b"\xef\xbb\xbf" + airflow(1) + b"\n"), [airflow(1)])


def test_types_of_columns(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").touch()
    result = read_files(spark, tmp_path).transform(validate([EVERYTHING])).transform(events_of(EVERYTHING))
    assert dict(result.dtypes) == {
        "id": "string",
        "time": "timestamp",
        "flag": "boolean",
        "count": "bigint",
        "level": "double",
        "name": "string",
        "at": "timestamp",
        "blob": "binary",
        "samples": "binary",
        "spectrum": "array<double>",
    }


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        ([Stream("a", {}), Stream("A", {})], "streams 'a' and 'A'"),
        ([Stream("a", {"Time": Type.INT})], "columns 'time' and 'Time' of stream 'a'"),
        ([Stream("a", {"flow": Type.INT, "Flow": Type.INT})], "columns 'flow' and 'Flow' of stream 'a'"),
    ],
)
def test_names_that_spark_confuses(streams: list[Stream], message: str) -> None:
    with pytest.raises(ColumnClash, match=message):
        validate(streams)
