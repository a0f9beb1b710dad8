"""Changes a service while it runs: what is asked, what is checked, and what a crash leaves.

The supervisor keeps what was last applied, and a part that dies is started with that. The engine knows new streams
before the intake takes events of them, and those that are removed until the log has the last one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

from cepheid.app.application import Application
from cepheid.app.load import load
from cepheid.language.errors import Rejected
from cepheid.service.changes import Changes
from cepheid.service.intake import IntakeError
from cepheid.service.wire import connect

#: Of the section `service`, what is fixed while it runs.
_FIXED: Final = ("listen", "deliver", "metrics", "cores", "log", "prioritised")
#: How long a change may take before who asked for it gives up, seconds.
_PATIENCE: Final = 60.0


class NotApplied(ValueError):
    """The service goes on as it was."""


class Changeable(Protocol):
    """A service, to who changes it."""

    app: Application

    @property
    def changing(self) -> AbstractContextManager[object]:
        """Held by who changes what runs."""

    def keep(self, app: Application) -> None:
        """From now on, parts that are started are told this application. ValueError if it can't be run."""

    def change_engine(self) -> Changes:
        """The engine goes on with what is kept. ValueError if it can't."""

    def reload_intake(self) -> None:
        """The intake goes on with what is kept. IntakeError if it can't."""


class Control:
    """Applies changes to a service, one at a time."""

    def __init__(self, service: Changeable, path: Path) -> None:
        self._service = service
        self._path = path

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
        if path is not None and Path(path).resolve() != self._path.resolve():
            raise NotApplied(f"this service runs {self._path.resolve()}: give that file")
        service = self._service
        with service.changing:
            before, app = service.app, load(self._path)
            _check_fixed(before, app)
            # Before anything changes: a part that dies in the middle begins with it.
            service.keep(app)
            try:
                changes = service.change_engine()
            except BaseException:
                service.keep(before)
                raise
            try:
                service.reload_intake()
            except BaseException:
                service.keep(before)
                service.change_engine()
                raise
            return changes


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
        raise NotApplied(
            f"no service answers at {address} ({error.strerror or error}); start it: cepheid service {path}"
        ) from None
    if not line:
        raise NotApplied("the service ended while it changed; ask again, what is done already is not done twice")
    answer = json.loads(line)
    if "error" in answer:
        raise NotApplied(answer["error"])
    return Changes.of(answer["changes"])
