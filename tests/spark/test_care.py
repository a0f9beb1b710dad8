"""Care for an archive: what it holds, compaction, what is removed, and events as files."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cepheid.cli.archive import command
from cepheid.model.files import event_file
from cepheid.model.streams import Stream
from cepheid.model.time import parse_instant
from cepheid.model.types import Type
from cepheid.spark.archive import DEAD_LETTERS, Archive, read
from cepheid.spark.care import CantCompact, compact, export, stats
from cepheid.spark.pipeline import archive_files

AIR = Stream("air", {"room": Type.STRING, "levels": Type.FLOAT_ARRAY})


def filled(spark: SparkSession, folder: Path, archive: Archive) -> None:
    """Six events of two days in three files, and a dead letter."""
    (folder / "in").mkdir()
    for number in range(3):
        lines = [
            {
                "id": 2 * number + day,
                "time": f"2012-05-{7 + day:02}T09:00:0{number}.25Z",
                "room": "D1",
                "levels": [1, 2.5],
            }
            for day in (0, 1)
        ]
        text = "\n".join(map(json.dumps, lines)) + ("\n{}" if number == 2 else "")
        (folder / "in" / f"{number}.jsonl").write_text(text)
    archive_files(spark, [AIR], folder / "in", "jsonl", archive, files_per_batch=1)


def called(*arguments: str | Path) -> str:
    """What `cepheid archive` says."""
    done = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_an_archive_is_looked_after(spark: SparkSession, tmp_path: Path) -> None:
    archive = Archive(str(tmp_path / "archive"))
    filled(spark, tmp_path, archive)
    air, letters = stats(spark, archive, [AIR])
    assert (air.table, air.rows, air.late, air.days, air.files, air.small) == ("air", 6, 0, 2, 6, 6)
    assert air.size is not None
    assert air.size > 1000
    assert (letters.rows, letters.files) == (1, 1)
    app = "name: a\nstreams: {air: {attributes: {room: string, levels: array<float>}}}\narchive: {path: archive}\n"
    (tmp_path / "app.yaml").write_text(app)
    told = called("stats", tmp_path / "app.yaml").splitlines()
    assert told[1].split()[:6] == ["air", "6", "0", "2", "6", "6"]
    assert told[1].endswith("2012-05-07 09:00:00, 2012-05-08 09:00:02")
    called("export", tmp_path / "app.yaml", "air", tmp_path / "one", "--from", "2012-05-08", "--format", "jsonl")
    assert sum(len(file.read_text().splitlines()) for file in (tmp_path / "one").glob("*.jsonl")) == 3
    export(read(spark, archive, AIR), AIR, tmp_path / "lines", "jsonl")
    kept = [json.loads(line) for file in (tmp_path / "lines").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(event["id"] for event in kept) == list(range(6))
    first = min(kept, key=lambda event: event["id"])
    assert first == {"id": 0, "time": "2012-05-07T09:00:00.250000Z", "room": "D1", "levels": [1.0, 2.5]}
    export(read(spark, archive, AIR), AIR, tmp_path / "cells", "csv")
    (cells, *_) = sorted((tmp_path / "cells").glob("*.csv"))
    assert event_file(str(cells), "csv") is not None
    assert '"[1.0,2.5]"' in cells.read_text()
    noon = parse_instant("2012-05-08T12:00Z")
    age = time.time_ns() // 1000 - noon
    (tmp_path / "app.yaml").write_text(app.replace("{path: archive}", f"{{path: archive, retain: {age}us}}"))
    told = called("compact", tmp_path / "app.yaml").splitlines()
    assert "air: 3 rows of days before 2012-05-08 removed" in told
    assert f"{DEAD_LETTERS}: 0 rows of days before 2012-05-08 removed" in told
    assert "air: 3 files, now 1" in told
    assert sorted(row["id"] for row in read(spark, archive, AIR).collect()) == [1, 3, 5]


def test_what_has_no_compaction_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CantCompact, match="only Delta"):
        compact(spark, Archive(str(tmp_path), "parquet"), [AIR.name])


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("name: a\nstreams: {air: {attributes: {x: float}}}\narchive: {path: archive}\n")
    app = str(tmp_path / "app.yaml")
    assert "has no stream 'ai'; did you mean 'air'?" in CliRunner().invoke(command, ["export", app, "ai", "x"]).output
    assert "there is no archive at" in CliRunner().invoke(command, ["stats", app]).output
