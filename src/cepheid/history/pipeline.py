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

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from cepheid.app import Application
from cepheid.app.following import Following
from cepheid.app.schema import ConsoleSink, DeltaSink, KafkaSink, SinkSection
from cepheid.history import log_source
from cepheid.history.archiving import (
    Tally,
    archive_dead_letters,
    archive_log,
    archive_records,
    commit_archived,
    offset_of,
)
from cepheid.history.judging import Judged, Judging
from cepheid.history.live_events import Input, NotOnSpark, read_events, read_in_jvm, records_of
from cepheid.history.restore import restore
from cepheid.history.sinks import Say, to_log, writer_to
from cepheid.language.checker import Checked
from cepheid.model.streams import Stream
from cepheid.plan.compile import tables
from cepheid.plan.real_time import hindrance
from cepheid.service.derived import derived_streams, streams_of
from cepheid.service.intake import suppliers_address
from cepheid.service.log import extent
from cepheid.service.supervisor import PIPELINE
from cepheid.spark.application import FileInput, TopicInput, archive_of, file_inputs, topic_inputs
from cepheid.spark.archive import Archive, check_writable
from cepheid.spark.care import remove_before
from cepheid.spark.clocks import Live
from cepheid.spark.knowledge import STRANGERS, count_strangers
from cepheid.spark.matching import match_checked
from cepheid.spark.pipeline import ArchiveRun, archive_file_stream
from cepheid.spark.sources import BrokerAway
from cepheid.spark.trouble import explained
from cepheid.spark.validate import declared_for_spark

#: How often Spark looks for new events.
_TRIGGER: Final = "500 milliseconds"
#: In Real-Time Mode events go through as they come, and how far they came is written down so often. That holds them up
#: for some 0.3 s each time, so that it is below one in a hundred events; what came since is done again after a crash.
REAL_TIME: Final = "60 seconds"
#: Seconds between two looks at what is older than the archive is to keep.
_AGEING: Final = 3600.0
#: Seconds between two looks at a batch that is waited for.
_LOOK: Final = 0.1
#: Seconds that a batch which was begun before may take when someone waits for it.
_FINISHING: Final = 600
#: A part that fails is started again, after so many seconds each time; the last again and again.
_PAUSES: Final = (1.0, 5.0, 25.0, 60.0)


class PartFailed(RuntimeError):
    """A part of the pipeline could not do its work."""


@dataclass
class Part:
    """A streaming query of the pipeline: how it is started, and how it fares."""

    name: str
    level: str
    #: What it is to do, so that one that changes is known.
    meaning: str
    writer: Callable[[], DataStreamWriter]
    checkpoint: str
    #: The log that it reads.
    log: Path | None = None
    #: Where it is kept what its batches are judged by, if it has PATHs; and whether one is done by what is kept there.
    judging: Judging | None = None
    is_finishing: bool = False
    #: Whether Spark calls it as time passes, be there events or not.
    is_timed: bool = False
    real_time: bool = False
    query: StreamingQuery | None = None
    failures: int = 0
    again_at: float | None = None
    reason: str | None = None
    #: When the last batch began that is counted in what follows.
    counted: str = ""
    events: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class Status:
    """How far a part has come. `lag` is how many events of the log it has not read; None where it reads no log.

    `unknown` is how many of its events had a value of which the knowledge says nothing.
    """

    name: str
    level: str
    state: str
    events: int
    per_second: float
    lag: int | None
    reason: str | None
    unknown: int = 0


class Pipeline:
    """What of an application runs on Spark; a context manager."""

    def __init__(self, spark: SparkSession, app: Application, *, token: str | None = None, say: Say = print) -> None:
        log_source.register(spark)
        self.tally = Tally()
        self._spark, self._token, self._say = spark, token, say
        self._now = time.time_ns() // 1000
        self._aged = time.monotonic()
        #: What was last said of what the service needs.
        self._restored: str | None = None
        self._parts: dict[str, Part] = {}
        self._following = Following()
        #: How queries with PATHs are judged by the streams that run.
        self._judged: dict[str, Judged] = {}
        self._files: list[ArchiveRun] = []
        try:
            self._take(app)
            self._following.start()
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
        self._following.close()
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
        """Takes up what is known now, starts again what has failed, and lets the archive forget.

        To be called every now and then.
        """
        self._learn()
        for part in self._parts.values():
            self._tend_part(part)
        if self._log is not None:
            self._commit(self._log)
            self._tell(self._log / PIPELINE)
            self._restore(self._log)
        section = self._app.sections.archive
        if section is not None and section.retain is not None and time.monotonic() - self._aged >= _AGEING:
            self._aged = time.monotonic()
            remove_before(
                self._spark, archive_of(self._app), streams_of(self._plan), time.time_ns() // 1000 - section.retain
            )

    def _tend_part(self, part: Part) -> None:
        if part.query is not None and not part.query.isActive:
            if part.is_finishing and part.query.exception() is None:
                self._start(part)
            else:
                self._fail(part, str(part.query.exception()))
        elif part.again_at is not None and time.monotonic() >= part.again_at:
            self._start(part)
        elif part.failures and part.query is not None and part.query.lastProgress:
            part.failures = 0

    @property
    def down(self) -> list[str]:
        """The parts that have failed, and are to be started again."""
        return [part.name for part in self._parts.values() if part.query is None]

    def process_all(self) -> None:
        """Waits until what is there now went through; PartFailed if it does not."""
        for part in self._parts.values():
            if part.is_finishing and part.query is not None and part.query.awaitTermination(_FINISHING):
                self._tend_part(part)
        for part in self._parts.values():
            if part.query is None:
                raise PartFailed(f"{part.name} has failed: {part.reason}")
            try:
                if part.is_timed:
                    _await_quiet(part.query)
                else:
                    part.query.processAllAvailable()
            except StreamingQueryException as error:
                raise PartFailed(f"{part.name} has failed: {explained(str(error), part.checkpoint)}") from error
        for run in self._files:
            run.query.processAllAvailable()
        if self._log is not None:
            self._commit(self._log)

    def status(self) -> list[Status]:
        """How far each part has come."""
        found = [_status(part) for part in self._parts.values()]
        level = self._app.graph.levels[-1]
        of_files = (Status("files", level, "running", run.books().read, 0.0, None, None) for run in self._files)
        return [*found, *of_files]

    def _commit(self, log: Path) -> None:
        archive = self._parts.get("archive")
        if archive is not None and archive.query is not None:
            try:
                commit_archived(archive.query, log)
            except OSError:
                return  # a full disk; it is tried again

    def _restore(self, log: Path) -> None:
        """Brings back what the service needs and its log has forgotten."""
        if self._archive is None:
            return
        try:
            said = restore(self._spark, log, self._archive, self._logged())
        except OSError as error:  # a full disk; it is tried again
            said = f"what the service needs of the archive can't be brought back: {error}"
        if said is not None and said != self._restored:
            self._say(said)
        self._restored = said

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
        self._app, self._plan = app, self._following.plan_of(app)
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
        try:
            part.is_finishing = self._judge(part)
            writer = part.writer()
            if part.real_time:
                writer = writer.outputMode("update").trigger(realTime=REAL_TIME)  # type: ignore[call-overload]
            elif part.is_finishing:
                # Deprecated, but nothing else does the batch that was begun, and no other.
                writer = writer.trigger(once=True)
            else:
                writer = writer.trigger(processingTime=_TRIGGER)
            part.query = writer.start()
        except (BrokerAway, Py4JJavaError, PySparkException) as error:
            self._fail(part, str(error))

    def _judge(self, part: Part) -> bool:
        """Decides by what a query's batches are judged; whether it is only the one that was begun."""
        if part.judging is None:
            return False
        semantic = self._plan.semantic[part.name]
        now, kept = Judged(semantic.checked, semantic.version), part.judging.kept()
        # In Real-Time Mode nobody knows how far a batch had come: what is done again is done by what is known now.
        is_other = kept is not None and kept.version != now.version and not part.real_time
        if kept is not None and is_other and part.judging.is_unfinished(self._spark):
            self._judged[part.name] = kept
            return True
        part.judging.keep(now)
        self._judged[part.name] = now
        return False

    def _learn(self) -> None:
        """Has streams go on by what is known now, those of which a change makes something else."""
        renewed = self._following.take_up([name for name in self._plan.queries if self._is_here(name)])
        self._plan = self._following.plan
        for name, renewal in renewed.items():
            part = self._parts.get(name)
            if part is not None and part.query is not None and renewal.is_another:
                part.query.stop()
                self._start(part)
                self._say(f"{name} goes on by version {renewal.semantic.version} of the knowledge")

    def _is_here(self, name: str) -> bool:
        return self._plan.placement[name].engine == "spark"

    def _fail(self, part: Part, story: str) -> None:
        part.query, part.reason = None, (reason := explained(story, part.checkpoint))
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
                    place,
                    log,
                ),
                Part(
                    "dead letters",
                    lowest,
                    "",
                    lambda: archive_dead_letters(self._spark, log, archive, dead, self.tally),
                    dead,
                    log / "dead",
                ),
            ]
        if self._archive is not None:
            parts += [self._of_topic(given, self._archive) for given in self._inputs if isinstance(given, TopicInput)]
        for name in self._plan.queries:
            if self._is_here(name):
                parts += self._of_query(name)
        return parts

    def _of_topic(self, given: TopicInput, archive: Archive) -> Part:
        check_writable(archive, given.streams)
        place = self._checkpoint(f"kafka-{given.topic}-{_digest(given.brokers)}")

        def writer() -> DataStreamWriter:
            records = records_of(self._spark, given)
            return archive_records(self._spark, records, given.streams, archive, place, self.tally)

        return Part(f"archive of {given.topic}", self._app.graph.levels[-1], _digest(repr(given)), writer, place)

    def _logged(self) -> list[Stream]:
        """The streams that come through the log: suppliers', and what is derived and read by queries (rule G7)."""
        elsewhere = {stream.name for given in self._inputs for stream in given.streams}
        return [declared_for_spark(s) for s in streams_of(self._plan) if s.name not in elsewhere]

    def _of_query(self, name: str) -> list[Part]:
        """A query's part, and one that brings its matches into the log if others read them."""
        checked, level, sink = self._plan.queries[name], self._plan.level(name), self._sink(name)
        check_paths(name, checked)
        own = f"query-{name}-{_digest(checked.normal_form)}"
        place = self._checkpoint(own)
        judging = None
        if name in self._plan.semantic:
            judging = Judging(self._app.folder / "data" / "knowledge" / "judged" / f"{own}.json", place)
        real_time = self._app.sections.queries[name].real_time
        if real_time and (reason := hindrance(checked)):
            raise NotOnSpark(f"query '{name}' can't run in Real-Time Mode. {reason}")
        streams = {**self._plan.graph.streams, **derived_streams(self._plan)}

        def matches() -> DataStreamWriter:
            judged = self._judged.get(name) if judging is not None else None
            asked = checked if judged is None else judged.checked
            version = None if judged is None else judged.version
            if real_time:
                events = read_in_jvm(self._spark, asked, streams, self._inputs)
            else:
                events = read_events(self._spark, asked, streams, self._log, self._inputs)
                events = events.transform(count_strangers(asked, "stream"))
            live = Live(real_time=real_time)
            found = events.transform(match_checked(asked, stream="stream", now=self._now, live=live, version=version))
            return writer_to(sink, found, self._say).option("checkpointLocation", place)

        meaning = _digest(repr((checked.normal_form, level, sink, real_time)))
        is_timed = any(streams[stream].idle is not None for stream in checked.streams)
        part = Part(name, level, meaning, matches, place, self._log, judging, real_time=real_time, is_timed=is_timed)
        parts = [part]
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

            parts.append(Part(f"{name} to log", level, meaning, supply, to))
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


def _await_quiet(query: StreamingQuery) -> None:
    """Waits until a batch finds nothing new. With timers there is always another: processAllAvailable has no end."""
    before: int | None = None
    while query.isActive:
        progress: Any = query.lastProgress
        if progress is not None and before is None:
            before = progress["batchId"]
        elif progress is not None and progress["batchId"] > before and progress["numInputRows"] == 0:
            return
        time.sleep(_LOOK)
    if (failure := query.exception()) is not None:
        raise failure


def check_paths(name: str, checked: Checked) -> None:
    """NotOnSpark if a query has PATHs that a stream can't judge."""
    if checked.query.path is not None:
        raise NotOnSpark(
            f"query '{name}' has a PATH, and the application no knowledge: add `knowledge: {{sources: [...]}}`"
        )
    if not all(table.complete for table in tables(checked)):
        raise NotOnSpark(
            f"query '{name}' has a PATH that is not indexed, and on a stream of Spark only what is can be judged; "
            "see `cepheid explain`, and `cepheid match --follow` for the other modes of `knowledge: {semantics: ...}`"
        )


def _status(part: Part) -> Status:
    progress: Any = None if part.query is None else part.query.lastProgress
    lag = None
    if progress is not None:
        _count(part)
        reached = [found for source in progress["sources"] if (found := offset_of(source["endOffset"])) is not None]
        lag = None if part.log is None or not reached else max(0, extent(part.log).end - min(reached))
    state = "running" if part.query is not None else "waiting"
    rate = 0.0 if progress is None else float(progress["processedRowsPerSecond"] or 0.0)
    return Status(part.name, part.level, state, part.events, rate, lag, part.reason, part.unknown)


def _count(part: Part) -> None:
    """Adds up what batches did that have ended since the last time; Spark remembers a hundred of them."""
    progress: Any
    for progress in [] if part.query is None else part.query.recentProgress:
        if progress["timestamp"] > part.counted:
            part.counted = progress["timestamp"]
            part.events += progress["numInputRows"]
            observed = progress["observedMetrics"].get(STRANGERS)
            part.unknown += 0 if observed is None else int(observed[STRANGERS])


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
