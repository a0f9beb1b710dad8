"""`cepheid demo`: the campus, whole, on one machine; ends by itself with a summary whose books balance."""

from __future__ import annotations

import itertools
import signal
import sys
from pathlib import Path

import click

from cepheid.demo.run import Demo, FolderTaken


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("cepheid-demo"),
    show_default=True,
    help="Where the application is put, with its log and archive.",
)
@click.option(
    "--sensors", type=click.IntRange(200, 50_000), default=700, show_default=True, help="How many the campus has."
)
@click.option("--seed", type=int, default=2012, show_default=True, help="The same seed, the same campus.")
@click.option("--serve", is_flag=True, help="Then keep it running, until it is interrupted.")
@click.pass_context
def command(ctx: click.Context, folder: Path, sensors: int, seed: int, serve: bool) -> None:
    """Run 40 minutes of a campus in about two: intake, real-time service, Spark pipeline and archive; queries live and
    back in time; and a crash in the middle.

    Exit 0 if every query found the same live and back in time, and what was put there, and the books balance.

    \b
    Examples:
      cepheid demo
      cepheid demo --serve
      cepheid top cepheid-demo/app.yaml    # in another terminal, while it runs
    """
    numbers = itertools.count(1)

    def step(text: str) -> None:
        sign = f"[{next(numbers)}/{demo.steps}]"
        click.echo(f"{click.style(sign, bold=True) if sys.stdout.isatty() else sign} {text}")

    demo = Demo(folder, sensors, seed, step, lambda text: click.echo(f"      {text}" if text else ""))
    try:
        good = demo.run(signal.pause if serve else None)
    except FolderTaken as taken:
        raise click.UsageError(str(taken)) from None
    ctx.exit(0 if good else 1)
