"""What is live while an engine recovers: CPEP's high level, beside queries about the past on the same cores."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

from common import Bar, Report
from cpep.graphs import BASE, graph_a
from cpep.harness import Case, end, run
from cpep.intervals import in_nine_of_ten
from scepter.past_world import NOW, asked

from cepheid.app import Application

RUNS: Final = 10
SECONDS: Final = 10.0


def beside(report: Report, app: Application, minutes: int) -> None:
    """Runs of graph A at its base load, with the log, while another process asks about the past without a pause."""
    script = Path(__file__).with_name("cold.py")
    given = [sys.executable, str(script), str(app.folder / "app.yaml"), asked(7, minutes), str(NOW), "again"]
    asking = subprocess.Popen(given, stdout=subprocess.PIPE, text=True)
    try:
        assert asking.stdout is not None
        asking.stdout.readline()  # Spark is warm
        case = Case(graph_a(BASE["middle"]), log=True, warm_up=2.0, seconds=SECONDS)
        found = [run(case).ms("high", 99) for _ in range(RUNS)]
        taken = json.loads(asking.stdout.readline())[1]
    finally:
        end(asking)
    limit = in_nine_of_ten(found)
    report.bars.append(Bar("high level's live p99 while it recovers, in 9 of 10 runs", limit, 1.0, "at_most", "ms"))
    report.notes.append(
        f"beside {RUNS} runs of {SECONDS:g} s: p99 {', '.join(f'{p:.2f}' for p in found)} ms, median "
        f"{statistics.median(found):.2f}; a recovery of {minutes} minutes took {taken:.1f} s there"
    )
