"""A consumer of one service as supplier of another: validity and marks are kept, and ids through every break."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cepheid.app import Builder
from cepheid.app.application import Application
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.service import Engine, schemas
from cepheid.service.client import ConsumerClient
from cepheid.service.forward import forward
from cepheid.service.log import LogReader
from cepheid.service.received import Received
from cepheid.service.supplier import AsyncSupplier, Supplier
from tests.service.intakes import Start, air, logged, say
from tests.service.test_delivery import collected
from tests.service.test_service import children, service
from tests.service.waiting import until

HOUR = 3_600_000_000

STREAMS = """
name: plant
levels: [high, low]
streams:
  left: {attributes: {samples: array<uint8>}, valid_for: 1h}
  right: {attributes: {samples: array<uint8>}, valid_for: 2h}
"""
FUSED = "  fused: {kind: cat, inputs: [left, right], relative: [{inputs: [left, right], within: 5ms}]}\n"
SPECTRUM = "  spectrum: {kind: fft, inputs: [fused]}\n"
OUT = "consumers: {out: {input: spectrum, level: high}}\n"
SERVICE = 'service: {listen: "unix:supply.sock", deliver: "unix:deliver.sock", log: LOG}\n'

FIRST = f"{STREAMS}graph:\n{FUSED}consumers: {{out: {{input: fused, level: high}}}}\n{SERVICE}"
SECOND = (
    "name: far\nlevels: [high, low]\nstreams:\n  fused: {attributes: {samples: array<uint8>}, valid_for: 30d}\n"
    f"graph:\n{SPECTRUM}{OUT}{SERVICE}"
)
WHOLE = f"{STREAMS}graph:\n{FUSED}{SPECTRUM}{OUT}{SERVICE}"


@contextmanager
def forwarding(first: Path, second: Path, stream: str, consumer: str = "out") -> Iterator[Supplier]:
    """Forwards from the service in one folder to that in the other, on a thread."""
    with (
        Supplier(f"unix:{second / 'supply.sock'}", patience=60) as supplier,
        ConsumerClient(f"unix:{first / 'deliver.sock'}", consumer) as consumed,
    ):
        thread = threading.Thread(target=forward, args=(consumed, supplier, stream))
        thread.start()
        try:
            yield supplier
        finally:
            consumed.close()
            thread.join()


def folders(tmp_path: Path, *names: str) -> list[Path]:
    found = [tmp_path / name for name in names]
    for folder in found:
        folder.mkdir()
    return found


def results(folder: Path, source: Path, pairs: list[tuple[int, int]]) -> list[Received]:
    """What `out` in a folder receives of pairs of events, by their times, pushed to the service in another."""
    with (
        ConsumerClient(f"unix:{folder / 'deliver.sock'}", "out") as consumer,
        Supplier(f"unix:{source / 'supply.sock'}") as supplier,
    ):
        found = collected(consumer)
        for number, (left, right) in enumerate(pairs):
            supplier.push(Event("left", number, left, {"samples": bytes([number, 2])}))
            supplier.push(Event("right", number, right, {"samples": bytes([3, 4])}))
            supplier.flush()
            until(lambda number=number: len(found) > number)  # type: ignore[misc]
        return list(found)


def test_two_services_in_a_chain_are_as_one(tmp_path: Path) -> None:
    first, second, whole = folders(tmp_path, "first", "second", "whole")
    now = time.time_ns() // 1000
    pairs = [
        (now, now + 1),  # as it should be
        (now, now - 1_000_000),  # too far apart
        (now - 9 * HOUR, now - 9 * HOUR),  # stale
        (now - 9 * HOUR, now),  # both
        (now - 2, now),
    ]
    with service(whole, application=WHOLE):
        wanted = results(whole, whole, pairs)
    with (
        service(first, application=FIRST),
        service(second, application=SECOND),
        forwarding(first, second, "fused"),
    ):
        found = results(second, first, pairs)
    assert [one.marks for one in wanted] == [set(), {"relative"}, {"stale"}, {"relative", "stale"}, set()]
    assert [one.end for one in wanted] == [min(left + HOUR, right + 2 * HOUR) for left, right in pairs]
    assert found == wanted
    with LogReader(second / "log") as reader:
        assert [each.valid_until for each in reader] == [one.end for one in wanted]


APPLICATION = """
name: plant
streams:
  air: {attributes: {flow: float}}
graph:
  every: {kind: filter, inputs: [air], where: "?e.flow IS NOT NULL"}
consumers:
  out: {input: air}
  made: {input: every}
"""


@pytest.mark.parametrize("consumer", ["out", "made"])
def test_kills_on_either_side_lose_nothing_acknowledged_and_double_nothing(tmp_path: Path, consumer: str) -> None:
    first, second = folders(tmp_path, "first", "second")
    application = APPLICATION + SERVICE
    with (
        service(first, application=application) as one,
        service(second, application=application) as two,
        forwarding(first, second, "air", consumer) as forwarded,
        Supplier(f"unix:{first / 'supply.sock'}") as supplier,
    ):
        for number in range(900):
            supplier.push(Event("air", number, number, {"flow": 1.0}))
            if number % 10 == 0:
                time.sleep(0.005)
            if number == 300:
                os.kill(children(one)["cepheid.service.process"], signal.SIGKILL)
            if number == 600:
                os.kill(children(two)["cepheid.service.intake"], signal.SIGKILL)
        supplier.flush()
        # What comes after both kills shows that the chain works again.
        number = 900

        def push_one_more_until_one_came() -> bool:
            nonlocal number
            supplier.push(Event("air", number, number, {"flow": 1.0}))
            number += 1
            with LogReader(second / "log") as reader:
                return any(each.event.id in range(900, number) for each in reader)

        until(push_one_more_until_one_came)
    with LogReader(second / "log") as reader:
        found = list(reader)
    assert len(found) == forwarded.acknowledged
    fresh = [each.event.id for each in found if not each.duplicate]
    assert len(fresh) == len(set(fresh)), "the second intake knows what it had"
    # What the engine that was killed had made, and the next one made again, has the same ids.
    assert set(fresh) <= set(range(number))


def bare(valid_for: str | None) -> Application:
    build = Builder("plant")
    build.consumer("out", build.stream("air", {"flow": "float"}, valid_for=valid_for))
    return build.build()


@pytest.mark.parametrize(
    ("valid_for", "given", "end"),
    [(None, None, None), (None, 500, 500), ("1ms", None, 1100), ("1ms", 500, 500), ("1ms", 5000, 1100), ("1ms", 7, 7)],
)
def test_g1_the_end_is_the_given_one_but_not_beyond_the_streams(
    valid_for: str | None, given: int | None, end: int | None
) -> None:
    codec = schemas.codec([Stream("air", {"flow": Type.FLOAT})])
    with Engine(bare(valid_for)) as engine:
        engine.push_records(codec.encode(0, 1, 100, (1.5,), (given, 2)))
        engine.push_records(codec.encode(0, "text", 100, (None,), (given, 0)))
        one, two = engine.consumer("out").get(10), engine.consumer("out").get(10)
    assert one is not None
    assert two is not None
    assert (one.id, one.end, one.attributes) == (1, end, {"flow": 1.5})
    assert one.marks == ({"relative"} if end is None else {"relative", "stale"})
    assert (two.id, two.end, two.attributes) == ("text", end, {"flow": None})


def test_the_log_keeps_the_end(intake: Start, tmp_path: Path) -> None:
    process = intake()
    lines = (
        b'{"stream": "air", "id": 1, "time": 5, "sensor": "a", "valid_until": 9}\n'
        b'{"stream": "air", "id": 2, "time": 6, "valid_until": "1970-01-01T00:00:00.000010Z"}\n'
        b'{"stream": "air", "id": 3, "time": 7, "valid_until": null}\n'
        b'{"stream": "air", "id": 4, "time": 8, "valid_until": "soon"}\n'
    )
    answers = say(process, lines)
    assert any("'valid_until'" in answer for answer in answers)
    with Supplier(process.address) as supplier:
        supplier.push(air(5, 9), valid_until=11)
        supplier.push(air(6, 10), valid_until=-(10**16), marks={"stale", "relative"})
        with pytest.raises(ValueError, match="'valid_until' is out of range"):
            supplier.push(air(7, 10), valid_until=2**62)

    async def push() -> None:
        async with AsyncSupplier(process.address) as supplier:
            await supplier.push(air(7, 11), valid_until=12)

    asyncio.run(push())
    found = [(each.event.id, each.valid_until) for each in logged(tmp_path)]
    assert found == [(1, 9), (2, 10), (3, None), (5, 11), (6, -(10**16)), (7, 12)]
