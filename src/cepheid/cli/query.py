"""`cepheid query APP (NAME | -q TEXT)`: what a query finds in all that has come to an application."""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from cepheid.app import load
from cepheid.cli.cluster import on_cluster
from cepheid.cli.match import print_table
from cepheid.cli.progress import Progress
from cepheid.language import syntax
from cepheid.language.output import as_row
from cepheid.model.time import (
    TimeError,
    format_instant,
    in_zone,
    parse_duration,
    parse_instant,
    parse_local,
    with_zone,
    zone_of,
)

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from pyspark.sql import SparkSession

    from cepheid.history.answer import Answer, Done, Wanted
    from cepheid.history.asked import Asked
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
@click.option(
    "--marks",
    is_flag=True,
    help='With --follow, lines {"complete": "TIME"} between the matches: all those before that time were printed.',
)
@click.option("--gap", "gap_text", help="With --boundary lazy, how long the archive is given time: 10s.")
@click.option("--dry-run", "rehearses", is_flag=True, help="Say how many matches a day there were, instead.")
@click.option("--since", help="With --dry-run, from when on: -7d, or a time.")
@click.option("--to", "target", type=click.Choice(["sparql"]), help="Print the query in that language, instead.")
@click.option("--explain", "explains", is_flag=True, help="Say how it would be answered, and why, instead.")
@click.option("--now", "now_text", help="The time that `now` in the query means; left out, the clock's.")
@click.option(
    "--zone", "zone_name", help="By whose clocks --since, --now and tables are: America/Los_Angeles. Left out, UTC."
)
@on_cluster
def command(
    app: str,
    name: str | None,
    text: str | None,
    strategy: Wanted,
    form: Literal["jsonl", "table", "parquet"],
    follows: bool,
    boundary: Boundary,
    marks: bool,
    gap_text: str | None,
    rehearses: bool,
    since: str | None,
    target: str | None,
    explains: bool,
    now_text: str | None,
    zone_name: str | None,
    conf: dict[str, str],
) -> None:
    """Print what a query finds in all that has come to the application APP: its archive, and what is not archived yet.

    Matches come in order of time, as those of `cepheid match`. Without WITHIN all events are asked.

    \b
    Examples:
      cepheid query plant.yaml rising --format table
      cepheid query plant.yaml rising --dry-run --since -7d
      cepheid query plant.yaml -q 'SELECT ?e.id FROM (?e, air)'
    """
    if (name is None) == (text is None):
        raise click.UsageError("say which query: a NAME that the application has, or -q TEXT")
    if form == "parquet" and sys.stdout.isatty():
        raise click.UsageError("--format parquet writes bytes: send them into a file, > matches.parquet")
    zone = _zone(zone_name)
    now = _moment(now_text, zone)
    application = load(app)
    # Spark's modules take a second to load; mistakes are told before.
    from cepheid.history.asked import asked, named
    from cepheid.history.rehearsal import rehearsed, report

    if follows and form != "jsonl":
        raise click.UsageError(f"--follow has no end that --format {form} could wait for")
    if (boundary == "lazy" and not follows) or (gap_text is not None and boundary != "lazy"):
        raise click.UsageError("--boundary lazy is for --follow, and --gap for --boundary lazy")
    if marks and not follows:
        raise click.UsageError("--marks is for --follow: without it all matches are there when it ends")
    gap = _gap(gap_text)
    if rehearses is (since is None):
        raise click.UsageError("--dry-run and --since go together: --dry-run --since -7d")
    tree: str | syntax.Query = named(application, name) if name is not None else text or ""
    if since is not None:
        tree = rehearsed(tree, _since(since, now, zone))
    question = asked(application, tree, now, follows=follows)
    for warning in question.warnings:
        click.echo(warning.render(sys.stderr.isatty()), err=True)
    if target is not None:
        click.echo(_as_sparql(question), nl=False)
        return
    from cepheid.history.answer import Answer, PartialAnswer
    from cepheid.history.past import check_past, past_of
    from cepheid.spark.application import settings
    from cepheid.spark.session import session

    check_past(application)
    with Progress() as progress:
        progress.show("starting Spark", now=True)
        spark = session("cepheid query", **settings(application) | conf)
        progress.show("looking at what there is", now=True)
        answer = Answer(past_of(spark, application), question, strategy)
        if answer.missing is not None:
            progress.erase()
            click.echo(f"warning: {answer.missing}", err=True)
            warnings.simplefilter("ignore", PartialAnswer)  # it is said
        if answer.refused is not None:
            progress.erase()
            click.echo(f"note: rewrite can't give {answer.refused} exactly; hybrid is used", err=True)
        if explains:
            from cepheid.history.explain import explained

            progress.erase()
            click.echo("\n".join(explained(answer, name)))
        elif rehearses:
            with _watching(progress, spark, answer) as watch:
                lines = list(report(answer, zone, watch.note))
            click.echo("\n".join(lines))
        elif follows:
            _follow(answer, progress, spark, boundary, gap, marks=marks)
        else:
            _print(answer, form, progress, spark, zone)


def _as_sparql(question: Asked) -> str:
    from cepheid.history.sparql import to_sparql
    from cepheid.history.sql import NotExact

    try:
        return to_sparql(question)
    except NotExact as reason:
        raise NotExact(f"SPARQL can't give {reason} exactly. Take it out of the query, or ask without --to") from None


def _zone(name: str | None) -> ZoneInfo | None:
    try:
        return None if name is None else zone_of(name)
    except TimeError as error:
        raise click.BadParameter(str(error), param_hint="--zone") from None


def _moment(text: str | None, zone: ZoneInfo | None) -> int:
    """The time that --now gives; left out, the clock's."""
    now = time.time_ns() // 1000
    try:
        return now if text is None else parse_local(text if zone is None else with_zone(text, zone), now=now)
    except TimeError as error:
        raise click.BadParameter(str(error), param_hint="--now") from None


def _since(text: str, now: int, zone: ZoneInfo | None) -> int:
    from cepheid.history.rehearsal import since_of

    try:
        return since_of(text, now, zone)
    except TimeError as error:
        raise click.BadParameter(str(error), param_hint="--since") from None


def _gap(text: str | None) -> int:
    try:
        return 0 if text is None else parse_duration(text)
    except TimeError as error:
        raise click.BadParameter(str(error), param_hint="--gap") from None


def _follow(
    answer: Answer, progress: Progress, spark: SparkSession, boundary: Boundary, gap: int, *, marks: bool
) -> None:
    from cepheid.history.follow import follow

    def on_line(line: str) -> None:
        progress.erase()
        click.echo(line)

    def on_mark(mark: int) -> None:
        watch.end()  # the past is through
        if marks:
            on_line(json.dumps({"complete": format_instant(mark)}))
        progress.show(f"complete up to {format_instant(mark)}")

    with _watching(progress, spark, answer) as watch:
        follow(answer, on_line, boundary=boundary, gap=gap, on_mark=on_mark, on_part=watch.note)


def _print(answer: Answer, form: str, progress: Progress, spark: SparkSession, zone: ZoneInfo | None) -> None:
    with _watching(progress, spark, answer) as watch:
        lines = answer.lines(watch.note)
        if form == "jsonl":
            for line in lines:
                progress.erase()
                click.echo(line)
        elif form == "table":
            rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
            watch.end()
            print_table([_by_clocks(as_row(row), zone) for row in rows])
        else:
            from cepheid.history.parquet import write_parquet

            write_parquet(lines, answer.asked.checked, sys.stdout.buffer)


def _by_clocks(row: dict[str, str], zone: ZoneInfo | None) -> dict[str, str]:
    """A row with the time that the clocks of a zone show."""
    return row if zone is None else row | {"time": in_zone(parse_instant(row["time"]), zone).isoformat()}


class _Watch:
    """Shows how far an answer is, while Spark works on it."""

    def __init__(self, progress: Progress, spark: SparkSession, answer: Answer) -> None:
        self._progress, self._tracker = progress, spark.sparkContext.statusTracker()
        self._answer = answer
        self._done: Done | None = None
        self._began, self._ended = time.monotonic(), threading.Event()
        self._watcher = threading.Thread(target=self._look, daemon=True)
        if progress.is_shown:
            estimates = answer.choice.estimates
            self._expected = next(e for e in estimates if e.strategy == answer.strategy)
            self._watcher.start()

    def note(self, done: Done) -> None:
        """A portion of the range is through."""
        self._done = done
        if done.portion == done.portions:
            self.end()  # what is left is to hand over what was found

    def _look(self) -> None:
        while not self._ended.wait(_LOOK):
            stages = [self._tracker.getStageInfo(number) for number in self._tracker.getActiveStageIds()]
            tasks = [(s.numCompletedTasks, s.numTasks) for s in stages if s is not None]
            self._progress.show(self._line(*(sum(part) for part in zip(*tasks, strict=True)) if tasks else (0, 0)))

    def _line(self, finished: int, tasks: int) -> str:
        past = time.monotonic() - self._began
        text = f"asking the past ({self._answer.strategy}): about {self._expected.events:,} events"
        if self._done is not None:
            text += f", {self._done.matches:,} matches up to {format_instant(self._done.until)}"
        return (
            text
            + (f", {finished} of {tasks} tasks" if tasks else "")
            + f", {past:.0f} of about {self._expected.seconds:.0f} s"
        )

    def end(self) -> None:
        """No more to show."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._watcher.is_alive():
            self._watcher.join()
        self._progress.erase()


@contextmanager
def _watching(progress: Progress, spark: SparkSession, answer: Answer) -> Iterator[_Watch]:
    watch = _Watch(progress, spark, answer)
    try:
        yield watch
    finally:
        watch.end()
