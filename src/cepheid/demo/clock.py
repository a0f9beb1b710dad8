"""The campus at work: its records go to a running service, as fast as the campus's clock runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from cepheid.campus.generator import Campus
from cepheid.service.supplier import Supplier

#: Seconds between two deliveries.
_STEP: Final = 0.1


class CampusClock:
    """Supplies a campus's records in order of time."""

    def __init__(self, campus: Campus, start: int, address: str) -> None:
        self.now = start
        self._campus, self._address = campus, address

    def run(self, until: int, speed: float | None, told: Callable[[int], object] = lambda now: None) -> None:
        """Supplies what comes up to a time: so many times as fast as it would, or at once. `told` hears the time."""
        began, first = time.monotonic(), self.now
        with Supplier(self._address) as supplier:
            while self.now < until:
                if speed is None:
                    self.now = min(until, self.now + 60_000_000)
                else:
                    time.sleep(_STEP)
                    self.now = min(until, first + int((time.monotonic() - began) * speed * 1e6))
                supplier.push_json(self._campus.lines_until(self.now))
                told(self.now)
            supplier.flush()

    def start(self, until: int, speed: float) -> threading.Thread:
        """The same, meanwhile."""
        thread = threading.Thread(target=self.run, args=(until, speed), name="campus", daemon=True)
        thread.start()
        return thread
