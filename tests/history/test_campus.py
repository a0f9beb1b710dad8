"""The paper's Queries 5 and 7 on the campus, live on Spark: they find what was put there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import cepheid as cepheid_package
from cepheid.app import load
from cepheid.campus.generator import Campus
from cepheid.history.pipeline import Pipeline
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.model.readers import read_events
from cepheid.plan.matcher import Matcher
from tests.history.going import go_through

EXAMPLE = Path(cepheid_package.__file__).parent / "examples" / "campus"


def test_queries_5_and_7_on_a_live_stream(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campus = Campus(21, 200)  # two offices of the department and a meeting room have faults
    campus.model.write(tmp_path)
    campus.write(tmp_path / "events", 1, 24_000)
    shutil.copytree(EXAMPLE / "queries", tmp_path / "queries")
    for name in ("query5", "query7"):  # the campus is of 2012, and live is from now on (rule Q5)
        with (tmp_path / "queries" / f"{name}.chi").open("a") as query:
            query.write("WITHIN [2012-01-01, )\n")
    before, _, _ = (EXAMPLE / "app.yaml").read_text(encoding="utf-8").partition("\nqueries:\n")
    # What is found goes to the console.
    queries = "\nqueries:\n  green_office: {file: queries/query5.chi}\n  meeting_room: {file: queries/query7.chi}\n"
    # And the stream that they read comes from files.
    head, _, rest = before.partition("  airflowReport:\n")
    files = f"source: {{kind: files, path: {json.dumps(str(tmp_path / 'events'))}}}"
    streams = f"{head}  airflowReport:\n{rest.replace('source: {kind: socket}', files, 1)}"
    (tmp_path / "app.yaml").write_text(streams + queries, encoding="utf-8")
    monkeypatch.setenv("CAMPUS_KNOWLEDGE", str(tmp_path / "campus.ttl"))
    monkeypatch.setenv("CAMPUS_EVENTS", str(tmp_path / "events"))
    app = load(tmp_path / "app.yaml")
    said: list[str] = []
    with Pipeline(spark, app, say=said.append) as pipeline:
        go_through(pipeline)
        assert not pipeline.down
    found = [json.loads(line) for line in said]
    ids = {one["id"] for one in found}

    read = read_events([tmp_path / "events" / "events-0001.jsonl"], app.graph.streams.values())
    lateness = {name: stream.lateness for name, stream in app.graph.streams.items()}
    events = [event for event in read if isinstance(event, Event)]  # nothing in a file is late (rule E4)
    plan, end = app.plan(), max(e.time for e in events if e.stream == "airflowReport") - lateness["airflowReport"]
    for name in ("green_office", "meeting_room"):
        matches: list[Match] = Matcher(plan.queries[name]).matches(events)
        assert len(matches) > 10
        # What is not behind the watermark waits.
        assert {m.id for m in matches if m.time < end} <= ids
        sensors = {m.select["sensorID"] for m in matches if m.id in ids}
        overcooled = {fault.sensor for fault in campus.truth.faults if fault.kind == "overcooled"}
        assert sensors <= overcooled
        judged = {one["knowledge"] for one in found if one["id"] in {m.id for m in matches}}
        assert judged == {1}
    known = {m.id for name in plan.queries for m in Matcher(plan.queries[name]).matches(events)}
    assert ids <= known
