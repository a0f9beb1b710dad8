"""`cepheid bench [NAME]`: runs an experiment of the source tree, each in a process of its own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import click

import cepheid
from cepheid.model.names import suggestion


@click.command()
@click.argument("name", required=False)
@click.option("--peer", help="Measure beside this peer only.")
@click.option("--quick", is_flag=True, help="A short form, for a look.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("bench-results"),
    help="Folder of the reports.",
    show_default=True,
)
def command(name: str | None, peer: str | None, quick: bool, out: Path) -> None:
    """Run the experiment NAME: JSON, plots and an HTML report. Without a name, list them.

    \b
    Examples:
      cepheid bench
      cepheid bench planner --quick
    """
    experiments = _experiments()
    if name is None:
        for known, script in experiments.items():
            click.echo(f"{known.ljust(12)}  {_first_line(script)}")
        return
    if name not in experiments:
        raise click.UsageError(
            f"no experiment '{name}'; {suggestion(name, experiments) or '`cepheid bench` lists them'}"
        )
    script = experiments[name]
    options = [*(["--quick"] if quick else []), *(["--peer", peer] if peer else [])]
    paths = [str(script.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, str(script), "--out", str(out / name), *options],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    if done.returncode:
        raise click.ClickException(f"the experiment ended with code {done.returncode}")


def _experiments() -> dict[str, Path]:
    """The experiments of the source tree that this package was installed from, or of the one we stand in."""
    for root in (Path(cepheid.__file__).parents[2], Path.cwd()):
        found = sorted((root / "bench").glob("*/run*.py"))
        if found:
            return {_name(script): script for script in found}
    raise click.ClickException("the experiments are in the source tree: clone the project and run this in its folder")


def _name(script: Path) -> str:
    """`planner` of planner/run.py, `cpep-1` of cpep/run_1.py."""
    return script.parent.name + script.stem.removeprefix("run").replace("_", "-")


def _first_line(script: Path) -> str:
    return (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").split("\n", 1)[0]
