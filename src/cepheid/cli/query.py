"""`cepheid query APP (NAME | -q TEXT)`: what a query finds in what an application has archived."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from cepheid.app import load
from cepheid.cli.match import moment
from cepheid.cli.progress import Progress

if TYPE_CHECKING:
    pass


@click.command()
@click.argument("app", type=click.Path())
@click.argument("name", required=False)
@click.option("-q", "--query", "text", help="The query itself, instead of the NAME that the application has for one.")
@click.option("--strategy", type=click.Choice(["hybrid", "replay"]), default="hybrid", show_default=True)
@click.option("--format", "form", type=click.Choice(["jsonl", "table"]), default="jsonl", show_default=True)
@click.option("--now", "now_text", help="The time that `now` in the query means; left out, the clock's.")
def command(app: str, name: str | None, text: str | None, strategy: str, form: str, now_text: str | None) -> None:
    """Print what a query finds in the events that the application APP has archived, in order of time."""
    if (name is None) == (text is None):
        raise click.UsageError("say which query: a NAME that the application has, or -q TEXT")
    now = moment(now_text)
    application = load(app)
    from cepheid.history.answer import Answer
    from cepheid.history.asked import asked, named
    from cepheid.history.past import Past, archive_for

    question = asked(application, named(application, name) if name is not None else text, now)
    for warning in question.warnings:
        click.echo(warning.render(sys.stderr.isatty()), err=True)
    archive = archive_for(application, question.streams)
    with Progress() as progress:
        progress.show("starting Spark", now=True)
        from cepheid.spark.session import session

        spark = session("cepheid query")
        progress.show("looking at the archive", now=True)
        answer = Answer(Past(spark, archive), question, strategy)
        progress.show(f"matching ({strategy})", now=True)
        for line in answer.lines():
            progress.erase()
            click.echo(line)
