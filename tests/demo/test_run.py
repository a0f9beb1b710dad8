"""The demo, short: everything that it starts is real. It takes minutes: `make soak` runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cepheid.demo.run import Demo

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
    faults = json.loads((tmp_path / "demo" / "truth.json").read_text())["faults"]
    assert any(fault["kind"] == "overcooled" for fault in faults)
    by_query = {line.split()[0]: line.split() for line in said if line.startswith(("rising", "lecture_halls"))}
    assert int(by_query["rising"][2].replace(",", "")) > 0
    assert {line.split()[0] for line in said if line.startswith(("critical", "high", "background"))} == {
        "critical",
        "high",
        "background",
    }
