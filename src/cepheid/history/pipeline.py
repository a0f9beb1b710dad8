"""The pipeline of an application on Spark, live: events into the archive, and through the queries into their sinks.

Each part is a streaming query of Spark with a checkpoint of its own, so one that fails, or is slow, holds up no other.
They run in scheduler pools by level, the archive in that of the lowest. A part goes on where it stopped: a query's
checkpoint bears its name and what it means, so a query that was changed begins anew.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from cepheid.app import Application
from cepheid.app.following import Following
from cepheid.app.schema import ConsoleSink, DeltaSink, SinkSection
from cepheid.history import log_source
from cepheid.history.archiving import (
    CONSUMER,
    Tally,
    archive_dead_letters,
    archive_log,
    archive_records,
    commit_archived,
    offset_of,
)
from cepheid.history.earlier import Earlier, needed
from cepheid.history.judging import Judged, Judging
from cepheid.history.live_events import (
    ARRIVAL,
    Input,
    NotOnSpark,
    check_readable,
    check_readable_in_jvm,
    frame_input,
    read_events,
    read_in_jvm,
    records_of,
)
from cepheid.history.log_place import LogPlace, place_of
from cepheid.history.reached import LOG, ArchiveBehind, check_begun
from cepheid.history.registered import register, registered_at, seen_live
from cepheid.history.restore import restore
from cepheid.history.sinks import Say, to_log, writer_to
from cepheid.history.upkeep import Charge, Upkeep
from cepheid.language.checker import Checked
from cepheid.model.streams import Stream
from cepheid.plan.compile import tables
from cepheid.plan.planner import Plan
from cepheid.plan.real_time import hindrance
from cepheid.service.derived import derived_streams, streams_of
from cepheid.service.intake import suppliers_address
from cepheid.service.log import forget_consumers, log_commit, log_committed
from cepheid.service.metrics import pipeline_page
from cepheid.service.supervisor import PIPELINE
from cepheid.spark.application import FileInput, TopicInput, archive_of, file_inputs, topic_inputs
from cepheid.spark.archive import Archive, check_writable, matches_of
from cepheid.spark.clocks import Live
from cepheid.spark.enrichment import Enrichment
from cepheid.spark.knowledge import STRANGERS, count_strangers
from cepheid.spark.matching import match_checked
from cepheid.spark.moved import follow_move
from cepheid.spark.pipeline import check_run, input_checkpoint
from cepheid.spark.recovered import CAME
from cepheid.spark.sources import check_input
from cepheid.spark.trouble import explained, failure_of, story_of
from cepheid.spark.validate import declared_for_spark

#: Where a pipeline without a log writes its metrics, in the application's folder: for a collector of text files.
METRICS: Final = Path("data", "pipeline.prom")
#: How the names of queries begin among those whom the log waits for.
_QUERY: Final = "query-"
#: How often Spark looks for new events.
_TRIGGER: Final = "500 milliseconds"
#: In Real-Time Mode events go through as they come, and how far they came is written down so often. That holds them up
#: for some 0.3 s each time, so that it is below one in a hundred events; what came since is done again after a crash.
REAL_TIME: Final = "60 seconds"
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
    #: The log that it reads, and its name among those whom the log waits for.
    log: LogPlace | None = None
    consumer: str | None = None
    #: Where the log ended when the part was started, or failed and was started again: what came before was missed.
    missed: int | None = None
    #: The offset that it began with, if the log had forgotten that.
    begins: int | None = None
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
    """How far a part has come. `lag` is how many events of the log or topic it has not read, None if nobody can tell.

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


@dataclass(frozen=True)
class Setting:
    """What an application says of its pipeline."""

    app: Application
    plan: Plan
    log: LogPlace | None
    archive: Archive | None
    inputs: Sequence[Input]

    @staticmethod
    def of(app: Application, plan: Plan, log: LogPlace | None, frames: Mapping[str, DataFrame]) -> Setting:
        given: list[Input] = [frame_input(app.graph.streams, name, frame) for name, frame in frames.items()]
        others: list[FileInput | TopicInput] = [*file_inputs(app), *topic_inputs(app)]
        for other in others:
            streams = tuple(stream for stream in other.streams if stream.name not in frames)
            given += [replace(other, streams=streams)] if streams else []
        archive = None if app.sections.archive is None else archive_of(app)
        return Setting(app, plan, log, archive, given)

    @property
    def lowest(self) -> str:
        """The level of what archives."""
        return self.app.graph.levels[-1]

    def is_here(self, query: str) -> bool:
        """Whether a query runs on Spark."""
        return self.plan.placement[query].engine == "spark"

    def logged(self) -> list[Stream]:
        """The streams that come through the log: suppliers', and what is derived and read by queries (rule G7)."""
        elsewhere = {stream.name for given in self.inputs for stream in given.streams}
        return [declared_for_spark(s) for s in streams_of(self.plan) if s.name not in elsewhere]

    def sink(self, query: str) -> SinkSection:
        """Where the matches of a query go."""
        section = self.app.sections.queries[query].sink
        if section is not None:
            return section
        if self.archive is None:
            return ConsoleSink(kind="console")
        return DeltaSink(kind="delta", path=matches_table(self.archive, query))

    def charge(self) -> Charge | None:
        """What is looked after; a table elsewhere that a sink names is its owner's. None without an archive."""
        section = self.app.sections.archive
        if section is None or self.archive is None:
            return None
        own = [name for name in self.plan.queries if self.is_here(name)]
        own = [name for name in own if self.app.sections.queries[name].sink is None]
        return Charge(self.archive, streams_of(self.plan), own, section.retain, self.lowest)

    def checkpoint(self, name: str) -> str:
        """Where a part remembers how far it has come."""
        if self.archive is not None:
            return self.archive.checkpoint(name)
        folder = self.app.folder / "data" if self.log is None else self.log.folder.parent
        return str(folder / "checkpoints" / name)


class Pipeline:
    """What of an application runs on Spark; a context manager."""

    def __init__(
        self,
        spark: SparkSession,
        app: Application,
        *,
        token: str | None = None,
        say: Say = print,
        frames: Mapping[str, DataFrame] | None = None,
    ) -> None:
        """`frames` has streams, by name, that come from streaming DataFrames: id, time, and attributes."""
        log_source.register(spark)
        self._frames = frames or {}
        self.tally = Tally()
        self._spark, self._token, self._say = spark, token, say
        self._upkeep = Upkeep(spark, say)
        #: What was last said of what the service needs, and when it is looked for again.
        self._restored: str | None = None
        self._restore_at = 0.0
        self._parts: dict[str, Part] = {}
        self._following = Following(enriching=True)
        #: How queries with PATHs are judged by the streams that run.
        self._judged: dict[str, Judged] = {}
        try:
            self._take(app)
            self._following.start()
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
        self._upkeep.stop()
        for part in self._parts.values():
            if part.query is not None:
                part.query.stop()

    def apply(self, app: Application) -> dict[str, list[str]]:
        """Goes on with the application as it is now; parts that are as before notice nothing. What changed, by name.

        Raises what prevents it: NotOnSpark, Rejected and others, each a ValueError, OSError or one of Cepheid's own.
        Then all is as it was.
        """
        before = {name: part.meaning for name, part in self._parts.items()}
        self._take(app)
        after = {name: part.meaning for name, part in self._parts.items()}
        return {
            "added": [name for name in after if name not in before],
            "removed": [name for name in before if name not in after],
            "changed": [name for name in after if name in before and before[name] != after[name]],
        }

    def tend(self) -> None:
        """Takes up what is known now, starts again what has failed, and has the archive looked after.

        That is done in a thread of its own: large files are made of many small ones, and what is too old is removed.
        To be called every now and then.
        """
        self._learn()
        for part in self._parts.values():
            self._tend_part(part)
        setting = self._setting
        self._commit()
        self._tell()
        if setting.log is not None and setting.log.folder.is_dir():  # else the service is elsewhere
            self._restore(setting.log.folder)
        if (charge := setting.charge()) is not None:
            self._upkeep.tend(charge)

    def tidy(self) -> None:
        """Makes large files of small ones where the archive has many, now, and waits for it."""
        if (charge := self._setting.charge()) is not None:
            self._upkeep.tidy(charge)

    def _tend_part(self, part: Part) -> None:
        if part.query is not None and not part.query.isActive:
            if part.is_finishing and part.query.exception() is None:
                self._start(part)
            else:
                self._fail(part, failure_of(part.query))
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
                raise PartFailed(f"{part.name} has failed: {explained(story_of(error), part.checkpoint)}") from error
        self._commit()

    def status(self) -> list[Status]:
        """How far each part has come."""
        return [_status(part) for part in self._parts.values()]

    def _commit(self) -> None:
        """Tells the log how far those have come whom it waits for."""
        for part in self._parts.values():
            if part.log is not None and part.consumer is not None and part.query is not None:
                try:
                    commit_archived(part.query, part.log, part.consumer)
                except OSError:
                    return  # a full disk, or nobody there; it is tried again

    def _restore(self, log: Path) -> None:
        """Brings back what the service needs and its log has forgotten."""
        if self._setting.archive is None or time.monotonic() < self._restore_at:
            return
        try:
            said = restore(self._spark, log, self._setting.archive, self._setting.logged(), self._needed())
        # A full disk, an archive that is gone or an older copy, a damaged table.
        except (OSError, ValueError, ArchiveBehind, Py4JError, PySparkException) as error:
            said = f"what the service needs of the archive can't be brought back yet: {explained(str(error))}"
            self._restore_at = time.monotonic() + _PAUSES[-1]
        if said is not None and said != self._restored:
            self._say(said)
        self._restored = said

    def _needed(self) -> list[int]:
        """What queries that began before the log need of that next."""
        found = []
        for part in self._parts.values():
            if part.begins is not None and part.consumer is not None and part.log is not None:
                offset = needed(part.log, part.begins, part.consumer)
                part.begins = None if offset is None else part.begins
                found += [] if offset is None else [offset]
        return found

    def _tell(self) -> None:
        """Says how far it is where the service's page of metrics looks; without a log, as such a page."""
        parts = [asdict(status) for status in self.status()]
        log = self._setting.log
        if log is not None and log.folder.is_dir():
            file, said = log.folder / PIPELINE, json.dumps({"time": time.time(), "parts": parts})
        else:
            file, said = self._setting.app.folder / METRICS, pipeline_page(parts)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.with_suffix(".new").write_text(said)
            file.with_suffix(".new").replace(file)
        except OSError:
            return  # a full disk is the intake's to tell

    def _take(self, app: Application) -> None:
        """Starts what an application has and does not run yet, and ends what it has no longer."""
        planned = self._following.planned(app)
        setting = Setting.of(app, planned.plan, place_of(self._spark, app, self._token), self._frames)
        wanted = {part.name: part for part in self._wanted(setting)}
        follow_move(setting.checkpoint(""))
        self._following.adopt(planned)
        self._setting = setting
        for name, part in list(self._parts.items()):
            if name not in wanted or wanted[name].meaning != part.meaning:
                del self._parts[name]
                if part.query is not None:
                    part.query.stop()
        if setting.log is not None and setting.log.folder.is_dir():
            forget_consumers(setting.log.folder, _QUERY, {part.consumer for part in wanted.values() if part.consumer})
        for name, part in wanted.items():  # the archive first, which says with what it begins
            if name not in self._parts:
                self._start(part)
        self._parts = {name: self._parts.get(name, part) for name, part in wanted.items()}

    def _start(self, part: Part) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", part.level)
        part.again_at = None
        try:
            _register(part)
            if part.missed is None:
                part.missed = _log_end(part)
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
        except (OSError, ValueError, ArchiveBehind, Py4JJavaError, PySparkException) as error:
            self._fail(part, str(error))

    def _judge(self, part: Part) -> bool:
        """Decides by what a query's batches are judged; whether it is only the one that was begun."""
        if part.judging is None:
            return False
        semantic = self._following.plan.semantic[part.name]
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
        setting = self._setting
        renewed = self._following.take_up([name for name in setting.plan.queries if setting.is_here(name)])
        for name, renewal in renewed.items():
            part = self._parts.get(name)
            if part is not None and part.query is not None and renewal.is_another:
                part.query.stop()
                self._start(part)
                self._say(f"{name} goes on by version {renewal.semantic.version} of the knowledge")

    def _fail(self, part: Part, story: str) -> None:
        part.query, part.missed, part.reason = None, None, (reason := explained(story, part.checkpoint))
        pause = _PAUSES[min(part.failures, len(_PAUSES) - 1)]
        part.failures, part.again_at = part.failures + 1, time.monotonic() + pause
        self._say(f"{part.name} has failed, and is started again in {pause:.0f} s: {reason}")

    def _wanted(self, setting: Setting) -> list[Part]:
        """The parts of an application. Raises what is known to prevent one of them, before anything is started."""
        parts = []
        for given in setting.inputs:
            if isinstance(given, FileInput):
                check_input(given.path, given.format)
        streams, log, archive = setting.logged(), setting.log, setting.archive
        if log is not None and archive is not None and streams:
            check_writable(archive, streams)
            place, dead = setting.checkpoint(LOG), setting.checkpoint("dead-letters")
            enrichment = self._enrichment(setting)
            meaning = _digest(str(streams) + str(setting.app.enriched or ""))

            def archiving() -> DataStreamWriter:
                check_begun(self._spark, archive, log.folder, streams)
                return archive_log(self._spark, log, streams, archive, place, self.tally, enrichment)

            parts += [
                Part(
                    "archive",
                    setting.lowest,
                    meaning,
                    archiving,
                    place,
                    log,
                    CONSUMER,
                ),
                Part(
                    "dead letters",
                    setting.lowest,
                    "",
                    lambda: archive_dead_letters(self._spark, log, archive, dead, self.tally),
                    dead,
                    log.dead_letters,
                ),
            ]
        if archive is not None:
            parts += [self._of_input(setting, given, archive) for given in setting.inputs]
        for name in setting.plan.queries:
            if setting.is_here(name):
                parts += self._of_query(setting, name)
        return parts

    def _of_input(self, setting: Setting, given: Input, archive: Archive) -> Part:
        """What archives the files or the topic that Spark reads itself."""
        if isinstance(given, FileInput):
            check_run(given.streams, given.path, given.format, archive)
            name, place = given.path, input_checkpoint(archive, given.path, given.format)
        else:
            check_writable(archive, given.streams)
            if isinstance(given, TopicInput):
                name, place = given.topic, setting.checkpoint(f"kafka-{given.topic}-{_digest(given.brokers)}")
            else:
                name, place = given.streams[0].name, setting.checkpoint(f"frame-{given.streams[0].name}")

        def writer() -> DataStreamWriter:
            records = records_of(self._spark, given)
            complete = not isinstance(given, TopicInput)
            return archive_records(
                self._spark,
                records,
                given.streams,
                archive,
                place,
                self.tally,
                complete=complete,
                enrichment=enrichment,
            )

        enrichment = self._enrichment(setting)
        own = {s.name: found for s in given.streams if (found := setting.app.enriched.get(s.name))}
        return Part(f"archive of {name}", setting.lowest, _digest(repr(given) + str(own or "")), writer, place)

    def _enrichment(self, setting: Setting) -> Enrichment:
        """What the streams of an application get from what is known when they are archived."""
        return Enrichment(setting.app.enriched, lambda: self._following.known)

    def _of_query(self, setting: Setting, name: str) -> list[Part]:
        """A query's part, and one that brings its matches into the log if others read them."""
        plan = setting.plan
        checked, level, sink = plan.queries[name], plan.level(name), setting.sink(name)
        check_paths(name, checked)
        own = f"{_QUERY}{name}-{_digest(checked.normal_form)}"
        consumer = re.sub(r"[^\w.-]", "_", own, flags=re.ASCII)[-100:]
        place = setting.checkpoint(own)
        judging = None
        if name in plan.semantic:
            judging = Judging(setting.app.folder / "data" / "knowledge" / "judged" / f"{own}.json", place)
        real_time = setting.app.sections.queries[name].real_time
        if real_time and (reason := hindrance(checked)):
            raise NotOnSpark(f"query '{name}' can't run in Real-Time Mode. {reason}")
        streams = {**plan.graph.streams, **derived_streams(plan)}
        if real_time:
            check_readable_in_jvm(checked, streams, setting.inputs)
            read = {name: streams[name] for name in checked.streams}
        else:
            read, _ = check_readable(checked, streams, setting.log, setting.inputs)
        is_logged = bool({stream.name for stream in setting.logged()} & set(checked.streams))

        def matches() -> DataStreamWriter:
            judged = self._judged.get(name) if judging is not None else None
            now = registered_at(self._spark, place)
            asked = seen_live(checked if judged is None else judged.checked, now)
            begins = None
            if is_logged and setting.log is not None:
                earlier = Earlier(self._spark, setting.log, setting.archive, setting.logged())
                begins = part.begins = earlier.begins(name, asked, now, place, self._say)
                if begins is not None and (offset := needed(setting.log, begins, consumer)) is not None:
                    earlier.bring_back(offset, self._say)
            register(self._spark, place, now)
            version = None if judged is None else judged.version
            if real_time:
                events = read_in_jvm(self._spark, asked, streams, setting.inputs)
            else:
                events = read_events(
                    self._spark, asked, streams, setting.log, setting.inputs, consumer, part.missed or 0, begins
                )
                events = events.transform(count_strangers(asked, "stream"))
            arrival = ARRIVAL if ARRIVAL in events.columns else None
            missed = part.missed if CAME in events.columns else None
            live = Live(real_time=real_time, arrival=arrival, missed=missed)
            found = events.transform(match_checked(asked, stream="stream", now=now, live=live, version=version))
            return writer_to(sink, found, self._say).option("checkpointLocation", place)

        # What it reads it reads from elsewhere, or otherwise, as soon as the application says so.
        given = [replace(i, streams=tuple(s for s in i.streams if s.name in read)) for i in setting.inputs]
        source = sorted(read.items()), [each for each in given if each.streams]
        meaning = _digest(repr((checked.normal_form, level, sink, real_time, source)))
        is_timed = any(streams[stream].idle is not None for stream in checked.streams)
        part = Part(name, level, meaning, matches, place, judging=judging, is_timed=is_timed, real_time=real_time)
        if is_logged:
            part.log, part.consumer = setting.log, consumer
        parts = [part]
        if name in derived_streams(plan):
            if not isinstance(sink, DeltaSink):
                raise NotOnSpark(
                    f"query '{name}' is read by others, for whom its matches are taken from a Delta table: give it "
                    "`sink: {kind: delta, path: ...}`, or none and the application an archive"
                )
            table = sink.path
            address = suppliers_address(setting.app)
            to = setting.checkpoint(f"supply-{name}-{_digest(checked.normal_form)}")

            def supply() -> DataStreamWriter:
                found: DataFrame = self._spark.readStream.format("delta").load(table)
                return to_log(found, name, address, self._token).option("checkpointLocation", to)

            parts.append(Part(f"{name} to log", level, meaning, supply, to))
        return parts


def needs_kafka(app: Application) -> bool:
    """Whether Spark reads or writes topics for an application, and so needs Kafka's jars."""
    return bool(app.topics)


def matches_table(archive: Archive, query: str) -> str:
    """Where the matches of a query are kept that has no sink of its own."""
    return archive.table(matches_of(query))


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
        behind = [lag for source in progress["sources"] if (lag := _lag(part, source)) is not None]
        lag = sum(behind) if behind else None
    state = "running" if part.query is not None else "waiting"
    rate = 0.0 if progress is None else float(progress["processedRowsPerSecond"] or 0.0)
    return Status(part.name, part.level, state, part.events, rate, lag, part.reason, part.unknown)


def _register(part: Part) -> None:
    """Has the log wait for a part that has not said yet how far it is."""
    if part.log is None or part.consumer is None or not part.log.folder.exists():
        return
    if log_committed(part.log.folder, part.consumer) is None:
        log_commit(part.log.folder, part.consumer, 0)


def _log_end(part: Part) -> int:
    """Where the log of a part ends; 0 if there is none yet."""
    log = part.log
    if log is None or (log.address is None and not (log.folder.is_dir() and any(log.folder.iterdir()))):
        return 0
    return log.end()


def _lag(part: Part, source: Mapping[str, Any]) -> int | None:
    """How many events of a source a part has not read; None if nobody can tell, as of files."""
    reached = offset_of(source["endOffset"])
    if reached is not None and part.log is not None:
        try:
            return max(0, part.log.end() - reached)
        except OSError:
            return None  # its service is away
    if source["description"].startswith("KafkaV2"):
        latest, read = _by_partition(source["latestOffset"]), _by_partition(source["endOffset"])
        if latest:
            return sum(max(0, offset - read.get(partition, 0)) for partition, offset in latest.items())
    return None


def _by_partition(said: str) -> dict[tuple[str, str], int]:
    """The offsets of topics that a source of Kafka has said; none if it has not."""
    try:
        topics = json.loads(said) or {}
    except ValueError:
        return {}
    return {(topic, partition): int(n) for topic, offsets in topics.items() for partition, n in offsets.items()}


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
