"""Starts intake, engine and sources, each a process of its own, and starts again what dies.

The intake outlives the engine: events are taken, flagged, logged and acknowledged while there is none, and the next
engine goes on where the last one came to. All that takes loading and planning is done here, so that the engine is
small: it is told a job (job.py), and changes go to it as another job.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Any, Final

from cepheid.app.application import Application
from cepheid.plan.planner import Plan
from cepheid.service.changes import Changes
from cepheid.service.client import consumers_address
from cepheid.service.control import Control
from cepheid.service.intake import IntakeConfig, config_of, counted, reload, suppliers_address
from cepheid.service.job import job_of
from cepheid.service.knowing import Knowing, Learned
from cepheid.service.memory import MemoryFolder
from cepheid.service.metrics import MetricsPage
from cepheid.service.part import Engine, EngineDied, Part, ServiceFailed
from cepheid.service.sources import order_of

#: The file in the log's folder in which the pipeline on Spark says how far it is, and after how many seconds of silence
#: it is taken not to run.
PIPELINE: Final = "pipeline.json"
_SPARK_SILENT: Final = 60.0
#: How long who asks for the books waits for the engine, seconds; Prometheus itself waits for ten.
_PATIENCE: Final = 5.0
#: Seconds between two looks at which parts there are.
_LOOK: Final = 2.0
#: A part that died so often in a row, each time before it had lived for so many seconds, is started again only every so
#: many seconds: it would die again. The others go on.
_DEATHS: Final = 10
_SHORT_LIFE: Final = 5.0
_PAUSE: Final = 5.0


class Supervisor:
    """Keeps an application's intake and engine alive; a context manager."""

    def __init__(self, app: Application, path: Path, *, token: str | None = None) -> None:
        self._token = token
        service = app.sections.service
        self._has_log = service is not None and service.log is not None
        # Without a log the engine has one in memory, which its intake inside begins anew or goes on with.
        self._memory = None if self._has_log else MemoryFolder()
        #: Held by who changes what runs.
        self.changing = threading.RLock()
        self._control = Control(self, path)
        self._knowing = Knowing(self._learn, self.changing)
        self._engine = Engine(b"", self._control.answer)
        self._intake = Part("intake", "cepheid.service.intake", b"") if self._has_log else None
        #: What brings in the streams' sources, where some need it.
        self._sources = Part("sources", "cepheid.service.sources", b"")
        self._told_sources = b""
        #: Who starts again what died, by its part; each says to `watch` through the descriptor when it is done.
        self._reviving: dict[Part, threading.Thread] = {}
        self._revived = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopping = threading.Event()
        self._page: MetricsPage | None = None
        try:
            self.keep(app)
        except (ValueError, OSError) as refused:
            self._clear()
            raise ServiceFailed(_reason(refused)) from None

    def __enter__(self) -> Supervisor:
        try:
            for part in self._parts:
                part.start()
            self._told_sources = self._sources.given
            self._knowing.start(self._config.log)
            service = self.app.sections.service
            if service is not None and service.metrics is not None:
                self._page = _page(self.stats, service.metrics, self._token)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the engine, then the intake."""
        self._stopping.set()
        for part, reviving in list(self._reviving.items()):
            while reviving.is_alive():
                if part.process is not None:
                    part.process.terminate()  # one that is just being started
                reviving.join(0.1)
        self._knowing.close()
        if self._page is not None:
            self._page.close()
        for part in reversed(self._parts):
            part.stop()
        self._clear()

    def _clear(self) -> None:
        os.close(self._revived)
        if self._memory is not None:
            self._memory.remove()

    @property
    def _parts(self) -> list[Part]:
        # The intake first, because the engine follows its log; then what sends to it.
        parts: list[Part] = [self._engine] if self._intake is None else [self._intake, self._engine]
        return [*parts, self._sources] if self._sources.given else parts

    def keep(self, app: Application) -> None:
        """From now on, parts that are started are told this application. ValueError if it can't be run."""
        self._tell(app, self._knowing.plan_of(app))
        self.app = app

    def _tell(self, app: Application, plan: Plan) -> None:
        """Makes this what parts that are started are told."""
        log = self._memory.path if self._memory is not None else None
        config: IntakeConfig = config_of(app, plan=plan, token=self._token, memory=log)
        told = config.to_json()
        self._job = job_of(app, plan, config.log)
        order = {
            "job": self._job,
            "log": str(config.log),
            "intake": None if self._has_log else told,
            "suppliers": suppliers_address(app),
            "deliver": consumers_address(app),
            "token": self._token,
        }
        self._engine.given = json.dumps(order).encode()
        if self._intake is not None:
            self._intake.given = told.encode()
        self._config = config
        sources = order_of(app, suppliers_address(app), self._token)
        self._sources.given = b"" if sources is None else json.dumps(sources).encode()

    def _learn(self, version: int, learned: list[Learned]) -> None:
        """The engine judges by another version of the knowledge, and so does the next one."""
        told = None
        while told is not self._engine.process:  # one that died meanwhile has begun with what was told before
            told = self._engine.process
            self._engine.call({"learn": [version, learned]})
            self._tell(self.app, self._knowing.plan)

    def change_engine(self) -> Changes:
        """The engine goes on with what is kept. ValueError if it can't."""
        answer = self._engine.call({"change": self._job})
        if "error" in answer:
            raise ValueError(answer["error"])
        return Changes.named(answer["changed"])

    def reload_intake(self) -> None:
        """The intake goes on with what is kept. IntakeError if it can't."""
        reload(self._config, self.suppliers[0], self._wake_intake)
        self._renew_sources()

    def _renew_sources(self) -> None:
        """The sources are those of what is kept: the process is told at its start, and is started anew."""
        with self._sources.renewing:
            if self._sources.given == self._told_sources:
                return
            self._sources.stop()
            self._sources.process = None
            if self._sources.given:
                self._sources.start()
            self._told_sources = self._sources.given

    def _wake_intake(self) -> None:
        if self._intake is None:
            self._engine.call({"wake": True})
        elif self._intake.process is not None:
            self._intake.process.send_signal(signal.SIGHUP)

    @property
    def suppliers(self) -> list[str]:
        """Where suppliers connect."""
        ready = self._engine.ready if self._intake is None else self._intake.ready
        return list(ready["suppliers" if self._intake is None else "listening"])

    @property
    def consumers(self) -> str:
        """Where consumers connect."""
        return str(self._engine.ready["consumers"])

    @property
    def metrics(self) -> str | None:
        """Where the page for Prometheus is, if there is one."""
        return None if self._page is None else self._page.url

    @property
    def notices(self) -> list[str]:
        """What the engine has to say of the machine."""
        return list(self._engine.ready["notices"])

    def stats(self) -> Mapping[str, Any]:
        """The engine's books and histograms if it answers, what the intake counts, how the service's processes are, and
        how far the pipeline on Spark says it is, if it runs."""
        processes = {part.name: part.book() for part in self._parts}
        found: dict[str, Any] = {}
        try:
            answer = self._engine.call({"stats": True}, _PATIENCE)
            found = {**answer["stats"], "histograms": json.loads(answer["histograms"])}
        except EngineDied:
            processes[self._engine.name]["up"] = 0
        intake = counted(self.suppliers[0], self._token)
        if self._intake is not None:
            processes[self._intake.name]["up"] = int(bool(intake))
        return {**found, "processes": processes, "intake": intake, "pipeline": self._pipeline()}

    def _pipeline(self) -> list[dict[str, Any]]:
        try:
            said = json.loads((self._config.log / PIPELINE).read_text())
        except (OSError, ValueError):
            return []
        return list(said["parts"]) if time.time() - said["time"] < _SPARK_SILENT else []

    def watch(self, stop: int, say: Callable[[str], object]) -> None:
        """Starts again what dies, until the file descriptor `stop` brings a signal; SIGHUP applies the file."""
        while True:
            watched = {}
            for part in self._parts:
                process = part.process
                with suppress(ProcessLookupError):  # a change is ending it
                    if process is not None and part not in self._reviving:
                        watched[os.pidfd_open(process.pid)] = part, process
            try:
                # Not for ever: a change may have brought another part.
                readable, _, _ = select.select([stop, self._revived, *watched], [], [], _LOOK)
            finally:
                for descriptor in watched:
                    os.close(descriptor)
            if stop in readable:
                if set(os.read(stop, 64)) != {signal.SIGHUP}:
                    return
                # Loading takes its time, in which parts may die.
                threading.Thread(target=self._hang_up, args=(say,), name="apply", daemon=True).start()
            if self._revived in readable:
                os.eventfd_read(self._revived)
            for descriptor in set(readable) & set(watched):
                part, process = watched[descriptor]
                # On a thread of its own: another part may die meanwhile.
                self._reviving[part] = threading.Thread(target=self._revive, args=(part, process, say), name="revive")
                self._reviving[part].start()

    def _hang_up(self, say: Callable[[str], object]) -> None:
        answer = self._control.answer({})
        if "error" in answer:
            say(f"the application was not applied:\n{answer['error']}")
        else:
            say("\n".join(["the application was applied:", *Changes.of(answer["changes"]).lines()]))

    def _revive(self, part: Part, process: Popen[bytes], say: Callable[[str], object]) -> None:
        """Starts a part again whose process died, unless a change has ended that."""
        began, reason = time.monotonic(), f"the {part.name} died with code {process.wait()}"
        try:
            while not self._stopping.wait(self._pause(part, reason, say)):
                with part.renewing:
                    if part.process is not process:
                        return
                    part.stop()
                    try:
                        part.start()
                    except ServiceFailed as failed:
                        assert part.process is not None
                        process, reason = part.process, str(failed)
                        continue
                part.restarts += 1
                if part.deaths < _DEATHS:
                    say(f"{reason}, and was started again in {time.monotonic() - began:.2f} s")
                return
        finally:
            del self._reviving[part]
            os.eventfd_write(self._revived, 1)

    def _pause(self, part: Part, reason: str, say: Callable[[str], object]) -> float:
        """How long a part that died is left dead."""
        part.deaths = part.deaths + 1 if time.monotonic() - part.ready_since < _SHORT_LIFE else 1
        if part.deaths < _DEATHS:
            return 0.0
        if part.deaths == _DEATHS:
            say(
                f"{reason}, {_DEATHS} times in a row; the other parts go on. It is started again every {_PAUSE:.0f} s,"
                " which is not said each time. Look at what was said before this (a function of your own in C may"
                " have ended the process), correct the application file, and apply it by SIGHUP to process"
                f" {os.getpid()}"
            )
        return _PAUSE


def _page(stats: Callable[[], Mapping[str, Any]], address: str, token: str | None) -> MetricsPage:
    try:
        return MetricsPage(stats, address, token)
    except OSError as error:
        reason = f"the page for Prometheus can't be at {address}: {error.strerror}"
        raise ServiceFailed(f"{reason}; give service.metrics another address") from None


def _reason(refused: Exception) -> str:
    if isinstance(refused, OSError) and refused.filename is not None:
        return f"{refused.filename}: {refused.strerror}"
    return str(refused)
