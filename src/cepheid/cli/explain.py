"""`cepheid explain APP [QUERY]`: the logical, optimised and physical plans."""

from __future__ import annotations

import json
import sys

import click

from cepheid.app import load
from cepheid.model.names import suggestion
from cepheid.plan.explain import as_mermaid, as_text, describe


@click.command()
@click.argument("app", type=click.Path())
@click.argument("query", required=False)
@click.option("--format", "form", type=click.Choice(["text", "json", "mermaid"]), default="text")
def command(app: str, query: str | None, form: str) -> None:
    """Show what the planner made of the application file APP; of one QUERY, operator or consumer if named."""
    application = load(app)
    graph = application.graph
    plan = application.plan()
    if query is not None:
        query = next((kept for kept, others in plan.shared.items() if query in others), query)
        known = [*graph.producers(), *graph.consumers]
        if query not in known:
            raise click.UsageError(f"{app} has no query '{query}'; {suggestion(query, known)}")
    described = describe(plan, application.name, query)
    if form == "json":
        click.echo(json.dumps(described, indent=2, ensure_ascii=False))
    else:
        click.echo(_with_headings(as_text(described)) if form == "text" else as_mermaid(described))


def _with_headings(text: str) -> str:
    """Headings stand out on a terminal."""
    if not sys.stdout.isatty():
        return text
    lines = text.splitlines()
    return "\n".join(line if line.startswith(" ") else click.style(line, bold=True) for line in lines)
