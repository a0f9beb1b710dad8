"""Planning grows linearly with the graph: 1,000 to 100,000 operators."""

from __future__ import annotations

import gc
import math
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from common import Bar, Plot, Report, arguments, interleaved, series

from cepheid.app import load
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan import planner
from cepheid.plan.graph import Consumer, Graph, Operator


def graph_of(operators: int) -> Graph:
    """Copies of the paper's graph B: eight suppliers, EKF and FFT in pairs, three consumers; every tenth copy twice."""
    samples = {"samples": Type.UINT8_ARRAY}
    streams: dict[str, Stream] = {}
    nodes: dict[str, Operator] = {}
    consumers: dict[str, Consumer] = {}
    copy = 0
    while len(nodes) < operators:
        p = f"g{copy}_"
        source = f"g{copy - 1}_" if copy % 10 == 9 else p  # shares its suppliers, so that sharing has work to do
        for i in range(1, 9):
            streams.setdefault(f"{source}s{i}", Stream(f"{source}s{i}", samples, period=10_000, valid_for=10_000))
        for i in range(1, 5):
            pair = (f"{source}s{2 * i - 1}", f"{source}s{2 * i}")
            nodes[f"{p}ekf{i}"] = Operator(f"{p}ekf{i}", "ekf", pair)
            nodes[f"{p}fft{i}"] = Operator(f"{p}fft{i}", "fft", (f"{p}ekf{i}",))
        for name, inputs in (("high", (1, 2)), ("middle", (3, 4)), ("low", (2, 4))):
            nodes[p + name] = Operator(p + name, "cat", tuple(f"{p}fft{i}" for i in inputs))
            consumers[p + name] = Consumer(p + name, p + name, name)
        copy += 1
    return Graph(("high", "middle", "low"), streams, nodes, {}, consumers)


def floor(graph: Graph) -> int:
    """The least any planner does in this language: look at each node and each edge once."""
    seen = dict.fromkeys(graph.producers(), 0)
    for operator in graph.operators.values():
        for given in operator.inputs:
            seen[given] += 1
    return sum(seen.values())


def check_and_plan(graph: Graph) -> None:
    graph = replace(graph)  # a graph keeps its order once it is known
    assert not planner.check(graph)
    planner.plan(graph)


def load_and_plan(file: Path) -> None:
    load(file).plan()


def as_yaml(graph: Graph) -> str:
    lines = ["name: large", f"levels: [{', '.join(graph.levels)}]", "streams:"]
    lines += [
        f'  {s}: {{attributes: {{samples: "array<uint8>"}}, period: 10ms, valid_for: 10ms}}' for s in graph.streams
    ]
    lines += ["graph:"]
    lines += [f"  {o.name}: {{kind: {o.kind}, inputs: [{', '.join(o.inputs)}]}}" for o in graph.operators.values()]
    lines += ["consumers:"]
    lines += [f"  {c.name}: {{input: {c.input}, level: {c.level}}}" for c in graph.consumers.values()]
    return "\n".join(lines) + "\n"


def main() -> None:
    options = arguments(__doc__)
    sizes = [1_000, 10_000, 100_000] if options.quick else [1_000, 3_000, 10_000, 30_000, 100_000]
    repeats = 3 if options.quick else 7
    times: dict[str, list[list[float]]] = {"check and plan": [], "floor": [], "from the YAML file": []}
    for size in sizes:
        print(f"{size:,} operators", flush=True)
        graph = graph_of(size)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "app.yaml"
            file.write_text(as_yaml(graph))
            gc.collect()
            jobs: dict[str, Callable[[], object]] = {
                "check and plan": partial(check_and_plan, graph),
                "floor": partial(floor, graph),
                "from the YAML file": partial(load_and_plan, file),
            }
            for name, seconds in interleaved(jobs, repeats).items():
                times[name].append(seconds)
    medians = {name: [statistics.median(s) for s in samples] for name, samples in times.items()}
    plan = medians["check and plan"]
    slope, floor_slope = (math.log(m[-1] / m[0]) / math.log(sizes[-1] / sizes[0]) for m in (plan, medians["floor"]))
    report = Report(
        name="planner",
        question=__doc__ or "",
        method=f"Copies of the paper's graph B. Medians of {repeats} runs, jobs taking turns; shaded: the extremes. "
        "Floor: a bare loop over nodes and edges in the same language.",
        bars=[
            Bar("growth: exponent of size, less the floor's", slope - floor_slope, 0.1, "at_most"),
            Bar("100,000 operators, check and plan", plan[-1], 10.0, "at_most", "s"),
            Bar("100,000 operators, from the YAML file", medians["from the YAML file"][-1], 60.0, "at_most", "s"),
        ],
        plots=[
            Plot(
                "growth",
                "Planning time by size of the graph",
                "operators",
                "seconds",
                [series(name, sizes, samples) for name, samples in times.items()],
                log=True,
            )
        ],
        notes=[
            f"exponents: check and plan {slope:.2f}, floor {floor_slope:.2f} (larger graphs miss caches more often)",
            f"check and plan / floor at 100,000 operators: {plan[-1] / medians['floor'][-1]:.0f}x",
        ],
    )
    report.save(options.out)


if __name__ == "__main__":
    main()
