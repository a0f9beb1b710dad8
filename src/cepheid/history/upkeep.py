"""What the pipeline does for its archive every now and then: large files of many small ones, and what is too old goes.

It is done in a thread of its own, one thing after the other, in the scheduler pool of the lowest level: those who look
after the pipeline never wait for it, nor do the streams that write. What fails is said once, and tried again.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cepheid.history.sinks import Say
from cepheid.model.streams import Stream
from cepheid.spark.archive import Archive, matches_of
from cepheid.spark.care import bound_log, cut_log, is_of_matches, remove_before, remove_unused, tables_of
from cepheid.spark.compaction import (
    FEW,
    MANY,
    QUIET,
    Done,
    compact_where_many,
    is_conflict,
    own_session,
    small_files,
    version_of,
)
from cepheid.spark.trouble import explained

#: Seconds between two looks at the tables.
_ROUND: Final = 60.0
#: Seconds between two looks at what is older than the archive is to keep, and before a table is tried that has failed.
_HOUR: Final = 3600.0
#: Seconds between two removals of a table's files that were replaced.
_DAY: Final = 24 * _HOUR
#: Seconds between two looks at what is too old in a table's log.
_CUT: Final = 600.0
#: Seconds between two attempts to end what is under way.
_ENDING: Final = 0.2


@dataclass(frozen=True)
class Charge:
    """What is looked after."""

    archive: Archive
    streams: Sequence[Stream]
    queries: Sequence[str]
    #: For how long events are kept, in microseconds; None for ever.
    retain: int | None
    #: The scheduler pool.
    pool: str


@dataclass
class _Looked:
    """What was seen of a table: at which version, when, and whether it has files for when it is quiet."""

    version: int
    at: float
    has_some: bool

    def is_due(self, version: int) -> bool:
        """Whether there may be something to do: each commit brings a file to a day, or more."""
        is_old = time.monotonic() - self.at >= QUIET
        return version - self.version >= MANY or (is_old and (self.has_some or version > self.version))


class Upkeep:
    """Looks after an archive."""

    def __init__(self, spark: SparkSession, say: Say) -> None:
        self._shared, self._say = spark, say
        #: What compaction did since the start.
        self.done = Done()
        self._own: SparkSession | None = None
        self._group = f"upkeep-{uuid.uuid4()}"
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._round_at = time.monotonic() + _ROUND
        self._aged = time.monotonic()
        self._looked: dict[str, _Looked] = {}
        self._failed: dict[str, float] = {}
        #: When a table's log was cut last.
        self._cut: dict[str, float] = {}
        #: Tables with files that were replaced, and when such were removed last.
        self._replaced: set[str] = set()
        self._removed: dict[str, float] = {}
        self._said: dict[str, str] = {}

    def tend(self, charge: Charge) -> None:
        """Has a round done if it is time, and none is under way. Does not wait for it."""
        if time.monotonic() >= self._round_at and not self._stopping.is_set():
            self._begin(charge)

    def tidy(self, charge: Charge) -> None:
        """Does a round now, and waits for it."""
        if self._thread is not None:
            self._thread.join()
        self._begin(charge)
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        """Ends what is under way: nothing of it will have happened, but files that nobody reads."""
        self._stopping.set()
        while self._thread is not None and self._thread.is_alive():
            self._shared.sparkContext.cancelJobGroup(self._group)
            self._thread.join(_ENDING)

    def _begin(self, charge: Charge) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._round_at = time.monotonic() + _ROUND
            self._thread = InheritableThread(target=self._round, args=(charge,), name="upkeep", daemon=True)
            self._thread.start()

    def _round(self, charge: Charge) -> None:
        context = self._shared.sparkContext
        context.setLocalProperty("spark.scheduler.pool", charge.pool)
        context.setJobGroup(self._group, "looks after the archive")
        self._forget(charge)
        kept = tables_of(charge.streams, charge.queries)
        if charge.archive.format == "parquet":  # only matches are always of Delta
            kept = [matches_of(query) for query in charge.queries]
        archive = Archive(charge.archive.path)
        for table in kept:
            if self._stopping.is_set():
                return
            if time.monotonic() >= self._failed.get(archive.table(table), 0.0):
                self._look_after(archive, table)

    def _look_after(self, archive: Archive, table: str) -> None:
        place = archive.table(table)
        try:
            self._own = self._own or own_session(self._shared)
            is_due = time.monotonic() - self._cut.get(place, -_CUT) >= _CUT
            if is_due and not is_of_matches(table):  # which others read as streams
                bound_log(self._own, archive, table)
                cut_log(self._own, archive, table)
                self._cut[place] = time.monotonic()
            self._compact(self._own, archive, table)
            is_time = time.monotonic() - self._removed.get(place, -_DAY) >= _DAY
            if place in self._replaced and is_time:
                remove_unused(self._own, archive, table)
                self._replaced.discard(place)
                self._removed[place] = time.monotonic()
            self._said.pop(place, None)
        except (OSError, ValueError, Py4JError, PySparkException) as error:
            if not is_conflict(error):  # else it is tried again in the next round
                self._failed[place] = time.monotonic() + _HOUR
                self._tell(place, f"the small files of {table} in the archive can't be made large yet", error)

    def _compact(self, spark: SparkSession, archive: Archive, table: str) -> None:
        place, version = archive.table(table), version_of(spark, archive, table)
        before = self._looked.get(place)
        if before is not None and not before.is_due(version):
            return
        found = small_files(spark, archive, table)
        done = compact_where_many(spark, archive, table, found)
        if done.removed:
            self.done += done
            self._replaced.add(place)
            version = version_of(spark, archive, table)
        has_some = any(sum(each.counts) >= FEW for each in found)  # or had, and one look more finds none
        self._looked[place] = _Looked(version, time.monotonic(), has_some)

    def _forget(self, charge: Charge) -> None:
        """Removes what is older than the archive is to keep."""
        if charge.retain is None or time.monotonic() - self._aged < _HOUR:
            return
        self._aged = time.monotonic()
        keep_from = time.time_ns() // 1000 - charge.retain
        try:
            removed = remove_before(self._shared, charge.archive, charge.streams, keep_from)
            self._replaced |= {charge.archive.table(table) for table, rows in removed.items() if rows}
            self._said.pop("", None)
        except (OSError, ValueError, Py4JError, PySparkException) as error:  # a damaged table, or one changed meanwhile
            self._tell("", "what the archive is not to keep any more can't be removed yet", error)

    def _tell(self, what: str, said: str, error: Exception) -> None:
        """Says what went wrong, if that is not what was said last."""
        reason = explained(str(error))
        if self._said.get(what) != reason and not self._stopping.is_set():
            self._say(f"{said}: {reason}")
        self._said[what] = reason
