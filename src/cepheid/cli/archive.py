"""`cepheid archive`: what an application's archive holds, its care, and its events as files."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from cepheid.app import Application, load
from cepheid.cli.cluster import on_cluster
from cepheid.cli.match import moment
from cepheid.model.names import suggestion
from cepheid.model.time import format_instant
from cepheid.service.derived import streams_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cepheid.spark.archive import Archive


@click.group()
def command() -> None:
    """Look at an application's archive, compact it, and take events out of it as files."""


@command.command()
@click.argument("app", type=click.Path())
@on_cluster
def stats(app: str, conf: dict[str, str]) -> None:
    """Say what the archive of APP holds: events, dead letters and matches, since when, in how many files, and how many
    of these are so small that they are better made one."""
    application, archive, spark = _opened(app, conf)
    from cepheid.spark.care import stats

    click.echo(f"{'table':24} {'rows':>12} {'late':>8} {'days':>5} {'files':>6} {'small':>6} {'size':>9}  from, to")
    for table in stats(spark, archive, streams_of(application.plan()), [*application.sections.queries]):
        span = "" if table.first is None else f"{_shown(table.first)}, {_shown(table.last)}"
        size = "" if table.size is None else f"{table.size / 1e6:,.1f} MB"
        small = "" if table.small is None else f"{table.small:,}"
        figures = f"{table.rows:>12,} {table.late:>8,} {table.days:>5,} {table.files:>6,} {small:>6} {size:>9}"
        click.echo(f"{table.table:24} {figures}  {span}")


@command.command()
@click.argument("app", type=click.Path())
@on_cluster
def compact(app: str, conf: dict[str, str]) -> None:
    """Make large files of small ones in the archive of APP, and remove what is older than `archive: {retain: ...}`.

    The pipeline does both by itself while it runs. Others may read and write meanwhile.
    """
    application, archive, spark = _opened(app, conf)
    from cepheid.spark.care import compact, remove_before, tables_of

    streams = streams_of(application.plan())
    section = application.sections.archive
    if section is not None and section.retain is not None:
        before = time.time_ns() // 1000 - section.retain
        for table, rows in remove_before(spark, archive, streams, before).items():
            click.echo(f"{table}: {rows:,} rows of days before {format_instant(before)[:10]} removed")
    for table, (was, now) in compact(spark, archive, tables_of(streams, [*application.sections.queries])).items():
        click.echo(f"{table}: {was:,} files, now {now:,}")


@command.command("dead-letters")
@click.argument("app", type=click.Path())
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Show so many.")
@on_cluster
def dead_letters(app: str, limit: int, conf: dict[str, str]) -> None:
    """Show the newest records of APP that fit no stream: why, where they came from, and what they are."""
    application, archive, spark = _opened(app, conf)
    from pyspark.sql import functions as sf

    from cepheid.spark.archive import read_dead_letters

    letters = read_dead_letters(spark, archive).orderBy(sf.desc("received"), sf.desc("line")).limit(limit)
    for letter in letters.collect():
        place = _place(letter["source"], application.folder.resolve())
        line = "" if letter["line"] is None else f":{letter['line']}"
        click.echo(f"{letter['code']}: {letter['reason']} ({place}{line})")
        click.echo(f"  {bytes(letter['raw']).decode(errors='backslashreplace').rstrip()}")


def _place(source: str, folder: Path) -> str:
    """A file below the application's folder by its path from there."""
    from cepheid.spark.places import local

    path = local(source)
    return str(path.relative_to(folder)) if path is not None and path.is_relative_to(folder) else source


@command.command()
@click.argument("app", type=click.Path())
@click.argument("stream")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--from", "low", help="The first time; left out, the beginning.")
@click.option("--to", "high", help="The first time that is not taken any more; left out, the end.")
@click.option("--format", "form", type=click.Choice(["jsonl", "csv", "parquet"]), default="parquet", show_default=True)
@on_cluster
def export(
    app: str,
    stream: str,
    folder: Path,
    low: str | None,
    high: str | None,
    form: Literal["jsonl", "csv", "parquet"],
    conf: dict[str, str],
) -> None:
    """Write the archived events of STREAM to files in a new FOLDER, without late ones, which take part in no query."""
    if folder.exists():
        raise click.UsageError(f"{folder} exists; name a new folder")
    application = load(app)
    streams = {each.name: each for each in streams_of(application.plan())}
    found = streams.get(stream)
    if found is None:
        hint = suggestion(stream, streams)
        raise click.UsageError(f"'{application.name}' has no stream '{stream}'" + (f"; {hint}" if hint else ""))
    _, archive, spark = _opened(app, conf)
    from pyspark.sql import functions as sf

    from cepheid.spark.archive import read
    from cepheid.spark.care import export

    events = read(spark, archive, found)
    if low is not None:
        events = events.where(sf.col("time") >= sf.timestamp_micros(sf.lit(moment(low))))
    if high is not None:
        events = events.where(sf.col("time") < sf.timestamp_micros(sf.lit(moment(high))))
    export(events, found, folder, form)
    click.echo(f"{stream} is in {folder}")


def _opened(app: str, conf: dict[str, str]) -> tuple[Application, Archive, SparkSession]:
    application = load(app)
    # Spark's modules take a second to load; mistakes are told before.
    from cepheid.spark.application import archive_of

    archive = archive_of(application)
    from cepheid.spark.places import exists, local
    from cepheid.spark.session import session

    place = local(archive.path)
    if place is not None and not exists(place):
        raise click.ClickException(f"there is no archive at '{archive.path}' yet; `cepheid run` fills it")
    return application, archive, session("cepheid archive", **conf)


def _shown(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat(sep=" ", timespec="seconds")
