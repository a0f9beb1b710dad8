"""Columns that the archive gets from the knowledge: of the log and of files, as it is when they are archived."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cepheid.app import Application, load
from cepheid.history.answer import query
from cepheid.history.pipeline import Pipeline
from cepheid.knowledge import journal
from cepheid.model.events import Event
from cepheid.service.intake import IntakeProcess, config_of, start
from cepheid.service.supplier import Supplier
from cepheid.spark.application import archive_batch, archive_of
from cepheid.spark.archive import read
from tests.history.going import go_through
from tests.history.test_judging import triple

TURTLE = """@prefix : <http://x#> .
:s0 :in :r0 . :s1 :in :r1, :r9 . :r0 a :Office . :r1 a :Hall . :r9 a :Hall . :f7 :in :r0 .
"""
APP = """
name: plant
prefixes: {"": "http://x#"}
default_stream: air
streams:
  air:
    attributes: {sensor: string, fan: int, flow: float}
    semantics: {sensor: {property: ":src", entity: ":{value}"}, fan: {property: ":by", entity: ":f{value}"}}
knowledge: {sources: [kb.ttl], reasoning: none}
archive: {path: archive}
"""
ENRICH = "\n    enrich: {sensor: {room: ':in', kind: ':in/a'}, fan: {Fanned: ':in'}}\nknowledge:"
SERVICE = 'service: {listen: "unix:intake.sock", log: {path: log, durability: each}}\n'
FILES = "\n    source: {kind: files, path: in}\nknowledge:"


def application(folder: Path, text: str) -> Application:
    (folder / "kb.ttl").write_text(TURTLE, encoding="utf-8")
    (folder / "app.yaml").write_text(text, encoding="utf-8")
    return load(folder / "app.yaml")


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[IntakeProcess]:
    with start(config_of(application(tmp_path, APP + SERVICE))) as process:
        yield process


def push(folder: Path, *events: tuple[int, str | None, int | None]) -> None:
    with Supplier(f"unix:{folder / 'intake.sock'}") as supplier:
        supplier.push_many([Event("air", n, n, {"sensor": s, "fan": f, "flow": 1.0}) for n, s, f in events])
        supplier.flush()


def kept(spark: SparkSession, app: Application, column: str) -> list[list[str] | None]:
    """A column of the archive, event by event."""
    rows = read(spark, archive_of(app), app.graph.streams["air"]).orderBy("id").select(column).collect()
    return [row[0] and [answer.removeprefix("http://x#") for answer in row[0]] for row in rows]


@pytest.mark.usefixtures("intake")
def test_the_archive_of_the_log_has_what_is_known(spark: SparkSession, tmp_path: Path) -> None:
    app = load(tmp_path / "app.yaml")
    push(tmp_path, (1, "s1", None))
    with Pipeline(spark, app) as pipeline:
        go_through(pipeline)
        app = application(tmp_path, APP.replace("\nknowledge:", ENRICH) + SERVICE)
        assert pipeline.apply(app) == {"added": [], "removed": [], "changed": ["archive"]}
        push(tmp_path, (2, "s0", 7), (3, "s1", 8), (4, "s9", None), (5, None, 7))
        go_through(pipeline)
        # A sensor moves, and another is known of now.
        known = pipeline._following.known
        assert known is not None
        before = known.knowledge.version
        journal.append(
            journal.journal_of(tmp_path),
            [triple("s0", "in", "r9"), triple("s9", "in", "r0")],
            [triple("s0", "in", "r0")],
        )
        while known.knowledge.version == before:
            time.sleep(0.1)
        push(tmp_path, (6, "s0", 7), (7, "s9", None))
        go_through(pipeline)
        assert not pipeline.down
    # Each event is one row, also where there are several answers; one that was archived before has none.
    assert kept(spark, app, "room") == [None, ["r0"], ["r1", "r9"], None, None, ["r9"], ["r0"]]
    assert kept(spark, app, "kind") == [None, ["Office"], ["Hall"], None, None, ["Hall"], ["Office"]]
    assert kept(spark, app, "Fanned") == [None, ["r0"], None, None, ["r0"], ["r0"], None]
    # To queries the stream is what it was.
    asked = "SELECT ?e.id AS number FILTER (?e.sensor = 's0')"
    assert [found["select"]["number"] for found in query(app, asked, spark=spark)] == [2, 6]


def test_the_archive_of_files_has_what_is_known(spark: SparkSession, tmp_path: Path) -> None:
    app = application(tmp_path, APP.replace("\nknowledge:", ENRICH).replace("\nknowledge:", FILES))
    (tmp_path / "in").mkdir()
    for number, name in enumerate(("once", "live")):
        record = {"id": number, "time": number, "sensor": f"s{number}", "fan": None, "flow": 1.0}
        (tmp_path / "in" / f"{name}.jsonl").write_text(json.dumps(record))
        if name == "once":
            archive_batch(spark, app)
            continue
        with Pipeline(spark, app) as pipeline:
            go_through(pipeline)
    assert kept(spark, app, "room") == [["r0"], ["r1", "r9"]]
