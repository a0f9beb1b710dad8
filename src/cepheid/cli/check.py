"""`cepheid check APP`: every error at once, each with its place, a caret and a hint."""

from __future__ import annotations

import json
import sys

import click

from cepheid.app.meaning import examine_all


@click.command()
@click.argument("app", type=click.Path())
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="json is for editors and scripts."
)
@click.pass_context
def command(ctx: click.Context, app: str, form: str) -> None:
    """Say everything that is wrong with the application file APP. Exit 0 if nothing is, else 2.

    \b
    Example:
      cepheid check plant.yaml
    """
    application, diagnostics = examine_all(app)
    errors = sum(d.severity == "error" for d in diagnostics)
    warnings = len(diagnostics) - errors
    if form == "json":
        click.echo(json.dumps({"ok": errors == 0, "diagnostics": [d.as_json() for d in diagnostics]}, indent=2))
    else:
        color = sys.stdout.isatty()
        for diagnostic in diagnostics:
            click.echo(diagnostic.render(color) + "\n")
        if errors:
            click.echo(f"{app}: {_count(errors, 'error')}" + (f", {_count(warnings, 'warning')}" if warnings else ""))
        elif application is not None:
            graph = application.graph
            parts = [
                _count(len(graph.streams), "stream"),
                _count(len(graph.operators), "operator"),
                _count(len(graph.queries), "query", "queries"),
                _count(len(graph.consumers), "consumer"),
            ]
            ending = f"; {_count(warnings, 'warning')}" if warnings else ""
            click.echo(f"{app}: in order: {', '.join(parts)}{ending}")
    ctx.exit(2 if errors else 0)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
