"""The first event of the log that an archive has: what came before that was in neither when the archive was begun.

It is written down when archiving begins. Of an archive that does not say so it is looked for once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import time_ns
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from cepheid.history.log_place import LogPlace
from cepheid.model.streams import Stream
from cepheid.service.log import LogReader, extent
from cepheid.spark.archive import LOG_ARRIVAL, LOG_OFFSET, Archive, read, removed_from
from cepheid.spark.notes import is_there, read_note, write_note

#: Beside the checkpoint of what brings the log's events into an archive.
_NOTE: Final = "log.begun"
#: Seconds that are given to a log elsewhere to say what it has.
_PATIENCE: Final = 5.0


@dataclass(frozen=True)
class Begun:
    """The offset of the first event of the log that is archived, and when that came, in microseconds."""

    offset: int
    came: int


def note_begun(spark: SparkSession, archive: Archive, log: LogPlace, checkpoint: str) -> None:
    """Writes down with which event of the log an archive begins, before the first batch of a checkpoint is planned."""
    place = archive.checkpoint(_NOTE)
    if is_there(spark, f"{checkpoint}/offsets") or read_note(spark, place) is not None:
        return
    begun = Begun(0, 0)
    if log.address is not None or (log.folder.is_dir() and any(log.folder.iterdir())):
        first = extent(log.source, token=log.token).first
        begun = Begun(first, 0) if first == 0 else _first_of(log)
    _write(spark, archive, begun)


def begun_of(spark: SparkSession, archive: Archive, streams: Sequence[Stream]) -> Begun | None:
    """The first event of the log that an archive has; None if it has none. `streams` are all that come through the log.

    Where it is not written down it is the first that the tables have. Of tables that retention removed events from they
    don't say it: then it is taken to be the very first.
    """
    noted = read_note(spark, archive.checkpoint(_NOTE))
    if noted is not None:
        offset, came = map(int, noted.split())
        return Begun(offset, came)
    found = None
    if any(removed_from(spark, archive, stream.name) is not None for stream in streams):
        return Begun(0, 0)
    for stream in streams:
        events = read(spark, archive, stream, late=True)
        offset = events.agg(sf.min(LOG_OFFSET)).collect()[0][0]  # which Delta knows without reading them
        if offset is not None and (found is None or offset < found.offset):
            arrival = sf.unix_micros(sf.coalesce(LOG_ARRIVAL, "time"))
            found = Begun(offset, events.where(sf.col(LOG_OFFSET) == offset).select(arrival).collect()[0][0])
    if found is not None:
        with suppress(OSError, Py4JError, PySparkException):  # one that can be read only
            _write(spark, archive, found)
    return found


def _first_of(log: LogPlace) -> Begun:
    with LogReader(log.source, durable_only=True, token=log.token) as reader:
        logged = next(iter(reader.read(_PATIENCE if log.address is not None else 0.0)), None)
        return Begun(reader.offset, time_ns() // 1000) if logged is None else Begun(logged.offset, logged.arrival)


def _write(spark: SparkSession, archive: Archive, begun: Begun) -> None:
    write_note(spark, archive.checkpoint(_NOTE), f"{begun.offset} {begun.came}")
