"""How tests wait for what threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(is_so: Callable[[], object], seconds: float = 60) -> None:
    """Waits until it is so; it fails if that takes too long."""
    deadline = time.monotonic() + seconds
    # What was so once may not be so for long.
    while not is_so():
        assert time.monotonic() < deadline, f"it was not so within {seconds:g} s"
        time.sleep(0.005)
