"""The pipeline: every record is archived or a dead letter, once, by whichever way it came and whatever is killed."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from cepheid.model.streams import Stream
from cepheid.spark.archive import (
    Archive,
    ArchiveFormat,
    ArchiveUnwritable,
    Batch,
    append_batch,
    read,
    read_dead_letters,
)
from cepheid.spark.pipeline import (
    Books,
    PipelineFailed,
    Progress,
    archive_file_stream,
    archive_files,
    check_run,
    input_checkpoint,
)
from cepheid.spark.sources import InputMissing, read_files
from cepheid.spark.validate import UNREADABLE, validate
from tests.spark.samples import AIR, STREAMS, Truth, airflow, events_in, letters_in, mixed_lines, truth


def write_input(folder: Path, files: int = 3, first: int = 0) -> list[bytes]:
    """Files of records, and all their lines."""
    folder.mkdir(exist_ok=True)
    lines: list[bytes] = []
    for number in range(first, first + files):
        part = mixed_lines(30, start=number * 30)
        (folder / f"{number}.jsonl").write_bytes(b"\n".join(part))
        os.utime(folder / f"{number}.jsonl", (number, number))  # Spark takes the oldest first
        lines += part
    return lines


def assert_archived(
    spark: SparkSession, archive: Archive, expected: Truth, streams: Sequence[Stream] = STREAMS
) -> None:
    for stream in streams:
        assert events_in(read(spark, archive, stream), stream) == expected.events[stream.name]
    assert letters_in(read_dead_letters(spark, archive)) == expected.letters


def books(expected: Truth) -> Books:
    return Books(expected.read, expected.archived, expected.codes)


@pytest.mark.parametrize(
    ("archive_format", "streams"), [("delta", [AIR]), ("parquet", STREAMS)], ids=["delta", "parquet"]
)
def test_files_once_then_as_they_come(
    spark: SparkSession, tmp_path: Path, archive_format: ArchiveFormat, streams: Sequence[Stream]
) -> None:
    archive = Archive(str(tmp_path / "archive"), archive_format)
    first = write_input(tmp_path / "in")
    seen: list[Progress] = []
    result = archive_files(spark, streams, tmp_path / "in", "jsonl", archive, files_per_batch=2, progress=seen.append)
    expected = truth(first, streams)
    assert result == books(expected)
    assert result.balanced
    assert [step.batch for step in seen] == [0, 1]
    letters = sum(expected.codes.values())
    assert seen[-1] == Progress(1, expected.read, expected.read - letters, letters)
    assert_archived(spark, archive, expected, streams)

    assert archive_files(spark, streams, tmp_path / "in", "jsonl", archive).read == 0  # nothing is archived twice

    run = archive_file_stream(spark, streams, tmp_path / "in", "jsonl", archive)
    second = write_input(tmp_path / "in", first=3, files=1)
    while run.query.isActive and run.books().read < truth(second).read:
        time.sleep(0.1)
    assert run.stop() == books(truth(second, streams))
    assert_archived(spark, archive, truth(first + second, streams), streams)
    # Read and parsed once, though written to several tables.
    assert [step["numInputRows"] for step in run.query.recentProgress if step["numInputRows"]] == [len(second)]

    # All of it elsewhere, as on another machine: what was archived is not archived again.
    there = tmp_path / "elsewhere (ünder 2)"
    there.mkdir()
    for name in ("in", "archive"):
        (tmp_path / name).rename(there / name)
    moved = Archive(str(there / "archive"), archive_format)
    third = write_input(there / "in", first=4, files=1)
    assert archive_files(spark, streams, there / "in", "jsonl", moved) == books(truth(third, streams))
    assert_archived(spark, moved, truth(first + second + third, streams), streams)


def test_batch_and_stream_give_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    lines = write_input(tmp_path / "in")
    archive = Archive(str(tmp_path / "archive"), "parquet")
    append_batch(read_files(spark, tmp_path / "in").transform(validate(STREAMS)), STREAMS, archive, Batch("import", 0))
    assert_archived(spark, archive, truth(lines))


@pytest.mark.parametrize("archive_format", ["delta", "parquet"])
def test_no_records_then_no_dead_letters(spark: SparkSession, tmp_path: Path, archive_format: ArchiveFormat) -> None:
    archive = Archive(str(tmp_path / "archive"), archive_format)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/blank.jsonl").write_bytes(b"\n \n\r\n")
    # Left by one that was killed when it was about to write down its first batch.
    offsets = Path(input_checkpoint(archive, tmp_path / "in", "jsonl"), "offsets")
    offsets.mkdir(parents=True)
    (offsets / ".0.60904917-e620-4d49-a0f6-a566d3a061b6.tmp").touch()
    assert archive_files(spark, [AIR], tmp_path / "in", "jsonl", archive) == Books(0, {AIR.name: 0}, {})
    (tmp_path / "in/sound.jsonl").write_bytes(airflow(1))
    assert archive_files(spark, [AIR], tmp_path / "in", "jsonl", archive) == Books(1, {AIR.name: 1}, {})


def test_csv_and_parquet(spark: SparkSession, tmp_path: Path) -> None:
    """Cells that hold line ends, rows that don't fit, a file with another header and one that is none."""
    for kind in ("csv", "parquet"):
        (tmp_path / kind).mkdir()
    with (tmp_path / "csv/a.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "time", "sensorID", "flowrate"])
        writer.writerows(
            [[1, "2012-05-07T09:00:00Z", 'two\nlines and a "quote"', 1.5], [2, 0, "", ""], [3, 0, "x", "NaN"]]
        )
        writer.writerow([4, 0, "short"])
    (tmp_path / "csv/b.csv").write_text("airflow,time,id\n2.5,0,5\n")
    (tmp_path / "csv/c.csv").write_text("when,what\n1,2\n")
    table = pa.table(
        {
            "id": [1, 2, 3, 5],
            "time": pa.array([1_336_381_200_000_000, 0, 0, 0], pa.timestamp("us", tz="UTC")),
            "sensorID": ['two\nlines and a "quote"', None, "x", None],
            "flowrate": [1.5, None, float("nan"), 2.5],
        }
    )
    pq.write_table(table, tmp_path / "parquet/a.parquet")
    (tmp_path / "parquet/b.parquet").write_bytes(b"\x00rubbish")
    rows = [(1, 1_336_381_200_000_000, 'two\nlines and a "quote"', 1.5), (2, 0, None, None), (5, 0, None, 2.5)]
    letters = {
        "csv": [(None, "not-csv", 5), (AIR.name, "not-finite", 5), (None, UNREADABLE, None)],
        "parquet": [(AIR.name, "not-finite", 3), (None, UNREADABLE, None)],
    }
    for kind in ("csv", "parquet"):
        archive = Archive(str(tmp_path / f"archive-{kind}"), "parquet")
        result = archive_files(spark, [AIR], tmp_path / kind, "csv" if kind == "csv" else "parquet", archive)
        assert events_in(read(spark, archive, AIR), AIR) == dict.fromkeys(rows, 1)
        found = read_dead_letters(spark, archive).select("stream", "code", "line").collect()
        assert {tuple(row) for row in found} == {
            (stream, code, line if code != "not-csv" else 6) for stream, code, line in letters[kind]
        }
        assert result.read == 3 + len(letters[kind])
        assert result.balanced


def test_killed_and_run_again(spark: SparkSession, tmp_path: Path) -> None:
    """SIGKILL of driver and JVM between the events and the dead letters of a batch, amid compaction; then a run to the
    end."""
    lines = write_input(tmp_path / "in")
    archive = Archive(str(tmp_path / "archive"))
    command = [sys.executable, "-m", "tests.spark.killed_run", str(tmp_path / "in"), archive.path]
    root = Path(__file__).parents[2]
    environ = os.environ | {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}  # the killed can't clean up
    killed = subprocess.run(
        command, start_new_session=True, capture_output=True, timeout=200, cwd=root, env=environ, check=False
    )
    assert (killed.returncode, killed.stdout, killed.stderr) == (-signal.SIGKILL, b"", b"")
    assert events_in(read(spark, archive, AIR), AIR) == truth(lines[:60], [AIR]).events[AIR.name]
    there = list(Path(archive.table(AIR.name)).glob("day=*/*.parquet"))
    assert len(there) > len(read(spark, archive, AIR).inputFiles())  # what it was about to make is nobody's
    assert letters_in(read_dead_letters(spark, archive)) == truth(lines[:30], [AIR]).letters

    result = archive_files(spark, [AIR], tmp_path / "in", "jsonl", archive, files_per_batch=1)
    assert_archived(spark, archive, truth(lines, [AIR]), [AIR])
    # The books of the last run have the batch that it had to finish, and no more than was left.
    assert result.balanced
    assert result == books(truth(lines[30:], [AIR]))


@pytest.mark.parametrize("archive_format", ["delta", "parquet"])
def test_a_run_that_dies_before_spark_notes_what_it_wrote(
    spark: SparkSession, tmp_path: Path, archive_format: ArchiveFormat
) -> None:
    lines = write_input(tmp_path / "in", files=1)

    def fail(_: Progress) -> None:
        raise ValueError("the terminal is gone")

    archive = Archive(str(tmp_path / "archive"), archive_format)
    with pytest.raises(PipelineFailed, match=r"^records could not be archived: the terminal is gone\n.*run again"):
        archive_files(spark, [AIR], tmp_path / "in", "jsonl", archive, progress=fail)
    assert_archived(spark, archive, truth(lines, [AIR]), [AIR])
    assert archive_files(spark, [AIR], tmp_path / "in", "jsonl", archive) == books(truth(lines, [AIR]))
    assert_archived(spark, archive, truth(lines, [AIR]), [AIR])


def test_what_is_wrong_is_said_before_spark_works(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match="there is no file or folder"):
        archive_files(spark, STREAMS, tmp_path / "nothing", "jsonl", Archive(str(tmp_path / "archive")))
    (tmp_path / "file").touch()
    with pytest.raises(ArchiveUnwritable, match="is a file, not a folder"):
        archive_files(spark, STREAMS, tmp_path / "*.jsonl", "jsonl", Archive(str(tmp_path / "file/archive")))
    for path in (tmp_path, tmp_path / "*"):
        with pytest.raises(ArchiveUnwritable, match="lies in its own input"):
            archive_files(spark, STREAMS, path, "jsonl", Archive(str(tmp_path / "deep/archive")))
    check_run(STREAMS, tmp_path / "*.jsonl", "jsonl", Archive(str(tmp_path / "archive")))
