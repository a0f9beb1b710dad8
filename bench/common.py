"""What the experiments share: repeated timings, and a report as JSON, plots and an HTML page."""

from __future__ import annotations

import argparse
import html
import json
import operator
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

#: What a figure can be to its limit.
KINDS: Final[Mapping[str, tuple[str, Callable[[float, float], bool]]]] = {
    "at_most": ("<=", operator.le),
    "at_least": (">=", operator.ge),
    "less_than": ("<", operator.lt),
    "more_than": (">", operator.gt),
}


@dataclass
class Bar:
    """A figure and what it should be: of one of `KINDS` to the limit."""

    name: str
    value: float
    limit: float
    kind: str
    unit: str = ""

    @property
    def met(self) -> bool:
        return KINDS[self.kind][1](self.value, self.limit)


@dataclass
class Series:
    """A line of a plot, with the spread of its repetitions."""

    name: str
    x: list[float]
    median: list[float]
    low: list[float]
    high: list[float]


@dataclass
class Plot:
    name: str
    title: str
    x_label: str
    y_label: str
    series: list[Series] = field(default_factory=list)
    log: bool = False
    #: The upright axis alone.
    log_y: bool = False


@dataclass
class Table:
    """Rows of words, such as a paper's table with our figures."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)


@dataclass
class Report:
    """The outcome of an experiment."""

    name: str
    question: str
    method: str
    bars: list[Bar] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: What each run gave, for those who want to look again.
    runs: list[object] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        """Write result.json, the plots and index.html; say the bars."""
        folder.mkdir(parents=True, exist_ok=True)
        result = {"machine": machine(), **asdict(self), "met": {bar.name: bar.met for bar in self.bars}}
        (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        for plot in self.plots:
            _draw(plot, folder / f"{plot.name}.svg")
        (folder / "index.html").write_text(self._page(result["machine"]), encoding="utf-8")
        for bar in self.bars:
            sign, _ = KINDS[bar.kind]
            verdict = "met" if bar.met else "NOT MET"
            print(f"{bar.name}: {bar.value:.4g} {bar.unit} ({sign} {bar.limit:g}): {verdict}")
        for table in self.tables:
            print(_plain(table))
        for note in self.notes:
            print(note)
        print(f"report: {folder / 'index.html'}")

    def _page(self, about: object) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(b.name)}<td>{b.value:.4g} {html.escape(b.unit)}"
            f"<td>{b.kind.replace('_', ' ')} {b.limit:g}<td>{'met' if b.met else 'not met'}</tr>"
            for b in self.bars
        )
        tables = "".join(_table(table) for table in self.tables)
        plots = "".join(f'<h2>{html.escape(p.title)}</h2><img src="{p.name}.svg" alt="">' for p in self.plots)
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return (
            f"<!doctype html><meta charset=utf-8><title>{self.name}</title>"
            "<style>body{font:16px sans-serif;max-width:60em;margin:2em auto}"
            "td,th{padding:.2em 1em;text-align:left}</style>"
            f"<h1>{html.escape(self.name)}</h1><p>{html.escape(self.question)}</p><p>{html.escape(self.method)}</p>"
            f"<table><tr><th>figure<th>measured<th>bar<th></tr>{rows}</table>{tables}{plots}<ul>{notes}</ul>"
            f"<pre>{html.escape(json.dumps(about, indent=2))}</pre>\n"
        )


def _plain(table: Table) -> str:
    rows = [table.columns, *table.rows]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([table.title, *lines])


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}" for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in row) + "</tr>" for row in table.rows)
    return f"<h2>{html.escape(table.title)}</h2><table><tr>{head}</tr>{rows}</table>"


def _draw(plot: Plot, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for series in plot.series:
        (line,) = axes.plot(series.x, series.median, marker="o", label=series.name)
        axes.fill_between(series.x, series.low, series.high, alpha=0.2, color=line.get_color())
    if plot.log:
        axes.set_xscale("log")
    if plot.log or plot.log_y:
        axes.set_yscale("log")
    axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path)
    pyplot.close(figure)


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    ).stdout.strip()
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "commit": commit,
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def interleaved(jobs: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each job, the jobs taking turns, so that a noisy minute strikes all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def series(name: str, x: Sequence[float], samples: Sequence[Sequence[float]]) -> Series:
    """A line through the medians, with the extremes as its spread."""
    return Series(
        name,
        list(x),
        [statistics.median(s) for s in samples],
        [min(s) for s in samples],
        [max(s) for s in samples],
    )


def arguments(description: str | None, peers: Sequence[str] = ()) -> argparse.Namespace:
    """The options of every experiment, as `cepheid bench` passes them on."""
    # Ended from outside, it still ends the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, required=True, help="folder of the report")
    parser.add_argument("--quick", action="store_true", help="a short form, for a look")
    parser.add_argument("--peer", choices=peers or None, help="measure beside this peer only")
    options = parser.parse_args()
    if options.peer is not None and not peers:
        parser.error("argument --peer: this experiment has no peers; leave it out")
    return options
