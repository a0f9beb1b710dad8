"""Which matches of a stream were found late, because nothing ran when their events came, and by how much.

What the log had when a stream was started was missed: no batch has events from before that and after it (`cut` of the
log's data source), so a match is recovered as the batch is that makes it final. The batch's own time, which Spark
writes down before it begins, is when it was found. One that is done again by another start is recovered by then: a sink
that has it keeps what it has, and Kafka and the console, which may be told twice, are told that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import types as st

#: When an event came into the log, in microseconds: a name that no attribute has.
CAME: Final = "time of arrival"
#: What is told of a match: the mark, as the service calls it, and microseconds, null where it has no mark.
MARKS: Final = (st.StructField("recovered", st.BooleanType()), st.StructField("delay", st.LongType()))

Times: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_Work: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def marked(found: pa.Table, delay: Times | None) -> pa.Table:
    """Matches with their delays; None: they are not recovered."""
    recovered = pa.array(np.full(found.num_rows, delay is not None))
    delays = pa.nulls(found.num_rows, pa.int64()) if delay is None else pa.array(np.maximum(delay, 0))
    return found.append_column("recovered", recovered).append_column("delay", delays)


def delays(found: pa.Table, events: Sequence[pa.Table], came: int, now: int) -> Times:
    """How long before `now` the events of matches came: the last one, which has the match's time.

    Where there is none among these, because the match waited for time, the last event of all counts, which `came` then.
    """
    times: Times = found.column("time").cast(pa.int64()).to_numpy()
    arrivals: Times = np.full(len(times), came, dtype=np.int64)
    if events:
        of, at = (np.concatenate([t.column(name).to_numpy() for t in events]) for name in ("time", "\0came"))
        order = np.lexsort((at, of))
        of, at = of[order], at[order]
        last = np.searchsorted(of, times, side="right") - 1
        is_there = (last >= 0) & (of[last] == times) if len(of) else np.zeros(len(times), dtype=np.bool_)
        arrivals[is_there] = at[last[is_there]]
    return now - arrivals


def marking(work: _Work, missed: int, target: pa.Schema, read: Callable[..., Iterator[pa.Table]]) -> _Work:
    """Work on events that match one by one, with marks; rows end with offset, came and the batch's time."""

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in read(batches):
            is_missed = rows.column("offset").to_numpy() < missed
            for part, is_late in ((is_missed, True), (~is_missed, False)):
                if not part.any():
                    continue
                own = rows.filter(pa.array(part))
                found = pa.Table.from_batches(work(own.drop_columns(["offset", "came", "clock"]).to_batches()), target)
                delay = None
                if is_late:
                    came, clock = own.column("came").to_numpy(), own.column("clock")[0].as_py()
                    known = own.select(["time", "came"]).rename_columns(["time", "\0came"])
                    delay = delays(found, [known], int(came.max()), clock)
                yield from marked(found, delay).to_batches()

    return in_executor
