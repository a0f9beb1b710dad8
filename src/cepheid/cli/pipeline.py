"""`cepheid pipeline APP`: what of an application runs on Spark, until it is interrupted."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from cepheid.app import load
from cepheid.cli.cluster import on_cluster
from cepheid.cli.signals import heard
from cepheid.history.pipeline import Pipeline, Status, needs_kafka
from cepheid.language.errors import Rejected
from cepheid.spark.application import settings
from cepheid.spark.pools import pools
from cepheid.spark.session import session, with_kafka

#: Seconds between two looks at how the parts fare, and between two words on it.
_LOOK: Final = 1.0
_WORD: Final = 10.0


@click.command()
@click.argument("app", type=click.Path())
@click.option("--once", is_flag=True, help="End when what is there now went through.")
@on_cluster
def command(app: str, once: bool, conf: dict[str, str]) -> None:
    """Archive the events of the application file APP with Spark, and run its queries that are placed there.

    Events come from the log of the application's service and from files. On SIGHUP it goes on with what is in APP now:
    queries come and go, and the others notice nothing.

    \b
    Example:
      cepheid pipeline plant.yaml --once
    """
    application = load(app)
    stopped = heard()
    with tempfile.TemporaryDirectory(prefix="cepheid-") as folder:
        _say("starting Spark")
        given = settings(application) | pools(application.graph.levels, Path(folder)) | conf
        if needs_kafka(application):
            given |= with_kafka(conf.get("spark.jars"))
        spark = session(f"cepheid {application.name}", **given)
        try:
            with Pipeline(spark, application, token=os.environ.get("CEPHEID_TOKEN"), say=click.echo) as pipeline:
                _say(f"running: {', '.join(status.name for status in pipeline.status())}")
                if once:
                    pipeline.process_all()
                    pipeline.tidy()
                else:
                    _watch(pipeline, app, stopped)
                for line in table(pipeline.status()):
                    _say(line)
        finally:
            spark.stop()


def _watch(pipeline: Pipeline, app: str, stopped: socket.socket) -> None:
    """Looks after the parts until a signal says to stop."""
    # Spark has put a handler of its own there, which would break off what is under way.
    signal.signal(signal.SIGINT, lambda *_: None)
    since_word = 0.0
    said: list[str] = []
    while True:
        readable, _, _ = select.select([stopped], [], [], _LOOK)
        if readable:
            if set(stopped.recv(64)) != {signal.SIGHUP}:
                return
            try:
                changes = pipeline.apply(load(app))
            except Rejected as rejected:
                _say("\n".join(d.render(color=sys.stderr.isatty()) for d in rejected.diagnostics))
                _say("nothing was changed")
                continue
            except (OSError, ValueError) as error:
                _say(f"{error}\nnothing was changed")
                continue
            _say(
                ", ".join(f"{how}: {' '.join(names)}" for how, names in changes.items() if names) or "nothing to change"
            )
        pipeline.tend()
        since_word += _LOOK
        if since_word >= _WORD:
            since_word = 0.0
            lines = list(table(pipeline.status()))
            if lines != said:
                said = lines
                _say("\n".join(lines))


def table(status: Sequence[Status]) -> Iterator[str]:
    """How far each part has come, for people."""
    width = max((len(s.name) for s in status), default=4)
    yield f"{'part':{width}}  {'level':10}  {'state':8} {'events':>12} {'per second':>11} {'behind':>10}"
    for s in status:
        behind = "" if s.lag is None else f"{s.lag:,}"
        reason = "" if s.state == "running" or s.reason is None else f"  {s.reason}"
        yield (
            f"{s.name:{width}}  {s.level:10}  {s.state:8} {s.events:>12,} {s.per_second:>11,.0f} {behind:>10}{reason}"
        )


def _say(text: str) -> None:
    click.echo(text, err=True)
