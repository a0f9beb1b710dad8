"""How tests wait for what threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(is_so: Callable[[], object], seconds: float = 60) -> None:
    """Waits until it is so; it fails if that takes too long."""
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert is_so()
