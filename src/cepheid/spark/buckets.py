"""A bucket of keys in a stream: its matcher, whose state Spark keeps, and its view of the watermark.

The state is the matcher's own (native/src/state.rs): a head, and chunks that never change, so that a batch writes only
what is new. The matcher itself stays in memory from one batch to the next, as far as the same Python worker gets the
same bucket again; a token, written with each state, tells whether it is the one that the state belongs to.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from cepheid.language.checker import Checked
from cepheid.model.types import INT64_MIN
from cepheid.plan.matcher import Matcher
from cepheid.spark.matching import given
from cepheid.spark.recovered import MARKS, delays, marked

#: What a bucket gives: batches of Arrow.
PACKED: Final = "packed BINARY"
#: The most matchers that a worker keeps in memory between batches.
_MOST_LIVE: Final = 256
#: While a stream is idle its watermark goes on in steps of so many milliseconds.
_STEP: Final = 1000

_Times: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_log: Final = logging.getLogger("cepheid.knowledge")

_live: OrderedDict[tuple[str, int], tuple[str, Matcher]] = OrderedDict()


class StateUnusable(RuntimeError):
    """A checkpoint that does not fit the query, or is damaged."""


@dataclass(frozen=True)
class Work:
    """What every bucket of a query has to know; `run` tells this start of it from others."""

    checked: Checked
    now: int
    schema: pa.Schema
    lateness: Mapping[str, int]
    idle: Mapping[str, int]
    buckets: int
    gives_late: bool
    #: Whether the log has decided already what is late.
    flagged: bool
    run: str
    #: The version of the knowledge, where it may become another.
    version: int = 0
    #: Where the log ended when this start began; None if matches bear no marks (recovered.py).
    missed: int | None = None


@dataclass
class Progress:
    """What a bucket remembers besides the matcher: times in microseconds, and `heard` by the clock of the batches."""

    now: int
    buckets: int
    token: str = ""
    names: list[str] = field(default_factory=list)
    greatest: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    #: When the next timer expires, in milliseconds.
    timer: int = 0
    #: The version of the knowledge by which the matcher judged last.
    version: int = 0
    #: The last event of the log that any bucket read: its offset, and when it came.
    offset: int = -1
    came: int = 0


class Bucket(StatefulProcessor):
    """Runs the matcher of one bucket at a time; Spark makes one for each task."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._progress = handle.getValueState("progress", "progress STRING, head BINARY")
        self._chunks = handle.getMapState("chunks", "name STRING", "content BINARY")

    # ruff: noqa: N802, N803 -- the names are Spark's, which hands them over by name.
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        progress, matcher = self._load(key[0])
        before, late = dict(progress.greatest), []
        fresh: list[pa.Table] = []
        batch_time = 0
        clock = timerValues.getCurrentProcessingTimeInMs()
        for row in rows:
            for stream, time in json.loads(row.greatest).items():
                progress.greatest[stream] = max(time, progress.greatest.get(stream, time))
                progress.heard[stream] = clock * 1000
            if row.offset is not None:
                batch_time = row.clock
                progress.offset, progress.came = max(progress.offset, row.offset), max(progress.came, row.came)
            if row.packed is not None:
                events = unpack(row.packed)
                is_late = self._is_late(events, before)
                late += [events.filter(pa.array(is_late))] if is_late.any() else []
                timely = events.filter(pa.array(~is_late)) if is_late.any() else events
                if "\0came" in timely.column_names:
                    fresh.append(timely.select(["time", "\0came"]))
                    timely = timely.drop_columns("\0came")
                for batch in timely.drop_columns("\0seen").to_batches():
                    matcher.push_batch(batch)
        if self._work.missed is not None and progress.offset + 1 < self._work.missed:
            # What was missed is not all read yet: a stream without an event in this batch is not silent for that.
            progress.heard = dict.fromkeys(self._work.idle, clock * 1000)
        yield from self._advance(key[0], progress, matcher, clock, batch_time, fresh)
        if self._work.gives_late:
            yield from (Row(packed=pack(self._late(rows))) for rows in late)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        progress, matcher = self._load(key[0])
        progress.timer = 0
        clock = timerValues.getCurrentProcessingTimeInMs()
        yield from self._advance(key[0], progress, matcher, clock, clock * 1000, [])

    def _is_late(self, events: pa.Table, before: Mapping[str, int]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Rule E4, by the greatest time of the stream in batches before, and in the row's own part of this one."""
        if self._work.flagged:
            return np.zeros(events.num_rows, dtype=np.bool_)
        floor: _Times = np.array([before.get(s, INT64_MIN) for s in self._work.lateness], dtype=np.int64)
        lateness: _Times = np.array(list(self._work.lateness.values()), dtype=np.int64)
        if len(floor) > 1:
            at = pc.index_in(events.column("stream"), pa.array(self._work.lateness)).to_numpy()
            floor, lateness = floor[at], lateness[at]
        seen = np.maximum(events.column("\0seen").to_numpy(), floor)
        limit = np.maximum(seen, INT64_MIN + lateness) - lateness
        return np.asarray(events.column("time").to_numpy() < limit)

    def _late(self, rows: pa.Table) -> pa.Table:
        kind = self._work.schema.field("late").type
        if len(self._work.lateness) == 1:  # then no row says it
            rows = rows.append_column("stream", pa.array([*self._work.lateness] * rows.num_rows))
        values = [rows.column(name).combine_chunks().cast(kind.field(name).type) for name in ("stream", "id", "time")]
        late = pa.StructArray.from_arrays(values, fields=list(kind))
        nothing = [pa.nulls(len(late), f.type) for f in self._work.schema if f.name != "late"]
        return pa.Table.from_arrays([*nothing, late], schema=self._work.schema)

    def _advance(
        self, bucket: int, progress: Progress, matcher: Matcher, clock: int, now: int, fresh: Sequence[pa.Table]
    ) -> Iterator[Row]:
        """The matches that are final now; then the state is kept. `clock` is that of timers, if there are any."""
        watermark = self._watermark(progress, clock)
        if watermark is not None:
            added = self._work.gives_late + (0 if self._work.missed is None else len(MARKS))
            plain = pa.schema(list(self._work.schema)[: len(self._work.schema) - added])
            found = pa.Table.from_batches(given(matcher.advance_batches(watermark), plain), schema=plain)
            if found.num_rows:
                if self._work.gives_late:
                    last = self._work.schema.field("late")
                    found = found.append_column(last, pa.nulls(found.num_rows, last.type))
                if self._work.missed is not None:
                    is_late = progress.offset < self._work.missed
                    found = marked(found, delays(found, fresh, progress.came, now) if is_late else None)
                yield Row(packed=pack(found))
        if self._work.idle:
            self._set_timer(progress, matcher, clock)
        self._save(bucket, progress, matcher)

    def _watermark(self, progress: Progress, clock: int) -> int | None:
        """Rule E5: the least of the streams'; None as long as there is none."""
        for stream in self._work.idle:  # one that never spoke is silent since the beginning
            progress.heard.setdefault(stream, clock * 1000)
        found = []
        for stream, lateness in self._work.lateness.items():
            own = progress.greatest.get(stream)
            idle = self._work.idle.get(stream)
            if idle is not None and clock * 1000 - progress.heard[stream] >= idle:
                # at the distance of idle: what was sent shortly before is still on its way
                own = max(clock * 1000 - idle, INT64_MIN if own is None else own)
            if own is None:
                return None
            found.append(own - lateness)
        return max(min(found), INT64_MIN)

    def _set_timer(self, progress: Progress, matcher: Matcher, clock: int) -> None:
        """Has Spark call again when a stream may have become idle, as long as something waits for that."""
        counters = matcher.counters
        if progress.timer > clock or not (counters["kept"] or counters["pending"]):
            return
        first = min(progress.heard[s] + idle for s, idle in self._work.idle.items()) // 1000 + 1
        progress.timer = max(first, clock + _STEP)
        self._handle.registerTimer(progress.timer)

    def _load(self, bucket: int) -> tuple[Progress, Matcher]:
        held = self._progress.get()
        if held is None:
            progress = Progress(self._work.now, self._work.buckets)
            return progress, Matcher(self._work.checked, progress.now)
        progress = Progress(**json.loads(held[0]))
        if progress.buckets != self._work.buckets:
            raise StateUnusable(
                f"the checkpoint was begun with {progress.buckets} buckets, and a key would not be found in another "
                f"number of them. Write match(query, live=Live(buckets={progress.buckets})), or take a new checkpoint"
            )
        token, matcher = _live.pop((self._work.run, bucket), ("", None))
        if matcher is None or token != progress.token:
            matcher = Matcher(self._work.checked, progress.now)
            chunks = {key[0]: bytes(value[0]) for key, value in self._chunks.iterator()}
            try:
                matcher.restore(bytes(held[1]), chunks)
            except ValueError as error:
                if progress.version != self._work.version:
                    _log.warning(
                        "bucket %d begins anew, without what it held: the knowledge changed what is kept of events",
                        bucket,
                    )
                    self._chunks.clear()
                    progress.names = []
                    return progress, Matcher(self._work.checked, progress.now)
                raise StateUnusable(
                    f"bucket {bucket} of the checkpoint can't go on: {error}. A checkpoint belongs to one query: give "
                    "another query, or a damaged one, a checkpointLocation of its own"
                ) from error
        return progress, matcher

    def _save(self, bucket: int, progress: Progress, matcher: Matcher) -> None:
        state = matcher.save(progress.names)
        for name in set(progress.names) - set(state.names):
            self._chunks.removeKey((name,))
        for name, content in state.changed.items():
            self._chunks.updateValue((name,), (content,))
        progress.names, progress.token = list(state.names), uuid.uuid4().hex
        progress.version = self._work.version
        self._progress.update((json.dumps(asdict(progress)), state.head))
        _live[self._work.run, bucket] = progress.token, matcher
        while len(_live) > _MOST_LIVE:
            _live.popitem(last=False)


def pack(rows: pa.Table) -> bytes:
    """Rows as one value."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def unpack(packed: bytes | pa.Buffer) -> pa.Table:
    """The rows that `pack` packed."""
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_all()
