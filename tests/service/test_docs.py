"""The pages about the log and the wire: their programs are run, and print what the pages say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from cepheid.app import Builder
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.service import Engine
from cepheid.service.outlet import Outlet
from tests.service.intakes import Start, logged, tail_of

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n+^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def examples(page: str) -> list[tuple[str, str]]:
    """Programs and what they print."""
    return EXAMPLE.findall((DOCS / page).read_text(encoding="utf-8"))


def test_the_log(tmp_path: Path) -> None:
    parts = examples("log.md")
    assert len(parts) == 5
    code = "\n".join(code for code, _ in parts)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout == "".join(printed for _, printed in parts)
    for log in ("data/log", "data/log/dead"):
        tail_of(tmp_path / log).unlink()


def test_the_wire(intake: Start, tmp_path: Path) -> None:
    (code, printed), _ = examples("wire.md")
    process = intake(streams=[Stream("air", {"sensor": Type.STRING, "flow": Type.FLOAT})])
    path = process.address.removeprefix("unix:")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == (printed, "")
    [found] = logged(tmp_path)
    assert found.event == Event("air", 7, 1_336_381_200_000_000, {"sensor": "D105", "flow": 510.0})


def test_a_consumer_by_the_wire(tmp_path: Path) -> None:
    _, (code, printed) = examples("wire.md")
    build = Builder("plant")
    air = build.stream("air", {"sensor": "string", "flow": "float"}, valid_for="2s")
    build.consumer("alarm", air)
    with Engine(build.build()) as engine, Outlet(engine, f"unix:{tmp_path / 'o'}"):
        engine.push("air", Event("air", 7, 1_336_381_200_000_000, {"sensor": "D105", "flow": 510.0}))
        command = [sys.executable, "-c", code, str(tmp_path / "o")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == (printed, "")
