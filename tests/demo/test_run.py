"""The demo, short: everything that it starts is real. It takes minutes: `make soak` runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cepheid.app import load
from cepheid.demo.run import Demo
from cepheid.history import query
from cepheid.service.log import LogReader
from tests.history.campaigns import in_time

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def test_the_campus_live_and_back_in_time_with_a_crash(tmp_path: Path) -> None:
    steps: list[str] = []
    said: list[str] = []
    demo = Demo(tmp_path / "demo", 200, 21, steps.append, said.append, before=12, after=14, speed=60.0)
    assert demo.run(), "\n".join(said)
    assert len(steps) == demo.steps
    told = "\n".join(said)
    assert "the books balance" in told
    assert "another one is where it was after" in told
    assert "came late" in told
    faults = json.loads((tmp_path / "demo" / "truth.json").read_text())["faults"]
    assert any(fault["kind"] == "overcooled" for fault in faults)
    by_query = {line.split()[0]: line.split() for line in said if line.startswith(("rising", "lecture_halls"))}
    assert int(by_query["rising"][2].replace(",", "")) > 0
    assert {line.split()[0] for line in said if line.startswith(("critical", "high", "background"))} == {
        "critical",
        "high",
        "background",
    }


def test_it_is_kept_running(tmp_path: Path) -> None:
    """The campus goes on, at its own speed, and can be asked."""
    said: list[str] = []
    demo = Demo(tmp_path / "demo", 200, 21, said.append, said.append, before=12, after=14, speed=60.0)
    asked: list[int] = []

    def serve() -> None:
        app = load(tmp_path / "demo" / "app.yaml")
        sent = of_rooms(tmp_path / "demo")
        assert in_time(lambda: of_rooms(tmp_path / "demo") > sent, 60), "no sensor of a room says anything"
        asked.append(len(list(query(app, "SELECT ?e.sensorID FILTER (?e.flowrate > 500)"))))

    assert demo.run(serve), "\n".join(said)
    assert asked[0] > 0
    assert "cepheid query" in said[-1]


def of_rooms(folder: Path) -> int:
    """How many events there are but those of the fan, which runs anyway."""
    return sum(logged.event.stream == "airflowReport" for logged in LogReader(folder / "data" / "log"))
