"""`cepheid match QUERY --events FILE...`: what a query finds in files or on standard input."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

import click

from cepheid.app import load
from cepheid.app.application import Application
from cepheid.app.check import WELL_KNOWN_PREFIXES
from cepheid.app.question import Question, ask, needs_knowledge
from cepheid.cli.engines import ENGINES, find_matches
from cepheid.cli.follow import follow
from cepheid.cli.progress import Progress, rate
from cepheid.cli.queries import read_query
from cepheid.cli.why import find_events, why
from cepheid.language import syntax
from cepheid.language.checker import check
from cepheid.language.errors import Rejected
from cepheid.language.output import MatchPrinter
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.inference import infer
from cepheid.model.matches import Match
from cepheid.model.readers import EventFile, read_events, rereadable, without_duplicates
from cepheid.model.records import DeadLetter
from cepheid.model.streams import Stream
from cepheid.model.time import MAX_INSTANT, MIN_INSTANT, TimeError, parse_instant
from cepheid.model.wording import quote
from cepheid.plan.typing import derive

if TYPE_CHECKING:
    from cepheid.app.known import Known

#: So many dead letters are shown one by one.
_SHOWN_LETTERS = 5
#: So many values with no entity.
_SHOWN_STRANGERS = 5


class _ManyValues(click.Command):
    """Lets an option have several values: `--events a b` is `--events a --events b`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {name for p in self.params if isinstance(p, click.Option) and p.multiple for name in p.opts}
        spread: list[str] = []
        option: str | None = None
        for argument in args:
            if argument.startswith("-") and argument != "-":
                option = argument if argument in several else None
                spread.append(argument)
            elif option is not None and spread[-1] != option:
                spread += [option, argument]
            else:
                spread.append(argument)
        try:
            return super().parse_args(ctx, spread)
        except click.MissingParameter as missing:
            if len(spread) == len(args) or not isinstance(missing.param, click.Argument):
                raise
            name = missing.param.human_readable_name
            raise click.UsageError(
                f"no {name}: an option takes all names behind it, so give {name} first", ctx
            ) from None


@click.command(cls=_ManyValues)
@click.argument("query", type=click.Path())
@click.option(
    "--events",
    "files",
    multiple=True,
    required=True,
    type=click.Path(),
    help="Files of events (.jsonl, .csv, .parquet; .gz of the first two), or - for standard input.",
)
@click.option("--app", type=click.Path(), help="An application, for its streams and prefixes.")
@click.option(
    "--knowledge",
    "knowledge_files",
    multiple=True,
    type=click.Path(),
    help="Files of knowledge (.ttl, .rdf, .nt, .jsonld) or brick:1.4, besides the application's.",
)
@click.option("--now", "now_text", help="The time that `now` in the query means; left out, the clock's.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="native",
    show_default=True,
    help="What looks for matches: all find the same; spark and reference are there to compare.",
)
@click.option("--format", "form", type=click.Choice(["jsonl", "table"]), default="jsonl", show_default=True)
@click.option(
    "--follow",
    "follows",
    is_flag=True,
    help="Go on reading JSON Lines as they come, and print a match as soon as it is complete; needs --app.",
)
@click.option("--why", "why_name", help="Say why the event ID (or stream/ID) is or is not in a match, instead.")
def command(
    query: str,
    files: tuple[str, ...],
    app: str | None,
    knowledge_files: tuple[str, ...],
    now_text: str | None,
    engine: str,
    form: Literal["jsonl", "table"],
    follows: bool,
    why_name: str | None,
) -> None:
    """Print what the query in the file QUERY finds in the events of files: complete, sorted, in order of time.

    \b
    Examples:
      cepheid match rising.chi --events readings/*.jsonl
      cepheid match rising.chi --events readings.csv --format table
      cepheid match rising.chi --events readings.jsonl --why 4
      tail -f a.jsonl | cepheid match my.chi --app plant.yaml --follow --events -
    """
    now = moment(now_text)
    tree = read_query(query)
    application = load(app) if app is not None else None
    if follows:
        _follow(tree, files, application, knowledge_files, now)
        return
    with Progress() as progress:
        with rereadable(files) as sources:
            progress.show("looking at the input", now=True)
            catalogue, ruined = _catalogue(application, sources, tree)
            known = _known(application, knowledge_files, tree, progress)
            progress.erase()
            question = _check(tree, catalogue, known)
            default = catalogue.default_stream if application is None else _only_stream(application)
            events = _read(sources, catalogue, ruined, default, progress)
            _show_absent(application, question, events)
            _show_strangers(question, events)
        if why_name is None:
            matches = find_matches(engine, question, events, now, progress)
    if why_name is not None:
        _explain(question, catalogue, events, why_name, now)
        return
    printer = MatchPrinter(question.checked)
    if form == "jsonl":
        for match in matches:
            click.echo(json.dumps(printer.as_json(match), ensure_ascii=False))
    else:
        print_table([printer.as_row(match) for match in matches])


def _show_absent(app: Application | None, question: Question, events: Sequence[Event]) -> None:
    """Warns of streams that are read and that the input does not have, where that is likely to be a slip."""
    there = {event.stream for event in events}
    absent = [name for name in question.checked.streams if name not in there]
    made = [name for name in absent if app is not None and name not in app.graph.streams]
    for name in made:
        click.echo(
            f"warning: the files have no events of {quote(name)}, and nothing is derived here: "
            "`cepheid query` asks what an application made of its streams",
            err=True,
        )
    if there and not made and len(absent) == len(question.checked.streams):
        present, wanted = (", ".join(map(quote, sorted(names))) for names in (there, absent))
        click.echo(f"warning: the events are of {present}, and the query reads {wanted}: there are none", err=True)


def _show_strangers(question: Question, events: Sequence[Event]) -> None:
    """Says which values lead to no entity: a PATH that asks for one is not true of their events (rule P1)."""
    if question.known is None or question.original.query.path is None:
        return
    read = (event for event in events if event.stream in question.checked.streams)
    strangers = question.known.annotations.strangers(read, question.known.knowledge)
    for (stream, attribute, value), count in strangers.most_common(_SHOWN_STRANGERS):
        click.echo(f"note: no entity for {stream}.{attribute} {value!r}, in {count:,} events", err=True)
    if len(strangers) > _SHOWN_STRANGERS:
        click.echo(f"note: and for {len(strangers) - _SHOWN_STRANGERS:,} other values", err=True)


def _explain(question: Question, catalogue: Catalogue, events: Sequence[Event], name: str, now: int) -> None:
    meant = find_events(events, name)
    if not meant:
        raise click.UsageError(f"no event {name} in the input; an event is named by its id, or by stream/id")
    for event in meant:
        for line in why(question, catalogue, events, event, now):
            click.echo(line)


def _follow(
    tree: syntax.Query, files: Sequence[str], app: Application | None, knowledge_files: Sequence[str], now: int
) -> None:
    if app is None:
        raise click.UsageError("--follow needs --app: what has not come yet can't show its types")
    catalogue, _ = _catalogue(app, [], tree)
    question = _check(tree, catalogue, _known(app, knowledge_files, tree), live=True)
    printer = MatchPrinter(question.checked)
    # What reads a pipe may write to the same terminal at any time.
    with Progress(shown=not _is_pipe(sys.stdout)) as progress:
        read = matches = 0
        began = time.monotonic()

        def tell() -> None:
            if progress.is_shown:
                progress.show(f"{read:,} events read{rate(read, began)}, {matches:,} matches")

        def count() -> None:
            nonlocal read
            read += 1
            tell()

        def show(match: Match) -> None:
            nonlocal matches
            matches += 1
            progress.erase()
            click.echo(json.dumps(printer.as_json(match), ensure_ascii=False))
            sys.stdout.flush()
            tell()

        def refuse(letter: DeadLetter) -> None:
            progress.erase()
            _show_letter(letter)

        follow(question, list(catalogue.streams.values()), _only_stream(app), files, now, show, refuse, count)


def _is_pipe(stream: TextIO) -> bool:
    kind = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


def _show_letter(letter: DeadLetter) -> None:
    click.echo(f"{letter.source}:{letter.line}: dead letter: {letter.reason}", err=True)


def _show_letters(letters: Sequence[DeadLetter]) -> None:
    for letter in letters[:_SHOWN_LETTERS]:
        _show_letter(letter)
    if len(letters) > _SHOWN_LETTERS:
        codes = Counter(letter.code for letter in letters)
        counts = ", ".join(f"{count} {code}" for code, count in codes.most_common())
        click.echo(f"{len(letters)} dead letters in all: {counts}", err=True)


def _catalogue(
    app: Application | None, sources: Sequence[EventFile], tree: syntax.Query
) -> tuple[Catalogue, Sequence[Stream]]:
    """The application's names; without one, what the input shows (rules E3 and Q1), and which streams have no event."""
    if app is not None:
        graph = app.graph
        return Catalogue(derive(graph).streams, graph.default_stream, graph.prefixes, graph.properties), ()
    asked = {name for r in tree.ranges for name in r.streams}
    shown = infer(sources, asked=asked)
    streams = {stream.name: stream for stream in shown.streams}
    if not streams and not asked:
        # The error that comes of it would not say why no line is an event.
        _show_letters([letter for letter in read_events(sources, []) if isinstance(letter, DeadLetter)])
    default = next(iter(streams)) if len(streams) == 1 else None
    absent = asked - set(streams)
    catalogue = Catalogue(
        {**streams, **{name: Stream(name, {}) for name in absent}},
        default,
        WELL_KNOWN_PREFIXES,
        empty=frozenset(absent),
    )
    return catalogue, shown.ruined


def _known(
    app: Application | None, files: Sequence[str], tree: syntax.Query, progress: Progress | None = None
) -> Known | None:
    """The knowledge, where the query asks for it: by a PATH, or by a property instead of an attribute's name."""
    if not needs_knowledge(tree):
        if files:
            from cepheid.knowledge.sources import find

            for name in files:  # a slip in a name is one whatever the query asks
                find(name, Path())
        return None
    from cepheid.app.known import known

    if progress is not None:
        progress.show("reading the knowledge", now=True)
    return known(app, files)


def _check(tree: syntax.Query, catalogue: Catalogue, known: Known | None, *, live: bool = False) -> Question:
    checked, problems = check(tree, catalogue if known is None else known.catalogue(catalogue), live=live)
    if checked is None:
        raise Rejected(problems)
    question = ask(checked, known)
    for warning in (*problems, *question.warnings):
        click.echo(warning.render(sys.stderr.isatty()), err=True)
    return question


def _only_stream(app: Application | None) -> str | None:
    """Whose records are those that name no stream, though operators and queries can be read, too."""
    return next(iter(app.graph.streams)) if app is not None and len(app.graph.streams) == 1 else None


def _read(
    sources: Sequence[EventFile],
    catalogue: Catalogue,
    ruined: Sequence[Stream],
    default_stream: str | None,
    progress: Progress,
) -> list[Event]:
    """The events in their order, without duplicates; what does not fit is told on standard error."""
    letters: list[DeadLetter] = []
    declared = [*(stream for name, stream in catalogue.streams.items() if name not in catalogue.empty), *ruined]

    def fitting() -> Iterator[Event]:
        found_in = read_events(sources, declared, default_stream=default_stream)
        for found in progress.counted("events read", found_in):
            if isinstance(found, Event):
                yield found
            else:
                letters.append(found)

    events = sorted(without_duplicates(fitting()), key=attrgetter("order"))
    progress.erase()
    _show_letters(letters)
    return events


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Matches for people, a row each."""
    if not rows:
        click.echo("no matches")
        return
    names = list(rows[0])
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    for row in ({name: name for name in names}, *rows):
        click.echo("  ".join(row[name].ljust(widths[name]) for name in names).rstrip())
    click.echo(f"{len(rows)} match{'es' if len(rows) != 1 else ''}")


def moment(text: str | None) -> int:
    """The time that --now gives, as events do: ISO 8601 or microseconds; left out, the clock's."""
    clock = time.time_ns() // 1000
    if text is None:
        return clock
    if text.removeprefix("-").isdecimal() and MIN_INSTANT <= int(text) <= MAX_INSTANT:
        return int(text)
    try:
        return parse_instant(text, now=clock)
    except TimeError as error:
        raise click.BadParameter(str(error), param_hint="--now") from None
