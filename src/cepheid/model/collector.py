"""Pausing Python's collector of cycles while large trees are built: it would walk them again and again, for nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """What is built inside must hold no cycles that matter; memory is freed by reference counts as always."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
