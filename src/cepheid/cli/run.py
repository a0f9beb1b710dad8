"""`cepheid run APP`: an application whole: intake, real-time service and Spark pipeline, until it is interrupted."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from typing import Final

import click

from cepheid.app import load
from cepheid.cli.cluster import on_cluster
from cepheid.cli.signals import heard

#: The pipeline is started again when it dies, unless it did so this often within `_WINDOW` seconds.
_DEATHS: Final = 5
_WINDOW: Final = 300.0
#: How long a part has to end in order.
_PATIENCE: Final = 60.0
_LIBC: Final = ctypes.CDLL(None)


@click.command()
@click.argument("app", type=click.Path())
@on_cluster
def command(app: str, conf: dict[str, str]) -> None:
    """Run the application file APP: intake and real-time service, and the pipeline on Spark.

    The service and the pipeline are processes of their own; neither stops when the other dies, and both are started
    again. On SIGHUP both go on with what is in APP now.

    \b
    Examples:
      cepheid run plant.yaml
      cepheid run plant.yaml --conf spark.driver.memory=4g
    """
    application = load(app)  # what is wrong is said once, and before anything starts
    settings = [text for key, value in conf.items() for text in ("--conf", f"{key}={value}")]
    commands = {"pipeline": ["pipeline", app, *settings]}
    if application.sections.service is not None:
        commands = {"service": ["service", app], **commands}
    stopped = heard()
    parts = {name: _start(arguments) for name, arguments in commands.items()}
    deaths: dict[str, list[float]] = {name: [] for name in parts}
    try:
        while True:
            watched = {os.pidfd_open(process.pid): name for name, process in parts.items()}
            try:
                readable, _, _ = select.select([stopped.fileno(), *watched], [], [])
            finally:
                for descriptor in watched:
                    os.close(descriptor)
            if stopped.fileno() in readable:
                if set(stopped.recv(64)) != {signal.SIGHUP}:
                    click.echo("stopping", err=True)
                    break
                for process in parts.values():
                    process.send_signal(signal.SIGHUP)
            for name in [watched[descriptor] for descriptor in readable if descriptor in watched]:
                code, now = parts[name].wait(), time.monotonic()
                if code == 2:  # a mistake in what was given; it has said which
                    raise click.ClickException(f"the {name} can't run")
                deaths[name] = [*(death for death in deaths[name] if now - death < _WINDOW), now]
                if len(deaths[name]) >= _DEATHS:
                    raise click.ClickException(f"the {name} died {_DEATHS} times, last with code {code}")
                click.echo(f"the {name} died with code {code}, and is started again", err=True)
                parts[name] = _start(commands[name])
    finally:
        for process in parts.values():
            process.send_signal(signal.SIGTERM)
        for process in parts.values():
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
    click.echo("stopped; the next start goes on from here", err=True)


def _start(arguments: list[str]) -> subprocess.Popen[bytes]:
    # In a group of its own: an interrupt from the keyboard comes to this process, which ends the others in order.
    command = [sys.executable, "-m", "cepheid.cli.main", *arguments]
    return subprocess.Popen(command, start_new_session=True, preexec_fn=_end_with_parent)


def _end_with_parent() -> None:
    """The process gets SIGTERM when the one that started it is gone, however that was (prctl, PR_SET_PDEATHSIG)."""
    _LIBC.prctl(1, signal.SIGTERM)
