"""The engine as a process: `python -m cepheid.service.process APP` runs an application's graph until SIGTERM.

It follows the log through shared memory, or with `log: none` runs an intake inside, whose log is in memory only; and it
serves consumers. It says in a line of JSON on standard output when it is ready.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from cepheid.app.application import Application
from cepheid.app.load import load
from cepheid.service.engine import Engine
from cepheid.service.intake import PRIORITY, IntakeConfig, IntakeThread
from cepheid.service.metrics import MetricsPage
from cepheid.service.outlet import Outlet


def consumers_address(app: Application) -> str:
    """Where consumers connect."""
    service = app.sections.service
    given = "unix:data/consumers.sock" if service is None else service.deliver
    scheme, _, path = given.partition(":")
    return f"unix:{app.folder / path}" if scheme == "unix" else given


def run(app: Application, *, token: str | None = None) -> int:
    """Runs the engine of an application until SIGTERM or SIGINT."""
    service = app.sections.service
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    with ExitStack() as stack:
        engine = stack.enter_context(Engine(app))
        ready: dict[str, object] = {"pid": os.getpid()}
        if service is not None and service.log is not None:
            engine.follow(app.folder / service.log.path)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="cepheid-")))
            intake = stack.enter_context(IntakeThread(_without_log(app, folder, token)))
            engine.follow(folder)
            ready["suppliers"] = list(intake.listening)
        outlet = stack.enter_context(Outlet(engine, consumers_address(app), token))
        if service is not None and service.metrics is not None:
            ready["metrics"] = stack.enter_context(MetricsPage(engine.stats, service.metrics, token)).url
        print(json.dumps(ready | {"consumers": outlet.address, "notices": engine.notices}), flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


def _without_log(app: Application, folder: Path, token: str | None) -> IntakeConfig:
    """An intake whose log is memory, and short."""
    service = app.sections.service
    given = "unix:data/cepheid.sock" if service is None else service.listen
    scheme, _, path = given.partition(":")
    return IntakeConfig(
        streams=list(app.graph.streams.values()),
        log=folder,
        listen=[f"unix:{app.folder / path}" if scheme == "unix" else given],
        durability="none",
        token=token,
        default_stream=app.sections.default_stream,
        segment_bytes=16 << 20,
        retain_bytes=64 << 20,
        priority=PRIORITY if service is None or service.prioritised else None,
    )


def main() -> int:
    """Runs the application that the first argument names; a token comes in the environment."""
    return run(load(sys.argv[1]), token=os.environ.get("CEPHEID_TOKEN"))


if __name__ == "__main__":
    sys.exit(main())
