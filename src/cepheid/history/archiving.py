"""Into the archive: the log's events with their offsets, the intake's dead letters, and what Spark reads itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from cepheid.history import log_source
from cepheid.history.begun import note_begun
from cepheid.history.log_place import LogPlace
from cepheid.history.log_source import apart_schema
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.spark.archive import Archive, Batch, append_batch, append_events, append_letters
from cepheid.spark.enrichment import NOTHING, Enrichment
from cepheid.spark.pipeline import query_id
from cepheid.spark.validate import events_of

#: The name of the archive among those who read the log: retention waits for it.
CONSUMER: Final = "archive"
#: What the intake keeps of a record that fits no stream (native/src/intake/dead.rs).
_DEAD: Final = Stream(
    "dead_letters",
    {
        "code": Type.STRING,
        "reason": Type.STRING,
        "stream": Type.STRING,
        "source": Type.STRING,
        "number": Type.INT,
        "raw": Type.BYTES,
    },
    id_kind="int",
)


@dataclass
class Tally:
    """What went into the archive since the start. Of a duplicate the first is there (rule E4)."""

    archived: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    dead_letters: Counter[str] = field(default_factory=Counter)


def archive_log(
    spark: SparkSession,
    log: LogPlace,
    streams: Sequence[Stream],
    archive: Archive,
    checkpoint: str,
    tally: Tally,
    enrichment: Enrichment = NOTHING,
) -> DataStreamWriter:
    """What writes the log's events into the archive, a table a stream, and lets the log forget them."""

    def write(events: DataFrame, number: int) -> None:
        batch = Batch(query_id(spark, checkpoint), number)
        counts, duplicates = append_events(events, streams, archive, batch, enrichment())
        tally.archived.update(counts.archived)
        tally.duplicates += duplicates

    note_begun(spark, archive, log, checkpoint)
    events = _read(spark, log, streams)
    return events.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)


def commit_archived(query: StreamingQuery, log: LogPlace, consumer: str = CONSUMER) -> None:
    """Tells the log what the last batch of `archive_log`, or of another consumer, has done. Spark itself says so with
    the batch after that, which on a silent stream may be long."""
    progress: Any = query.lastProgress
    for source in [] if progress is None else progress["sources"]:
        reached = offset_of(source["endOffset"])
        if reached is not None:
            log.commit(consumer, reached)


def offset_of(said: Any) -> int | None:
    """The offset of the log in what a source says of its progress; None if it is of another source."""
    try:
        return int((json.loads(said) if isinstance(said, str) else said)["offset"])
    except (TypeError, ValueError, KeyError):
        return None


def archive_dead_letters(
    spark: SparkSession, log: LogPlace, archive: Archive, checkpoint: str, tally: Tally
) -> DataStreamWriter:
    """What writes the intake's dead letters into the archive."""

    def write(letters: DataFrame, number: int) -> None:
        counts = {row["code"]: row["count"] for row in letters.groupBy("code").count().collect()}
        if counts:
            append_letters(letters, archive, Batch(query_id(spark, checkpoint), number), counts)
            tally.dead_letters.update(counts)

    letters = _read(spark, log.dead_letters, [_DEAD]).transform(events_of(_DEAD))
    letters = letters.select(
        sf.col("time").alias("received"), "stream", "code", "reason", "raw", "source", sf.col("number").alias("line")
    )
    return letters.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)


def archive_records(
    spark: SparkSession,
    records: DataFrame,
    streams: Sequence[Stream],
    archive: Archive,
    checkpoint: str,
    tally: Tally,
    *,
    complete: bool = False,
    enrichment: Enrichment = NOTHING,
) -> DataStreamWriter:
    """What writes judged records, events and dead letters, into the archive, and marks what came late; nothing is in
    what is `complete`, as files are."""
    greatest: dict[str, int | None] | None = None if complete else {}

    def write(batch: DataFrame, number: int) -> None:
        known_as = Batch(query_id(spark, checkpoint), number)
        counts = append_batch(batch, streams, archive, known_as, greatest, enrichment())
        tally.archived.update(counts.archived)
        tally.dead_letters.update(counts.dead_letters)

    return records.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)


def _read(spark: SparkSession, log: LogPlace, streams: Sequence[Stream]) -> DataFrame:
    options = {**log.options, "stream": ",".join(stream.name for stream in streams), "consumer": CONSUMER}
    return spark.readStream.format(log_source.NAME).options(**options).schema(apart_schema(streams)).load()
