"""`cepheid explain APP [QUERY]`: the logical, optimised and physical plans."""

from __future__ import annotations

import json
import sys

import click

from cepheid.app import Application, load
from cepheid.model.names import suggestion
from cepheid.plan.explain import as_mermaid, as_text, describe
from cepheid.plan.planner import Plan
from cepheid.plan.typing import derive


@click.command()
@click.argument("app", type=click.Path())
@click.argument("query", required=False)
@click.option("--format", "form", type=click.Choice(["text", "json", "mermaid"]), default="text")
def command(app: str, query: str | None, form: str) -> None:
    """Show what the planner made of the application file APP; of one QUERY, operator or consumer if named.

    \b
    Examples:
      cepheid explain plant.yaml
      cepheid explain plant.yaml rising
      cepheid explain plant.yaml --format mermaid > plan.mmd
    """
    application = load(app)
    graph = application.graph
    plan = application.plan()
    if query is not None:
        query = next((kept for kept, others in plan.shared.items() if query in others), query)
        known = [*graph.producers(), *graph.consumers]
        if query not in known:
            raise click.UsageError(
                f"{app} has no query '{query}'; {suggestion(query, known) or f'`cepheid explain {app}` shows all'}"
            )
    described = describe(plan, application.name, query, application.topics, strategies(application, plan))
    if form == "json":
        click.echo(json.dumps(described, indent=2, ensure_ascii=False))
    else:
        click.echo(_with_headings(as_text(described)) if form == "text" else as_mermaid(described))


def strategies(application: Application, plan: Plan) -> dict[str, dict[str, str | None]] | None:
    """How each query can be asked about the past, if that is kept."""
    if application.sections.archive is None or not plan.queries:
        return None
    from cepheid.history.explain import possible

    streams = derive(plan.graph).streams
    return {name: possible(checked, streams) for name, checked in plan.queries.items()}


def _with_headings(text: str) -> str:
    """Headings stand out on a terminal."""
    if not sys.stdout.isatty():
        return text
    lines = text.splitlines()
    return "\n".join(line if line.startswith(" ") else click.style(line, bold=True) for line in lines)
