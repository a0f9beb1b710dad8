"""`cepheid query APP (NAME | -q TEXT)`: what a query finds in all that has come to an application."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from cepheid.app import load
from cepheid.cli.match import moment, print_table
from cepheid.cli.progress import Progress
from cepheid.language import syntax
from cepheid.language.output import as_row
from cepheid.model.time import TimeError, format_instant, parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cepheid.history.answer import Answer, Wanted
    from cepheid.history.boundary import Boundary

#: Seconds between two looks at how far Spark is.
_LOOK: Final = 0.5


@click.command()
@click.argument("app", type=click.Path())
@click.argument("name", required=False)
@click.option("-q", "--query", "text", help="The query itself, instead of the NAME that the application has for one.")
@click.option(
    "--strategy",
    type=click.Choice(["auto", "replay", "rewrite", "hybrid"]),
    default="auto",
    show_default=True,
    help="How the past is asked; all give the same matches.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "table", "parquet"]),
    default="jsonl",
    show_default=True,
    help="parquet is for a file: cepheid query ... --format parquet > matches.parquet",
)
@click.option("--follow", "follows", is_flag=True, help="Go on with what comes; ends where WITHIN does.")
@click.option(
    "--boundary",
    type=click.Choice(["seeded", "lazy"]),
    default="seeded",
    show_default=True,
    help="With --follow, how matches that span past and live are found: by the live matcher, or later in the archive.",
)
@click.option("--gap", "gap_text", help="With --boundary lazy, how long the archive is given time: 10s.")
@click.option("--dry-run", "rehearses", is_flag=True, help="Say how many matches a day there were, instead.")
@click.option("--since", help="With --dry-run, from when on: -7d, or a time.")
@click.option("--to", "target", type=click.Choice(["sparql"]), help="Print the query in that language, instead.")
@click.option("--explain", "explains", is_flag=True, help="Say how it would be answered, and why, instead.")
@click.option("--now", "now_text", help="The time that `now` in the query means; left out, the clock's.")
def command(
    app: str,
    name: str | None,
    text: str | None,
    strategy: Wanted,
    form: Literal["jsonl", "table", "parquet"],
    follows: bool,
    boundary: Boundary,
    gap_text: str | None,
    rehearses: bool,
    since: str | None,
    target: str | None,
    explains: bool,
    now_text: str | None,
) -> None:
    """Print what a query finds in all that has come to the application APP: its archive, and what is not archived yet.

    Matches come in order of time, as those of `cepheid match`. Without WITHIN all events are asked.
    """
    if (name is None) == (text is None):
        raise click.UsageError("say which query: a NAME that the application has, or -q TEXT")
    if form == "parquet" and sys.stdout.isatty():
        raise click.UsageError("--format parquet writes bytes: send them into a file, > matches.parquet")
    now = moment(now_text)
    application = load(app)
    # Spark's modules take a second to load; mistakes are told before.
    from cepheid.history.asked import asked, named
    from cepheid.history.rehearsal import rehearsed, report

    if follows and form != "jsonl":
        raise click.UsageError(f"--follow has no end that --format {form} could wait for")
    if (boundary == "lazy" and not follows) or (gap_text is not None and boundary != "lazy"):
        raise click.UsageError("--boundary lazy is for --follow, and --gap for --boundary lazy")
    gap = _gap(gap_text)
    if rehearses is (since is None):
        raise click.UsageError("--dry-run and --since go together: --dry-run --since -7d")
    tree: str | syntax.Query = named(application, name) if name is not None else text or ""
    if since is not None:
        tree = rehearsed(tree, _since(since, now))
    question = asked(application, tree, now, follows=follows)
    for warning in question.warnings:
        click.echo(warning.render(sys.stderr.isatty()), err=True)
    if target is not None:
        from cepheid.history.sparql import to_sparql

        click.echo(to_sparql(question), nl=False)
        return
    from cepheid.history.answer import Answer
    from cepheid.history.past import check_past, past_of
    from cepheid.spark.session import session

    check_past(application)
    with Progress() as progress:
        progress.show("starting Spark", now=True)
        spark = session("cepheid query")
        progress.show("looking at what there is", now=True)
        answer = Answer(past_of(spark, application), question, strategy)
        if answer.refused is not None:
            progress.erase()
            click.echo(f"note: rewrite can't give {answer.refused} exactly; hybrid is used", err=True)
        if explains:
            from cepheid.history.explain import explained

            progress.erase()
            click.echo("\n".join(explained(answer)))
        elif rehearses:
            with _watching(progress, spark, answer.strategy) as done:
                lines = list(report(answer))
                done()
            click.echo("\n".join(lines))
        elif follows:
            _follow(answer, progress, boundary, gap)
        else:
            _print(answer, form, progress, spark)


def _since(text: str, now: int) -> int:
    from cepheid.history.rehearsal import since_of

    try:
        return since_of(text, now)
    except TimeError as error:
        raise click.BadParameter(str(error), param_hint="--since") from None


def _gap(text: str | None) -> int:
    try:
        return 0 if text is None else parse_duration(text)
    except TimeError as error:
        raise click.BadParameter(str(error), param_hint="--gap") from None


def _follow(answer: Answer, progress: Progress, boundary: Boundary, gap: int) -> None:
    from cepheid.history.follow import follow

    def on_line(line: str) -> None:
        progress.erase()
        click.echo(line)

    def on_mark(mark: int) -> None:
        progress.show(f"complete up to {format_instant(mark)}")

    follow(answer, on_line, boundary=boundary, gap=gap, on_mark=on_mark)


def _print(answer: Answer, form: str, progress: Progress, spark: SparkSession) -> None:
    with _watching(progress, spark, answer.strategy) as done:
        lines = answer.lines(on_found=lambda total: done())
        if form == "jsonl":
            for line in lines:
                click.echo(line)
        elif form == "table":
            rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
            print_table([as_row(row) for row in rows])
        else:
            from cepheid.history.parquet import write_parquet

            write_parquet(lines, answer.asked.checked, sys.stdout.buffer)


@contextmanager
def _watching(progress: Progress, spark: SparkSession, strategy: str) -> Iterator[Any]:
    """Shows how far Spark is, until what this gives is called."""
    ended = threading.Event()
    began = time.monotonic()

    def look() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(_LOOK):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            tasks = [(s.numCompletedTasks, s.numTasks) for s in stages if s is not None]
            done, total = (sum(part) for part in zip(*tasks, strict=True)) if tasks else (0, 0)
            counted = f", {done} of {total} tasks" if total else ""
            progress.show(f"asking the past ({strategy}){counted}, {time.monotonic() - began:.0f} s")

    watcher = threading.Thread(target=look, daemon=True)

    def done() -> None:
        ended.set()
        if watcher.is_alive():
            watcher.join()
        progress.erase()

    if progress.is_shown:
        watcher.start()
    try:
        yield done
    finally:
        done()
