"""An engine that was away comes back: the log has what came meanwhile, and its queries find what they missed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
import scepter_world as world
from common import Bar, Plot, Report, Table, series
from scepter.past_world import MINUTE, NOW, RATE, described, readings

from cepheid.app import Application
from cepheid.model.events import Event
from cepheid.model.time import format_instant
from cepheid.service.engine import Engine
from cepheid.service.intake import config_of, start
from cepheid.service.supplier import Supplier

#: Minutes that it runs before it is stopped.
BEFORE: Final = 1
#: The sensor of an event that nothing follows.
_END: Final = "END"


def engine(report: Report, folder: Path, limits: Mapping[int, float], times: tuple[int, ...], repeats: int) -> None:
    """From the start of an engine to the first and to the last match of a downtime.

    `limits` are the seconds that the longest may take, by query.
    """
    table = Table(
        "An engine comes back, medians: events from its log",
        ["query", "down, min", "first, s", "all, s", "events/s", "matches"],
    )
    for number, limit in limits.items():
        found: dict[int, list[tuple[float, float, int]]] = {}
        for minutes in times:
            runs = [_recovery(folder / f"engine-{number}-{minutes}-{turn}", number, minutes) for turn in range(repeats)]
            found[minutes] = runs
            first, last = (statistics.median(run[part] for run in runs) for part in (0, 1))
            rate = minutes * 60 * RATE / last
            cells = [f"{first:.2f}", f"{last:.2f}", f"{rate:,.0f}", f"{runs[0][2]:,}"]
            table.rows.append([str(number), str(minutes), *cells])
            print(f"Query {number}, an engine that was down {minutes} minutes: {last:.2f} s", flush=True)
        report.bars += [
            Bar(f"Query {number}, an engine comes back after {times[-1]} minutes", last, limit, "at_most", "s"),
            Bar(f"Query {number}, its first match after {times[-1]} minutes", first, 2.0, "at_most", "s"),
        ]
        name, title = f"figure9-engine-query{number}", f"An engine comes back, Query {number}"
        plot = Plot(name, title, "downtime, minutes", "s from its start", log_y=True)
        for part, label in enumerate(("to the first match", "to the last event")):
            plot.series.append(series(label, list(times), [[run[part] for run in found[m]] for m in times]))
        report.plots.append(plot)
    report.tables.append(table)


def _recovery(folder: Path, number: int, minutes: int) -> tuple[float, float, int]:
    """Seconds to the first match and until the engine is at the log's end, and how many it found."""
    within = f"WITHIN [{format_instant(NOW - (minutes + BEFORE) * MINUTE)}, )"
    queries = {
        "asked": {"text": f"{world.QUERIES[number]}\n{within}", "engine": "service"},
        "over": {"text": f"SELECT ?e.flowrate {within} FILTER (?e.sensorID = '{_END}')", "engine": "service"},
    }
    service = {"listen": "unix:in.sock", "log": {"path": "log", "durability": "interval 10ms"}}
    app = described(folder, queries=queries, service=service)
    came = _events(minutes + BEFORE)
    with start(config_of(app)), Supplier(f"unix:{folder}/in.sock") as supplier:
        supplier.push_many(next(came) for _ in range(BEFORE * 60 * RATE - 1))
        supplier.push(Event(world.STREAM.name, 1, next(came).time, {"sensorID": _END, "flowrate": 0.0}))
        supplier.flush()
        _run(app)
        supplier.push_many(came)
        supplier.push(Event(world.STREAM.name, 2, NOW, {"sensorID": _END, "flowrate": 0.0}))
        supplier.flush()
        return _run(app)


def _run(app: Application) -> tuple[float, float, int]:
    """An engine, from its start until it has come to the log's end."""
    began = time.perf_counter()
    first, count = None, 0
    with Engine(app) as running:
        running.follow(app.folder / "log")
        asked, over = running.matches("asked"), running.matches("over")
        is_over = False
        while True:
            found = asked.get(timeout=0.0 if is_over else 0.01)
            if found is not None:
                first = time.perf_counter() - began if first is None else first
                count += 1
            elif is_over:
                break
            else:
                is_over = over.get(timeout=0.0) is not None
        last = time.perf_counter() - began
    return last if first is None else first, last, count


def _events(minutes: int) -> Iterator[Event]:
    for batch in readings(minutes).to_batches(50_000):
        times = batch.column("time").cast(pa.int64()).to_pylist()
        others = (batch.column(name).to_pylist() for name in ("id", "sensorID", "flowrate"))
        for moment, number, sensor, flow in zip(times, *others, strict=True):
            yield Event(world.STREAM.name, number, moment, {"sensorID": sensor, "flowrate": flow})
