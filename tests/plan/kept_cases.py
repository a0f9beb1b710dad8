"""Cases that were wrong once, kept as files: a folder with query.chi, events.jsonl, matches.jsonl and app.yaml.

The query's first line says what was wrong. matches.jsonl is what `cepheid match query.chi --events events.jsonl --app
app.yaml --now 1970-01-01T00:00:02Z` prints. A test that fails on a generated case leaves its folder in
.hypothesis/failed-case, shrunk: move it to tests/golden/matches, give it a name, and write the first line.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from cepheid.app import load
from cepheid.cli.engines import find_matches
from cepheid.language.checker import Checked, check
from cepheid.language.output import MatchPrinter
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.model.readers import read_events
from cepheid.model.streams import Stream
from cepheid.model.writers import event_writer
from tests.golden_files import GOLDEN
from tests.plan.query_strategies import NOW, Case

KEPT: Final = GOLDEN / "matches"
FAILED: Final = Path(__file__).parents[2] / ".hypothesis" / "failed-case"


#: The case that failed last. Hypothesis runs the shrunk one last, so that is the one to keep.
_failed: list[Case] = []


@contextmanager
def left_if_failing(case: Case) -> Iterator[None]:
    """The case is left in a folder if what is inside fails: see conftest.py."""
    try:
        yield
    except AssertionError as error:
        _failed[:] = [case]
        error.add_note(f"The case is in {FAILED}: move it to {KEPT}/<name> and say in its first line what was wrong.")
        raise


def leave_failed() -> None:
    """Writes the case that failed last, at the end of a test: shrinking fails a thousand times."""
    while _failed:
        write_case(FAILED, _failed.pop(), "what was wrong: to be written, in one line")


def write_case(folder: Path, case: Case, why: str) -> None:
    """Write the folder of a case, with what the reference finds, and no more of its events than the query reads."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    streams = [_read_of(stream, case.checked) for stream in case.catalogue.streams.values()]
    (folder / "query.chi").write_text(f"# {why}\n{case.text}", encoding="utf-8")
    (folder / "app.yaml").write_text(_application(streams, case.catalogue), encoding="utf-8")
    with event_writer(folder / "events.jsonl", streams) as writer:
        for event in case.events:
            known = next(s.attributes for s in streams if s.name == event.stream)
            values = {name: event.attributes[name] for name in known if name in event.attributes}
            writer.write(Event(event.stream, event.id, event.time, values))
    write_matches(folder, read_case(folder))


def write_matches(folder: Path, case: Case) -> None:
    found = find_matches("reference", case.checked, case.events, NOW)
    (folder / "matches.jsonl").write_text(printed(case, found), encoding="utf-8")


def printed(case: Case, matches: Iterable[Match]) -> str:
    printer = MatchPrinter(case.checked)
    return "".join(json.dumps(printer.as_json(match), ensure_ascii=False) + "\n" for match in matches)


def _read_of(stream: Stream, checked: Checked) -> Stream:
    """The stream with only those attributes that the query reads."""
    names = {r.names[stream.name] for r in checked.attributes.values() if stream.name in r.names}
    attributes = {name: kind for name, kind in stream.attributes.items() if name in names}
    spellings = {name: others for name, others in stream.spellings.items() if name in names}
    return Stream(stream.name, attributes, spellings=spellings, id_kind=stream.id_kind)


def _application(streams: Iterable[Stream], catalogue: Catalogue) -> str:
    sections = {}
    for stream in streams:
        section: dict[str, object] = {
            "id": stream.id_kind or "int",
            "attributes": {name: kind.value for name, kind in stream.attributes.items()},
        }
        if stream.spellings:
            section["spellings"] = {name: list(others) for name, others in stream.spellings.items()}
        properties = catalogue.properties.get(stream.name, {})
        semantics = {a: iri for iri, a in properties.items() if a in stream.attributes}
        if semantics:
            section["semantics"] = semantics
        sections[stream.name] = section
    application: dict[str, object] = {"name": "kept", "streams": sections, "archive": {"path": "archive"}}
    if catalogue.default_stream is not None:
        application["default_stream"] = catalogue.default_stream
    return yaml.safe_dump(application, allow_unicode=True, sort_keys=False)


def read_case(folder: Path) -> Case:
    """The case of a folder."""
    graph = load(folder / "app.yaml").graph
    catalogue = Catalogue(graph.streams, graph.default_stream, graph.prefixes, graph.properties)
    text = (folder / "query.chi").read_text(encoding="utf-8")
    checked, problems = check(parse(text), catalogue)
    assert checked is not None, problems
    found = list(read_events([folder / "events.jsonl"], catalogue.streams.values()))
    events = tuple(event for event in found if isinstance(event, Event))
    assert len(events) == len(found), "there are dead letters"
    return Case(text, checked, events, catalogue)
