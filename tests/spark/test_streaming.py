"""Queries on streams in Spark: the matches of the batch at several cuts, and through restarts and kills."""

from __future__ import annotations

import json
import os
import random
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

import cepheid.spark
from cepheid.model.events import Event
from cepheid.spark.clocks import Live
from cepheid.spark.matching import NoKey
from tests.spark.test_buckets import judged
from tests.spark.test_matching import EVENTS, QUERIES, START, expected

pytestmark = pytest.mark.spark

NOW: Final = START + 12_000_000
LATENESS: Final = 2_000_000
SCHEMA: Final = "stream string, id bigint, time timestamp, room string, x double, n int, ok boolean, since timestamp"


def arrivals() -> list[Event]:
    """The events about in the order of time, some of them late."""
    r = random.Random(5)
    return sorted(EVENTS, key=lambda e: e.time + r.choice([0, 0, 1_000_000, 1_500_000, 4_000_000]))


def write(folder: Path, events: Sequence[Event], cuts: Sequence[int]) -> None:
    """The events as files, which Spark reads in the order of their times."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (start, end) in enumerate(pairwise(cuts)):
        path = folder / f"{start:04}.json"
        lines = []
        for e in events[start:end]:
            moments = {n: t and _moment(t) for n, t in (("time", e.time), ("since", e.attributes["since"]))}
            lines.append(json.dumps({**e.attributes, **moments, "stream": e.stream, "id": e.id}))  # type: ignore[dict-item]
        path.write_text("\n".join(lines))
        os.utime(path, (START / 1e6 + start, START / 1e6 + start + number))


def _moment(microseconds: Any) -> str:
    from cepheid.model.time import format_instant

    return format_instant(microseconds)


def read(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def run(matches: DataFrame, folder: Path, **conf: str) -> list[Any]:
    """What a query gives until its input ends, with what earlier runs with the same folder gave."""
    writer = matches.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.format("json").start(str(folder / "out")).awaitTermination()
    found = matches.sparkSession.read.schema(matches.schema).json(str(folder / "out"))
    return found.orderBy("time", "id").collect()


def finished(name: str) -> list[str]:
    """The matches that the batch finds in what is not late, as far as the watermark completes them."""
    timely, watermark = judged(arrivals(), ("a", "b") if " b)" in QUERIES[name] else ("a",), LATENESS)
    assert watermark is not None
    assert len(timely) < len(EVENTS)
    wanted = expected(QUERIES[name], NOW, timely)
    return [m.id for m in sorted(wanted, key=lambda m: (m.time, m.id)) if m.time < watermark]


@pytest.mark.parametrize(
    ("name", "cuts"),
    [
        ("pair", [0, 400]),
        ("absent", [0, 150, 151, 400]),
        ("consume", [0, 200, 400]),
        ("session", [0, 100, 400]),
        ("no_key", [0, 250, 400]),
        ("filter", [0, 130, 400]),
    ],
)
def test_a_stream_gives_the_matches_of_the_batch(
    spark: SparkSession, tmp_path: Path, name: str, cuts: list[int]
) -> None:
    write(tmp_path / "in", arrivals(), cuts)
    stream = read(spark, tmp_path / "in").withWatermark("time", "2 seconds")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoKey)
        matches = stream.transform(cepheid.spark.match(QUERIES[name], stream="stream", now=NOW, live=Live(buckets=3)))
    wanted = finished(name)
    assert len(wanted) > 3, "a case that finds next to nothing shows nothing"
    assert [row["id"] for row in run(matches, tmp_path)] == wanted
