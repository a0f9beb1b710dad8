"""A live query on Spark whose WITHIN begins before the log does: it begins with what the archive has.

At its first start it is written down, with its checkpoint, at which offset of the log that is. What the log has
forgotten of it is brought back beside the log (restore.py), where the query reads it as if it had never been away: in
batches by offset, each once, across the boundary and on to what is live.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from cepheid.history.begun import begun_of
from cepheid.history.live_events import lost
from cepheid.history.log_place import LogPlace
from cepheid.history.missing import gone
from cepheid.history.registered import is_registered
from cepheid.history.restore import first_since, restore
from cepheid.history.sinks import Say
from cepheid.history.times import times_of
from cepheid.language.checker import Checked
from cepheid.model.streams import Stream
from cepheid.service.log import extent, log_committed
from cepheid.spark.archive import Archive
from cepheid.spark.notes import read_note, write_note


@dataclass(frozen=True)
class Earlier:
    """Where the past of an application's log is; `streams` are all that come through the log."""

    spark: SparkSession
    log: LogPlace
    archive: Archive | None
    streams: Sequence[Stream]

    def begins(self, name: str, checked: Checked, now: int, checkpoint: str, say: Say) -> int | None:
        """The offset that a query begins with; None: with the first that the log has, of which what it lacks is said.

        To be called before it is registered. Raises what reached.py does of the archive.
        """
        note = f"{checkpoint}/from"
        noted = read_note(self.spark, note)
        if noted is not None:
            return int(noted)
        if is_registered(self.spark, checkpoint) or (text := lost(name, checked, self.log, now)) is None:
            return None
        if self.archive is None or self.log.address is not None or not self._is_begun(self.archive):
            say(text)
            return None
        low = times_of(checked, now).low
        own = [stream for stream in self.streams if stream.name in checked.streams]
        first = extent(self.log.folder).first
        offset = first_since(self.spark, self.archive, self.log.folder, own, low)
        say(f"{name}: WITHIN begins before the log does. What came before offset {first} comes from the archive")
        for what in gone(self.spark, self.archive, own, self.streams, low):
            say(f"{name}: {what}")
        write_note(self.spark, note, str(offset))
        return offset

    def _is_begun(self, archive: Archive) -> bool:
        return begun_of(self.spark, archive, self.streams) is not None

    def bring_back(self, offset: int, say: Say) -> None:
        """Has the log's events from an offset on there, for as long as the offset is among those that are needed."""
        assert self.archive is not None
        first = None
        while first != (now := extent(self.log.folder).first):  # it may forget until it knows that it is to wait
            first = now
            if (said := restore(self.spark, self.log.folder, self.archive, self.streams, [offset])) is not None:
                say(said)


def needed(log: LogPlace, begins: int, consumer: str) -> int | None:
    """The offset that a query which began there needs next; None if the log has it, or is not on this machine."""
    if not log.folder.is_dir():
        return None
    offset = max(begins, log_committed(log.folder, consumer) or 0)
    return offset if offset < extent(log.folder).first else None
