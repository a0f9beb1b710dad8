"""What there is of the past: the archive, and what is not archived yet, from the log and from files; each event once.

A stream without a table had no events yet. An archive or a table that was there and is not any more, can't be read, or
is not what the application declares, is never passed over: the answer would be partial.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from cepheid.app.application import Application
from cepheid.history.damage import explaining_damage
from cepheid.history.log_place import LogOutOfReach, place_of
from cepheid.history.newer_files import NewerFiles, newer_files, read_newer
from cepheid.history.reached import ArchiveAbsent, absent, check_reached
from cepheid.history.tail import Tail, check_same_log, tail_of
from cepheid.model.streams import Stream
from cepheid.spark.application import FileInput, TopicInput, archive_of, file_inputs, topic_inputs
from cepheid.spark.archive import DAY, LOG_LATE, Archive, day_of, read, snapshot
from cepheid.spark.places import exists, local
from cepheid.spark.validate import PLACE, declared_for_spark, event_column, event_schema

#: Types in a table that a query may hold as another: nothing is lost.
_WIDENED: Final = {("bigint", "double"), ("int", "bigint"), ("float", "double"), ("int", "double")}


class NothingToAsk(ValueError):
    """The application keeps no events."""


class ArchiveDiffers(ValueError):
    """A table of the archive has another schema than the application declares."""


@dataclass(frozen=True)
class Past:
    """The events of an application that have come."""

    spark: SparkSession
    archive: Archive | None
    tail: Tail | None = None
    files: tuple[NewerFiles, ...] = ()
    #: Inputs of which only what is archived is known here: topics, and files of other machines.
    elsewhere: tuple[TopicInput | FileInput, ...] = ()
    #: What was asked for before: each load of the log has a process of its own find out what there is.
    _known: dict[str, DataFrame] = field(default_factory=dict, compare=False, repr=False)

    def events(self, stream: Stream) -> DataFrame:
        """The events of a stream: id, time, the attributes, and day.

        Raises ArchiveDiffers, ArchiveDamaged, TableLost and Hole.
        """
        if stream.name not in self._known:
            self._known[stream.name] = self._events(stream)
        return self._known[stream.name]

    def _events(self, stream: Stream) -> DataFrame:
        parts = [] if self.archive is None else [self._archived(self.archive, stream)]
        if self.tail is not None and self.tail.end > self.tail.start:
            parts.append(self.tail.read(self.spark, stream).withColumn(DAY, day_of(sf.col("time"))))
        newer = read_newer(self.spark, self.files, self.archive, stream)
        if newer is not None:
            newer = _first_of_each(newer, stream, parts[0] if self.archive is not None else None)
            parts.append(newer.withColumn(DAY, day_of(sf.col("time"))))
        if not parts:
            return self.spark.createDataFrame([], event_schema(declared_for_spark(stream)))
        return reduce(DataFrame.unionByName, parts)

    def _archived(self, archive: Archive, stream: Stream) -> DataFrame:
        with self.explained([stream]):
            frame = read(self.spark, archive, stream, late=True)
        if self.tail is not None:
            if not self.tail.committed:
                check_same_log(frame, self.tail, stream.name)
            frame = self.tail.archived(frame)
        return frame.where(f"NOT coalesce({LOG_LATE}, false)").select(*as_declared(archive, frame, stream), DAY)

    def last_time(self, stream: Stream) -> int | None:
        """The greatest time of a stream's events; of its table only the last day is read."""
        with self.explained([stream]):
            events = self.events(stream)
            day = None if self.archive is None else _last_day(self.spark, self.archive, stream.name)
            # What is there of the last day may be read from the log instead, and be of another: then all is looked at.
            for part in (events if day is None else events.where(sf.col(DAY) >= sf.lit(day).cast("date")), events):
                last: int | None = part.agg(sf.unix_micros(sf.max("time"))).collect()[0][0]
                if last is not None or day is None:
                    return last
        return None

    @contextmanager
    def explained(self, streams: Iterable[Stream]) -> Iterator[None]:
        """What fails inside because the tables of these streams are damaged is an ArchiveDamaged."""
        if self.archive is None:
            yield
            return
        with explaining_damage(self.spark, self.archive, list(streams)):
            yield


def _last_day(spark: SparkSession, archive: Archive, stream: str) -> str | None:
    """The last day of which a table has something, as its log or its folders say; None if they don't."""
    if archive.format == "parquet":
        folder = local(archive.table(stream))
        return (
            max((path.name.partition("=")[2] for path in folder.glob(f"*/{DAY}=*")), default=None) if folder else None
        )
    found = snapshot(spark, archive, stream)
    if found is None:
        return None
    day: str | None = DataFrame(found.allFiles().toDF(), spark).agg(sf.max(f"partitionValues.{DAY}")).collect()[0][0]
    return day


def as_declared(archive: Archive, frame: DataFrame, stream: Stream) -> list[Column]:
    """The id, time and attributes that a stream has today, of its table; an attribute that is newer than that is null.

    Raises ArchiveDiffers.
    """
    found = {field.name: field.dataType for field in frame.schema.fields}
    by_lower = {name.lower(): name for name in found}
    columns = []
    for wanted in event_schema(declared_for_spark(stream)).fields:
        name = by_lower.get(wanted.name.lower())
        if name is None and wanted.name in ("id", "time"):
            raise _differs(archive, stream, f"it has no column '{wanted.name}'")
        if name is None:
            columns.append(sf.lit(None).cast(wanted.dataType).alias(wanted.name))
            continue
        kinds = found[name].simpleString(), wanted.dataType.simpleString()
        if kinds[0] != kinds[1] and kinds not in _WIDENED:
            raise _differs(archive, stream, f"column '{name}' is {kinds[0]} there, and {kinds[1]} in the application")
        columns.append(_column(name).cast(wanted.dataType).alias(wanted.name))
    return columns


def _differs(archive: Archive, stream: Stream, what: str) -> ArchiveDiffers:
    return ArchiveDiffers(
        f"the archive of '{stream.name}', {archive.table(stream.name)}, is of another version of the application: "
        f"{what}. Declare the stream as it was archived, or under another name"
    )


def _first_of_each(newer: DataFrame, stream: Stream, archived: DataFrame | None) -> DataFrame:
    """Of events with one id the first to arrive (rule E4): the one that is archived, or else the first by PLACE.

    Events are struct columns until the end: attributes may have any name.
    """
    event = event_column(stream)
    rank = sf.row_number().over(Window.partitionBy(f"{event}.id").orderBy(PLACE))
    first = newer.withColumn("rank", rank).where("rank = 1")
    if archived is not None:
        before = archived.select(sf.col("id").alias("before"))
        first = first.join(before, sf.col(f"{event}.id") == sf.col("before"), "left_anti")
    return first.select(f"{event}.*")


def _column(name: str) -> Column:
    return sf.col("`" + name.replace("`", "``") + "`")


def check_past(app: Application) -> None:
    """Raises what can be known to be missing before Spark runs: NothingToAsk, ArchiveAbsent.

    Files and the log are asked too; so an archive that is not there yet is missed only where there is neither. One that
    the log's events went into is.
    """
    section = app.sections.archive
    inputs, tail = file_inputs(app), tail_of(app)
    if section is None:
        if not inputs and tail is None:
            raise NothingToAsk(
                f"'{app.name}' has no archive, no files and no log to ask; add `archive: {{path: data/archive}}`"
            )
        return
    folder = local(section.path)
    if folder is not None and exists(folder) and not folder.is_dir():
        raise ArchiveAbsent(f"the archive '{folder}' is a file, not a folder; check `archive: {{path: ...}}`")
    if folder is not None and not exists(folder) and not inputs and tail is None:
        raise ArchiveAbsent(
            f"there is no archive at '{folder}', and no log: nothing has come yet, or `archive: {{path: ...}}` is "
            "another place. `cepheid run` archives what comes"
        )
    if folder is not None and not exists(folder) and tail is not None and tail.committed and tail.start > 0:
        raise absent(folder, tail.log.folder, tail.start)


def past_of(spark: SparkSession, app: Application) -> Past:
    """What there is of an application's past now. Raises ArchiveAbsent, ArchiveBehind, Hole and LogOutOfReach."""
    archive = None if app.sections.archive is None else archive_of(app)
    elsewhere: tuple[TopicInput | FileInput, ...] = (
        *topic_inputs(app),
        *(given for given in file_inputs(app) if local(given.path) is None),
    )
    tail, log = tail_of(app), place_of(spark, app)
    if log is not None and log.address is not None:
        if tail is None:
            raise LogOutOfReach(
                f"there is no log at {log.folder}, and what is not archived yet can't be known without; ask on the "
                "machine of the service"
            )
        tail = replace(tail, log=log)
    if archive is not None and tail is not None:
        inputs: list[FileInput | TopicInput] = [*file_inputs(app), *topic_inputs(app)]
        others = {stream.name for given in inputs for stream in given.streams}
        logged = (stream for name, stream in app.graph.streams.items() if name not in others)
        check_reached(spark, archive, tail.log.folder, logged)
    return Past(spark, archive, tail, tuple(newer_files(spark, app, archive)), elsewhere)
