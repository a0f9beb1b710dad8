"""The vibration of the main fan: what its two accelerometers would send.

A source in Python: a function that yields records, each a dictionary with an id, a time in microseconds, and the
attributes of its stream. It is called again when the service starts again, so ids are made of the time.
"""

import math
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

PERIOD = 5_000  # microseconds
SAMPLES = 512


def vibration1() -> Iterator[dict[str, Any]]:
    yield from _readings(phase=0.0)


def vibration2() -> Iterator[dict[str, Any]]:
    yield from _readings(phase=0.1)


def _readings(phase: float) -> Iterator[dict[str, Any]]:
    """A reading at each multiple of the period; one that is missed is left out."""
    samples = [round(128 + 100 * math.sin(phase + 2 * math.pi * 17 * i / SAMPLES)) for i in range(SAMPLES)]
    number = time.time_ns() // 1000 // PERIOD
    for _ in count():
        number = max(number + 1, time.time_ns() // 1000 // PERIOD)
        due = number * PERIOD
        time.sleep(max(0.0, due / 1e6 - time.time()))
        yield {"id": number, "time": due, "samples": samples}
