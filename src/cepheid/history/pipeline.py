"""The pipeline of an application on Spark, live: events into the archive, and through the queries into their sinks.

Each part is a streaming query of Spark with a checkpoint of its own, so one that fails, or is slow, holds up no other.
They run in scheduler pools by level, the archive in that of the lowest. A part goes on where it stopped: a query's
checkpoint bears its name and what it means, so a query that was changed begins anew.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from cepheid.app import Application
from cepheid.app.schema import ConsoleSink, DeltaSink, KafkaSink, SinkSection
from cepheid.history import log_source
from cepheid.history.archiving import Tally, archive_dead_letters, archive_log, archive_records
from cepheid.history.live_events import Input, NotOnSpark, read_events, read_in_jvm, records_of
from cepheid.history.sinks import Say, to_log, writer_to
from cepheid.model.streams import Stream
from cepheid.plan.real_time import hindrance
from cepheid.service.derived import derived_streams
from cepheid.service.intake import suppliers_address
from cepheid.service.log import extent
from cepheid.service.supervisor import PIPELINE
from cepheid.spark.application import FileInput, TopicInput, archive_of, file_inputs, topic_inputs
from cepheid.spark.archive import Archive, check_writable
from cepheid.spark.care import remove_before
from cepheid.spark.clocks import Live
from cepheid.spark.matching import match_checked
from cepheid.spark.pipeline import ArchiveRun, archive_file_stream, essence
from cepheid.spark.validate import declared_for_spark

#: How often Spark looks for new events.
_TRIGGER: Final = "500 milliseconds"
#: In Real-Time Mode events go through as they come, and how far they came is written down so often.
_REAL_TIME: Final = "30 seconds"
#: Seconds between two looks at what is older than the archive is to keep.
_AGEING: Final = 3600.0
#: A part that fails is started again, after so many seconds each time; the last again and again.
_PAUSES: Final = (1.0, 5.0, 25.0, 60.0)


@dataclass
class Part:
    """A streaming query of the pipeline: how it is started, and how it fares."""

    name: str
    level: str
    #: What it is to do, so that one that changes is known.
    meaning: str
    writer: Callable[[], DataStreamWriter]
    #: The log that it reads.
    log: Path | None = None
    real_time: bool = False
    query: StreamingQuery | None = None
    failures: int = 0
    again_at: float | None = None
    reason: str | None = None
    batch: int = -1
    events: int = 0


@dataclass(frozen=True)
class Status:
    """How far a part has come. `lag` is how many events of the log it has not read; None where it reads no log."""

    name: str
    level: str
    state: str
    events: int
    per_second: float
    lag: int | None
    reason: str | None


class Pipeline:
    """What of an application runs on Spark; a context manager."""

    def __init__(self, spark: SparkSession, app: Application, *, token: str | None = None, say: Say = print) -> None:
        log_source.register(spark)
        self.tally = Tally()
        self._spark, self._token, self._say = spark, token, say
        self._now = time.time_ns() // 1000
        self._aged = time.monotonic()
        self._parts: dict[str, Part] = {}
        self._files: list[ArchiveRun] = []
        try:
            self._take(app)
            self._files = self._archive_files()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends all parts. What is under way is done again by the next run."""
        for part in self._parts.values():
            if part.query is not None:
                part.query.stop()
        for run in self._files:
            run.stop()

    def apply(self, app: Application) -> dict[str, list[str]]:
        """Goes on with the application as it is now; parts that are as before notice nothing. What changed, by name."""
        before = {name: part.meaning for name, part in self._parts.items()}
        self._take(app)
        after = {name: part.meaning for name, part in self._parts.items()}
        return {
            "added": [name for name in after if name not in before],
            "removed": [name for name in before if name not in after],
            "changed": [name for name in after if name in before and before[name] != after[name]],
        }

    def tend(self) -> None:
        """Starts again what has failed, and lets the archive forget. To be called every now and then."""
        for part in self._parts.values():
            if part.query is not None and not part.query.isActive:
                self._fail(part, essence(str(part.query.exception())))
            elif part.again_at is not None and time.monotonic() >= part.again_at:
                self._start(part)
            elif part.failures and part.query is not None and part.query.lastProgress:
                part.failures = 0
        if self._log is not None:
            self._tell(self._log / PIPELINE)
        section = self._app.sections.archive
        if section is not None and section.retain is not None and time.monotonic() - self._aged >= _AGEING:
            self._aged = time.monotonic()
            streams = list(self._plan.graph.streams.values())
            remove_before(self._spark, archive_of(self._app), streams, time.time_ns() // 1000 - section.retain)

    @property
    def down(self) -> list[str]:
        """The parts that have failed, and are to be started again."""
        return [part.name for part in self._parts.values() if part.query is None]

    def process_all(self) -> None:
        """Waits until what is there now went through."""
        for query in [*(part.query for part in self._parts.values()), *(run.query for run in self._files)]:
            if query is not None:
                query.processAllAvailable()

    def status(self) -> list[Status]:
        """How far each part has come."""
        found = [_status(part) for part in self._parts.values()]
        level = self._app.graph.levels[-1]
        of_files = (Status("files", level, "running", run.books().read, 0.0, None, None) for run in self._files)
        return [*found, *of_files]

    def _tell(self, file: Path) -> None:
        """Says how far it is where the service's page of metrics looks."""
        said = {"time": time.time(), "parts": [asdict(status) for status in self.status()]}
        try:
            file.with_suffix(".new").write_text(json.dumps(said))
            file.with_suffix(".new").replace(file)
        except OSError:
            return  # a full disk is the intake's to tell

    def _take(self, app: Application) -> None:
        """Starts what an application has and does not run yet, and ends what it has no longer."""
        self._app, self._plan = app, app.plan()
        service = app.sections.service
        self._log = None if service is None or service.log is None else app.folder / service.log.path
        self._archive = None if app.sections.archive is None else archive_of(app)
        self._inputs: list[Input] = [*file_inputs(app), *topic_inputs(app)]
        wanted = {part.name: part for part in self._wanted()}
        for name, part in list(self._parts.items()):
            if name not in wanted or wanted[name].meaning != part.meaning:
                del self._parts[name]
                if part.query is not None:
                    part.query.stop()
        for name in wanted.keys() - self._parts.keys():
            self._start(wanted[name])
        self._parts = {name: self._parts.get(name, part) for name, part in wanted.items()}

    def _start(self, part: Part) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", part.level)
        part.again_at = None
        writer = part.writer()
        if part.real_time:
            part.query = writer.outputMode("update").trigger(realTime=_REAL_TIME).start()  # type: ignore[call-overload]
        else:
            part.query = writer.trigger(processingTime=_TRIGGER).start()

    def _fail(self, part: Part, reason: str) -> None:
        part.query, part.reason = None, reason
        pause = _PAUSES[min(part.failures, len(_PAUSES) - 1)]
        part.failures, part.again_at = part.failures + 1, time.monotonic() + pause
        self._say(f"{part.name} has failed, and is started again in {pause:.0f} s: {reason}")

    def _wanted(self) -> list[Part]:
        parts = []
        lowest = self._app.graph.levels[-1]
        streams = self._logged()
        if self._log is not None and self._archive is not None and streams:
            log, archive = self._log, self._archive
            check_writable(archive, streams)
            place, dead = self._checkpoint("log"), self._checkpoint("dead-letters")
            meaning = _digest(str(streams))
            parts += [
                Part(
                    "archive",
                    lowest,
                    meaning,
                    lambda: archive_log(self._spark, log, streams, archive, place, self.tally),
                    log,
                ),
                Part(
                    "dead letters",
                    lowest,
                    "",
                    lambda: archive_dead_letters(self._spark, log, archive, dead, self.tally),
                    log / "dead",
                ),
            ]
        if self._archive is not None:
            parts += [self._of_topic(given, self._archive) for given in self._inputs if isinstance(given, TopicInput)]
        for name in self._plan.queries:
            if self._plan.placement[name].engine == "spark":
                parts += self._of_query(name)
        return parts

    def _of_topic(self, given: TopicInput, archive: Archive) -> Part:
        check_writable(archive, given.streams)
        place = self._checkpoint(f"kafka-{given.topic}-{_digest(given.brokers)}")

        def writer() -> DataStreamWriter:
            records = records_of(self._spark, given)
            return archive_records(self._spark, records, given.streams, archive, place, self.tally)

        return Part(f"archive of {given.topic}", self._app.graph.levels[-1], _digest(repr(given)), writer)

    def _logged(self) -> list[Stream]:
        """The suppliers' streams that come through the log."""
        elsewhere = {stream.name for given in self._inputs for stream in given.streams}
        return [declared_for_spark(s) for name, s in self._plan.graph.streams.items() if name not in elsewhere]

    def _of_query(self, name: str) -> list[Part]:
        """A query's part, and one that brings its matches into the log if others read them."""
        checked, level, sink = self._plan.queries[name], self._plan.level(name), self._sink(name)
        place = self._checkpoint(f"query-{name}-{_digest(checked.normal_form)}")
        real_time = self._app.sections.queries[name].real_time
        if real_time and (reason := hindrance(checked)):
            raise NotOnSpark(f"query '{name}' can't run in Real-Time Mode. {reason}")

        def matches() -> DataStreamWriter:
            streams = {**self._plan.graph.streams, **derived_streams(self._plan)}
            if real_time:
                events = read_in_jvm(self._spark, checked, streams, self._inputs)
            else:
                events = read_events(self._spark, checked, streams, self._log, self._inputs)
            live = Live(real_time=real_time)
            found = events.transform(match_checked(checked, stream="stream", now=self._now, live=live))
            return writer_to(sink, found, self._say).option("checkpointLocation", place)

        meaning = _digest(repr((checked.normal_form, level, sink, real_time)))
        parts = [Part(name, level, meaning, matches, self._log, real_time)]
        if name in derived_streams(self._plan):
            if not isinstance(sink, DeltaSink):
                raise NotOnSpark(
                    f"query '{name}' is read by others, for whom its matches are taken from a Delta table: give it "
                    "`sink: {kind: delta, path: ...}`, or none and the application an archive"
                )
            table = sink.path
            address = suppliers_address(self._app)
            to = self._checkpoint(f"supply-{name}-{_digest(checked.normal_form)}")

            def supply() -> DataStreamWriter:
                found: DataFrame = self._spark.readStream.format("delta").load(table)
                return to_log(found, name, address, self._token).option("checkpointLocation", to)

            parts.append(Part(f"{name} to log", level, meaning, supply))
        return parts

    def _sink(self, name: str) -> SinkSection:
        section = self._app.sections.queries[name].sink
        if section is not None:
            return section
        if self._archive is None:
            return ConsoleSink(kind="console")
        return DeltaSink(kind="delta", path=matches_table(self._archive, name))

    def _checkpoint(self, name: str) -> str:
        if self._archive is not None:
            return self._archive.checkpoint(name)
        folder = self._app.folder / "data" if self._log is None else self._log.parent
        return str(folder / "checkpoints" / name)

    def _archive_files(self) -> list[ArchiveRun]:
        if self._archive is None:
            return []
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self._app.graph.levels[-1])
        return [
            archive_file_stream(self._spark, given.streams, given.path, given.format, self._archive)
            for given in self._inputs
            if isinstance(given, FileInput)
        ]


def needs_kafka(app: Application) -> bool:
    """Whether Spark reads or writes topics for an application, and so needs Kafka's jars."""
    return bool(topic_inputs(app)) or any(isinstance(q.sink, KafkaSink) for q in app.sections.queries.values())


def matches_table(archive: Archive, query: str) -> str:
    """Where the matches of a query are kept that has no sink of its own."""
    return archive.table(f"_matches/{query}")


def _status(part: Part) -> Status:
    progress: Any = None if part.query is None else part.query.lastProgress
    lag = None
    if progress is not None:
        if progress["batchId"] != part.batch:
            part.batch = progress["batchId"]
            part.events += progress["numInputRows"]
        reached = [found for source in progress["sources"] if (found := _offset(source["endOffset"])) is not None]
        lag = None if part.log is None or not reached else max(0, extent(part.log).end - min(reached))
    state = "running" if part.query is not None else "waiting"
    rate = 0.0 if progress is None else float(progress["processedRowsPerSecond"] or 0.0)
    return Status(part.name, part.level, state, part.events, rate, lag, part.reason)


def _offset(said: Any) -> int | None:
    """The offset of the log in what a source says of its progress; None if it is of another source."""
    try:
        return int((json.loads(said) if isinstance(said, str) else said)["offset"])
    except (TypeError, ValueError, KeyError):
        return None


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
