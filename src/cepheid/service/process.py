"""The engine as a process: `python -m cepheid.service.process APP STATE` runs an application's graph until SIGTERM.

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
from cepheid.service.changes import Changes
from cepheid.service.control import Applied, Control, reload_process
from cepheid.service.derived import streams_of
from cepheid.service.engine import Engine
from cepheid.service.intake import PRIORITY, IntakeConfig, IntakeThread, suppliers_address
from cepheid.service.metrics import MetricsPage
from cepheid.service.outlet import Outlet


def consumers_address(app: Application) -> str:
    """Where consumers connect."""
    service = app.sections.service
    given = "unix:data/consumers.sock" if service is None else service.deliver
    scheme, _, path = given.partition(":")
    return f"unix:{app.folder / path}" if scheme == "unix" else given


def run(path: str, applied: Applied, *, token: str | None = None) -> int:
    """Runs the engine of an application until SIGTERM or SIGINT; SIGHUP makes it go on with the file as it is then."""
    numbers = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    was_changed = applied.intake() is not None
    app = applied.application(path)
    service = app.sections.service
    with ExitStack() as stack:
        engine = stack.enter_context(Engine(app))
        ready: dict[str, object] = {"pid": os.getpid()}
        if service is not None and service.log is not None:
            tell = reload_process(applied, token)
            if was_changed:
                tell(app)  # the last engine may not have come to it
            engine.follow(app.folder / service.log.path, intake=suppliers_address(app), token=token)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="cepheid-")))
            intake = stack.enter_context(IntakeThread(_without_log(app, folder, token)))
            engine.follow(folder, intake=intake.address, token=token)
            ready["suppliers"] = list(intake.listening)

            def tell(app: Application) -> None:
                intake.reload(_without_log(app, folder, token))

        control = Control(engine, app, path, applied, tell, token)
        outlet = stack.enter_context(Outlet(engine, consumers_address(app), token, {"apply": control.answer}))
        if service is not None and service.metrics is not None:
            ready["metrics"] = stack.enter_context(MetricsPage(engine.stats, service.metrics, token)).url
        print(json.dumps(ready | {"consumers": outlet.address, "notices": engine.notices}), flush=True)
        while signal.sigwait(numbers) == signal.SIGHUP:
            answer = control.answer({})
            said = [answer["error"]] if "error" in answer else Changes.of(answer["changes"]).lines()
            head = "the application was not applied:" if "error" in answer else "the application was applied:"
            print("\n".join([head, *said]), file=sys.stderr, flush=True)
    return 0


def _without_log(app: Application, folder: Path, token: str | None) -> IntakeConfig:
    """An intake whose log is memory, and short."""
    return IntakeConfig(
        streams=streams_of(app.plan()),
        log=folder,
        listen=[suppliers_address(app)],
        durability="none",
        token=token,
        default_stream=app.sections.default_stream,
        segment_bytes=16 << 20,
        retain_bytes=64 << 20,
        priority=PRIORITY if app.sections.service is None or app.sections.service.prioritised else None,
    )


def main() -> int:
    """Runs the application that the first argument names, or what was last applied of it by the folder that the second
    names; a token comes in the environment."""
    path, folder = sys.argv[1:]
    return run(path, Applied(Path(folder)), token=os.environ.get("CEPHEID_TOKEN"))


if __name__ == "__main__":
    sys.exit(main())
