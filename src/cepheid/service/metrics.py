"""The service's counters and latencies as a page that Prometheus reads, over HTTP."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

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
#: Of the intake.
_INTAKE: Final = {
    "accepted": "events that were appended to the log",
    "late": "events behind the lateness of their stream",
    "duplicates": "events with an id seen before",
    "resent": "records of batches that came again",
    "refused": "connections that were closed for what they sent",
    "full": "batches that had to wait for room on disk",
}
#: Of each kind of parts: histograms in its books, and what they are of.
_LATENCIES: Final = (
    ("consumers", "latency", "from the last push to the delivery"),
    ("queries", "latency", "from the arrival in the log to the delivery, of matches that are not recovered"),
    ("queries", "delay", "from the arrival in the log to the delivery, of matches that are recovered"),
    ("levels", "latency", "from the last push to the delivery"),
    ("operators", "run", "how long a run takes"),
)
_QUANTILES: Final = {"0.5": "p50_ns", "0.9": "p90_ns", "0.99": "p99_ns", "0.999": "p999_ns"}


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
    for parts, counters in _COUNTERS.items():
        one = _one(parts)
        label = "consumer" if parts == "delivered" else one
        for counter, meaning in counters.items():
            name = f"cepheid_{one}_{counter}_total"
            yield f"# HELP {name} {meaning}"
            yield f"# TYPE {name} counter"
            for part, book in stats.get(parts, {}).items():
                value = count_of(book, counter)
                if value is not None:
                    yield f'{name}{{{label}="{_quoted(part)}"}} {value}'
    for parts, key, meaning in _LATENCIES:
        one = _one(parts)
        name = f"cepheid_{one}_{key}_seconds"
        yield f"# HELP {name} {meaning}"
        yield f"# TYPE {name} summary"
        for part, book in stats.get(parts, {}).items():
            found = book.get(key)
            if found is None:
                continue
            label = f'{one}="{_quoted(part)}"'
            for quantile, field in _QUANTILES.items():
                yield f'{name}{{{label},quantile="{quantile}"}} {found[field] / 1e9:.9f}'
            yield f"{name}_sum{{{label}}} {found['mean_ns'] * found['count'] / 1e9:.9f}"
            yield f"{name}_count{{{label}}} {found['count']}"
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
    elif counter in _FATES and "events" in book:
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
