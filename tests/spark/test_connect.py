"""The library through Spark Connect: the same matches as everywhere, as a batch and as a stream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cepheid.plan.matcher import Matcher
from tests.history.test_graphs import alone, application
from tests.history.test_graphs import events as graph_events
from tests.spark.killed_stream import COUNTED, QUERY
from tests.spark.test_cluster import checked_air, written
from tests.spark.test_operators import KEY, of_service

pytestmark = pytest.mark.spark


@pytest.mark.timeout(300)
def test_connect_finds_what_the_native_matcher_finds(tmp_path: Path) -> None:
    events = written(tmp_path / "in")
    paths = [str(Path("bench").absolute()), *filter(None, [os.environ.get("PYTHONPATH")])]
    program = subprocess.run(
        [sys.executable, "-m", "tests.spark.on_connect", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert program.returncode == 0, program.stdout
    found = json.loads(program.stdout.splitlines()[-1])
    keyless = QUERY.replace("JOIN (?p.sensor = ?q.sensor)", "")
    for name, text in (("key", QUERY), ("slices", keyless), ("counted", COUNTED)):
        wanted = Matcher(checked_air(text)).matches(events)
        assert len(wanted) > 50
        assert found[name] == sorted(match.id for match in wanted)
    # Sensors 0 and 1 are in an office of the department, and in one of its rooms; each has two events.
    assert found["path"] == ["0", "1", "8", "9"]
    assert found["where"] == ["0", "1", "8", "9"]
    assert len(found["enrich"]) == 16
    fused = of_service("ekf", "array<uint8>", [b"\x01\x02\xff", b"\x03\x05"])
    hidden = of_service("aes", "array<uint8>", [b"\x01\x02\xff\x03\x05"], key=KEY)
    assert found["operators"] == [list(of_service("fft", "array<uint8>", [fused])), hidden.hex()]
    received = alone(application(tmp_path), graph_events())
    outputs = [[machine, r.consumer, r.id, r.time] for machine, each in received.items() for r in each]
    assert sorted(found["graph"]) == sorted(outputs)
    matcher = Matcher(checked_air(QUERY))
    matcher.push(events)
    assert found["stream"] == sorted(match.id for match in matcher.advance(events[-1].time))
