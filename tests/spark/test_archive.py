"""The archive: what goes in comes out, once; and an archive that can't be written is found out first."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.spark.archive import (
    Archive,
    ArchiveFormat,
    ArchiveUnwritable,
    Batch,
    append_batch,
    check_writable,
    read,
    read_dead_letters,
)
from cepheid.spark.sources import read_files
from cepheid.spark.validate import ColumnClash, validate
from tests.spark.samples import AIR, EVERYTHING, STREAMS, airflow, events_in, letters_in, mixed_lines, truth

BORDERS = {
    "0001-01-01T00:00:00.000000Z": "0001-01-01",
    "0001-01-01T23:59:59.999999Z": "0001-01-01",
    "1582-10-10T12:00:00.000001Z": "1582-10-10",  # never was, in the calendar that Julius Caesar's became
    "1883-11-18T12:03:57.999999Z": "1883-11-18",  # the day when Los Angeles got its time zone
    "1969-12-31T23:59:59.999999Z": "1969-12-31",
    "1970-01-01T00:00:00.000000Z": "1970-01-01",
    "2012-05-07T03:00:00.000000Z": "2012-05-07",  # the day before, in Los Angeles
    "9999-12-31T23:59:59.999999Z": "9999-12-31",
}


def write(spark: SparkSession, folder: Path, lines: list[bytes], archive: Archive, batch: Batch) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "lines.jsonl").write_bytes(b"\n".join(lines))
    append_batch(read_files(spark, folder).transform(validate(STREAMS)), STREAMS, archive, batch)


@pytest.mark.parametrize(
    ("file_format", "zone"), [("delta", "UTC"), ("delta", "America/Los_Angeles"), ("parquet", "America/Los_Angeles")]
)
def test_times_are_exact_from_year_1_to_9999(
    spark: SparkSession, tmp_path: Path, file_format: ArchiveFormat, zone: str
) -> None:
    """Also in a session of the caller's, in another zone and with Spark's default form of timestamps in files."""
    if zone != "UTC":
        spark = spark.newSession()
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    archive = Archive(str(tmp_path / "archive"), file_format)
    lines = [airflow(number, time=time) for number, time in enumerate(BORDERS)]
    lines += [
        b'{"stream": "everything", "id": "x%d", "time": 0, "at": "%s"}' % (n, time.encode())
        for n, time in enumerate(BORDERS)
    ]
    write(spark, tmp_path / "in", lines, archive, Batch("test", 0))
    for stream in STREAMS:
        assert events_in(read(spark, archive, stream), stream) == truth(lines).events[stream.name]
    days = read(spark, archive, AIR).orderBy("id").select(sf.col("day").cast("string")).collect()
    assert [row[0] for row in days] == list(BORDERS.values())
    # Skipping files by their least and greatest times leaves out none that has an answer.
    last = read(spark, archive, AIR).where(sf.col("time") >= sf.timestamp_micros(sf.lit(253_402_300_799_999_999)))
    assert [row["id"] for row in last.select("id").collect()] == [len(BORDERS) - 1]


def test_a_batch_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    """As Parquet; for Delta the runs that die, in test_pipeline.py, show it."""
    archive = Archive(str(tmp_path / "archive"), "parquet")
    lines, more = mixed_lines(40), mixed_lines(40, start=100)
    for number, part in ((0, lines), (0, lines), (1, more), (1, more)):
        write(spark, tmp_path / "in", part, archive, Batch("test", number))
    expected = truth(lines + more)
    for stream in STREAMS:
        table = read(spark, archive, stream)
        assert table.columns == ["id", "time", *stream.attributes, "day"]
        assert events_in(table, stream) == expected.events[stream.name]
    letters = read_dead_letters(spark, archive)
    assert letters_in(letters) == expected.letters
    assert letters.where("day <> to_date(received)").count() == 0


def test_two_writers_may_make_a_table_at_the_same_time(spark: SparkSession, tmp_path: Path) -> None:
    archive = Archive(str(tmp_path / "archive"))
    with ThreadPoolExecutor() as pool:
        tasks = [
            pool.submit(write, spark, tmp_path / f"{n}", [b"rubbish"], archive, Batch(f"{n}", 0)) for n in range(3)
        ]
    assert [task.result() for task in tasks] == [None] * 3
    assert read_dead_letters(spark, archive).count() == 3


@pytest.mark.parametrize("file_format", ["delta", "parquet"])
def test_what_is_not_there_is_empty(spark: SparkSession, tmp_path: Path, file_format: ArchiveFormat) -> None:
    archive = Archive(str(tmp_path), file_format)
    for exists in (False, True):
        if exists:
            check_writable(archive, STREAMS)
        assert read(spark, archive, EVERYTHING).columns == ["id", "time", *EVERYTHING.attributes, "day"]
        assert read(spark, archive, EVERYTHING).count() == read_dead_letters(spark, archive).count() == 0


@pytest.mark.parametrize(
    ("blocked", "path"),
    [("file", "file"), ("file", "file/archive"), ("archive/airflowReport", "archive"), (None, "/proc/archive")],
)
def test_a_path_that_cannot_be_written(tmp_path: Path, blocked: str | None, path: str) -> None:
    if blocked:
        (tmp_path / blocked).parent.mkdir(exist_ok=True)
        (tmp_path / blocked).touch()
    with pytest.raises(ArchiveUnwritable) as caught:
        check_writable(Archive(str(tmp_path / path)), STREAMS)
    assert str(tmp_path / path) in str(caught.value)
    assert "choose another" in str(caught.value)
    if blocked:
        assert f"'{tmp_path / blocked}' is a file" in str(caught.value)


def test_no_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    user = os.geteuid()
    if user == 0:  # root may write anywhere
        os.seteuid(65534)
    try:
        for path in (tmp_path, tmp_path / "archive"):
            with pytest.raises(ArchiveUnwritable, match="Permission denied"):
                check_writable(Archive(str(path)), STREAMS)
    finally:
        os.seteuid(user)


def test_a_writable_path_is_made_and_left_clean(tmp_path: Path) -> None:
    check_writable(Archive(str(tmp_path / "new/archive")), STREAMS)
    assert [path.name for path in (tmp_path / "new/archive").rglob("*") if path.is_file()] == []


def test_the_partition_column_is_taken(tmp_path: Path) -> None:
    with pytest.raises(
        ColumnClash, match=r"'day' and 'day' of stream 'a' apart; rename .* `spellings: \{newName: \[day\]\}`"
    ):
        check_writable(Archive(str(tmp_path)), [Stream("a", {"day": Type.INT})])
