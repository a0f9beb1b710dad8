"""Graphs on Spark give, key by key, what the virtual clock gives of the events of that key alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import cepheid.spark
from cepheid.app import Application, load
from cepheid.history.graphs import NotInSpark
from cepheid.service.received import Received
from cepheid.service.virtual_clock import VirtualClock
from cepheid.spark.columns import UnsuitableColumns
from cepheid.spark.matching import NoKey

pytestmark = pytest.mark.spark

APP: Final = """
    name: plant
    levels: [high, low]
    streams:
      left: {attributes: {machine: string, samples: "array<uint8>"}, key: machine, valid_for: 20us}
      right: {attributes: {machine: string, samples: "array<uint8>"}, key: machine, valid_for: 30us}
      heat: {attributes: {machine: string, degrees: float}, key: machine}
    graph:
      fused:
        kind: ekf
        attribute: samples
        inputs: [left, right]
        relative: [{inputs: [left, right], within: 12us}]
      spectrum: {kind: fft, inputs: [fused]}
      both: {kind: cat, attribute: samples, inputs: [left, right]}
      hidden: {kind: aes, inputs: [both], key: "000102030405060708090a0b0c0d0e0f"}
      mean: {kind: aggregate, attribute: degrees, inputs: [heat], function: avg, last: 3}
      hot: {kind: threshold, inputs: [mean], above: 5.0, reset: 3.0}
      loud: {kind: filter, inputs: [heat], where: "?e.degrees > 8"}
    consumers:
      plant: {input: spectrum, level: high, stale: shed}
      vault: {input: hidden, level: low}
      guard: {input: hot, level: low}
      alarm: {input: loud, level: high}
      raw: {input: heat, level: low}
"""
SCHEMA: Final = "stream string, id bigint, time timestamp, machine string, samples binary, degrees double, came bigint"

Row = tuple[str, int, int, str | None, bytes | None, float | None, int]


def application(folder: Path, text: str = APP) -> Application:
    (folder / "app.yaml").write_text(dedent(text))
    return load(folder / "app.yaml")


def events(count: int = 300) -> list[Row]:
    """Events of few machines, not in the order of their times; some of no machine."""
    r = random.Random(5)
    rows: list[Row] = []
    for i in range(count):
        stream = r.choice(["left", "right", "right", "heat", "other"])
        time = i * 3 - r.choice([0, 0, 0, 2, 15])
        machine = r.choice(["m1", "m2", "m3", None]) if r.random() < 0.9 else "m4"
        samples = r.randbytes(8) if r.random() < 0.9 else None
        degrees = r.choice([None, r.uniform(0, 10)])
        rows.append((stream, i, time, machine, samples if stream != "heat" else None, degrees, i))
    return rows


def alone(app: Application, rows: Iterable[Row], *, clock: str = "time") -> dict[str, list[Received]]:
    """What the virtual clock gives of each machine's events, one after another."""
    clocks: dict[str, tuple[VirtualClock, int]] = {}
    found: dict[str, list[Received]] = {}
    plan = app.plan()
    for stream, number, time, machine, samples, degrees, came in rows:
        if machine is None or stream == "other":
            continue
        own, now = clocks.setdefault(machine, (VirtualClock(plan), -(10**9)))
        values: dict[str, Any] = {"machine": machine}
        values |= {"degrees": degrees} if stream == "heat" else {"samples": samples}
        own.push(stream, time, values, number)
        now = max(now, time if clock == "time" else came)
        clocks[machine] = own, now
        found.setdefault(machine, []).extend(own.run(now))
    return found


def frame_of(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    numbers = spark.createDataFrame(rows, SCHEMA.replace("time timestamp", "time bigint"))
    return numbers.selectExpr("stream", "id", "timestamp_micros(time) AS time", "machine", "samples", "degrees", "came")


def same(found: Sequence[Mapping[str, Any]], wanted: Mapping[str, Sequence[Received]]) -> None:
    """Rows of the result, in the order in which a key's came, are what was received."""
    by_key: dict[str, list[Any]] = {}
    for row in found:
        by_key.setdefault(row["machine"], []).append(row)
    assert set(by_key) == set(wanted)
    for machine, rows in by_key.items():
        assert [shown(row) for row in rows] == [told(r) for r in wanted[machine]], machine


def shown(row: Any) -> tuple[Any, ...]:
    values = {name: plain(value) for name, value in row[row["consumer"]].asDict().items()}
    others = [c for c in ("plant", "vault", "guard", "alarm", "raw") if c != row["consumer"]]
    assert all(row[other] is None for other in others)
    return row["consumer"], row["id"], row["micros"], row["ends"], sorted(row["marks"]), values


def told(received: Received) -> tuple[Any, ...]:
    values = {name: plain(value) for name, value in received.attributes.items()}
    return received.consumer, received.id, received.time, received.end, sorted(received.marks), values


def plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else list(value) if isinstance(value, tuple) else value


def collected(result: DataFrame) -> list[Any]:
    return result.selectExpr("*", "unix_micros(time) AS micros", "unix_micros(end) AS ends").collect()


def test_each_key_has_a_graph_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    app, rows = application(tmp_path), events()
    shuffled = random.Random(1).sample(rows, len(rows))
    frame = frame_of(spark, shuffled).repartition(3)
    # By arrival, and then by time, stream and id.
    found = collected(frame.transform(cepheid.spark.graph(app, arrival="came")))
    wanted = alone(app, rows)
    same(found, wanted)
    assert {r.consumer for each in wanted.values() for r in each} == {"plant", "vault", "guard", "alarm", "raw"}
    assert any(r.marks for each in wanted.values() for r in each)
    by_time = sorted(rows, key=lambda row: (row[2], row[0], row[1]))
    same(collected(frame.transform(cepheid.spark.graph(app, key="machine"))), alone(app, by_time))


def test_the_clock_says_when_events_came(spark: SparkSession, tmp_path: Path) -> None:
    app, rows = application(tmp_path), [(*row[:6], row[2] + 9 + row[1] % 25) for row in events(150)]
    rows.sort(key=lambda row: (row[6], row[2], row[0], row[1]))
    frame = frame_of(spark, rows).selectExpr("* EXCEPT (came)", "timestamp_micros(came) AS came")
    found = collected(frame.transform(cepheid.spark.graph(app, arrival="came")))
    wanted = alone(app, rows, clock="came")
    same(found, wanted)
    assert any("stale" in r.marks for each in wanted.values() for r in each)


def test_a_stream_gives_what_the_batch_gives_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    app, rows = application(tmp_path), events(200)
    result = cepheid.spark.graph(app, arrival="came", buckets=3)

    def run(rows: Sequence[Row]) -> list[Any]:
        frame_of(spark, rows).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
        found: list[Any] = []
        writer = stream.transform(result).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.foreachBatch(lambda frame, _: found.extend(collected(frame)))
        writer.trigger(availableNow=True).start().awaitTermination()
        return found

    found = [row for start, end in pairwise((0, 61, 140, 200)) for row in run(rows[start:end])]
    same(found, alone(app, rows))

    changed = application(tmp_path, APP.replace("loud", "noisy"))
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    frame_of(spark, rows[:40]).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    again = stream.transform(cepheid.spark.graph(changed, arrival="came", buckets=3)).writeStream.format("noop")
    with pytest.raises(StreamingQueryException, match="A checkpoint belongs to one graph"):
        again.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()


def test_what_a_graph_needs_is_said(spark: SparkSession, tmp_path: Path) -> None:
    app, frame = application(tmp_path), frame_of(spark, events(3))
    graph = cepheid.spark.graph

    def refused(frame: DataFrame, message: str, **options: Any) -> None:
        with pytest.raises(UnsuitableColumns, match=message):
            frame.transform(graph(app, **options))

    refused(frame.drop("id"), r"no column 'id' for the id of events; name another: graph\(app, id=...\)")
    refused(frame.drop("samples"), "no column 'samples', an attribute of stream 'left'")
    refused(
        frame.selectExpr("* EXCEPT (degrees)", "string(degrees) AS degrees"),
        "column 'degrees', an attribute of stream 'heat': expected double, found string",
    )
    refused(frame, "the graph reads heat, left, right; say which column tells them apart", stream=None)
    refused(frame, r"no column 'machin' for a key of the graph.*did you mean 'machine'\?", key="machin")
    refused(
        frame, "column 'machine', the arrival of events: expected timestamp or bigint, found string", arrival="machine"
    )
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path))
    refused(stream, r'name the column that does, .*: graph\(app, arrival="timestamp"\)')
    clashing = application(tmp_path, APP.replace("raw: {input", "machine: {input"))
    with pytest.raises(UnsuitableColumns, match="two columns 'machine'"):
        frame.transform(graph(clashing))
    with pytest.warns(NoKey, match="all events go through it in one task"):
        frame.transform(graph(app, key=[]))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            ', key: "000102030405060708090a0b0c0d0e0f"',
            "",
            "'hidden' has no key, and each task of Spark would make another",
        ),
        ("key: machine, valid_for: 20us", "valid_for: 20us", r"different keys: .*'left' none.*graph\(app, key=...\)"),
        (APP[APP.index("consumers:") :], "", "has no consumers"),
    ],
)
def test_graphs_that_make_no_sense_on_spark(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in APP
    with pytest.raises(NotInSpark, match=message):
        cepheid.spark.graph(application(tmp_path, APP.replace(old, new)))
