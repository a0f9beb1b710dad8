"""The page about queries on Spark: its program is run, and prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.service.intakes import tail_of

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
BLOCK = re.compile(r"^```(python)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_page(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    code = "\n".join(text for kind, text in blocks if kind)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    for log in ("data/log", "data/log/dead"):
        tail_of(tmp_path / log).unlink()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(text for kind, text in blocks if not kind)
