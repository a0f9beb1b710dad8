"""Levels as scheduler pools of Spark: when tasks of several wait for a core, those of a higher level get more of them.

This is sharing, not preemption: a task that runs is not interrupted, and a core that falls free goes to the pool that
is furthest below its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

#: A level's share of the cores, times that of the next lower.
_STEP: Final = 8


def pools(levels: Sequence[str], folder: Path) -> dict[str, str]:
    """Settings for a session in which each level, highest first, has a pool; their file is written to a folder."""
    shares = "".join(
        f"<pool name={quoteattr(level)}><schedulingMode>FIFO</schedulingMode><weight>{_STEP**rank}</weight>"
        f"<minShare>{1 if rank else 0}</minShare></pool>"
        for rank, level in enumerate(reversed(levels))
    )
    file = folder / "pools.xml"
    file.write_text(f'<?xml version="1.0"?><allocations>{shares}</allocations>')
    return {"spark.scheduler.mode": "FAIR", "spark.scheduler.allocation.file": file.absolute().as_uri()}
