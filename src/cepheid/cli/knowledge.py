"""`cepheid knowledge`: look at an application's knowledge, and change it while the application runs."""

from __future__ import annotations

import time
from pathlib import Path

import click
from pyoxigraph import DefaultGraph

from cepheid.app import load
from cepheid.app.knowledge import load_knowledge
from cepheid.knowledge import journal
from cepheid.knowledge.sources import FORMATS, read_triples


@click.group()
def command() -> None:
    """Look at an application's knowledge, and change it while the application runs."""


@command.command(short_help="Say what it is made of.")
@click.argument("app", type=click.Path())
def show(app: str) -> None:
    """Say what the knowledge of APP is made of, and that it holds together.

    \b
    Example:
      cepheid knowledge show plant.yaml
    """
    began = time.monotonic()
    knowledge = load_knowledge(load(app))
    for name, _ in knowledge.files:
        click.echo(f"source   {name}")
    for warning in knowledge.warnings:
        click.echo(f"warning  {warning}")
    click.echo(f"triples  {len(knowledge):,}, with what follows")
    click.echo(f"digest   {knowledge.digest[:16]}, ready in {time.monotonic() - began:.1f} s")


@command.command(short_help="Add triples to it, and remove some.")
@click.argument("app", type=click.Path())
@click.argument("added", nargs=-1, type=click.Path(path_type=Path))
@click.option("--remove", "removed", multiple=True, type=click.Path(path_type=Path), help="Triples that are no more.")
def apply(app: str, added: tuple[Path, ...], removed: tuple[Path, ...]) -> None:
    """Add the triples of the files ADDED to the knowledge of APP. What runs follows within a fraction of a second.

    The change is checked first, and kept in data/knowledge/changes.jsonl beside the application.

    \b
    Example:
      cepheid knowledge apply plant.yaml new.ttl --remove old.ttl
    """
    if not added and not removed:
        raise click.UsageError("nothing to change: name files of triples to add, or --remove some")
    knowledge = load_knowledge(load(app))
    plus = [triple for path in added for triple in read_triples(path)]
    minus = [triple for path in removed for triple in read_triples(path)]
    change = knowledge.apply(plus, minus)
    journal.append(knowledge.journal, plus, minus)
    click.echo(f"{len(change.added):,} triples became true, {len(change.removed):,} ceased to be, with what follows")


@command.command(short_help="Write all of it to a file.")
@click.argument("app", type=click.Path())
@click.argument("file", type=click.Path(path_type=Path))
def export(app: str, file: Path) -> None:
    """Write all triples of the knowledge of APP, inferred ones included, to FILE (.ttl, .nt, .rdf or .jsonld).

    \b
    Example:
      cepheid knowledge export plant.yaml all.ttl
    """
    form = FORMATS.get(file.suffix.lower())
    if form is None:
        raise click.UsageError(f"can't tell the format by the ending; known: {', '.join(FORMATS)}")
    knowledge = load_knowledge(load(app))
    knowledge.store.dump(file, form, from_graph=DefaultGraph())
    click.echo(f"{len(knowledge):,} triples in {file}")
