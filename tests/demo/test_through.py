"""When the demo takes the pipeline to be through with a log that goes on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from cepheid.demo import run
from cepheid.demo.run import DEAD, Through
from cepheid.service.supervisor import PIPELINE


def test_a_part_is_through_when_it_is_less_behind_than_the_log_has_surely_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = Through(100, since=1.0)

    def behind(now: float, end: int, spoke: float, **lags: int | None) -> list[str]:
        monkeypatch.setattr(run, "extent", lambda log: SimpleNamespace(end=end))
        parts = [{"name": name.replace("_", " "), "lag": lag} for name, lag in lags.items()]
        (tmp_path / PIPELINE).write_text(json.dumps({"time": spoke, "parts": parts}))
        return [part["name"] for part in through.behind(through.look(tmp_path, now))]

    assert behind(2.5, 100, 2.0, archive=0, office=1, average=None) == ["office", "average"]
    assert behind(3.0, 150, 2.0, archive=0, office=1, average=None) == ["office", "average"]
    assert behind(4.5, 200, 4.0, office=40) == ["office"], "it may have looked before there were 150"
    assert behind(5.5, 200, 5.0, office=50, average=51) == ["average"]
    assert behind(6.5, 200, 6.0, office=99, average=101, dead_letters=1) == ["average", DEAD]
