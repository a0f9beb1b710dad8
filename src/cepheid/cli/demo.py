"""`cepheid demo`: the campus, end to end, on one machine; ends by itself with a summary whose books balance."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

import cepheid
from cepheid.app import Application, load
from cepheid.campus.generator import ONE_BAD_IN, Campus, Truth
from cepheid.spark.application import archive_batch, archive_of, archive_stream, total
from cepheid.spark.archive import read, read_dead_letters
from cepheid.spark.pipeline import Books, Progress
from cepheid.spark.session import session

_EXAMPLE: Final = Path(cepheid.__file__).parent / "examples" / "campus" / "app.yaml"
#: Names the folder as ours, so that a second demo may replace it.
_MARK: Final = ".cepheid-demo"
#: Files in each half of the demo.
_FILES: Final = 8
#: Between two files of the second half: long enough to see them come.
_PAUSE_SECONDS: Final = 0.3


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("cepheid-demo"),
    show_default=True,
    help="Where the demo's events and archive go.",
)
@click.option("--events", type=click.IntRange(100, 10_000_000), default=100_000, show_default=True)
@click.option("--seed", type=int, default=2012, show_default=True, help="The same seed, the same events.")
@click.pass_context
def command(ctx: click.Context, folder: Path, events: int, seed: int) -> None:
    """Generate a campus's events, some malformed; archive them with Spark, first as a batch, then as they come.

    Exit 0 if everything that was generated is found again, and the books balance.
    """
    began = time.monotonic()
    campus = Campus(seed)
    app = _prepare(folder, campus)
    each = events // (2 * _FILES)

    _step(1, f"generating {each * _FILES:,} events in {folder / 'events'}; one in {ONE_BAD_IN} is malformed")
    campus.write(folder / "events", _FILES, each)

    _step(2, "starting Spark")
    spark = session("cepheid-demo")

    _step(3, "batch: archiving the events that are there")
    batch = archive_batch(spark, app, _show)

    _step(4, f"stream: archiving {each * _FILES:,} more while they come")
    runs = archive_stream(spark, app, _show)
    supplier = threading.Thread(target=_supply, args=(campus, folder / "events", each))
    supplier.start()
    supplier.join()
    for run in runs:
        run.query.processAllAvailable()
    books = total([batch, *(run.stop() for run in runs)])

    _step(5, "reading the archive back")
    archive = archive_of(app)
    letters = read_dead_letters(spark, archive)
    stored = Books(
        read=books.read,
        archived={name: read(spark, archive, app.graph.streams[name]).count() for name in books.archived},
        dead_letters={row["code"]: row["count"] for row in letters.groupBy("code").count().collect()},
    )
    example = letters.where("code = 'unknown-attribute'").select("reason", "raw").first()
    spark.stop()

    campus.truth.write(folder / "truth.json")
    click.echo()
    for line in _summary(campus.truth, stored):
        click.echo(line)
    if example is not None:
        click.echo(f"\nA dead letter: {example['reason']}\n  {bytes(example['raw']).decode()}")
    click.echo(f"\nThe archive is in {folder / 'archive'}: a Delta table a stream, and _dead_letters.")
    click.echo(f"What is known of the campus is in {folder / 'campus.ttl'}, and what is wrong there in truth.json.")
    click.echo(f"Done in {time.monotonic() - began:.0f} s.")
    ctx.exit(0 if stored == books and books.balanced and _as_injected(campus.truth, books) else 1)


def _prepare(folder: Path, campus: Campus) -> Application:
    """An empty folder, which may be the last demo's, and the example application at work in it, knowing its campus."""
    if folder.exists() and not (folder / _MARK).exists():
        raise click.UsageError(f"{folder} exists and is not an earlier demo's; choose another with --folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
    os.environ["CAMPUS_EVENTS"] = str((folder / "events").resolve())
    os.environ["CAMPUS_KNOWLEDGE"] = str(campus.model.write(folder.resolve()))
    os.environ["CAMPUS_ARCHIVE"] = str((folder / "archive").resolve())
    return load(_EXAMPLE)


def _supply(campus: Campus, folder: Path, each: int) -> None:
    for _ in range(_FILES):
        campus.write(folder, 1, each)
        time.sleep(_PAUSE_SECONDS)


def _step(number: int, text: str) -> None:
    sign = f"[{number}/5]"
    click.echo(f"{click.style(sign, bold=True) if sys.stdout.isatty() else sign} {text}")


def _show(progress: Progress) -> None:
    click.echo(
        f"      {progress.read:>9,} read {progress.archived:>9,} archived {progress.dead_letters:>7,} dead letters"
    )


def _as_injected(truth: Truth, books: Books) -> bool:
    return dict(books.archived) == dict(truth.good) and dict(books.dead_letters) == dict(truth.bad)


def _summary(truth: Truth, books: Books) -> Iterator[str]:
    """What was found in the archive beside what was generated, and the balance."""
    yield f"{'':34}{'found':>9} {'generated':>10}"
    for name in sorted({*truth.good, *books.archived}):
        yield f"archived      {name:20}{books.archived.get(name, 0):>9,} {truth.good[name]:>10,}"
    for code in sorted({*truth.bad, *books.dead_letters}):
        yield f"dead letters  {code:20}{books.dead_letters.get(code, 0):>9,} {truth.bad[code]:>10,}"
    archived, letters = sum(books.archived.values()), sum(books.dead_letters.values())
    verdict = "the books balance" if books.balanced else "THE BOOKS DO NOT BALANCE"
    yield f"{books.read:,} read = {archived:,} archived + {letters:,} dead letters: {verdict}"
