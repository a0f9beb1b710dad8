"""Raw records from files: bytes as they are, paths of every kind, batch and stream alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cepheid.spark.places import literal, shown
from cepheid.spark.sources import InputMissing, InputUnsupported, read_file_stream, read_files

ROWS = [b'{"a": 1}', b"\xff\xfe\x00", b"\xed\xa0\x80", b"a\rb", "é\u2028👩‍🚀".encode(), b"crlf\r", b"last"]


def as_batch(spark: SparkSession, path: str | Path) -> list[tuple[bytes, str]]:
    return _pairs(read_files(spark, path))


def as_stream(spark: SparkSession, path: str | Path) -> list[tuple[bytes, str]]:
    found: list[tuple[bytes, str]] = []
    stream = read_file_stream(spark, path, files_per_batch=1)
    writer = stream.writeStream.foreachBatch(lambda batch, _: found.extend(_pairs(batch)))
    writer.trigger(availableNow=True).start().awaitTermination()
    return sorted(found)


def _pairs(records: DataFrame) -> list[tuple[bytes, str]]:
    return sorted((bytes(row["raw"]), shown(row["source"])) for row in records.collect())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in put[1]{x}")
    (folder / "deep/er").mkdir(parents=True)
    for name in ("a.jsonl", "b[2]*.jsonl", "deep/a.jsonl", "deep/er/ü 100%.jsonl"):
        (folder / name).write_bytes(b"\n \t\n\r\n".join(ROWS) + b"\n\n")
    (folder / "empty.jsonl").touch()
    return folder


@pytest.mark.parametrize("read", [as_batch, as_stream])
@pytest.mark.parametrize(
    ("path", "files"),
    [
        (".", ["a.jsonl", "b[2]*.jsonl", "deep/a.jsonl", "deep/er/ü 100%.jsonl"]),
        ("a.jsonl", ["a.jsonl"]),
        ("b[2]*.jsonl", ["b[2]*.jsonl"]),
        ("deep", ["deep/a.jsonl", "deep/er/ü 100%.jsonl"]),
        ("deep/er/ü 100%.jsonl", ["deep/er/ü 100%.jsonl"]),
        ("empty.jsonl", []),
    ],
)
def test_files_and_folders(spark: SparkSession, folder: Path, path: str, files: list[str], read: object) -> None:
    assert callable(read)
    assert read(spark, folder / path) == sorted((raw, str(folder / file)) for raw in ROWS for file in files)


def test_patterns(spark: SparkSession, folder: Path) -> None:
    pattern = literal(str(folder)) + "/{a,b*}.jsonl"
    expected = sorted((raw, str(folder / file)) for raw in ROWS for file in ("a.jsonl", "b[2]*.jsonl"))
    assert as_batch(spark, pattern) == expected
    assert as_stream(spark, pattern) == expected


def test_a_path_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path / "nothing*"):
        with pytest.raises(InputMissing, match=r"there is no file or folder '.*nothing\*?', .*; check the path"):
            read_files(spark, path)
    with pytest.raises(InputMissing, match="there is no file or folder"):
        read_file_stream(spark, tmp_path / "nothing")


def test_csv_and_parquet_are_local(spark: SparkSession) -> None:
    with pytest.raises(InputUnsupported, match="csv is read from paths that this machine and the executors have"):
        read_files(spark, "s3a://bucket/file.csv", "csv")


def test_a_batch_is_not_given_a_pattern_without_need(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would warn of it with a page of stack trace."""
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n')
    leaf = read_files(spark, tmp_path)._jdf.queryExecution().optimizedPlan().collectLeaves().head()
    assert leaf.relation().options().apply("path") == str(tmp_path)
