"""The sources of an application's streams, brought into its intake: MQTT, Kafka, a function in Python, a rate.

A process of its own, `python -m cepheid.service.sources`, so that neither a broker's library nor a user's function is
in the intake or the engine. It is told what to do as a line of JSON, and ends with SIGTERM, or when who told it is
gone. What fails is said once, and tried again.
"""

from __future__ import annotations

import importlib
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

from cepheid.app.application import Application
from cepheid.app.schema import KafkaSource, MqttSource, PythonSource, RateSource
from cepheid.service.running.threads import when_left
from cepheid.service.supplier import Supplier, SupplierError

#: Seconds between two tries; the last of them again and again.
_PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
#: Seconds between two looks at what a bridge is in trouble with.
_LOOK: Final = 0.5

#: What the process is told.
Order: TypeAlias = dict[str, Any]


class SourceFailed(Exception):
    """A source that brings nothing at the moment."""


def order_of(app: Application, intake: str, token: str | None) -> Order | None:
    """What the process of an application's sources is told; None if no stream has one that needs it."""
    sources = {
        name: section.source.model_dump()
        for name, section in app.sections.streams.items()
        if isinstance(section.source, MqttSource | KafkaSource | RateSource | PythonSource)
    }
    if not sources:
        return None
    attributes = {name: {a: t.value for a, t in app.graph.streams[name].attributes.items()} for name in sources}
    return {
        "application": app.name,
        "folder": str(app.folder),
        "intake": intake,
        "token": token,
        "sources": sources,
        "attributes": attributes,
    }


def run(order: Order, stop: threading.Event) -> None:
    """Runs the sources until it is to stop, each in threads of its own."""
    threads = [
        threading.Thread(target=_keep, args=(name, source, order, stop), name=f"source of {name}", daemon=True)
        for name, source in order["sources"].items()
    ]
    for thread in threads:
        thread.start()
    stop.wait()
    for thread in threads:
        thread.join(10.0)


def _keep(stream: str, source: Mapping[str, Any], order: Order, stop: threading.Event) -> None:
    """Runs a source, again whenever it fails."""
    said = ""
    for tried in count():
        try:
            _RUNNERS[source["kind"]](stream, source, order, stop)
            return
        except (OSError, SupplierError, SourceFailed, ValueError) as error:
            if str(error) != said:
                said = str(error)
                _say(stream, source, said)
        if stop.wait(_PAUSES[min(tried, len(_PAUSES) - 1)]):
            return


def _mqtt(stream: str, source: Mapping[str, Any], order: Order, stop: threading.Event) -> None:
    from cepheid.service.bridges import mqtt

    version: Literal["3.1.1", "5"] = "5" if source["version"] == 5 else "3.1.1"
    # Read anew for each try, as it may have been corrected.
    password = None if source["password_file"] is None else Path(source["password_file"]).read_text().split("\n")[0]
    tls = mqtt.Tls(source["ca_file"], source["certificate_file"], source["key_file"]) if source["tls"] else None
    said = mqtt.MqttSource(stream, [source["topic"]], source["broker"], version, source["user"], password, tls)
    name = f"cepheid-{order['application']}-{stream}"
    with mqtt.MqttBridge(said, order["intake"], name, token=order["token"]) as bridge:
        _watch(stream, source, bridge, stop)


def _kafka(stream: str, source: Mapping[str, Any], order: Order, stop: threading.Event) -> None:
    from cepheid.service.bridges import kafka

    group = f"cepheid-{order['application']}"
    said = kafka.KafkaSource(stream, source["topic"], source["brokers"], group, source["options"])
    with kafka.KafkaBridge(said, order["intake"], token=order["token"]) as bridge:
        _watch(stream, source, bridge, stop)


class _Bridge(Protocol):
    """What goes on by itself when something fails, and says what."""

    failure: str | None


def _watch(stream: str, source: Mapping[str, Any], bridge: _Bridge, stop: threading.Event) -> None:
    """Says what a bridge is in trouble with, once, until it is to stop."""
    said = None
    while not stop.wait(_LOOK):
        failure = bridge.failure
        if failure is not None and failure != said:
            _say(stream, source, failure)
        said = failure


def _say(stream: str, source: Mapping[str, Any], failure: str) -> None:
    print(f"cepheid sources: {stream} ({source['kind']}): {failure}; it is tried again", file=sys.stderr)


def _python(stream: str, source: Mapping[str, Any], order: Order, stop: threading.Event) -> None:
    """What a function of the application's author yields, which is done when it ends."""
    if order["folder"] not in sys.path:
        sys.path.insert(0, order["folder"])
    module, _, function = source["function"].partition(":")
    try:
        records: Iterator[Mapping[str, Any]] = iter(getattr(importlib.import_module(module), function)())
        with Supplier(order["intake"], token=order["token"], default_stream=stream) as supplier:
            for record in records:
                supplier.push_json([json.dumps(record).encode()])
                if stop.is_set():
                    return
    except SupplierError:
        raise
    except Exception as error:
        raise SourceFailed(f"{source['function']}: {type(error).__name__}: {error}") from error


def _rate(stream: str, source: Mapping[str, Any], order: Order, stop: threading.Event) -> None:
    """Made-up events, whose ids are their times, so that they go on after a restart."""
    period = 1 / source["per_second"]
    made = random.Random(stream)  # noqa: S311 - nothing hangs on it
    with Supplier(order["intake"], token=order["token"], default_stream=stream) as supplier:
        due = time.monotonic()
        while True:
            now = time.time_ns() // 1000
            values = {name: _value(kind, made, now) for name, kind in order["attributes"][stream].items()}
            supplier.push_json([json.dumps({"id": now, "time": now, **values}).encode()])
            due = max(due + period, time.monotonic() - 1.0)  # a second that was missed is not made up for
            if stop.wait(max(0.0, due - time.monotonic())):
                return


def _value(kind: str, made: random.Random, now: int) -> object:
    if kind == "float":
        return round(made.gauss(50, 15), 3)
    if kind == "int":
        return made.randrange(100)
    if kind == "bool":
        return made.random() < 0.5
    if kind == "string":
        return f"s{made.randrange(10)}"
    if kind == "timestamp":
        return now
    return [made.randrange(256) for _ in range(8)] if kind.startswith("array") else "AAAA"


_RUNNERS: Final[dict[str, Callable[[str, Mapping[str, Any], Order, threading.Event], None]]] = {
    "mqtt": _mqtt,
    "kafka": _kafka,
    "python": _python,
    "rate": _rate,
}


def main() -> int:
    """Runs the sources that standard input tells, in this process."""
    order = json.loads(sys.stdin.buffer.readline())
    stop = threading.Event()
    when_left(stop.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    print(json.dumps({"sources": sorted(order["sources"])}), flush=True)
    run(order, stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
