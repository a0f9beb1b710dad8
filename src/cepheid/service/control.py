"""Changes a service while it runs: what is asked, what is checked, and what a crash leaves.

A service goes by what was last applied, which is kept in a folder of its own for as long as it runs: the next engine
after a crash starts from that, and tells the intake too, so that a change that was cut short is finished. The engine
knows new streams before the intake takes events of them, and those that are removed until the log has the last one.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cepheid.app.application import Application
from cepheid.app.saved import restore, save
from cepheid.language.errors import Rejected
from cepheid.service.changes import Changes
from cepheid.service.engine import Engine
from cepheid.service.intake import IntakeConfig, IntakeError, config_of, reload, suppliers_address
from cepheid.service.wire import connect

#: Of the section `service`, what is fixed while it runs.
_FIXED: Final = ("listen", "deliver", "metrics", "cores", "log", "prioritised")
#: How long a change may take before who asked for it gives up, seconds.
_PATIENCE: Final = 60.0


class NotApplied(ValueError):
    """The service goes on as it was."""


class Applied:
    """What a service goes by, in a folder: the application that was last applied, and what the intake is told."""

    def __init__(self, folder: Path) -> None:
        self._application = folder / "application.json"
        self._intake = folder / "intake.json"
        self._pid = folder / "intake.pid"

    def application(self, path: str) -> Application:
        """What was last applied; in the beginning, what is in the file."""
        if self._application.exists():
            return restore(self._application.read_text(encoding="utf-8"))
        application, text = save(path)
        self.keep(text)
        return application

    @property
    def text(self) -> str:
        """What was last applied."""
        return self._application.read_text(encoding="utf-8")

    def keep(self, text: str, intake: IntakeConfig | None = None) -> None:
        """Says what the service goes by from now on."""
        if intake is not None:
            _write(self._intake, intake.to_json())
        _write(self._application, text)

    def intake(self) -> bytes | None:
        """What an intake that is started is told, if that has changed since the service began."""
        return self._intake.read_bytes() if self._intake.exists() else None

    def intake_started(self, pid: int) -> None:
        """Says which process the intake is."""
        _write(self._pid, str(pid))

    def wake_intake(self) -> None:
        """Makes the intake look at its streams again."""
        os.kill(int(self._pid.read_text(encoding="utf-8")), signal.SIGHUP)


def _write(path: Path, text: str) -> None:
    written = path.with_suffix(".new")
    written.write_text(text, encoding="utf-8")
    written.replace(path)


class Control:
    """Applies changes to the engine of this process and its intake, one at a time."""

    def __init__(
        self,
        engine: Engine,
        app: Application,
        path: str,
        applied: Applied,
        reload_intake: Callable[[Application], None],
        token: str | None = None,
    ) -> None:
        self._engine = engine
        self._app = app
        self._path = path
        self._applied = applied
        self._reload_intake = reload_intake
        self._token = token
        self._lock = threading.Lock()

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """For who asks over a socket, with the file's path: `changes`, or `error`, and then nothing has changed."""
        path = asked.get("apply")
        try:
            return {"changes": self.apply(path if isinstance(path, str) else None).to_json()}
        except Rejected as rejected:
            return {"error": "\n".join(diagnostic.render() for diagnostic in rejected.diagnostics)}
        except (ValueError, IntakeError, OSError) as refused:
            return {"error": str(refused)}

    def apply(self, path: str | None = None) -> Changes:
        """Goes on with what is in the application file now. Rejected if that is wrong, NotApplied if it can't be."""
        if path is not None and Path(path).resolve() != Path(self._path).resolve():
            raise NotApplied(f"this service runs {Path(self._path).resolve()}: give that file")
        with self._lock:
            app, text = save(self._path)
            _check_fixed(self._app, app)
            before = self._applied.text
            # Before anything changes: a crash in the middle leaves it to the next engine to finish.
            self._applied.keep(text, self._told(app))
            try:
                changes = self._engine.apply(app)
            except BaseException:
                self._applied.keep(before, self._told(self._app))
                raise
            try:
                self._reload_intake(app)
            except BaseException:
                self._engine.apply(self._app)
                self._applied.keep(before, self._told(self._app))
                raise
            self._app = app
            return changes

    def _told(self, app: Application) -> IntakeConfig | None:
        service = app.sections.service
        return config_of(app, token=self._token) if service is not None and service.log is not None else None


def reload_process(applied: Applied, token: str | None) -> Callable[[Application], None]:
    """How the intake's process is told the streams of an application."""

    def tell(app: Application) -> None:
        reload(config_of(app, token=token), suppliers_address(app), applied.wake_intake)

    return tell


def _check_fixed(before: Application, after: Application) -> None:
    old, new = before.sections.service, after.sections.service
    differing = [name for name in _FIXED if getattr(old, name, None) != getattr(new, name, None)]
    if differing:
        names = ", ".join(f"service.{name}" for name in differing)
        raise NotApplied(f"{names} can't change while the service runs: stop it and start it again")
    if before.name != after.name:
        raise NotApplied("the application has another name: stop the service and start it again")


def ask(address: str, path: str, token: str | None = None) -> Changes:
    """Makes the service at an address go on with its application file; NotApplied with its reasons if it does not."""
    hello = {"apply": str(Path(path).resolve())} | ({} if token is None else {"token": token})
    try:
        with connect(address, _PATIENCE) as connection, connection.makefile("rb") as lines:
            connection.sendall(json.dumps(hello).encode() + b"\n")
            line = lines.readline()
    except OSError as error:
        raise NotApplied(f"no service answers at {address}: {error}") from None
    if not line:
        raise NotApplied("the service ended while it changed; ask again, what is done already is not done twice")
    answer = json.loads(line)
    if "error" in answer:
        raise NotApplied(answer["error"])
    return Changes.of(answer["changes"])
