"""The events that a live query on Spark reads: from the log, or straight from files and Kafka, as one DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cepheid.history import log_source
from cepheid.history.log_source import log_schema
from cepheid.knowledge.tables import Lookup
from cepheid.language.checker import Checked
from cepheid.model.streams import Stream
from cepheid.spark.application import FileInput, TopicInput
from cepheid.spark.clocks import LOG_COLUMNS, METADATA
from cepheid.spark.jvm_records import events_in_jvm, why_not
from cepheid.spark.sources import read_file_stream, read_topic
from cepheid.spark.validate import declared_for_spark, events_of, validate

Input: TypeAlias = FileInput | TopicInput

#: For so many milliseconds of a stream's time, and its lateness, the ids of its events are remembered.
_REMEMBERED: Final = 600_000
#: Two thousand years, in microseconds; and a column that no attribute is.
_LATER: Final = 2_000 * 366 * 86_400_000_000
_SEEN: Final = "time seen"


class NotOnSpark(ValueError):
    """Something that the pipeline can't run."""


def read_events(
    spark: SparkSession,
    checked: Checked,
    streams: Mapping[str, Stream],
    log: Path | None,
    inputs: Sequence[Input],
) -> DataFrame:
    """The events of a query's streams: stream, id, time and what it reads of them."""
    wanted = {name: _as_read(checked, streams[name]) for name in checked.streams}
    kinds = {stream.id_kind for stream in wanted.values()}
    if len(kinds) > 1:
        raise NotOnSpark(
            f"the ids of {', '.join(wanted)} are numbers in one stream and text in another, and a DataFrame has one "
            "type a column: give the streams `id: string`, or the query `engine: service`"
        )
    elsewhere = {s.name for given in inputs for s in given.streams}
    logged = [stream for name, stream in wanted.items() if name not in elsewhere]
    if logged and log is None:
        raise NotOnSpark(
            f"{', '.join(s.name for s in logged)}: a live query reads its events from the log, files or Kafka; give "
            "the stream `source: {kind: files, path: ...}`, or the application a `service` with a log"
        )
    parts = [_from_input(spark, given, wanted) for given in inputs if wanted.keys() & {s.name for s in given.streams}]
    if logged:
        assert log is not None
        events = _from_log(spark, log, logged)
        if not parts:
            return events
        parts.append(events.where("NOT late AND NOT duplicate").drop(*LOG_COLUMNS))
    events = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    clocks = log_schema(list(wanted.values()))["time"].metadata[METADATA]
    return events.withMetadata("time", {METADATA: clocks})


def read_in_jvm(
    spark: SparkSession, checked: Checked, streams: Mapping[str, Stream], inputs: Sequence[Input]
) -> DataFrame:
    """The events of a query's only stream, straight from its topic, judged in the JVM: for Real-Time Mode."""
    (name,) = checked.streams
    given = next((g for g in inputs if isinstance(g, TopicInput) and name in {s.name for s in g.streams}), None)
    if given is None:
        raise NotOnSpark(
            f"Real-Time Mode reads a topic of Kafka, and '{name}' comes from elsewhere: give the stream `source: "
            "{kind: kafka, ...}`, in an application without a log of its own, or the query no `real_time`"
        )
    stream = declared_for_spark(streams[name])
    if reason := why_not(stream):
        raise NotOnSpark(f"Real-Time Mode can't read '{name}', because {reason}")
    records = read_topic(spark, given.brokers, given.topic)
    events = records.transform(events_in_jvm(stream, alone=len(given.streams) == 1))
    return events.withColumn("stream", sf.lit(name))


def _as_read(checked: Checked, stream: Stream) -> Stream:
    """The stream with the attributes that a query reads: others may have types that clash in a DataFrame."""
    names = {r.names[stream.name] for r in checked.attributes.values() if stream.name in r.names}
    for lookup in checked.lookups:
        if isinstance(lookup, Lookup) and lookup.stream == stream.name:
            names.update(lookup.key)
    declared = declared_for_spark(stream)
    attributes = {name: kind for name, kind in declared.attributes.items() if name in names}
    return replace(declared, attributes=attributes, spellings={})


def _from_log(spark: SparkSession, log: Path, streams: Sequence[Stream]) -> DataFrame:
    options = {"path": str(log), "stream": ",".join(stream.name for stream in streams)}
    if streams[0].id_kind == "string":
        options["ids"] = "string"
    return spark.readStream.format(log_source.NAME).options(**options).schema(log_schema(streams)).load()


def records_of(spark: SparkSession, given: Input) -> DataFrame:
    """What an input brings, judged: events and dead letters, as `validate` gives them."""
    if isinstance(given, FileInput):
        return read_file_stream(spark, given.path, given.format).transform(validate(given.streams, given.format))
    return read_topic(spark, given.brokers, given.topic).transform(validate(given.streams))


def _from_input(spark: SparkSession, given: Input, wanted: Mapping[str, Stream]) -> DataFrame:
    records = records_of(spark, given)
    return reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True),
        (_events(records, stream, wanted[stream.name]) for stream in given.streams if stream.name in wanted),
    )


def _events(records: DataFrame, stream: Stream, wanted: Stream) -> DataFrame:
    columns: Iterable[str] = ("id", "time", *wanted.attributes)
    events = records.transform(events_of(stream)).select(sf.lit(stream.name).alias("stream"), *columns)
    return _once(events, wanted)


def _once(events: DataFrame, stream: Stream) -> DataFrame:
    """The events of a stream without those whose id came before (rule E4), as far back as ids are remembered.

    Spark forgets an id, and drops what is older than that, when the streams' greatest times are past by the delay: more
    than the lateness, so that whatever it drops is late to the query anyway. Its watermark begins at 1970, and with it
    all before would be late: so it is shown times that are two thousand years later.
    """
    delay = -(-stream.lateness // 1000) + _REMEMBERED
    later = sf.timestamp_micros(sf.unix_micros("time") + sf.lit(_LATER))
    known = events.withColumn(_SEEN, later).withWatermark(f"`{_SEEN}`", f"{delay} milliseconds")
    return known.dropDuplicatesWithinWatermark(["id"]).drop(_SEEN)
