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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from cepheid.app import Application, load
from cepheid.history import log_source
from cepheid.history.answer import query
from cepheid.history.archiving import CONSUMER, Tally, archive_log, commit_archived
from cepheid.history.asked import asked
from cepheid.history.follow import follow
from cepheid.history.log_place import LogPlace
from cepheid.history.pipeline import matches_table
from cepheid.model.time import format_instant
from cepheid.service.client import ConsumerClient
from cepheid.service.log import LogReader, log_committed
from cepheid.service.received import Received
from cepheid.service.supplier import Supplier
from cepheid.spark.application import archive_of
from cepheid.spark.validate import declared_for_spark
from tests.history.trials import BEGIN, KNOWLEDGE, ON_THEIR_WAY, Campaign, Counted, Deed, Trial, counted, wanted
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
    fault: str | None


@dataclass
class Asking:
    """`--follow` at work, on a thread."""

    trial: Trial
    thread: threading.Thread | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    said: list[tuple[str, str]] = field(default_factory=list)
    error: BaseException | None = None
    is_over: bool = False

    def start(self, app: Application, spark: SparkSession) -> None:
        self.thread = threading.Thread(target=self._run, args=(app, spark), daemon=True)
        self.thread.start()

    def _run(self, app: Application, spark: SparkSession) -> None:
        try:
            answer = query(app, self.trial.text, spark=spark, now=BEGIN)
            follow(
                answer,
                self._line,
                boundary=self.trial.boundary,
                on_mark=lambda mark: self.said.append(("mark", format_instant(mark))),
                stopped=lambda: self.is_over,
            )
        except BaseException as error:
            self.error = error

    def _line(self, line: str) -> None:
        match = json.loads(line)
        self.lines.append(match)
        self.said.append(("match", match["time"]))

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

    def do(self, at: int, deed: Deed) -> None:
        engine, intake = "cepheid.service.process", "cepheid.service.intake"
        if deed == "archive":
            self.archive(at)
        elif deed == "ask":
            for asking in self.asking:
                asking.start(self.app, self.spark)
            # Some go on at once, some when the past is known.
            if self.random.random() < 0.7:
                assert in_time(lambda: all(a.said or a.error is not None for a in self.asking)), "the past takes long"
        elif deed == "move":
            self.move()
        elif deed == "stop engine":
            self._stopped = self.part(engine)
            if self._stopped is not None:
                os.kill(self._stopped, signal.SIGSTOP)
        elif deed == "go on":
            self.go_on()
        elif deed in ("kill service", "kill all"):
            self.end(self.service, signal.SIGKILL)
            if deed == "kill all":
                self.end(self.pipeline, signal.SIGKILL)
                self.start_pipeline()
            time.sleep(self.random.random() * 0.3)
            self.start_service()
        elif deed == "kill spark":
            self.end(self.pipeline, signal.SIGKILL)
            self.start_pipeline()
        else:
            if deed in ("kill intake", "kill both"):
                self.kill_part(intake)
            if deed != "kill intake":
                killed = self.kill_part(engine)
                if deed == "kill again":
                    assert in_time(lambda: self.part(engine) not in (None, killed))
                    time.sleep(self.random.random() * 0.3)
                    self.kill_part(engine)

    def go_on(self) -> None:
        if self._stopped is not None:
            with suppress(ProcessLookupError):
                os.kill(self._stopped, signal.SIGCONT)
            self._stopped = None

    def archive(self, at: int) -> None:
        """The archive comes to what the log has."""
        log = self.folder / "log"
        if self.has_pipeline:
            assert in_time(lambda: (log_committed(log, CONSUMER) or 0) >= at), "the archive does not come"
            return
        archive, streams = archive_of(self.app), [declared_for_spark(s) for s in self.app.graph.streams.values()]
        writer = archive_log(self.spark, LogPlace(log), streams, archive, archive.checkpoint("log"), Tally())
        batches = writer.trigger(availableNow=True).start()
        batches.awaitTermination()
        commit_archived(batches, LogPlace(log))

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

    def push(self, first: int, after: int) -> None:
        """Sends the events of these offsets, in batches of chance."""
        assert self.supplier is not None
        while first < after:
            size = min(self.random.randrange(1, 12), after - first)
            self.supplier.push_many(one.event for one in self.campaign.pushed[first : first + size])
            first += size

    def run(self) -> None:
        """The stream, with what happens in between."""
        self.start_service()
        self.start_pipeline()
        self.connect()
        done, length = 0, len(self.campaign.pushed) - 2
        assert self.supplier is not None
        for at, deed in self.campaign.deeds:
            at = min(at, length)
            self.push(done, at)
            done = max(done, at)
            self.supplier.flush()
            if at == length:
                break
            if deed.startswith("kill"):  # while events are on their way
                self.push(done, at + ON_THEIR_WAY)
                done = max(done, at + ON_THEIR_WAY)
            self.do(at, deed)
        self.go_on()
        self.push(done, length + 2)
        self.supplier.flush()
        self.archive(length + 2)

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
        return Outcome(trial, counted(campaign, question, matches), len(ids), recovered, fault)

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
        logged = [(one.event, not one.late and not one.duplicate) for one in LogReader(self.folder / "log")]
        planned = [(one.event, one.counts) for one in self.campaign.pushed]
        return None if logged == planned else "the log has other events than were sent"


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
