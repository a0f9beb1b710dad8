"""Brings back from the archive what the log has forgotten, and a lane of the service still needs.

An engine that was away for longer than the log keeps events goes on where it was, which is before the log's first
event. It says so in a file beside the log, `<lane>.wanted`, and waits. Here the archived events of those offsets become
a segment of the log again, in its folder `restored` (native/src/log/restored.rs); it goes when nobody wants it.

A query whose WITHIN begins before the log does needs what happened since a time. Its lane does not know at which offset
that begins: it asks for `since <microseconds>`, and the offset is the answer, in the same file.
"""

from __future__ import annotations

import heapq
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampType

from cepheid._native import log_restore
from cepheid.history.archiving import CONSUMER
from cepheid.history.begun import begun_of
from cepheid.history.missing import gone
from cepheid.history.past import as_declared
from cepheid.history.reached import check_reached
from cepheid.model.streams import Stream
from cepheid.model.time import MIN_INSTANT
from cepheid.service import schemas
from cepheid.service.log import extent, log_committed
from cepheid.spark.archive import (
    DAY,
    LOG_ARRIVAL,
    LOG_END,
    LOG_LATE,
    LOG_MARKS,
    LOG_OFFSET,
    Archive,
    day_of,
    read,
)
from cepheid.spark.validate import declared_for_spark

#: How a lane asks for what happened since a time.
_SINCE: Final = "since "


def wanted(log: Path) -> dict[Path, str]:
    """What lanes ask for, each in a file of its own: the offset that it reads next, or since when it needs what was."""
    found = {}
    for file in log.glob("*.wanted"):
        with suppress(FileNotFoundError):  # its lane has it meanwhile, or has ended
            found[file] = file.read_text().strip()
    return {file: text for file, text in found.items() if text.isdigit() or text.startswith(_SINCE)}


def restore(
    spark: SparkSession, log: Path, archive: Archive, streams: Sequence[Stream], needed: Iterable[int] = ()
) -> str | None:
    """Brings back what is wanted, and says what that was; None if nothing is. `needed` are offsets that others need.

    Raises what past.py and reached.py do where the archive is not there, or not what was archived: the lane waits.
    """
    asked, folder = wanted(log), log / "restored"
    offsets = [*needed, *(offset for text in asked.values() if (offset := _offset(text)) is not None)]
    times = {file: int(text.removeprefix(_SINCE)) for file, text in asked.items() if _offset(text) is None}
    answers = {file: first_since(spark, archive, log, streams, since) for file, since in times.items()}
    start = min([*offsets, *answers.values()], default=None)
    if start is None:
        shutil.rmtree(folder, ignore_errors=True)  # who reads it has it open
        return None
    first, said = extent(log).first, list[str]()
    start = _end(log, start)  # the log may have forgotten more since that was brought back
    if start < first:
        check_reached(spark, archive, log, streams)
        said.append(_bring_back(spark, log, archive, streams, start, first))
    if times:
        said += gone(spark, archive, streams, streams, min(times.values()))
    for file, offset in answers.items():
        _answer(file, offset)
    return "; ".join(said) or None


def first_since(spark: SparkSession, archive: Archive, log: Path, streams: Sequence[Stream], since: int) -> int:
    """The offset from which on events that happened since a time are there: the first archived one, or the log's."""
    check_reached(spark, archive, log, streams)
    since, found = max(since, MIN_INSTANT), extent(log).first
    for stream in streams:
        events = read(spark, archive, stream, late=True)
        events = events.where(sf.col("time") >= sf.timestamp_micros(sf.lit(since)))
        events = events.where(sf.col(DAY) >= day_of(sf.timestamp_micros(sf.lit(since))))
        offset = events.where(f"NOT coalesce({LOG_LATE}, false)").agg(sf.min(LOG_OFFSET)).collect()[0][0]
        found = found if offset is None else min(found, offset)
    return found


def _offset(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _answer(file: Path, offset: int) -> None:
    """Says at which offset a lane is to begin."""
    if file.exists():  # else it has ended meanwhile
        beside = file.with_suffix(".answer")
        beside.write_text(str(offset))
        beside.replace(file)


def _end(log: Path, offset: int) -> int:
    """The offset up to which all that was brought back is there, from another on."""
    ends = {int(file.stem): int(file.read_text()) for file in (log / "restored").glob("*.end")}
    for start, end in sorted(ends.items()):
        if start <= offset < end:
            offset = end
    return offset


def _bring_back(
    spark: SparkSession, log: Path, archive: Archive, streams: Sequence[Stream], start: int, end: int
) -> str:
    declared = [declared_for_spark(stream) for stream in streams]
    described = json.dumps([schemas.describe(stream) for stream in declared])
    rows = heapq.merge(*(_rows(spark, archive, declared, place, start, end) for place in range(len(declared))))
    count = log_restore(log, start, end, described, rows)
    (log / "restored" / f"{start:020}.end").write_text(str(end))
    said = f"{count} events of offsets {start} to {end - 1} were brought back into the log from the archive"
    begun = begun_of(spark, archive, declared)
    if begun is None:
        said += ", which has none from the log; what they would have matched is lost"
    elif begun.offset > start:
        said += f", which has them from {begun.offset} on; what those before would have matched is lost"
    told = log_committed(log, CONSUMER)
    if told is not None and told < end:
        said += f"; it has them up to {told - 1} only, and what those after would have matched is lost"
    return said


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
