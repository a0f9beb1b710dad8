"""`cepheid annotate APP`: what the values of a sample lead to, what they could lead to, and which lead nowhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import click

from cepheid.app import Application, load
from cepheid.app.knowledge import annotations_of, load_knowledge
from cepheid.app.schema import FilesSource
from cepheid.knowledge.proposals import SHOWN, Finding, propose
from cepheid.model.events import Event
from cepheid.model.readers import read_events, rereadable


@click.command()
@click.argument("app", type=click.Path())
@click.option(
    "--events", "files", multiple=True, type=click.Path(), help="A file of events; left out, those of the sources."
)
@click.option("--sample", type=click.IntRange(1), default=100_000, show_default=True, help="Look at so many events.")
def command(app: str, files: tuple[str, ...], sample: int) -> None:
    """Propose what the attributes of the application APP could mean, by its knowledge and a sample of its events.

    \b
    Example:
      cepheid annotate plant.yaml --events readings.jsonl
    """
    application = load(app)
    knowledge = load_knowledge(application)
    for warning in knowledge.warnings:
        click.echo(f"warning: {warning}", err=True)
    names = files or tuple(_source_files(application))
    if not names:
        raise click.UsageError("no events: name a file with --events, or give a stream a source of files")
    streams = application.graph.streams
    with rereadable(names) as sources:
        read = read_events(sources, list(streams.values()))
        events = [event for event in itertools.islice(read, sample) if isinstance(event, Event)]
    findings = propose(events, streams, annotations_of(application), knowledge, application.graph.prefixes)
    click.echo(f"{len(events):,} events beside {len(knowledge):,} triples")
    for stream, group in itertools.groupby(findings, key=lambda finding: finding.stream):
        click.echo(f"\n{stream}")
        for finding in group:
            for line in _told(finding):
                click.echo(f"  {line}")


def _source_files(app: Application) -> Iterator[str]:
    patterns = {s.source.path for s in app.sections.streams.values() if isinstance(s.source, FilesSource)}
    for pattern in sorted(patterns):
        path = Path(pattern)
        if path.is_dir():
            yield from map(str, sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith(".")))
        else:
            yield from map(str, sorted(path.parent.glob(path.name)))


def _told(finding: Finding) -> Iterator[str]:
    current = finding.current
    if current is None:
        state = "no meaning yet"
    elif current.kind == "literal":
        state = f"<{current.property}>"
    else:
        known = finding.values - len(finding.unknown)
        state = f"<{current.property}> by {current.kind}: {known:,} of {finding.values:,} values lead to an entity"
    yield f"{finding.attribute}: {state}"
    if finding.unknown:
        more = f" and {len(finding.unknown) - SHOWN:,} more" if len(finding.unknown) > SHOWN else ""
        yield f"  nowhere: {', '.join(finding.unknown[:SHOWN])}{more}"
    if finding.hint is not None:
        yield f"  {finding.hint}"
    for proposal in finding.proposals:
        share = f"   # {proposal.known:,} of {proposal.values:,} values" if proposal.values else ""
        yield f"  could be  {finding.attribute}: {proposal.text}{share}"
