"""What an answer about the past lacks, in words: it is never partial without saying so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import SparkSession

from cepheid.history.asked import Asked
from cepheid.history.begun import begun_of
from cepheid.history.past import Past
from cepheid.history.tail import Tail
from cepheid.model.streams import Stream
from cepheid.model.time import format_instant
from cepheid.service.log import LogReader
from cepheid.spark.application import FileInput, TopicInput, file_inputs, topic_inputs
from cepheid.spark.archive import Archive, removed_from


def missing(past: Past, asked: Asked) -> Iterator[str]:
    """Each kind of events of the range that are there no more, or are where they are not asked."""
    if past.archive is not None:
        inputs: list[FileInput | TopicInput] = [*file_inputs(asked.app), *topic_inputs(asked.app)]
        elsewhere = {s.name for given in inputs for s in given.streams}
        logged = [stream for name, stream in asked.app.graph.streams.items() if name not in elsewhere]
        is_logged = past.tail is not None and past.tail.committed and not asked.streams.keys() <= elsewhere
        yield from gone(past.spark, past.archive, asked.streams.values(), logged if is_logged else [], asked.times.low)
    if past.tail is not None and not past.tail.committed and past.tail.start > 0 and _reaches(asked, past.tail):
        known = "there is no archive" if past.archive is None else "the archive does not say that it has them"
        yield (
            f"the log {past.tail.log.folder} has forgotten the events before offset {past.tail.start} (retain), and "
            f"{known}; what they would have matched may be missing"
        )
    for given in past.elsewhere:
        if {stream.name for stream in given.streams} & asked.streams.keys():
            place = f"the topic '{given.topic}'" if isinstance(given, TopicInput) else f"the files at '{given.path}'"
            yield f"of {place} only what is archived is asked: what is not archived yet is missing"


def gone(
    spark: SparkSession, archive: Archive, streams: Iterable[Stream], logged: Sequence[Stream], since: int
) -> Iterator[str]:
    """What an archive has no more, or never had, of the events of streams since a time; `logged` are all streams that
    come through the log, nothing if these don't."""
    found = [removed_from(spark, archive, stream.name) for stream in streams]
    removed = max((moment for moment in found if moment is not None), default=None)
    if removed is not None and since < removed:
        yield (
            f"events before {format_instant(removed)} were removed from the archive (retain); what they would have "
            "matched is missing"
        )
    begun = begun_of(spark, archive, logged) if logged else None
    if begun is not None and begun.offset > 0 and since < begun.came:
        yield (
            f"the archive was begun with offset {begun.offset} of the log, at {format_instant(begun.came)}, when the "
            "log had forgotten what came before; what that would have matched is missing"
        )


def _reaches(asked: Asked, tail: Tail) -> bool:
    """Whether a range begins before what the log still has came."""
    with LogReader(tail.log.folder, tail.start, durable_only=True) as reader:
        return any(asked.times.low < logged.arrival for logged in reader.read()[:1]) or tail.end == tail.start
