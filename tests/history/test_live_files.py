"""Live queries on files, without a service: an id that comes again counts once, and what fails says why."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from cepheid.app import Application, load
from cepheid.history import pipeline as pipeline_module
from cepheid.history.live_events import NotOnSpark
from cepheid.history.pipeline import METRICS, PartFailed, Pipeline, matches_table
from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher
from cepheid.spark import sources
from cepheid.spark.application import archive_of
from cepheid.spark.archive import ArchiveUnwritable, read
from cepheid.spark.sources import InputMissing
from tests.history.going import go_through
from tests.service.brokers import free_port

APP: Final = """
    name: plant
    streams:
      air:
        attributes: {{sensor: string, flow: float}}
        lateness: 1s
        source: {source}
    archive: {{path: archive}}
    queries:
      rising:
        text: |
          SELECT ?q.flow FROM (?p, air), (?q, air) {within} SEQ (?p, ?q) WINDOW (?p, ?q, 5s)
          JOIN (?p.sensor = ?q.sensor AND ?q.flow > ?p.flow)
"""
WITHIN: Final = "WITHIN [2012-05-07, )"
START: Final = 1_336_381_200_000_000


def application(folder: Path, source: str = "{kind: files, path: in}", within: str = WITHIN) -> Application:
    (folder / "app.yaml").write_text(dedent(APP).format(source=source, within=within))
    return load(folder / "app.yaml")


def air(number: int, second: int, flow: float) -> Event:
    return Event("air", number, START + second * 1_000_000, {"sensor": f"D{number % 2}", "flow": flow})


def write(folder: Path, name: str, events: Sequence[Event], at: int | None = None) -> None:
    folder.mkdir(exist_ok=True)
    records = ({"stream": "air", "id": e.id, "time": e.time, **e.attributes} for e in events)
    (folder / f".{name}").write_text("\n".join(map(json.dumps, records)))
    if at is not None:
        os.utime(folder / f".{name}", (at, at))
    (folder / f".{name}").rename(folder / name)


def ids(spark: SparkSession, app: Application) -> list[Any]:
    table = spark.read.format("delta").load(matches_table(archive_of(app), "rising"))
    return sorted(row["id"] for row in table.collect())


def wanted(app: Application, events: Sequence[Event]) -> list[str]:
    matcher = Matcher(app.plan().queries["rising"], 0)
    matcher.push(events)
    return sorted(match.id for match in matcher.advance(max(e.time for e in events) - 1_000_000))


def test_an_id_that_comes_again_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    """The first wins: in a file, and among files, also after a restart (rule E4)."""
    app = application(tmp_path)
    first = [air(i, i, float(i * i % 7)) for i in range(20)]
    more = [air(i, i, float(i * i % 7)) for i in range(20, 40)]
    again = [air(18, 18, 99.0), air(19, 20, 99.0)]
    write(tmp_path / "in", "1.jsonl", [*first, *again])
    with Pipeline(spark, app) as pipeline:
        pipeline.process_all()
        write(tmp_path / "in", "2.jsonl", [air(17, 19, 99.0), *more[:10]])
        pipeline.process_all()
    write(tmp_path / "in", "3.jsonl", [air(29, 30, 99.0), *more[10:]])
    with Pipeline(spark, app) as pipeline:
        pipeline.process_all()
        assert not pipeline.down
    expected = wanted(app, [*first, *more])
    assert len(expected) > 20
    assert ids(spark, app) == expected


def test_late_is_by_files_and_not_by_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is late in its own file; in a later one what is behind those before, however Spark cuts the stream."""
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    events = [air(i, i, float(i * i % 7)) for i in range(40)]
    behind = [air(100 + i, i, 9.0) for i in (4, 7, 18, 15)]
    files = [[*events[11::-1], behind[0]], [behind[1], *events[12:24], behind[2]], [behind[3], *events[24:]]]
    try:
        for first in (1, 3):  # so many come in the first batch
            folder = tmp_path / str(first)
            folder.mkdir()
            app = application(folder)
            for number in range(first):
                write(folder / "in", f"{2 - number}.jsonl", files[number], at=number)
            with Pipeline(spark, app) as pipeline:
                pipeline.process_all()
                for number in range(first, 3):
                    write(folder / "in", f"{2 - number}.jsonl", files[number], at=number)
                pipeline.process_all()
                assert not pipeline.down
            # 104 and 118 are behind others of their files, 107 and 115 behind the files before.
            assert ids(spark, app) == wanted(app, [*events, behind[0], behind[2]])
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "1")


def test_matches_as_files(spark: SparkSession, tmp_path: Path) -> None:
    """Each match once, as lines of JSON or in Parquet, also when another pipeline goes on."""
    high = 'text: "SELECT ?e.flow FROM (?e, air) WITHIN [2012-05-07, ) FILTER (?e.flow > 5)"'
    sinks = {"lines": "{kind: files, path: lines}", "rows": "{kind: files, path: rows, format: parquet}"}
    queries = "".join(f"  {name}: {{sink: {sink}, {high}}}\n" for name, sink in sinks.items())
    (tmp_path / "app.yaml").write_text(dedent(APP).format(source="{kind: files, path: in}", within=WITHIN) + queries)
    app = load(tmp_path / "app.yaml")
    events = [air(n, n, float(n % 10)) for n in range(44)]  # the watermark passes all that match
    for name, part in {"a": events[:20], "b": events[20:]}.items():
        write(tmp_path / "in", f"{name}.jsonl", part)
        with Pipeline(spark, app) as pipeline:
            pipeline.process_all()
    wanted = sorted(match.id for match in Matcher(app.plan().queries["lines"], 0).matches(events))
    lines = [line for file in (tmp_path / "lines").glob("part-*") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in lines) == wanted
    assert {frozenset(json.loads(line)) for line in lines} == {frozenset({"id", "time", "events", "select"})}
    assert sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "rows")).collect()) == wanted


def test_any_streaming_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    """As the source of a stream; and a live query without WITHIN sees what is from its first start on (rule Q5)."""
    now = time.time_ns() // 1000
    app = application(tmp_path, "{kind: files, path: nowhere}", within="")
    write(tmp_path / "in", "1.jsonl", [air(1, 1, 1.0), air(3, 2, 2.0)])
    later = (now - START) // 1_000_000 + 600
    frame = spark.readStream.schema("id long, time long, sensor string, flow double").json(str(tmp_path / "in"))
    frame = frame.withColumn("time", sf.timestamp_micros("time"))
    for wrong, message in [({"fan": frame}, "no stream 'fan'"), ({"air": frame.drop("time")}, "no column 'time'")]:
        with pytest.raises(NotOnSpark, match=message):
            Pipeline(spark, app, frames=wrong)
    for column, kind, message in [
        (
            "flow",
            "string",
            r"'air': column 'flow', attribute 'flow' .*: expected double, found string; cast it: frame\.",
        ),
        ("sensor", "int", "column 'sensor', attribute 'sensor' of the stream: expected string, found int; cast it"),
        ("id", "string", "column 'id', the id of events: expected bigint, found string; .* or give .* `id: string`"),
        ("time", "double", "column 'time', the time of events: expected timestamp, found double"),
    ]:
        with pytest.raises(NotOnSpark, match=message):
            Pipeline(spark, app, frames={"air": frame.withColumn(column, sf.col(column).cast(kind))})
    with pytest.raises(NotOnSpark, match=r"no column 'flow', .*: expected double; rename .*; did you mean 'flows'\?"):
        Pipeline(spark, app, frames={"air": frame.withColumnRenamed("flow", "flows")})
    with Pipeline(spark, app, frames={"air": frame}) as pipeline:
        pipeline.process_all()
    (kept,) = (tmp_path / "archive" / "_checkpoints").glob("query-rising-*/registered")
    first = int(kept.read_text())
    assert now < first < time.time_ns() // 1000
    write(
        tmp_path / "in",
        "2.jsonl",
        [air(5, later, 3.0), air(7, later + 1, 4.0), air(9, later, float("nan")), air(11, later + 9, 0.0)],
    )
    with Pipeline(spark, app, frames={"air": frame}) as pipeline:
        pipeline.process_all()
        assert not pipeline.down
    assert int(kept.read_text()) == first
    assert read(spark, archive_of(app), app.graph.streams["air"]).count() == 5
    table = spark.read.format("delta").load(matches_table(archive_of(app), "rising"))
    assert [row["events"].asDict() for row in table.collect()] == [{"p": 5, "q": 7}]


def test_a_dataframe_may_spell_attributes_and_write_values_as_records_do(spark: SparkSession, tmp_path: Path) -> None:
    application(tmp_path, "{kind: files, path: nowhere}")
    text = (
        (tmp_path / "app.yaml").read_text().replace("lateness: 1s", "lateness: 1s\n    spellings: {flow: [rate.raw]}")
    )
    (tmp_path / "app.yaml").write_text(text)
    app = load(tmp_path / "app.yaml")
    write(tmp_path / "in", "1.jsonl", [air(1, 1, 1.5), air(3, 2, 2.5), air(5, 9, 0.0)])
    frame = spark.readStream.schema("id long, time long, sensor string, flow double").json(str(tmp_path / "in"))
    frame = frame.selectExpr(
        "int(id) AS id",
        "date_format(timestamp_micros(time), \"yyyy-MM-dd'T'HH:mm:ss'Z'\") AS time",
        "sensor",
        "CAST(flow AS DECIMAL(9, 2)) AS `rate.raw`",
    )
    with Pipeline(spark, app, frames={"air": frame}) as pipeline:
        pipeline.process_all()
    rows = read(spark, archive_of(app), app.graph.streams["air"]).select("id", "flow").collect()
    assert sorted(map(tuple, rows)) == [(1, 1.5), (3, 2.5), (5, 0.0)]


def test_what_can_not_be_taken_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """And what can is: a query that selects something else, files that come in addition, a query that goes."""
    app, said = application(tmp_path), list[str]()
    text = (tmp_path / "app.yaml").read_text()

    def changed(*pairs: tuple[str, str]) -> Application:
        (tmp_path / "app.yaml").write_text(reduce(lambda now, pair: now.replace(*pair), pairs, text))
        return load(tmp_path / "app.yaml")

    write(tmp_path / "in", "1.jsonl", [air(i, i, float(i)) for i in range(8)])
    with Pipeline(spark, app, say=said.append) as pipeline:
        pipeline.process_all()
        first = len(ids(spark, app))
        before = [(part.name, part.query) for part in pipeline._parts.values()]
        assert [name for name, _ in before] == [f"archive of {tmp_path}/in", "rising"]
        for wrong, error in [
            (("source: {kind: files, path: in}", ""), NotOnSpark),
            (("path: in", "path: nowhere"), InputMissing),
            (("path: archive", "path: app.yaml"), ArchiveUnwritable),
        ]:
            with pytest.raises(error):
                pipeline.apply(changed(wrong))
            pipeline.tend()
            assert [(part.name, part.query) for part in pipeline._parts.values()] == before
        assert not pipeline.down
        assert 'cepheid_pipeline_running{part="rising",level="background"} 1\n' in (tmp_path / METRICS).read_text()
        assert pipeline.apply(changed()) == {"added": [], "removed": [], "changed": []}

        fan = ("streams:", "streams:\n  fan: {attributes: {speed: float}, source: {kind: files, path: fans}}")
        (tmp_path / "fans").mkdir()
        (tmp_path / "fans" / "1.jsonl").write_text('{"stream": "fan", "id": 1, "time": 1, "speed": 2.5}')
        more = changed(fan, ("SELECT ?q.flow", "SELECT ?q.flow, ?q.sensor"))
        added = f"archive of {tmp_path}/fans"
        assert pipeline.apply(more) == {"added": [added], "removed": [], "changed": ["rising"]}
        pipeline.process_all()
        assert read(spark, archive_of(app), more.graph.streams["fan"]).count() == 1
        table = spark.read.format("delta").load(matches_table(archive_of(app), "rising"))
        rows = table.select("select.flow", "select.sensor").collect()
        assert (sum(row[1] is None for row in rows), len(rows)) == (first, 2 * first)

        pipeline.apply(changed(fan, ("SELECT ?q.flow", "SELECT ?q.sensor AS flow")))
        with pytest.raises(PartFailed, match=r"'select.flow' is double there and string here. Name what is selected"):
            pipeline.process_all()
        only = changed(fan, (text[text.index("queries:") :], ""))
        assert pipeline.apply(only) == {"added": [], "removed": ["rising"], "changed": []}
        assert not pipeline.down


def test_a_query_reads_what_the_application_says_now(spark: SparkSession, tmp_path: Path) -> None:
    app = application(tmp_path)
    write(tmp_path / "in", "1.jsonl", (events := [air(i, i, float(i)) for i in range(8)])[:4])
    write(tmp_path / "other", "2.jsonl", events[4:])
    with Pipeline(spark, app) as pipeline:
        go_through(pipeline)
        app = application(tmp_path, "{kind: files, path: other}")
        archives = [f"archive of {tmp_path / name}" for name in ("other", "in")]
        assert pipeline.apply(app) == {"added": [archives[0]], "removed": [archives[1]], "changed": ["rising"]}
        go_through(pipeline)
        assert pipeline.apply(load(tmp_path / "app.yaml")) == {"added": [], "removed": [], "changed": []}
    assert ids(spark, app) == wanted(app, events)


def test_a_part_that_fails_says_why(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_module, "_PAUSES", (60.0,))
    app = application(tmp_path)
    write(tmp_path / "in", "1.jsonl", [air(i, i, float(i)) for i in range(8)])
    with Pipeline(spark, app) as pipeline:
        pipeline.process_all()
    (checkpoint,) = (tmp_path / "archive" / "_checkpoints").glob("query-rising-*")
    for entry in (checkpoint / "offsets").glob("[0-9]*"):
        entry.write_bytes(b"v1")
        entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
    said: list[str] = []
    with Pipeline(spark, app, say=said.append) as pipeline:
        with pytest.raises(PartFailed, match=r"rising has failed: its checkpoint .* is damaged"):
            pipeline.process_all()
        pipeline.tend()
        assert pipeline.down == ["rising"]
        (reason,) = [s.reason for s in pipeline.status() if s.name == "rising"]
    assert said == [f"rising has failed, and is started again in 60 s: {reason}"]
    assert reason is not None
    assert reason.startswith(f"its checkpoint {checkpoint} is damaged")
    assert "Put back a copy of that folder" in reason


def test_settings_of_kafkas_client_reach_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sources and sinks. What it is told to do needs a password that it has not got, so it does not even begin."""
    monkeypatch.setattr(pipeline_module, "_PAUSES", (60.0,))
    said = "has failed: Kafka's client can't do with its settings: .*JAAS"
    options = "options: {security.protocol: SASL_PLAINTEXT}"
    write(tmp_path / "in", "1.jsonl", [air(i, i, float(i)) for i in range(8)])
    with socket.create_server(("127.0.0.1", 0)) as broker:
        topic = f'kind: kafka, brokers: "127.0.0.1:{broker.getsockname()[1]}", topic: t'
        for source, sink in ((f"{{{topic}, {options}}}", None), ("{kind: files, path: in}", f"{{{topic}, {options}}}")):
            app = application(tmp_path, source)
            if sink is not None:
                text = (tmp_path / "app.yaml").read_text()
                (tmp_path / "app.yaml").write_text(text.replace("  rising:", f"  rising:\n    sink: {sink}"))
                app = load(tmp_path / "app.yaml")
            with (
                Pipeline(spark, app) as pipeline,
                pytest.raises(PartFailed, match=said),
            ):
                pipeline.process_all()


def test_a_broker_that_is_away(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_PAUSES", ())
    port = free_port()
    app = application(tmp_path, f'{{kind: kafka, brokers: "127.0.0.1:{port}", topic: readings}}')
    said: list[str] = []
    with Pipeline(spark, app, say=said.append) as pipeline:
        assert set(pipeline.down) == {"rising", "archive of readings"}
    away = f"no broker of Kafka answers, tried 1 times (127.0.0.1:{port}"
    assert any(line.startswith(f"rising has failed, and is started again in 1 s: {away}") for line in said)
