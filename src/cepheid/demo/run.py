"""The demo: a campus's morning through intake, service, Spark pipeline and archive, with a crash in the middle.

All of it is done as a user would: the example application in a folder, `cepheid service` and `cepheid pipeline` on it,
suppliers and consumers at their sockets, and questions about past and future in Python.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import cepheid
from cepheid.app import Application, load
from cepheid.campus.generator import Campus, Truth
from cepheid.demo.clock import CampusClock
from cepheid.demo.findings import DEMAND_RESPONSE, Findings, Found, Seen, latencies
from cepheid.demo.parts import Part, PartFailed
from cepheid.language.syntax import Instant, Within
from cepheid.model.time import format_instant, parse_instant
from cepheid.service.client import ConsumerClient, consumers_address, read_stats
from cepheid.service.intake import suppliers_address
from cepheid.service.log import extent
from cepheid.service.received import Received

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXAMPLE: Final = Path(cepheid.__file__).parent / "examples" / "campus"
#: Names the folder as ours, so that a second demo may replace it.
_MARK: Final = ".cepheid-demo"
MINUTE: Final = 60_000_000
#: When the engine is killed, as a share of the live part.
_KILL_AT: Final = 0.5
#: Seconds between two words on how far it is, and until Spark must have come to the log's end.
_WORD: Final = 5.0
_CATCH_UP: Final = 180.0
#: The part of the pipeline that reads what is no event.
DEAD: Final = "dead letters"

Say = Callable[[str], object]


class FolderTaken(ValueError):
    """The folder is somebody else's."""


@dataclass
class Demo:
    """One run. `step` is told what begins, and `say` how it goes."""

    folder: Path
    sensors: int
    seed: int
    step: Say
    say: Say
    #: Minutes of the campus's morning: what has happened when the utility calls, and how long it goes on.
    before: int = 15
    after: int = 25
    #: How many times as fast as ours the campus's clock runs in the second part.
    speed: float = 30.0
    steps: int = field(default=7, init=False)

    def run(self, serve: Callable[[], object] | None = None) -> bool:
        """Whether all was found that was put there, live as back in time, and the books balance.

        With `serve` the campus runs on while that is called; the books are not closed then.
        """
        self._began = time.monotonic()
        self.step(f"a campus of {self.sensors:,} sensors, and its application, in {self.folder}")
        path = _prepare(self.folder, Campus(self.seed, self.sensors))
        self._app = load(path)
        plan = self._app.plan()
        self._engines = {name: plan.placement[name].engine for name in self._app.graph.queries}
        self._found = {name: Found() for name in (*self._engines, DEMAND_RESPONSE)}
        #: Of the matches that consumers got late, in microseconds.
        self._delays: list[int] = []
        with ExitStack() as parts:
            self._start(path, parts)
            # From a whole second on: after the queries were registered, which see what comes then (rule Q5).
            start = -(-time.time_ns() // 1_000_000_000) * 1_000_000
            kill = start + int((self.before + self.after * _KILL_AT) * MINUTE)
            # Air handlers run away a little before the engine is killed: their averages span its absence. All is over
            # before the campus is silent: its last seconds are not final live, and would be found in the past only.
            campus = Campus(self.seed, self.sensors, start, runaway=kill - 5 * MINUTE)
            clock = CampusClock(campus, start, suppliers_address(self._app))
            self._live(clock, start, kill)
            campus.truth.write(self.folder / "truth.json")
            stats = read_stats(consumers_address(self._app))
            self._end(stop=serve is None)
            self.step("every query again, back in time, and the books")
            self._look_back()
            with self._words("the archive is counted"):
                books = Books.of(self._spark, self._app, campus.truth) if serve is None else None
            findings = Findings(campus, clock.now, self._found)
            for line in self._summary(findings, stats, books):
                self.say(line)
            if serve is not None:
                self._keep_on(clock, serve)
        return all(map(findings.agree, self._found)) and (books is None or books.balance)

    def _start(self, path: Path, parts: ExitStack) -> None:
        self.step("starting `cepheid service`, `cepheid pipeline`, and Spark for questions about the past")
        self._service = parts.enter_context(Part("service", path))
        self._pipeline = parts.enter_context(Part("pipeline", path))
        with self._words("the service is starting"):
            self._service.wait_for("consumers:")
        self._listeners = parts.enter_context(ExitStack())
        for name, engine in self._engines.items():
            if engine == "service":
                self._listeners.enter_context(self._listen(name))
        with self._words("Spark is starting"):
            from cepheid.spark.session import session

            self._spark = session("cepheid demo")
            parts.callback(self._spark.stop)
        with self._words("the pipeline's queries are starting"):
            self._pipeline.wait_for("running:")

    def _live(self, clock: CampusClock, start: int, kill: int) -> None:
        """The morning, with a question and a crash in it."""
        middle, end = start + self.before * MINUTE, start + (self.before + self.after) * MINUTE
        self.step(f"the campus's first {self.before} minutes, at once")
        with self._words("the records are supplied"):
            clock.run(middle, None)
        self._tell(clock)
        self.step(f"{self.after} minutes more, {self.speed:.0f} times as fast; a question about past and future")
        self._asking = self._ask_demand_response(start, end)
        supplying = clock.start(end, self.speed)
        self._watch(clock, supplying, kill)
        self.step("the engine is killed (SIGKILL), while the intake goes on")
        self._kill()
        self._watch(clock, supplying, end)
        supplying.join()

    def _end(self, *, stop: bool) -> None:
        """Waits until everything has come to the end of the log."""
        self.step("the campus is silent; Spark comes to the end of the log")
        if stop:
            with self._words("the service is ending"):
                self._listeners.close()
                self._service.stop()
        self._settle()
        with self._words("the answer to the question is becoming whole"):
            self._asking.join(_CATCH_UP)
        if stop:
            with self._words("the pipeline is ending"):
                self._pipeline.stop()

    def _summary(self, findings: Findings, stats: dict[str, Any], books: Books | None) -> Iterator[str]:
        yield ""
        yield from findings.table({**self._engines, DEMAND_RESPONSE: "both"})
        yield ""
        graph = self._app.graph
        queries = {name: graph.levels[graph.level_of(query.level)] for name, query in graph.queries.items()}
        yield from latencies(stats, graph.levels, queries)
        yield self._late()
        yield ""
        if books is not None:
            yield books.words()
        seconds = time.monotonic() - self._began
        yield f"What is wrong on the campus is in {self.folder / 'truth.json'}. Done in {seconds:.0f} s."

    def _late(self) -> str:
        """What the consumers of the fast lane noticed of the kill."""
        if not self._delays:
            return "No match came late: all were there when the engine was killed, or after it"
        longest = max(self._delays) / 1e3
        return f"{len(self._delays):,} matches came late, since there was no engine: up to {longest:,.0f} ms"

    def _listen(self, query: str) -> ConsumerClient:
        client = ConsumerClient(consumers_address(self._app), query)

        def hear(match: Received) -> None:
            self._found[query].live.add(str(match.id))
            if match.delay is not None:
                self._delays.append(match.delay)

        client.call(hear)
        return client

    def _ask_demand_response(self, start: int, end: int) -> threading.Thread:
        """Asks about the whole morning while it goes on; the answer is live where the past ends."""
        from cepheid.history.answer import Answer
        from cepheid.history.asked import asked, parsed
        from cepheid.history.follow import follow
        from cepheid.history.past import past_of

        text = (self.folder / "queries" / "demand_response.chi").read_text(encoding="utf-8")
        # Up to a minute before the campus is silent: what comes then says that the answer is whole.
        self._question = replace(parsed(text), within=Within(Instant(start), Instant(end - MINUTE)))
        question = asked(self._app, self._question, time.time_ns() // 1000, follows=True)
        answer = Answer(past_of(self._spark, self._app), question)
        live = self._found[DEMAND_RESPONSE].live

        def hear(line: str) -> None:
            live.add(json.loads(line)["id"])

        thread = threading.Thread(target=follow, args=(answer, hear), name="demand response", daemon=True)
        thread.start()
        return thread

    @contextmanager
    def _words(self, doing: str) -> Iterator[None]:
        """Says from time to time what is being done, while it is."""
        over, began = threading.Event(), time.monotonic()

        def speak() -> None:
            while not over.wait(_WORD):
                self.say(f"{doing}: {time.monotonic() - began:.0f} s")

        speaker = threading.Thread(target=speak, name="words", daemon=True)
        speaker.start()
        try:
            yield
        finally:
            over.set()
            speaker.join()

    def _watch(self, clock: CampusClock, supplying: threading.Thread, until: int) -> None:
        said = time.monotonic()
        while supplying.is_alive() and clock.now < until:
            time.sleep(0.1)
            if time.monotonic() - said >= _WORD:
                said = time.monotonic()
                self._tell(clock)

    def _tell(self, clock: CampusClock) -> None:
        found = sum(len(found.live) for found in self._found.values())
        events = extent(self._log).end
        self.say(f"{format_instant(clock.now)[11:19]} on the campus  {events:>9,} events  {found:>7,} matches live")

    @property
    def _log(self) -> Path:
        service = self._app.sections.service
        assert service is not None
        assert service.log is not None
        return self._app.folder / service.log.path

    def _kill(self) -> None:
        address = consumers_address(self._app)
        offset = read_stats(address)["log"]["offset"]
        began = time.monotonic()
        self._service.kill("cepheid.service.process")
        while True:
            with suppress(OSError):
                if read_stats(address)["log"]["offset"] >= offset:
                    break
            if time.monotonic() - began > _CATCH_UP:
                raise PartFailed(f"the engine did not come back; see {self.folder / 'service.log'}")
            time.sleep(0.02)
        self.say(f"another one is where it was after {(time.monotonic() - began) * 1e3:,.0f} ms")

    def _settle(self) -> None:
        """Waits until each part of the pipeline has read what is in the log now; the fan may go on beyond."""
        deadline, said = time.monotonic() + _CATCH_UP, time.monotonic()
        through = Through(extent(self._log).end, time.time())
        while True:
            self._pipeline.check()
            status = through.look(self._log, time.time())
            behind = through.behind(status)
            if status["time"] > through.since and not behind:
                return
            words = ", ".join(_how(part) for part in behind)
            if time.monotonic() > deadline:
                raise PartFailed(f"Spark is not through with the log: {words}; see {self.folder / 'pipeline.log'}")
            if time.monotonic() - said >= _WORD:
                said = time.monotonic()
                self.say(f"not through yet: {words}")
            time.sleep(0.2)

    def _look_back(self) -> None:
        from cepheid.history import query
        from cepheid.history.asked import named
        from cepheid.history.pipeline import matches_table
        from cepheid.spark.application import archive_of

        for name, engine in self._engines.items():
            if engine == "spark":
                table = self._spark.read.format("delta").load(matches_table(archive_of(self._app), name))
                self._found[name].live = {row["id"] for row in table.select("id").toLocalIterator()}
        questions = {name: named(self._app, name) for name in self._engines}
        for name, tree in {**questions, DEMAND_RESPONSE: self._question}.items():
            began = time.monotonic()
            answer = query(self._app, tree, spark=self._spark)
            with self._words(f"{name} is asked"):
                self._found[name].past = {match["id"]: _seen(match) for match in answer}
            count = len(self._found[name].past)
            self.say(f"{name:16} {count:>7,} matches, {answer.strategy}, {time.monotonic() - began:.1f} s")

    def _keep_on(self, clock: CampusClock, serve: Callable[[], object]) -> None:
        path = self.folder / "app.yaml"
        self.say(f"The campus runs on, at its own speed, until it is interrupted. Try: cepheid top {path}")
        self.say(f"or: cepheid query {path} overcooled --format table")
        clock.start(clock.now + 365 * 24 * 60 * MINUTE, 1.0)
        serve()


@dataclass
class Through:
    """Whether the pipeline has read a log up to an end, while that may go on.

    The pipeline says how far each part is behind the log's end, but not where that was. It was no earlier than where
    the log ended when the pipeline spoke before: what it says now, it has found out since.
    """

    end: int
    since: float
    _ends: list[tuple[float, int]] = field(default_factory=list)
    _spoke: float = 0.0
    _before: float = 0.0

    def look(self, log: Path, now: float) -> dict[str, Any]:
        """What the pipeline has said last."""
        from cepheid.service.supervisor import PIPELINE

        self._ends.append((now, extent(log).end))
        status: dict[str, Any] = json.loads((log / PIPELINE).read_text())
        if status["time"] != self._spoke:
            self._before, self._spoke = self._spoke, status["time"]
        return status

    def behind(self, status: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The parts that are not through."""
        grown = max((end for at, end in self._ends if at <= self._before), default=self.end) - self.end
        # Dead letters have a log of their own, which is silent.
        return [p for p in status["parts"] if p["lag"] is None or p["lag"] > (0 if p["name"] == DEAD else grown)]


def _how(part: dict[str, Any]) -> str:
    return f"{part['name']} {part['state']}" if part["lag"] is None else f"{part['name']} {part['lag']:,} events behind"


def _seen(match: Mapping[str, Any]) -> Seen:
    return Seen(parse_instant(match["time"]), match["select"].get("sensorID"))


@dataclass(frozen=True)
class Books:
    """What was sent, and where it is. The campus knows what it sent; of its fan's readings only the log does."""

    sent: Mapping[str, int]
    malformed: int
    read: int
    archived: Mapping[str, int]
    dead_letters: int

    @classmethod
    def of(cls, spark: SparkSession, app: Application, truth: Truth) -> Books:
        """Of an application whose service has ended."""
        from cepheid.spark.application import archive_of
        from cepheid.spark.care import stats

        service = app.sections.service
        assert service is not None
        assert service.log is not None
        logged = extent(app.folder / service.log.path).end
        *tables, dead = stats(spark, archive_of(app), list(app.graph.streams.values()))
        archived = {table.table: table.rows for table in tables}
        return cls(truth.good, truth.bad.total(), logged - truth.good.total(), archived, dead.rows)

    @property
    def _archived_of_fan(self) -> int:
        return sum(rows for stream, rows in self.archived.items() if stream not in self.sent)

    @property
    def balance(self) -> bool:
        """Of each stream exactly: nothing is lost, and nothing there twice."""
        return (
            all(self.archived[stream] == count for stream, count in self.sent.items())
            and self._archived_of_fan == self.read
            and self.dead_letters == self.malformed
        )

    def words(self) -> str:
        """For people."""
        good = sum(self.sent.values())
        archived = sum(self.archived.values())
        return (
            f"The campus sent {good + self.malformed:,} records and its fan {self.read:,}: "
            f"{good + self.malformed + self.read:,} = {archived:,} archived + {self.dead_letters:,} dead letters: "
            f"{'the books balance' if self.balance else 'THE BOOKS DO NOT BALANCE'}"
        )


def _prepare(folder: Path, campus: Campus) -> Path:
    """An empty folder, which may be the last demo's, and the example in it, knowing its campus."""
    if folder.exists() and not (folder / _MARK).exists():
        raise FolderTaken(f"{folder} exists and is not an earlier demo's; choose another with --folder")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / _MARK).touch()
    campus.model.write(folder)
    return folder.resolve() / "app.yaml"
