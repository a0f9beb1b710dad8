"""A log folder of an earlier version of Cepheid, with what is kept beside it, is opened by today's and gone on with.

tests/golden/log was left by an engine that had read the first events and then was away. If it can't be opened any more,
that is a change that users have to be told of, or better a reader for what was: don't make the folder anew.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cepheid.app import load
from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher
from cepheid.service.engine import Engine
from cepheid.service.log import LogReader
from tests.golden_files import GOLDEN

APP = """
name: plant
streams:
  air: {attributes: {sensor: string, flow: float}, key: sensor}
service: {listen: "unix:in.sock", log: {path: log, durability: each}}
queries:
  rising:
    engine: service
    text: |
      SELECT ?q.flow FROM (?p, air), (?q, air) WITHIN [2012-05-07T09:00, )
      JOIN (?p.sensor = ?q.sensor AND ?q.flow > ?p.flow) SEQ (?p, ?q) WINDOW (?p, ?q, 3s)
"""
BEGIN = 1336381200000000
EVENTS = [Event("air", n, BEGIN + n * 400_000, {"sensor": f"s{n % 3}", "flow": float(n * 7 % 11)}) for n in range(60)]
#: So many of them were read before the engine was away.
READ = 40


def folder_of(tmp_path: Path, app: str = APP) -> Path:
    shutil.copytree(GOLDEN / "log", tmp_path / "log")
    (tmp_path / "app.yaml").write_text(app)
    return tmp_path / "app.yaml"


def matches(app: Path) -> set[str]:
    found = set()
    with Engine(load(app)) as engine:
        engine.follow(app.parent / "log")
        while (one := engine.matches("rising").get(timeout=1)) is not None:
            found.add(one.match.id)
    return found


def test_what_came_in_the_outage_is_found_and_nothing_twice(tmp_path: Path) -> None:
    path = folder_of(tmp_path)
    assert [one.event for one in LogReader(tmp_path / "log")] == EVENTS
    query = load(path).plan().queries["rising"]
    before, all_of_it = ({m.id for m in Matcher(query).matches(some)} for some in (EVENTS[:READ], EVENTS))
    known = json.loads((tmp_path / "log" / "queries.json").read_text())
    found = matches(path)
    # What is not behind the watermark yet may be missing.
    late = {m.id for m in Matcher(query).matches(EVENTS) if m.time >= EVENTS[-1].time}
    assert all_of_it - before - late <= found <= all_of_it
    assert not found & {m.id for m in Matcher(query).matches(EVENTS[: READ - 1])}
    assert {**json.loads((tmp_path / "log" / "queries.json").read_text()), "version": 1} == {**known, "version": 1}


def test_a_query_that_is_another_is_said_to_begin_anew(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    matches(folder_of(tmp_path, APP.replace("3s", "4s")))
    assert "rising: not the query that ran over this log before" in capfd.readouterr().err
    matches(tmp_path / "app.yaml")
    assert capfd.readouterr().err == ""


def test_what_is_broken_is_named(tmp_path: Path) -> None:
    path = folder_of(tmp_path)
    (tmp_path / "log" / "queries.json").write_text('{"version": 1')
    with pytest.raises(ValueError, match=r"queries\.json is not what was written there .*; move it away"):
        matches(path)


def test_what_a_later_version_left_is_refused(tmp_path: Path) -> None:
    path = folder_of(tmp_path)
    (tmp_path / "log" / "queries.json").write_text('{"version": 2}')
    with pytest.raises(ValueError, match=r"queries\.json was written by a later version of Cepheid"):
        matches(path)
