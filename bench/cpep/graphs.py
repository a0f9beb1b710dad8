"""The paper's graphs A and B as applications, and the suppliers that feed them (shared reading of its Figures 6 and 7).

Graph A. High: s1, s2 -> EKF -> AES. Middle: s3, s4 -> EKF -> FFT and s5, s6 -> EKF -> FFT, both -> CAT. Low: s7, s8 ->
EKF -> FFT -> AES.

Graph B. EKF_i(s_2i-1, s_2i) -> FFT_i for i = 1..4. High: CAT(FFT_1, FFT_2). Middle: CAT(FFT_3, FFT_4). Low: CAT(FFT_2,
FFT_4) -> AES. Not shared: EKF and FFT 2 and 4 doubled, for the low level alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

LEVELS: Final = ("high", "middle", "low")
#: Graph A: microseconds between events, and bytes of one, by level.
PERIOD_A: Final = {"high": 5_000, "middle": 10_000, "low": 20_000}
SIZE_A: Final = {"high": 512, "middle": 1_024, "low": 2_048}
#: The base of graph A, as the paper deploys it.
BASE: Final = {"high": 3, "middle": 3, "low": 12}
#: Graph B: all suppliers push every 10 ms, and are valid as long; the first four have smaller events.
PERIOD_B: Final = 10_000
SIZES_B: Final = (512, 512, 512, 512, 1_024, 1_024, 1_024, 1_024)
#: What is added to an arrival at random, more or less, where events are sporadic; microseconds.
SPORADIC: Final = 2_500

Stale = Literal["mark", "shed"]


@dataclass
class Workload:
    """Copies of a graph: sections of an application file, who pushes what, and the level of each consumer."""

    streams: dict[str, Any] = field(default_factory=dict)
    graph: dict[str, Any] = field(default_factory=dict)
    consumers: dict[str, Any] = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)
    #: By level, microseconds between events of a consumer, and the bytes that one carries.
    periods: dict[str, int] = field(default_factory=dict)
    output_bytes: dict[str, int] = field(default_factory=dict)

    def sections(self, name: str) -> dict[str, Any]:
        """The application without its service."""
        return {
            "name": name,
            "levels": list(LEVELS),
            "streams": self.streams,
            "graph": self.graph,
            "consumers": self.consumers,
        }

    def level_of(self, consumer: str) -> str:
        return str(self.consumers[consumer]["level"])

    def count(self, level: str) -> int:
        """The consumers of a level."""
        return sum(self.level_of(name) == level for name in self.consumers)

    def due(self, level: str) -> float:
        """Events a second that the consumers of a level would get at best."""
        return self.count(level) * 1e6 / self.periods[level]

    def suppliers(
        self, *, sporadic: bool = False, coordinated: bool = True, gateway: bool = False
    ) -> list[dict[str, Any]]:
        """Groups of streams that are pushed from one timer; not coordinated, each stream has its own.

        Behind a gateway all are sent over one connection.
        """
        how: dict[str, Any] = {"jitter": SPORADIC if sporadic else 0}
        if gateway:
            how["connection"] = 0
        if coordinated:
            return [group | how for group in self.groups]
        return [
            group | how | {"streams": [name], "bytes": [size]}
            for group in self.groups
            for name, size in zip(group["streams"], group["bytes"], strict=True)
        ]

    def add_streams(self, sizes: dict[str, int], period: int, valid_for: int | None, connection: int) -> None:
        """Streams that are upstream of one consumer, with the bytes of an event, sent over one connection."""
        for name in sizes:
            stream: dict[str, Any] = {"attributes": {"x": "array<uint8>"}, "period": f"{period}us"}
            if valid_for is not None:
                stream["valid_for"] = f"{valid_for}us"
            self.streams[name] = stream
        self.groups.append(
            {"streams": list(sizes), "bytes": list(sizes.values()), "period": period, "connection": connection}
        )

    def add(self, name: str, kind: str, *inputs: str, within: int | None = None, share: bool = True) -> str:
        operator: dict[str, Any] = {"kind": kind, "inputs": list(inputs)}
        if within is not None:
            operator["relative"] = [{"inputs": list(inputs), "within": f"{within}us"}]
        if not share:
            operator["share"] = False
        self.graph[name] = operator
        return name

    def consume(self, name: str, source: str, level: str, stale: Stale) -> None:
        self.consumers[name] = {"input": source, "level": level, "stale": stale}


def graph_a(
    middle: int,
    *,
    high: int = BASE["high"],
    low: int = BASE["low"],
    stale: Stale = "mark",
    valid_for: dict[str, int] | None = PERIOD_A,
    relative: dict[str, int] | None = None,
) -> Workload:
    """Copies of graph A, with absolute and relative intervals by level, in microseconds."""
    work = Workload(periods=dict(PERIOD_A), output_bytes={"high": 512, "middle": 16_384, "low": 16_384})
    within = relative or {}

    def streams(level: str, names: list[str]) -> list[str]:
        absolute = None if valid_for is None else valid_for[level]
        work.add_streams(dict.fromkeys(names, SIZE_A[level]), PERIOD_A[level], absolute, LEVELS.index(level))
        return names

    for i in range(high):
        pair = streams("high", [f"h{i}s1", f"h{i}s2"])
        fused = work.add(f"h{i}ekf", "ekf", *pair, within=within.get("high"))
        work.consume(f"h{i}", work.add(f"h{i}aes", "aes", fused), "high", stale)
    for i in range(middle):
        four = streams("middle", [f"m{i}s{k}" for k in range(3, 7)])
        halves = []
        for k in range(2):
            fused = work.add(f"m{i}ekf{k}", "ekf", *four[2 * k : 2 * k + 2], within=within.get("middle"))
            halves.append(work.add(f"m{i}fft{k}", "fft", fused))
        work.consume(f"m{i}", work.add(f"m{i}cat", "cat", *halves, within=within.get("middle")), "middle", stale)
    for i in range(low):
        pair = streams("low", [f"l{i}s7", f"l{i}s8"])
        spectrum = work.add(f"l{i}fft", "fft", work.add(f"l{i}ekf", "ekf", *pair, within=within.get("low")))
        work.consume(f"l{i}", work.add(f"l{i}aes", "aes", spectrum), "low", stale)
    return work


def graph_b(copies: int, *, shared: bool = True, stale: Stale = "mark") -> Workload:
    """Copies of graph B; `shared` says whether the low level takes FFT 2 and 4 from the others."""
    work = Workload(
        periods=dict.fromkeys(LEVELS, PERIOD_B), output_bytes={"high": 8_192, "middle": 16_384, "low": 12_288}
    )
    for i in range(copies):
        names = [f"b{i}s{k}" for k in range(1, 9)]
        # The low consumer's stream joins both halves, so all eight have one timer.
        work.add_streams(dict(zip(names, SIZES_B, strict=True)), PERIOD_B, PERIOD_B, 0)
        spectra = {}
        for k in range(1, 5):
            pair = names[2 * k - 2 : 2 * k]
            spectra[k] = work.add(f"b{i}fft{k}", "fft", work.add(f"b{i}ekf{k}", "ekf", *pair))
        own = dict(spectra)
        if not shared:
            for k in (2, 4):
                fused = work.add(f"b{i}ekf{k}low", "ekf", *names[2 * k - 2 : 2 * k], share=False)
                own[k] = work.add(f"b{i}fft{k}low", "fft", fused, share=False)
        work.consume(f"b{i}high", work.add(f"b{i}cathigh", "cat", spectra[1], spectra[2]), "high", stale)
        work.consume(f"b{i}middle", work.add(f"b{i}catmiddle", "cat", spectra[3], spectra[4]), "middle", stale)
        last = work.add(f"b{i}aes", "aes", work.add(f"b{i}catlow", "cat", own[2], own[4]))
        work.consume(f"b{i}low", last, "low", stale)
    return work
