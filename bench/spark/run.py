"""Queries on Spark, over an archive and on a stream, beside plain PySpark: local[2], a driver of 512 MB."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import scepter_world as world
from common import Bar, Plot, Report, Table, arguments, interleaved, series
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from spark import by_hand, real_time, state, streams
from spark.workload import QUERIES, SENSORS, archived, rooms

import cepheid.spark
from cepheid.app.known import Known
from cepheid.history.pipeline import REAL_TIME
from cepheid.spark.session import session, with_kafka

#: Events a second: over the archive, and on a stream.
BATCH: Final = {"Query 5": 4e6, "Query 7": 2e6, "Query 3, no FILTER": 7e5}
STREAM: Final = {"Query 5": 8e5, "Query 7": 5e5}
#: How many times as fast as the best by hand.
BESIDE: Final = {"Query 5": 1.0, "Query 7": 1.0, "Query 3, no FILTER": 2.0}
#: The part of a live query's batches that are in time under a load of a lower level, and how much its state may vary.
KEEPS: Final = 0.9
GROWS: Final = 1.5
BESIDE_STREAM: Final = {"stream-stream join": 2.0, "applyInPandasWithState": 10.0}


def consume(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def in_turns(frames: Mapping[str, DataFrame], repeats: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds of each in turns, without those in which one by hand broke down; and why, by name."""
    broken: dict[str, str] = {}
    lost: list[tuple[str, int]] = []
    turns = dict.fromkeys(frames, 0)

    def job(how: str) -> None:
        turns[how] += 1
        try:
            consume(frames[how])
        except Py4JJavaError as error:
            if how == "cepheid":
                raise
            lost.append((how, turns[how] - 1))
            broken[how] = str(error.java_exception.getMessage()).splitlines()[0]

    seconds = interleaved({how: partial(job, how) for how in frames}, repeats)
    for how, turn in reversed(lost):
        del seconds[how][turn]
    return {how: found for how, found in seconds.items() if found}, broken


def fingerprint(rows: DataFrame) -> tuple[int, int]:
    """How many rows there are and a sum of their hashes, the same in any order; columns in theirs."""
    hashed = rows.select(sf.xxhash64(*rows.columns).cast("decimal(38,0)").alias("hash"))
    found = hashed.agg(sf.count("hash"), sf.coalesce(sf.sum("hash"), sf.lit(0))).first()
    assert found is not None
    return found[0], int(found[1])


def by_events(frame: DataFrame) -> DataFrame:
    """The events of each match, whether it is ours or a row by hand: one id, or two in the order of SEQ."""
    if "events" in frame.columns:
        return frame.select("events.*")
    return frame.select("e1", "e2") if "e1" in frame.columns else frame.select("id")


def over_archive(report: Report, events: DataFrame, known: Known, count: int, repeats: int) -> None:
    """Ours and by hand in turns; that they give the same rows is looked at first, which also warms up."""
    table = Table("Over the archive, events/s (spread)", ["query", "how", "median", "least", "most", "rows"])
    lines: dict[str, list[float]] = {}
    for name, text in QUERIES.items():
        frames = {"cepheid": events.transform(cepheid.spark.match(text, knowledge=known))}
        frames |= {how: f(events, rooms(events.sparkSession)) for how, f in by_hand.BY_HAND[name].items()}
        found_by = {how: fingerprint(by_events(frame)) for how, frame in frames.items()}
        if len(set(found_by.values())) > 1:
            sys.exit(f"{name}: not the same rows: {found_by}")
        rows = {how: count for how, (count, _) in found_by.items()}
        seconds, broken = in_turns(frames, repeats)
        report.notes += [
            f"{name}, {how}: broke down in {repeats - len(seconds.get(how, ()))} of {repeats} turns: {reason}"
            for how, reason in broken.items()
        ]
        rates = {how: [count / s for s in found] for how, found in seconds.items()}
        for how, found in rates.items():
            cells = [f"{figure:,.0f}" for figure in (statistics.median(found), min(found), max(found), rows[how])]
            table.rows.append([name, how, *cells])
        ours = statistics.median(rates["cepheid"])
        best = max((statistics.median(found) for how, found in rates.items() if how != "cepheid"), default=0.0)
        report.bars += [
            Bar(f"{name}, archive", ours / 1e6, BATCH[name] / 1e6, "at_least", "million events/s"),
            Bar(f"{name}, times the best by hand", ours / best if best else math.inf, BESIDE[name], "at_least"),
        ]
        lines[name] = rates["cepheid"]
        print(f"{name}: {ours:,.0f} events/s, {report.bars[-1].value:.2f} times the best by hand", flush=True)
    report.tables.append(table)
    report.plots.append(
        Plot(
            "archive",
            "Over the archive: Query 5, Query 7, Query 3 without its FILTER",
            "query",
            "events/s",
            [series("cepheid", [5, 7, 3], list(lines.values()))],
            log_y=True,
        )
    )


def streaming(report: Report, spark: SparkSession, known: Known, folder: Path, form: tuple[int, int, int]) -> None:
    number, size, repeats = form
    files = streams.written(folder / "files", number, size)
    table = Table(f"On a stream, batches of {size:,}, events/s", ["query", "how", "median", "least", "most"])
    hands: dict[tuple[str, str], Callable[[DataFrame], DataFrame]] = {
        (name, "cepheid"): cepheid.spark.match(QUERIES[name], knowledge=known, now=0) for name in STREAM
    }
    for way, formulation in streams.BY_HAND.items():
        hands["Query 7", way] = partial(formulation, rooms=rooms(spark))
    same_on_stream(spark, files, folder, {how: f for (name, how), f in hands.items() if name == "Query 7"})
    rates: dict[tuple[str, str], list[float]] = {which: [] for which in hands}
    for _ in range(repeats):
        for which, transform in hands.items():
            rate, times = streams.sustained(streams.read(spark, files).transform(transform), folder / "checkpoint")
            rates[which].append(rate)
            print(f"stream, {' '.join(which)}: {rate:,.0f} events/s; batches of {times} ms", flush=True)
    for (name, how), found in rates.items():
        cells = [f"{figure:,.0f}" for figure in (statistics.median(found), min(found), max(found))]
        table.rows.append([name, how, *cells])
        if how == "cepheid":
            own = statistics.median(found) / 1e3
            report.bars.append(Bar(f"{name}, stream", own, STREAM[name] / 1e3, "at_least", "thousand events/s"))
        else:
            ratio = statistics.median(rates[name, "cepheid"]) / statistics.median(found)
            report.bars.append(Bar(f"{name}, stream, times {how}", ratio, BESIDE_STREAM[how], "at_least"))
    report.tables.append(table)


def same_on_stream(
    spark: SparkSession, files: Path, folder: Path, hands: Mapping[str, Callable[[DataFrame], DataFrame]]
) -> None:
    """Ends the program unless all give the same rows, up to a time that the watermarks of all have passed."""
    last = spark.read.parquet(str(files)).agg(sf.max(sf.unix_micros("time"))).first()
    assert last is not None
    until, found = last[0] - 60_000_000, {}
    for how, transform in hands.items():
        out = folder / "rows" / how.replace(" ", "-")
        rows = streams.read(spark, files).transform(transform)
        time = sf.col("time") if how == "applyInPandasWithState" else sf.unix_micros("time")
        timely = by_events(rows.where(time < until))
        writer = timely.writeStream.format("parquet").option("checkpointLocation", str(out / "checkpoint"))
        writer.trigger(availableNow=True).start(str(out / "found")).awaitTermination()
        found[how] = fingerprint(spark.read.parquet(str(out / "found")))
    if len(set(found.values())) > 1:
        sys.exit(f"on the stream not the same rows: {found}")


def by_cores(report: Report, archive: Path, folder: Path, repeats: int) -> None:
    """Query 7 in a process tree that is pinned to one core, and to two."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    cores_here = sorted(os.sched_getaffinity(0))
    if len(cores_here) < max(seconds):
        report.notes.append("only one core: what a second one gives was not measured")
        return
    # By turns, a process each.
    turns, each = min(3, repeats), -(-repeats // 3)
    for cores, found in list(seconds.items()) * turns:
        here = cores_here[:cores]
        command = ["taskset", "-c", ",".join(map(str, here)), sys.executable, str(Path(__file__).parent / "one.py")]
        done = subprocess.run(
            [*command, str(archive), str(folder), str(cores), str(each)], check=True, capture_output=True, text=True
        )
        found += json.loads(done.stdout.splitlines()[-1])
    one, two = (statistics.median(found) for found in seconds.values())
    report.bars.append(Bar("Query 7, archive: 2 cores, times 1", one / two, 1.5, "at_least"))


def levels(report: Report, archive: Path, folder: Path, seconds: int) -> None:
    """A live query of a high level while a batch runs over the archive, in pools and in one."""
    script = Path(__file__).parent / "levels.py"
    command = [sys.executable, str(script), str(archive), str(folder), str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    table = Table("Query 5 live, under a batch load on the archive", ["load", "batches in time", "a batch takes, ms"])
    table.rows += [[name, f"{f['in time']:.0%}", f"{f['batch']:,.0f}"] for name, f in found.items()]
    report.tables.append(table)
    report.bars.append(
        Bar("live query under a batch load, batches in time", found["with levels"]["in time"], KEEPS, "at_least")
    )


def bounded(report: Report, spark: SparkSession, folder: Path, sensors: int) -> None:
    """The state of a query on a stream, over a day of event time."""
    by_hour = state.kept(spark, folder, sensors)
    settled = by_hour[2:]
    report.plots.append(
        Plot(
            "state",
            "State over a day of event time",
            "hour",
            "bytes",
            [series("state", range(24), [[b] for b in by_hour])],
        )
    )
    report.notes.append(f"state of {sensors:,} sensors: {min(settled):,} to {max(settled):,} bytes after each hour")
    report.bars.append(Bar("state over a day, greatest over least", max(settled) / min(settled), GROWS, "at_most"))


def in_real_time(report: Report, spark: SparkSession, known: Known, folder: Path, seconds: int, batch: str) -> None:
    """Query 5 in Real-Time Mode, from topic to topic."""
    found = real_time.latencies(spark, known, folder, 1000, seconds, batch)
    p50, p99, worst = (float(np.percentile(found.milliseconds, q)) for q in (50, 99, 100))
    report.bars += [
        Bar("Real-Time Mode, Query 5, p50", p50, 5, "at_most", "ms"),
        Bar("Real-Time Mode, Query 5, p99", p99, 100, "at_most", "ms"),
        Bar("Real-Time Mode, Query 5, matches that did not come", found.missing, 0, "at_most"),
        Bar("Real-Time Mode, Query 5, ends of batches", found.batches, 2, "at_least"),
    ]
    report.notes.append(
        f"Real-Time Mode: {found.sent:,} events at 1,000 a second, {len(found.milliseconds):,} matches after a warm-up "
        f"of {real_time.WARM_UP:.0f} s, over {found.batches} batches of {batch}; the slowest {worst:.0f} ms"
    )


def importing(report: Report) -> None:
    """What importing the library adds to importing pyspark, in fresh interpreters by turns."""

    def fresh(statement: str) -> object:
        return subprocess.run([sys.executable, "-c", statement], check=True)

    pyspark, ours = "import pyspark.sql", "import cepheid.spark; cepheid.spark.match"
    arrow = f"{pyspark}, pyspark.sql.functions, pandas, pyarrow"
    jobs = (pyspark, f"{pyspark}; {ours}", arrow, f"{arrow}; {ours}")
    seconds = interleaved({statement: partial(fresh, statement) for statement in jobs}, 5)
    alone, both, with_arrow, all_of_them = (statistics.median(found) for found in seconds.values())
    report.bars.append(Bar("importing cepheid.spark, beyond pyspark", both - alone, 0.5, "at_most", "s"))
    report.notes.append(
        f"importing pyspark.sql takes {alone:.2f} s, and cepheid.spark.match with it {both:.2f} s; where pandas and "
        f"pyarrow are imported already, ours adds {all_of_them - with_arrow:.2f} s"
    )


def main() -> None:
    options = arguments(__doc__)
    count, repeats = (1_000_000, 3) if options.quick else (10_000_000, 7)
    form = (3, 250_000, 1) if options.quick else (6, 1_000_000, 3)
    report = Report(
        name="spark",
        question=(__doc__ or "").split("\n", 1)[0],
        method=f"{count:,} events of {SENSORS:,} sensors, one in 10 s each, a quarter of the rooms meeting rooms, in a "
        "Delta table by day; all results are consumed (noop). Ours and the formulations by hand take turns, and give "
        "the same rows. Ours gives match ids besides. On a stream: a file a batch, the first one warms up.",
    )
    importing(report)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        spark = session(**{"spark.master": "local[2]", "spark.driver.memory": "512m"}, **with_kafka())
        events = archived(spark, count, folder)
        known = world.known(world.knowledge(SENSORS, folder))
        over_archive(report, events, known, count, repeats)
        streaming(report, spark, known, folder, form)
        bounded(report, spark, folder, 20 if options.quick else 500)
        seconds, batch = (20, real_time.QUICK_BATCH) if options.quick else (200, REAL_TIME)
        in_real_time(report, spark, known, folder, seconds, batch)
        spark.stop()
        by_cores(report, folder / "archive", folder, repeats)
        levels(report, folder / "archive", folder, 20 if options.quick else 60)
    report.save(options.out)


if __name__ == "__main__":
    main()
