"""How long Delta's log of a table is, and how large: what is set for an archive's tables of events.

The log has some files for each commit, which is a batch of a stream, and now and then a checkpoint: all files of the
table, and those that were replaced or removed lately. By Delta's defaults a checkpoint comes every 10 commits, has what
was removed in a week, and is kept for a month, as commits are. A table that gets a batch a second would have far more
in its log than in itself; and as each commit lists what is there, it would take longer from hour to hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The properties that say how long something is kept.
DURATIONS: Final = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
#: A checkpoint after so many commits. Who opens a table reads those since.
_CHECKPOINT_EVERY: Final = 100
#: For how many hours commits and checkpoints are kept, and checkpoints have what was removed. Nobody needs older ones.
_COMMITS: Final = 1


def log_properties() -> Mapping[str, str]:
    """The properties of a Delta table that no stream reads: one needs every commit that it has not read."""
    return {
        "delta.checkpointInterval": str(_CHECKPOINT_EVERY),
        "delta.logRetentionDuration": f"interval {_COMMITS} hours",
        "delta.deletedFileRetentionDuration": f"interval {_COMMITS} hours",
    }
