"""The matcher beside its peers, one thread: filter, pattern and join by room; and how it grows.

CEPHEID_PEERS names the folder of the peers; `--peer esper` takes one of them, `--peer all` all three.
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from common import Bar, Plot, Report, Series, arguments
from peers import PEERS, Peer, prepared
from workload import PAIR, QUERIES, SHARED, batches, checked, events, oracle

from cepheid.language.checker import Checked
from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher
from cepheid.plan.standing import Standing

#: By peer and mode, how many times its speed ours should be.
WANTED: Final = {
    ("esper", "pattern"): 3.0,
    ("flink", "pattern"): 15.0,
    ("siddhi", "pattern"): 15.0,
    ("esper", "join"): 3.0,
    ("esper", "filter"): 1.0,
    ("flink", "filter"): 1.0,
    ("siddhi", "filter"): 1.0,
}
SIZE: Final = 8192


def from_columns(query: Checked, given: list[pa.RecordBatch]) -> tuple[float, int]:
    """Seconds, and how many matches; they are made with their ids and values, and consumed as batches."""
    matcher = Matcher(query)
    matches = 0
    ends = [batch.column(1)[-1].as_py() for batch in given]
    began = time.perf_counter()
    for batch, end in zip(given, ends, strict=True):
        matcher.push_batch(batch)
        for found in matcher.advance_batches(end):
            matches += pa.record_batch(found).num_rows
    for found in matcher.advance_batches(None):
        matches += pa.record_batch(found).num_rows
    return time.perf_counter() - began, matches


def from_rows(query: Checked, given: list[Event]) -> tuple[float, int]:
    """The same from Python objects, to Python objects."""
    matcher = Matcher(query)
    matches = 0
    began = time.perf_counter()
    for start in range(0, len(given), SIZE):
        batch = given[start : start + SIZE]
        matcher.push(batch)
        matches += sum(len(match.id) > 0 for match in matcher.advance(batch[-1].time))
    matches += len(matcher.advance(None))
    return time.perf_counter() - began, matches


def one_by_one(query: Checked, given: list[Event]) -> float:
    """Seconds where each event is pushed, and the watermark moved, by itself."""
    matcher = Matcher(query)
    began = time.perf_counter()
    for event in given:
        matcher.push((event,))
        matcher.advance(event.time)
    return time.perf_counter() - began


def together(texts: list[str], given: list[pa.RecordBatch]) -> tuple[float, int]:
    """CPU seconds of queries that stand together, and how many events they hold at the end."""
    standing = Standing({f"q{i}": checked(text) for i, text in enumerate(texts)})
    ends = [batch.column(1)[-1].as_py() for batch in given]
    began = time.process_time()
    for batch, end in zip(given, ends, strict=True):
        standing.push_batch(batch)
        standing.advance_batches(end)
    return time.process_time() - began, standing.kept


def sharing(report: Report, quick: bool) -> None:
    """Queries with something in common, standing together and each by itself: CPU time and events held, as ratios."""
    given = batches(100_000 if quick else 400_000)
    for title, texts in SHARED.items():
        costs, held = [], []
        for _ in range(3 if quick else 7):
            whole, kept = together(texts, given)
            alone = [together([text], given) for text in texts]
            costs.append(sum(seconds for seconds, _ in alone) / whole)
            held.append(sum(events for _, events in alone) / kept if kept else 1.0)
        name = f"{len(texts)} queries with {title}"
        report.bars.append(Bar(f"{name}: CPU apart, times together", statistics.median(costs), 1, "at_least"))
        report.notes.append(
            f"{name}: apart {statistics.median(costs):.1f} ({min(costs):.1f} to {max(costs):.1f}) times the CPU,"
            f" {statistics.median(held):.1f} times the events held"
        )


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in ("arena", "o", "s", "hblks", "hblkhd", "u", "f", "uordblks"))


def allocated() -> int:
    """Bytes that malloc has given out; the native core's are among them, Python's small objects and Arrow's are not."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    # The structure has two more fields, which a caller must leave room for.
    mallinfo.restype = type(
        "Whole", (ctypes.Structure,), {"_fields_": (("head", _Mallinfo), ("rest", ctypes.c_size_t * 2))}
    )
    found = mallinfo().head
    return int(found.uordblks) + int(found.hblkhd)


def state(query: Checked, given: list[pa.RecordBatch]) -> tuple[float, float]:
    """Bytes a live event beyond its attributes while the windows are full, and bytes left when they have passed."""
    ends = [batch.column(1)[-1].as_py() for batch in given]
    from_columns(query, given)  # a batch keeps what it was once asked for
    matcher = Matcher(query)
    fresh = allocated()
    for batch, end in zip(given, ends, strict=True):
        matcher.push_batch(batch)
        matcher.advance_batches(end)
    live = matcher.counters["kept"]
    # What an event is by itself: id, time and temperature of 8 bytes each, and the name of its room.
    attributes = 24 + statistics.mean(len(room) for room in given[0].column(2).to_pylist())
    each = (allocated() - fresh) / live - attributes
    matcher.advance_batches(ends[-1] + 3_600_000_000)
    assert matcher.counters["kept"] == 0
    return each, allocated() - fresh


def side_by_side(
    report: Report, names: list[str], given: list[pa.RecordBatch], count: int, expected: dict[str, int], turns: int
) -> None:
    """Ours and the peers', in turns, so that whatever else the machine does hits all of them."""
    ours: dict[str, list[float]] = {mode: [] for mode in QUERIES}
    ratios: dict[tuple[str, str], list[float]] = {}
    theirs: dict[tuple[str, str], list[float]] = {}

    def run(mode: str) -> float:
        seconds, matches = from_columns(checked(QUERIES[mode]), given)
        if matches != expected[mode]:
            sys.exit(f"{mode}: {matches} matches, and there are {expected[mode]}")
        ours[mode].append(count / seconds)
        return count / seconds

    with tempfile.TemporaryDirectory() as temporary:
        peers: list[Peer] = [prepared(name, Path(temporary)) for name in names]
        for turn in range(turns):
            print(f"turn {turn + 1} of {turns}", flush=True)
            for mode in QUERIES:
                for _ in range(2):
                    run(mode)
                for peer in peers:
                    if mode in peer.modes:
                        before = statistics.median(run(mode) for _ in range(3))
                        speed = peer.run(mode)
                        after = statistics.median(run(mode) for _ in range(3))
                        theirs.setdefault((peer.name, mode), []).append(speed)
                        ratios.setdefault((peer.name, mode), []).append((before + after) / 2 / speed)
    for mode, speeds in ours.items():
        report.notes.append(
            f"{mode}: {statistics.median(speeds):,.0f} events/s ({min(speeds):,.0f} to {max(speeds):,.0f}),"
            f" {expected[mode]:,} matches"
        )
    slowest = min(statistics.median(ours["pattern"]), statistics.median(ours["join"]))
    report.bars.append(Bar("pattern and join, from Arrow batches", slowest, 5_000_000, "at_least", "events/s"))
    for (name, mode), found in ratios.items():
        speeds = theirs[name, mode]
        report.notes.append(
            f"{name}, {mode}: {statistics.median(speeds):,.0f} events/s ({min(speeds):,.0f} to {max(speeds):,.0f});"
            f" ours is {min(found):.2f} to {max(found):.2f} times that"
        )
        if (name, mode) in WANTED:
            title = f"{mode}, times {name}"
            report.bars.append(Bar(title, statistics.median(found), WANTED[name, mode], "at_least"))


def growth(report: Report, quick: bool) -> None:
    """Cost an event by the number of keys, and of standing queries."""
    count = 500_000 if quick else 2_000_000
    repeats = 3 if quick else 7
    keys = [1_000, 10_000, 100_000, 1_000_000]
    query = checked(QUERIES["pattern"])
    given = {number: batches(count, number) for number in keys}
    costs: dict[int, list[float]] = {number: [] for number in keys}
    for _ in range(repeats):
        for number in keys:
            costs[number].append(from_columns(query, given[number])[0] / count * 1e9)
    series = Series("pattern", [float(k) for k in keys], *_spread(costs[k] for k in keys))
    report.plots.append(Plot("keys", "Cost by keys", "keys", "ns an event", [series], log=True))
    report.bars.append(Bar("cost of 1,000,000 keys, times 1,000", series.median[-1] / series.median[0], 2, "at_most"))
    numbers = [1, 10, 100, 1000]
    few = given[1_000][: 250_000 // SIZE]
    of = {
        n: [f"{PAIR} FILTER (?a.room = 'room{i * 1000 // n}') SEQ (?a, ?b) MATCH NEXT" for i in range(n)]
        for n in numbers
    }
    standing: dict[int, list[float]] = {n: [] for n in numbers}
    for _ in range(repeats):
        for n in numbers:
            standing[n].append(together(of[n], few)[0] / (len(few) * SIZE) * 1e9)
    series = Series("pattern", [float(n) for n in numbers], *_spread(standing[n] for n in numbers))
    report.plots.append(Plot("standing", "Cost by standing queries", "queries", "ns an event", [series], log=True))
    ratio = series.median[-1] / series.median[0]
    report.bars.append(Bar("cost of 1,000 standing queries, times 1", ratio, 20, "at_most"))


def _spread(found: object) -> tuple[list[float], list[float], list[float]]:
    lists = [list(times) for times in found]  # type: ignore[attr-defined]
    return [statistics.median(t) for t in lists], [min(t) for t in lists], [max(t) for t in lists]


def main() -> None:
    options = arguments(__doc__, (*(peer.name for peer in PEERS), "all"))
    names = [peer.name for peer in PEERS] if options.peer == "all" else [options.peer] if options.peer else []
    count = 1_000_000
    rows = events(200_000)
    expected = oracle(events(count))
    given = batches(count)
    report = Report(
        name="matcher",
        question=(__doc__ or "").split("\n", 1)[0],
        method=f"{count:,} events, one a millisecond, of 1,000 rooms and 10 types, in Arrow batches of {SIZE:,} made "
        "beforehand; the peers make their events in the loop. Matches with ids and values are made and consumed, and "
        "counted by a plain loop besides. Ours runs before and after each run of a peer; medians, one thread.",
    )
    side_by_side(report, names, given, count, expected, 1 if options.quick else 3)
    for name, speed in {
        "rows from Python, in batches": max(
            len(rows) / from_rows(checked(QUERIES["pattern"]), rows)[0] for _ in range(3)
        ),
        "rows from Python, one by one": max(
            len(rows) / one_by_one(checked(QUERIES["pattern"]), rows) for _ in range(3)
        ),
    }.items():
        report.bars.append(Bar(name, speed, 300_000, "at_least", "events/s"))
    for mode in ("pattern", "join"):
        each, left = state(checked(QUERIES[mode]), batches(40_000, size=256))
        report.bars.append(Bar(f"{mode}: bytes a live event beyond its attributes", each, 64, "at_most", "bytes"))
        report.notes.append(f"{mode}: {left:,.0f} bytes left when the windows have passed")
    growth(report, options.quick)
    sharing(report, options.quick)
    report.save(options.out)


if __name__ == "__main__":
    main()
