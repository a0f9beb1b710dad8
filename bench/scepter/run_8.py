"""What a PATH costs at run time: naive, buffered, cached, both, and indexed (Figures 8a and 8b of SCEPter)."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pyoxigraph as ox
import scepter_world as world
from common import Bar, Plot, Report, Series, arguments, interleaved
from peers import prepared

from cepheid.app.known import Known
from cepheid.app.live import LiveMatcher
from cepheid.knowledge.modes import Evaluation, SemanticFilter
from cepheid.knowledge.store import Knowledge
from cepheid.language.checker import Checked
from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher

RATES: Final = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
#: The paper's best: 2 s buffers and a cache of 25%.
PAPERS_BEST: Final = 3_000


def rate(count: int, job: Callable[[], object], repeats: int = 3) -> float:
    """Events a second; the median of some runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - start)
    return count / statistics.median(seconds)


def filtered(checked: Checked, known: Known, mode: Evaluation, entries: int) -> Callable[[Sequence[Event]], None]:
    """A matcher that judges PATHs in a mode; its cache goes on from call to call."""
    semantic = known.lower(checked)
    judge = SemanticFilter(semantic.lookups, known.knowledge, mode, entries)
    matcher = Matcher(semantic.checked, semantic=judge)

    def run(events: Sequence[Event]) -> None:
        matcher.push(events)
        matcher.advance(events[-1].time)

    return run


def bare_loop(base: Knowledge, events: Sequence[Event]) -> None:
    """What naive evaluation can't do without: the event's triples, the question, and nothing else."""
    store, graph = base.store, ox.NamedNode("urn:bare")
    head = f"SELECT * {{ {world.OFFICE.replace('?e', '<urn:e>')} }}"
    root, source = ox.NamedNode("urn:e"), ox.NamedNode(world.PREFIXES["evt"] + "hasSource")
    for event in events:
        entity = ox.NamedNode(world.PREFIXES["ee"] + str(event.attributes["sensorID"]))
        quad = ox.Quad(root, source, entity, graph)
        store.add(quad)
        found = store.query(head, prefixes=world.PREFIXES, default_graph=[ox.DefaultGraph(), graph])
        assert isinstance(found, ox.QuerySolutions)
        list(found)
        store.remove(quad)


def indexed(text: str, known: Known) -> Matcher:
    checked = world.checked(text)
    return Matcher(known.lower(checked).checked if checked.query.path is not None else checked)


def throughput(matcher: Matcher, batch: object, count: int) -> float:
    """Events a second through a matcher that stands."""
    start = time.perf_counter()
    matcher.push_batch(batch, world.STREAM.name)  # type: ignore[arg-type]
    matcher.advance_batches(None)
    return count / (time.perf_counter() - start)


def best(text: str, known: Known, batch: object, count: int) -> float:
    """Of three runs the middle one; what registering the query costs is not in it."""
    checked = world.checked(text)
    lowered = known.lower(checked).checked if checked.query.path is not None else checked
    return statistics.median(throughput(Matcher(lowered), batch, count) for _ in range(3))


def modes(base: Knowledge, sensors: int, quick: bool) -> tuple[Plot, dict[str, float]]:
    """Figure 8a: throughput by input rate, for each mode."""
    checked = world.checked(world.QUERIES[5])
    events = world.events(world.columns(sensors, 20_000 if quick else 120_000))
    unique = len({e.attributes["sensorID"] for e in events})
    plot = Plot("throughput", f"Query 5, {sensors:,} sensors", "input events/s", "processed events/s", log=True)
    peaks: dict[str, float] = {}

    def line(name: str, processed: Callable[[int], float]) -> None:
        print(f"  {name}", flush=True)
        values = [processed(given) for given in RATES]
        plot.series.append(Series(name, list(RATES), values, values, values))
        peaks[name] = max(values)

    few = events[: 1_500 if quick else 5_000]
    single: list[tuple[str, Evaluation, float]] = [
        ("naive", "naive", 0.0),
        ("cache 5%", "cache", 0.05),
        ("cache 25%", "cache", 0.25),
    ]
    for name, mode, share in single:
        run = filtered(checked, world.known(base, mode), mode, max(1, int(unique * share)))
        run(few[:200])
        capacity = rate(len(few) - 200, lambda run=run: run(few[200:]), 1)  # type: ignore[misc]
        line(name, lambda given, capacity=capacity: min(given, capacity))  # type: ignore[misc]
    buffered: list[tuple[str, Evaluation, int, float]] = [
        ("buffer 1 s", "buffer", 1, 0.0),
        ("buffer 2 s", "buffer", 2, 0.0),
        ("buffer 2 s, cache 25%", "buffer+cache", 2, 0.25),
    ]
    for name, mode, seconds, share in buffered:
        run = filtered(checked, world.known(base, mode), mode, max(1, int(unique * share)))

        def processed(given: int, run: Callable[[Sequence[Event]], None] = run, seconds: int = seconds) -> float:
            portion = events[: min(given * seconds, len(events), 20_000)]
            return min(given, rate(len(portion), lambda: run(portion), 1))

        line(name, processed)
    for name, text in (("index", world.QUERIES[5]), ("Query 1, no PATH", world.QUERIES[1])):
        matcher = indexed(text, world.known(base))

        def pushed(matcher: Matcher = matcher) -> None:
            matcher.push(events)

        capacity = rate(len(events), pushed, 1)
        line(name, lambda given, capacity=capacity: min(given, capacity))  # type: ignore[misc]
        peaks[name] = capacity
    return plot, peaks


def latencies(base: Knowledge, sensors: int) -> list[str]:
    """Figure 8b: what each stage takes for an event, naive."""
    checked = world.checked(world.QUERIES[5])
    known = world.known(base, "naive")
    semantic = known.lower(checked)
    events = world.events(world.columns(sensors, 500))
    (lookup,) = semantic.lookups
    start = time.perf_counter()
    keys = [tuple(event.attributes[name] for name in lookup.key) for event in events]
    for key in keys:
        lookup.facts(key, base)
    annotated = time.perf_counter()
    for key in keys:
        lookup.rows_of([key], base)
    judged = time.perf_counter()
    indexed(world.QUERIES[5], world.known(base)).matches(events)
    done = time.perf_counter()
    each = [1e6 * seconds / len(events) for seconds in (annotated - start, judged - annotated, done - judged)]
    stages = f"annotate {each[0]:.1f}, semantic filter {each[1]:.1f}, CEP {each[2]:.1f}"
    return [f"latency by stage, naive, us an event: {stages}"]


def change_in_force(base: Knowledge) -> float:
    """Seconds from a changed triple to the first event that is judged by it; the median of several."""
    live = LiveMatcher(world.checked(world.QUERIES[5]), world.known(base))
    office = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
    seconds = []
    for number in range(5):
        room = ox.NamedNode(f"{world.PREFIXES['bd']}R{number * 4 + 1}")
        triple = ox.Triple(room, office, ox.NamedNode(world.PREFIXES["bd"] + "Office"))
        start = time.perf_counter()
        base.apply([triple], [])
        live.push([Event("airflowReport", number, number, {"sensorID": f"S{number * 8 + 2}", "flowrate": 550.0})])
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    options = arguments(__doc__, ["jena"])
    report = Report(
        name="scepter-8",
        question=__doc__ or "",
        method="Query 5 of the paper over sensors by Zipf's law. All modes judge the same events; one that can't keep "
        "up with its input is shown with what it processes. Index: columns in, matches out, one thread.",
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        small = world.knowledge(20, folder)
        print("20 sensors, as in the paper", flush=True)
        plot, peaks = modes(small, 20, options.quick)
        report.plots.append(plot)
        report.notes += [f"{name}: {peak:,.0f} events/s" for name, peak in peaks.items()]
        report.notes += latencies(small, 20)
        for low, high in (
            ("naive", "buffer 2 s"),
            ("naive", "cache 5%"),
            ("cache 5%", "cache 25%"),
            ("cache 25%", "buffer 2 s, cache 25%"),
            ("buffer 2 s, cache 25%", "index"),
        ):
            report.bars.append(Bar(f"{high} / {low}", peaks[high] / peaks[low], 1.0, "at_least", "x"))
        few = world.events(world.columns(20, 1_500))
        naive = filtered(world.checked(world.QUERIES[5]), world.known(small, "naive"), "naive", 1)
        seconds = interleaved({"naive": lambda: naive(few), "bare": lambda: bare_loop(small, few)}, 7)
        honest = statistics.median(seconds["naive"]) / statistics.median(seconds["bare"])
        report.bars.append(Bar("naive / bare pyoxigraph loop, seconds", honest, 2.0, "at_most", "x"))
        print("50,000 sensors", flush=True)
        campus = world.knowledge(2_000 if options.quick else 50_000, folder)
        count = 500_000 if options.quick else 2_000_000
        batch = world.columns(2_000 if options.quick else 50_000, count)
        known = world.known(campus)
        five = best(world.QUERIES[5], known, batch, count)
        plain = best("SELECT ?e.sensorID FILTER (?e.flowrate > 500)", known, batch, count)
        report.bars += [
            Bar("index, Query 5", five / 1e6, 1.0, "at_least", "million events/s"),
            Bar("index / the paper's best", five / PAPERS_BEST, 300, "at_least", "x"),
            Bar("without PATH / index, Query 5", plain / five, 3.0, "at_most", "x"),
        ]
        slowest = max(plain / best(text, known, batch, count) for text in world.random_paths(10))
        report.bars.append(Bar("without PATH / index, slowest of ten random PATHs", slowest, 3.0, "at_most", "x"))
        # All pairs of a busy sensor in 5 min: at natural rates these are few.
        natural = world.columns(2_000 if options.quick else 50_000, 100_000, apart=100_000)
        for number in (6, 7):
            without = best(world.QUERIES[number - 4], known, natural, 100_000)
            with_path = best(world.QUERIES[number], known, natural, 100_000)
            report.notes.append(f"Query {number}: {with_path:,.0f} events/s; Query {number - 4}: {without:,.0f}")
        report.bars.append(Bar("a changed triple is in force", change_in_force(campus) * 1e3, 250, "at_most", "ms"))
        try:
            jena = prepared("jena", folder / "peers").run("path")
            report.bars.append(Bar("index / Jena, query prepared", five / jena, 10, "at_least", "x"))
            report.notes.append(f"Jena, query prepared, 1,000 sensors: {jena:,.0f} events/s")
        except SystemExit as missing:
            print(f"without Jena: {missing}", file=sys.stderr)
    report.save(options.out)


if __name__ == "__main__":
    main()
