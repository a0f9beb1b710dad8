"""Brings back from the archive what the log has forgotten, and a lane of the service still needs.

An engine that was away for longer than the log keeps events goes on where it was, which is before the log's first
event. It says so in a file beside the log, `<lane>.wanted`, and waits. Here the archived events of those offsets become
a segment of the log again, in its folder `restored` (native/src/log/restored.rs); it goes when nobody wants it.
"""

from __future__ import annotations

import heapq
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampType

from cepheid._native import log_restore
from cepheid.history.past import as_declared
from cepheid.history.reached import check_reached
from cepheid.model.streams import Stream
from cepheid.service import schemas
from cepheid.service.log import extent
from cepheid.spark.archive import LOG_ARRIVAL, LOG_END, LOG_LATE, LOG_MARKS, LOG_OFFSET, Archive, read
from cepheid.spark.validate import declared_for_spark


def wanted(log: Path) -> int | None:
    """The first offset that a lane needs and the log has no longer; None if there is none."""
    offsets = [int(text) for file in log.glob("*.wanted") if (text := file.read_text().strip()).isdigit()]
    return min(offsets, default=None)


def restore(spark: SparkSession, log: Path, archive: Archive, streams: Sequence[Stream]) -> str | None:
    """Brings back what is wanted, and says what that was; None if nothing is.

    Raises what past.py and reached.py do where the archive is not there, or not what was archived: the lane waits.
    """
    start, folder = wanted(log), log / "restored"
    if start is None:
        shutil.rmtree(folder, ignore_errors=True)  # who reads it has it open
        return None
    first = extent(log).first
    if start >= first or (folder / f"{start:020}.log").exists():
        return None
    check_reached(spark, archive, log, streams)
    declared = [declared_for_spark(stream) for stream in streams]
    described = json.dumps([schemas.describe(stream) for stream in declared])
    rows = heapq.merge(*(_rows(spark, archive, declared, place, start, first) for place in range(len(declared))))
    count = log_restore(log, start, first, described, rows)
    said = f"{count} events of offsets {start} to {first - 1} were brought back into the log from the archive"
    kept = _kept(spark, archive, declared)
    if kept is None:
        said += ", which has none from the log; what they would have matched is lost"
    elif kept > start:
        said += f", which has them from {kept} on; if it has forgotten some, what they would have matched is lost"
    return said


def _kept(spark: SparkSession, archive: Archive, streams: Sequence[Stream]) -> int | None:
    """The first offset that is archived."""
    firsts = [read(spark, archive, s, late=True).agg(sf.min(LOG_OFFSET)).collect()[0][0] for s in streams]
    return min((first for first in firsts if first is not None), default=None)


def _rows(
    spark: SparkSession, archive: Archive, streams: Sequence[Stream], place: int, start: int, end: int
) -> Iterator[tuple[int, int, bytes]]:
    """Offset, arrival and record of a stream's events, in order; late ones take part in nothing (rule E4).

    An archive of old does not say when an event came: its time stands for that.
    """
    stream, codec = streams[place], schemas.codec(streams)
    events = read(spark, archive, stream, late=True)
    columns = as_declared(archive, events, stream)
    known = [sf.unix_micros(LOG_ARRIVAL), sf.unix_micros(LOG_END), sf.coalesce(LOG_MARKS, sf.lit(0))]
    events = events.where(f"{LOG_OFFSET} >= {start} AND {LOG_OFFSET} < {end} AND NOT coalesce({LOG_LATE}, false)")
    events = events.orderBy(LOG_OFFSET)
    rows = events.select(LOG_OFFSET, *known, *_micros(events, columns)).toLocalIterator()
    for offset, arrival, end_of_validity, marks, event_id, time, *attributes in rows:
        record = codec.encode(place, event_id, time, tuple(map(_plain, attributes)), (end_of_validity, marks))
        yield offset, time if arrival is None else arrival, record


def _micros(events: DataFrame, columns: Sequence[Column]) -> Iterator[Column]:
    """Columns of a table, with times as microseconds."""
    for column, field in zip(columns, events.select(*columns).schema.fields, strict=True):
        yield sf.unix_micros(column) if isinstance(field.dataType, TimestampType) else column


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else tuple(value) if isinstance(value, list) else value
