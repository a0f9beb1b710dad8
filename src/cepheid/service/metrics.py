"""The service's counters and latencies as a page that Prometheus reads, over HTTP."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from cepheid.service.histograms import within
from cepheid.service.outlet import NeedsToken
from cepheid.service.wire import is_loopback, parse_address

Stats = Mapping[str, Any]

#: How an event ended, at a reader or in all (docs/service.md).
_FATES: Final = {
    "used": "events that were used",
    "replaced": "events that a newer one has replaced",
    "shed": "events that were let go of",
    "expired": "events that were stale where that is shed",
}
#: Of each kind of part, the counters that are shown, with what they count.
_COUNTERS: Final = {
    "streams": {
        **_FATES,
        "refused": "events that the engine had no room for",
        "duplicate": "events seen before",
    },
    "operators": {
        "invoked": "times that all inputs were there",
        "fired": "runs",
        "emitted": "events produced",
        "failed": "runs that failed",
        "stale": "inputs that were stale",
        "relative": "relative sets that did not hold",
        "stuck": "times that it did not return for a second",
        **_FATES,
    },
    "consumers": {
        "came": "events",
        **_FATES,
        "lost": "events that were not read in time",
        "stale": "events stale when pushed",
    },
    "delivered": {"sent": "events sent to clients", "lost": "events that a client did not read in time"},
    "queries": {
        "found": "matches",
        "stale": "matches that were stale",
        "relative": "matches with events further apart than ALIGN says",
        "shed": "matches that were not delivered for that",
        "lost": "matches that were not read in time",
        "recovered": "matches that were found late, or again, after there was no engine",
        "unknown": "events with a value of which the knowledge says nothing",
    },
    "levels": {
        "fired": "runs",
        "failed": "runs that failed",
        "stale": "inputs that were stale",
        "relative": "relative sets that did not hold",
        "pauses": "rests that leave time to others",
    },
}
#: The same of what goes up and down.
_GAUGES: Final = {
    "streams": {"held": "events that somebody may still read"},
    "operators": {"held": "events that somebody may still read"},
    "consumers": {"waiting": "events that were not read yet"},
    "delivered": {"clients": "clients that are connected"},
    "queries": {"unacknowledged": "matches that are kept until they are acknowledged"},
    "levels": {
        "input": "supplier events that were not taken yet",
        "pending": "operators that may run",
        "moving": "events on their way to a lower level",
    },
}
#: Of the service's processes.
_PROCESSES: Final = (
    ("up", "gauge", "whether it answers"),
    ("restarts_total", "counter", "times that it died and was started again"),
    ("resident_memory_bytes", "gauge", "memory"),
)
#: Of the intake.
_INTAKE: Final = {
    "accepted": "events that were appended to the log",
    "late": "events behind the lateness of their stream",
    "duplicates": "events with an id seen before",
    "resent": "records of batches that came again",
    "refused": "connections that were closed for what they sent",
    "full": "batches that had to wait for room on disk",
}
#: Of what there are histograms: how they and their parts are called in the books, and what they are of.
_LATENCIES: Final = (
    ("consumers", "consumers", "latency", "from the last push to the delivery"),
    ("queries", "queries", "latency", "from the arrival in the log to the delivery, of matches that are not recovered"),
    ("delays", "queries", "delay", "from the arrival in the log to the delivery, of matches that are recovered"),
    ("levels", "levels", "latency", "from the last push to the delivery"),
    ("operators", "operators", "run", "how long a run takes"),
)
#: The bounds of the histograms' buckets in nanoseconds: 10, 20, 50 microseconds and so on, to 10 seconds.
_BOUNDS: Final = (*(step * 10**power for power in range(4, 10) for step in (1, 2, 5)), 10**10)
#: A connection that says nothing for so many seconds is closed: each has a thread.
_SILENCE: Final = 10.0


#: Of each part of the pipeline on Spark.
_PIPELINE: Final = (
    ("events", "counter", "events that went through"),
    ("lag", "gauge", "events of the log or topic that were not read yet"),
    ("running", "gauge", "whether it runs"),
    ("unknown", "counter", "events with a value of which the knowledge says nothing"),
)


def page(stats: Stats) -> str:
    """The page."""
    return "".join(f"{line}\n" for line in _lines(stats)) + pipeline_page(stats.get("pipeline", []))


def pipeline_page(parts: Sequence[Mapping[str, Any]]) -> str:
    """What the page says of the parts of a pipeline on Spark."""
    return "".join(f"{line}\n" for line in _pipeline_lines(parts))


def _lines(stats: Stats) -> Iterator[str]:
    for field, kind, meaning in _PROCESSES:
        name = f"cepheid_{field}"
        yield f"# HELP {name} {meaning}"
        yield f"# TYPE {name} {kind}"
        for part, book in stats.get("processes", {}).items():
            yield f'{name}{{part="{_quoted(part)}"}} {book[field.removesuffix("_total")]}'
    for kind, end, shown in (("counter", "_total", _COUNTERS), ("gauge", "", _GAUGES)):
        for parts, counters in shown.items():
            one = _one(parts)
            label = "consumer" if parts == "delivered" else one
            for counter, meaning in counters.items():
                name = f"cepheid_{one}_{counter}{end}"
                yield f"# HELP {name} {meaning}"
                yield f"# TYPE {name} {kind}"
                for part, book in stats.get(parts, {}).items():
                    value = count_of(book, counter)
                    if value is not None:
                        yield f'{name}{{{label}="{_quoted(part)}"}} {value}'
    for kind, parts, key, meaning in _LATENCIES:
        one = _one(parts)
        name = f"cepheid_{one}_{key}_seconds"
        yield f"# HELP {name} {meaning}"
        yield f"# TYPE {name} histogram"
        for part, found in stats.get("histograms", {}).get(kind, {}).items():
            label = f'{one}="{_quoted(part)}"'
            for bound, count in zip(_BOUNDS, within(found["buckets"], _BOUNDS), strict=True):
                yield f'{name}_bucket{{{label},le="{bound / 1e9:g}"}} {count}'
            total = sum(count for _, count in found["buckets"])
            yield f'{name}_bucket{{{label},le="+Inf"}} {total}'
            yield f"{name}_sum{{{label}}} {found['sum_ns'] / 1e9:.9f}"
            yield f"{name}_count{{{label}}} {total}"
    yield from _intake_lines(stats.get("intake") or {})
    for field, value in stats.get("log", {}).items():
        if isinstance(value, int):
            kind = "gauge" if field == "offset" else "counter"
            name = f"cepheid_log_{field}" + ("" if kind == "gauge" else "_total")
            yield f"# TYPE {name} {kind}"
            yield f"{name} {value}"


def count_of(book: Stats, counter: str) -> int | None:
    """A counter of a part's book; how events ended is told by whole events, or else summed over its inputs."""
    value: int | None = book.get(counter)
    if counter in _FATES and "inputs" in book:
        value = sum(edge[counter] for edge in book["inputs"].values())
    elif (counter in _FATES or counter == "held") and "events" in book:
        value = book["events"][counter]
    return value


def _intake_lines(counters: Stats) -> Iterator[str]:
    for counter, meaning in _INTAKE.items():
        if counter in counters:
            name = f"cepheid_intake_{counter}_total"
            yield f"# HELP {name} {meaning}"
            yield f"# TYPE {name} counter"
            yield f"{name} {counters[counter]}"
    if "dead_letters" in counters:
        yield "# HELP cepheid_intake_dead_letters_total records that are no events, by what is wrong with them"
        yield "# TYPE cepheid_intake_dead_letters_total counter"
        for code, count in counters["dead_letters"].items():
            yield f'cepheid_intake_dead_letters_total{{code="{_quoted(code)}"}} {count}'


def _one(parts: str) -> str:
    return "query" if parts == "queries" else parts.removesuffix("s")


def _pipeline_lines(parts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What runs on Spark, as its process has last said."""
    for field, kind, meaning in _PIPELINE:
        name = f"cepheid_pipeline_{field}" + ("_total" if kind == "counter" else "")
        yield f"# HELP {name} {meaning}"
        yield f"# TYPE {name} {kind}"
        for part in parts:
            value = int(part["state"] == "running") if field == "running" else part.get(field)
            if value is not None:
                yield f'{name}{{part="{_quoted(part["name"])}",level="{_quoted(part["level"])}"}} {value}'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsPage:
    """Serves the page at an address; a context manager. Beyond loopback it asks for `Authorization: Bearer TOKEN`."""

    def __init__(self, stats: Callable[[], Stats], address: str, token: str | None = None) -> None:
        target = parse_address(address)
        if not isinstance(target, tuple):
            raise ValueError(f"a page needs tcp:host:port, not {address}")
        if token is None and not is_loopback(target[0]):
            raise NeedsToken(f"{address} can be reached from elsewhere: give a token, or use loopback")

        class Handler(BaseHTTPRequestHandler):
            timeout = _SILENCE

            def do_GET(self) -> None:
                given = self.headers.get("Authorization", "")
                if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                    self.send_error(401)
                    return
                if self.path != "/metrics":
                    self.send_error(404, explain="The page is /metrics.")
                    return
                try:
                    body = page(stats()).encode()
                except OSError as error:
                    self.send_error(503, explain=str(error))
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing of each request."""

        self._server = ThreadingHTTPServer(target, Handler)
        self._server.daemon_threads = True
        host, port = self._server.server_address[:2]
        self.url = f"http://{host!s}:{port}/metrics"
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def __enter__(self) -> MetricsPage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The address is free again."""
        self._server.shutdown()
        self._server.server_close()
