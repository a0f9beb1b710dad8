"""Runs campaigns (trials.py) on the real intake, engine, Spark and archive, and says what came of each trial."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from cepheid.app import Application, load
from cepheid.history import log_source
from cepheid.history.answer import query
from cepheid.history.archiving import CONSUMER, Tally, archive_log, commit_archived, offset_of
from cepheid.history.asked import asked
from cepheid.history.follow import follow
from cepheid.history.log_place import LogPlace
from cepheid.history.pipeline import matches_table
from cepheid.history.restore import restore
from cepheid.history.restore import wanted as wanted_back
from cepheid.history.tail import Tail
from cepheid.model.time import format_instant
from cepheid.service.client import ConsumerClient
from cepheid.service.intake import config_of
from cepheid.service.intake import start as start_intake
from cepheid.service.log import LogReader, extent, log_committed
from cepheid.service.received import Received
from cepheid.service.supplier import Supplier
from cepheid.spark.application import archive_of
from cepheid.spark.validate import declared_for_spark
from tests.history.trials import (
    BEGIN,
    HITS,
    KNOWLEDGE,
    ON_THEIR_WAY,
    WHILE_AWAY,
    Campaign,
    Counted,
    Deed,
    Kill,
    Lag,
    Seen,
    Trial,
    counted,
    lag_of,
    wanted,
)
from tests.service.intakes import tail_of

COMMAND: Final = (sys.executable, "-m", "cepheid.cli.main")
#: Seconds that anything may take before the trial has failed.
PATIENCE: Final = 240.0


def in_time(holds: Callable[[], bool], patience: float = PATIENCE) -> bool:
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@dataclass
class Outcome:
    """What came of a trial."""

    trial: Trial
    counted: Counted
    wanted: int
    recovered: int
    #: How archive and log lay when it was asked, and at each kill: the campaign's.
    lags: list[tuple[Deed, Lag]]
    fault: str | None


@dataclass
class Asking:
    """`--follow` at work, on a thread."""

    trial: Trial
    thread: threading.Thread | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    said: list[tuple[str, str]] = field(default_factory=list)
    #: What the log had beyond the archive when it was asked.
    tail: Tail | None = None
    #: The ids of what came before the first mark.
    past: set[str] = field(default_factory=set)
    is_marked: bool = False
    error: BaseException | None = None
    is_over: bool = False

    def start(self, app: Application, spark: SparkSession) -> None:
        self.thread = threading.Thread(target=self._run, args=(app, spark), daemon=True)
        self.thread.start()

    def _run(self, app: Application, spark: SparkSession) -> None:
        try:
            answer = query(app, self.trial.text, spark=spark, now=BEGIN)
            self.tail = answer.past.tail
            follow(
                answer,
                self._line,
                boundary=self.trial.boundary,
                on_mark=self._mark,
                stopped=lambda: self.is_over,
            )
        except BaseException as error:
            self.error = error

    def _line(self, line: str) -> None:
        match = json.loads(line)
        self.lines.append(match)
        self.said.append(("match", match["time"]))
        if not self.is_marked:
            self.past.add(match["id"])

    def _mark(self, mark: int) -> None:
        self.said.append(("mark", format_instant(mark)))
        self.is_marked = True

    def fault(self, ids: list[str]) -> str | None:
        """What is wrong with what it said."""
        if self.error is not None:
            return f"follow failed: {self.error!r}"
        found = [match["id"] for match in self.lines]
        if sorted(found) != sorted(ids):
            return f"follow ({self.trial.boundary}): {_differing(found, ids)}"
        complete = last = ""
        for what, moment in self.said:
            if what == "mark":
                complete = max(complete, moment)
            elif moment < last:
                return f"follow: a match of {moment} came after one of {last}"
            elif moment < complete:
                return f"follow: a match of {moment} came, and all was said to be complete up to {complete}"
            else:
                last = moment
        return None


def _differing(found: list[str], ids: list[str]) -> str:
    missing, more = set(ids) - set(found), set(found) - set(ids)
    return f"{len(missing)} of {len(ids)} missing, {len(more)} too many, {len(found) - len(set(found))} twice"


class World:
    """The parts of a running application, and what is done to them."""

    def __init__(self, spark: SparkSession, folder: Path, campaign: Campaign) -> None:
        self.spark, self.folder, self.campaign = spark, folder, campaign
        self.folder.mkdir(parents=True)
        (folder / "app.yaml").write_text(campaign.app_text)
        (folder / "plant.ttl").write_text(KNOWLEDGE)
        self.app = load(folder / "app.yaml")
        self.random = random.Random(campaign.seed)
        self.service: subprocess.Popen[str] | None = None
        self.pipeline: subprocess.Popen[str] | None = None
        self.has_pipeline = any(trial.engine == "spark" for trial in campaign.trials)
        self.supplier: Supplier | None = None
        self.clients: list[tuple[ConsumerClient, threading.Thread]] = []
        #: By trial, and by client.
        self.received: dict[str, list[list[Received]]] = {t.name: [] for t in campaign.trials}
        self.asking = [Asking(trial) for trial in campaign.trials]
        self._stopped: int | None = None
        #: How many events were sent, how many when an engine was last started, and what the archive has of them.
        self.sent = self.begun = self.archived = 0
        #: With how far each query's engine had read, and how far events had been sent.
        self.kills: list[tuple[Deed, dict[str, Kill]]] = []
        self.lags: list[tuple[Deed, Lag]] = []
        log_source.register(spark)

    # The processes

    def start_service(self) -> None:
        with (self.folder / "service.txt").open("a") as said:
            self.service = subprocess.Popen(
                [*COMMAND, "service", "app.yaml"],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
            )
        assert self.service.stdout is not None
        lines = [self.service.stdout.readline() for _ in range(2)]
        assert lines[1], (self.folder / "service.txt").read_text()

    def start_pipeline(self) -> None:
        if self.has_pipeline:
            with (self.folder / "pipeline.txt").open("a") as said:
                command = [*COMMAND, "pipeline", "app.yaml"]
                self.pipeline = subprocess.Popen(
                    command, cwd=self.folder, stdout=said, stderr=said, text=True, start_new_session=True
                )

    def connect(self) -> None:
        self.supplier = Supplier(f"unix:{self.folder}/in.sock")
        for trial in self.campaign.trials:
            if trial.engine == "service":
                place = self.folder / f"{trial.name}.place" if trial.acks else None
                client = ConsumerClient(f"unix:{self.folder}/out.sock", trial.name, place=place)
                came: list[Received] = []
                self.received[trial.name].append(came)
                self.clients.append((client, client.call(came.append)))

    def disconnect(self) -> None:
        for client, _ in self.clients:
            client.close()
        for _, thread in self.clients:
            thread.join(PATIENCE)
        self.clients.clear()
        if self.supplier is not None:
            self.supplier.close()
            self.supplier = None

    def part(self, name: str) -> int | None:
        """The process id of a part of the service, if it is there."""
        assert self.service is not None
        with suppress(OSError):
            for task in Path(f"/proc/{self.service.pid}/task").iterdir():
                for pid in (task / "children").read_text().split():
                    if name in Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0"):
                        return int(pid)
        return None

    def kill_part(self, name: str) -> int:
        """Kills a part of the service as soon as it is there; its process id."""
        assert in_time(lambda: self.part(name) is not None), f"{name} is not there"
        pid = self.part(name)
        assert pid is not None
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return pid

    def kill(self, process: subprocess.Popen[str] | None) -> None:
        """Kills a process that runs."""
        assert process is not None
        assert process.poll() is None, "it has ended before it was killed"
        self.end(process, signal.SIGKILL)

    def end(self, process: subprocess.Popen[str] | None, number: signal.Signals) -> None:
        if process is not None and process.poll() is None:
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            process.wait(60)
        if process is not None and process.stdout is not None:
            process.stdout.close()

    def close(self) -> None:
        for asking in self.asking:
            asking.is_over = True
        self.go_on()
        self.disconnect()
        self.end(self.service, signal.SIGTERM)
        self.end(self.pipeline, signal.SIGKILL)
        for log in (self.folder / "log", self.folder / "log" / "dead"):
            if log.is_dir():
                tail_of(log).unlink(missing_ok=True)

    # What happens

    def do(self, deed: Deed, then: Deed) -> None:
        """Does one thing; after it comes the other."""
        engine, intake = "cepheid.service.process", "cepheid.service.intake"
        if deed in ("archive", "archive unsaid"):
            self.archive(says_so=deed == "archive")
        elif deed == "ask":
            self.ask()
        elif deed == "move":
            self.move()
        elif deed == "catch up":
            self.go_on()
            hit = [trial.name for trial in self.campaign.trials if then in HITS[trial.engine]]
            assert in_time(lambda: all(self.read(name) >= self.sent for name in hit)), "an engine does not come"
        elif deed == "stop engine":
            self._stopped = self.part(engine)
            if self._stopped is not None:
                os.kill(self._stopped, signal.SIGSTOP)
        elif deed == "go on":
            self.go_on()
        elif deed in ("kill service", "kill all"):
            self.kill(self.service)
            if deed == "kill all":
                self.kill(self.pipeline)
                self.start_pipeline()
            time.sleep(self.random.random() * 0.3)
            self.start_service()
        elif deed == "kill spark":
            self.kill(self.pipeline)
            self.start_pipeline()
        elif deed == "kill and forget":
            self.kill(self.service)
            self.forget()
        else:
            if deed in ("kill intake", "kill both"):
                self.kill_part(intake)
            if deed != "kill intake":
                killed = self.kill_part(engine)
                if deed == "kill again":
                    assert in_time(lambda: self.part(engine) not in (None, killed))
                    time.sleep(self.random.random() * 0.3)
                    self.kill_part(engine)

    def ask(self) -> None:
        """All are asked of what there is now. Some wait until the past is known, and some don't."""
        for asking in self.asking:
            asking.start(self.app, self.spark)
        assert in_time(lambda: all(a.tail is not None or a.error for a in self.asking)), "nobody is asked"
        if self.random.random() < 0.7:
            self.await_marks()

    def await_marks(self) -> None:
        assert in_time(lambda: all(a.is_marked or a.error for a in self.asking)), "the past takes long"

    def read(self, name: str) -> int:
        """How far the engine of a query has read the log, as it has written down itself, since it was last started."""
        log = self.folder / "log"
        found = [log_committed(log, file.name) or 0 for file in (log / "consumers").glob(f"query-{name}-*")]
        for file in log.glob("*.read"):
            found += [one["offset"] for key, one in json.loads(file.read_text()).items() if key.split()[0] == name]
        return max((offset for offset in found if offset > self.begun), default=0)

    def note(self, deed: Deed) -> None:
        """Writes down how things lie when something is killed, or the queries are asked."""
        said = log_committed(self.folder / "log", CONSUMER) or 0
        self.lags.append((deed, lag_of(said, self.archived, self.sent)))
        if deed != "ask":
            after = self.sent + ON_THEIR_WAY
            self.kills.append((deed, {t.name: Kill(self.read(t.name), after) for t in self.campaign.trials}))

    def go_on(self) -> None:
        if self._stopped is not None:
            with suppress(ProcessLookupError):
                os.kill(self._stopped, signal.SIGCONT)
            self._stopped = None

    def archive(self, *, says_so: bool = True) -> None:
        """The archive comes to what the log has; and says so, or not yet: with its next batch Spark does that."""
        log = self.folder / "log"
        if self.has_pipeline:
            assert in_time(lambda: (log_committed(log, CONSUMER) or 0) >= self.sent), "the archive does not come"
            return
        archive, streams = archive_of(self.app), [declared_for_spark(s) for s in self.app.graph.streams.values()]
        writer = archive_log(self.spark, LogPlace(log), streams, archive, archive.checkpoint("log"), Tally())
        batches = writer.trigger(availableNow=True).start()
        batches.awaitTermination()
        progress: Any = batches.lastProgress
        for source in [] if progress is None else progress["sources"]:
            self.archived = offset_of(source["endOffset"]) or self.archived
        if says_so:
            commit_archived(batches, LogPlace(log))

    def forget(self) -> None:
        """Nobody is there for long: what comes is archived, and the log forgets it. It comes back when it is needed."""
        assert self.supplier is not None
        log = self.folder / "log"
        if any(asking.thread is not None for asking in self.asking):
            self.await_marks()  # who is asked reads the log as it was
        with start_intake(replace(config_of(self.app), retain_age=1)):
            self.push(self.sent + WHILE_AWAY)
            self.supplier.flush()
            self.archive()
            long_ago = time.time() - 8 * 86_400  # longer than the log waits for its engine
            with suppress(FileNotFoundError):  # which may not have said anything
                os.utime(log / "consumers" / "engine", (long_ago, long_ago))
            assert in_time(lambda: extent(log).first >= self.sent - WHILE_AWAY), "the log does not forget"
        self.start_service()
        streams = list(self.app.graph.streams.values())
        assert in_time(lambda: restore(self.spark, log, archive_of(self.app), streams) is not None), "nothing is wanted"
        assert in_time(lambda: not wanted_back(log)), "what came back does not do"

    def move(self) -> None:
        """All is stopped, goes to another folder, and is started there, as on another machine."""
        self.end(self.service, signal.SIGTERM)
        self.disconnect()  # after that: who does not acknowledge reads what was sent before it ended
        there = self.folder.with_name(self.folder.name + "-moved")
        shutil.copytree(self.folder, there, ignore=lambda folder, names: [n for n in names if n.endswith(".sock")])
        self.folder = there
        self.app = load(there / "app.yaml")
        self.start_service()
        self.connect()

    def push(self, after: int) -> None:
        """Sends the events before this offset that were not sent, in batches of chance."""
        assert self.supplier is not None
        while self.sent < after:
            size = min(self.random.randrange(1, 12), after - self.sent)
            self.supplier.push_many(one.event for one in self.campaign.pushed[self.sent : self.sent + size])
            self.sent += size

    def run(self) -> None:
        """The stream, with what happens in between."""
        self.start_service()
        self.start_pipeline()
        self.connect()
        length = len(self.campaign.pushed) - 2
        deeds = [*self.campaign.deeds, (length, "archive")]
        for (at, deed), (_, then) in pairwise(deeds):
            assert self.supplier is not None
            self.push(min(at, length))
            self.supplier.flush()
            if at >= length:
                break
            if deed == "ask" or deed.startswith("kill"):
                self.note(deed)
            if deed.startswith("kill"):  # while events are on their way
                self.push(at + ON_THEIR_WAY)
            self.do(deed, then)
            if deed == "move" or deed.startswith("kill"):
                self.begun = self.sent
        self.go_on()
        self.push(length + 2)
        assert self.supplier is not None
        self.supplier.flush()
        self.archive()

    # What came of it

    def outcome(self, asking: Asking) -> Outcome:
        trial, campaign = asking.trial, self.campaign
        question = asked(self.app, trial.text, BEGIN).question
        matches = wanted(campaign, question)
        ids = [match.id for match in matches]
        assert asking.thread is not None
        asking.thread.join(PATIENCE)
        fault = "follow does not end" if asking.thread.is_alive() else asking.fault(ids)
        recovered = 0
        if trial.engine == "spark":
            fault = fault or self._spark_fault(trial, ids)
        else:
            came = self.received[trial.name]
            in_time(lambda: {one.id for each in came for one in each} >= set(ids), 30)
            found = [one.id for each in came for one in each]
            once = [found] if trial.acks else [[one.id for one in each] for each in came]
            if {*found} != {*ids} or any(len(each) != len({*each}) for each in once):
                fault = fault or f"service: {_differing([str(one) for one in found], ids)}"
            late = [one for each in came for one in each if "recovered" in one.marks]
            if any(one.delay is None or one.delay < 0 for one in late):
                fault = fault or "service: a match is recovered, and does not say how late it is"
            recovered = len(late)
        kills = [read[trial.name] for deed, read in self.kills if deed in HITS[trial.engine]]
        tail = asking.tail
        seen = Seen(0 if tail is None else tail.start, 0 if tail is None else tail.end, asking.past, kills)
        said = {match["id"] for match in asking.lines}
        count = counted(campaign, question, [match for match in matches if match.id in said], seen)
        return Outcome(trial, count, len(ids), recovered, self.lags, fault)

    def _spark_fault(self, trial: Trial, ids: list[str]) -> str | None:
        table = matches_table(archive_of(self.app), trial.name)
        found: list[str] = []

        def is_there() -> bool:
            with suppress(Exception):  # the table may not be there yet
                found[:] = [row["id"] for row in self.spark.read.format("delta").load(table).collect()]
            return len(found) >= len(ids)

        in_time(is_there)
        return None if sorted(found) == sorted(ids) else f"spark: {_differing(found, ids)}"

    def flags_fault(self) -> str | None:
        """Whether the log has other events, or judged them otherwise, than was planned."""
        first = extent(self.folder / "log").first
        logged = [(one.event, not one.late and not one.duplicate) for one in LogReader(self.folder / "log")]
        planned = [(one.event, one.counts) for one in self.campaign.pushed[first:]]
        forgets = any(deed == "kill and forget" for _, deed in self.campaign.deeds)
        return None if logged == planned and (first > 0) == forgets else "the log has other events than were sent"


@contextmanager
def world(spark: SparkSession, folder: Path, campaign: Campaign) -> Iterator[World]:
    made = World(spark, folder, campaign)
    try:
        yield made
    finally:
        made.close()


def run(spark: SparkSession, folder: Path, campaign: Campaign) -> list[Outcome]:
    """Runs a campaign; the outcome of each trial."""
    with world(spark, folder, campaign) as made:
        made.run()
        outcomes = [made.outcome(asking) for asking in made.asking]
        fault = made.flags_fault()
        if fault is not None:
            outcomes[0].fault = fault
        return outcomes


def application(folder: Path) -> Callable[[str], Application]:
    """What makes an application of a text, in a folder for that."""

    def apply(text: str) -> Application:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "app.yaml").write_text(text)
        (folder / "plant.ttl").write_text(KNOWLEDGE)
        return load(folder / "app.yaml")

    return apply
