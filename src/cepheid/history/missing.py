"""What an answer about the past lacks, in words: it is never partial without saying so."""

from __future__ import annotations

from collections.abc import Iterator

from cepheid.history.asked import Asked
from cepheid.history.past import Past
from cepheid.history.tail import Tail
from cepheid.model.time import format_instant
from cepheid.service.log import LogReader
from cepheid.spark.application import TopicInput


def missing(past: Past, asked: Asked) -> Iterator[str]:
    """Each kind of events of the range that are there no more, or are where they are not asked."""
    removed = past.removed_before(asked.streams.values())
    if removed is not None and asked.times.low < removed:
        yield (
            f"events before {format_instant(removed)} were removed from the archive (retain); what they would have "
            "matched is missing"
        )
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


def _reaches(asked: Asked, tail: Tail) -> bool:
    """Whether a range begins before what the log still has came."""
    with LogReader(tail.log.folder, tail.start, durable_only=True) as reader:
        return any(asked.times.low < logged.arrival for logged in reader.read()[:1]) or tail.end == tail.start
