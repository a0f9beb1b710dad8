"""Live queries on files, without a service: an id that comes again counts once, and what fails says why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from cepheid.app import Application, load
from cepheid.history import pipeline as pipeline_module
from cepheid.history.pipeline import PartFailed, Pipeline, matches_table
from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher
from cepheid.spark import sources
from cepheid.spark.application import archive_of
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
          SELECT ?q.flow FROM (?p, air), (?q, air) SEQ (?p, ?q) WINDOW (?p, ?q, 5s)
          JOIN (?p.sensor = ?q.sensor AND ?q.flow > ?p.flow)
"""
START: Final = 1_336_381_200_000_000


def application(folder: Path, source: str = "{kind: files, path: in}") -> Application:
    (folder / "app.yaml").write_text(dedent(APP).format(source=source))
    return load(folder / "app.yaml")


def air(number: int, second: int, flow: float) -> Event:
    return Event("air", number, START + second * 1_000_000, {"sensor": f"D{number % 2}", "flow": flow})


def write(folder: Path, name: str, events: Sequence[Event]) -> None:
    folder.mkdir(exist_ok=True)
    records = ({"stream": "air", "id": e.id, "time": e.time, **e.attributes} for e in events)
    (folder / f".{name}").write_text("\n".join(map(json.dumps, records)))
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


def test_matches_as_files(spark: SparkSession, tmp_path: Path) -> None:
    """Each match once, as lines of JSON or in Parquet, also when another pipeline goes on."""
    high = 'text: "SELECT ?e.flow FROM (?e, air) FILTER (?e.flow > 5)"'
    sinks = {"lines": "{kind: files, path: lines}", "rows": "{kind: files, path: rows, format: parquet}"}
    queries = "".join(f"  {name}: {{sink: {sink}, {high}}}\n" for name, sink in sinks.items())
    (tmp_path / "app.yaml").write_text(dedent(APP).format(source="{kind: files, path: in}") + queries)
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


def test_a_broker_that_is_away(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_PAUSES", ())
    port = free_port()
    app = application(tmp_path, f'{{kind: kafka, brokers: "127.0.0.1:{port}", topic: readings}}')
    said: list[str] = []
    with Pipeline(spark, app, say=said.append) as pipeline:
        assert set(pipeline.down) == {"rising", "archive of readings"}
    away = f"no broker of Kafka answers, tried 1 times (127.0.0.1:{port}"
    assert any(line.startswith(f"rising has failed, and is started again in 1 s: {away}") for line in said)
