"""The examples of docs/: each runs, on the native matcher and on the reference, and gives what the page says.

An example is a run of fenced blocks that begins with `chi`, a query (`chi now=09:05:00`: registered then;
`chi syntax`: only parsed). What follows it, up to the next query:

    yaml          an application; without one the streams are what the events show
    events        a line an event: stream, id, time, attributes; left out, those of the example before it
    jsonl         the same as raw records
    dead-letters  the records that don't fit: line and code
    matches       a line a match: events by variable, group, selected values, [start,end) of a window, @time;
                  or `nothing`
    json          the lines that `cepheid match` prints, exactly
    refused       the errors, one a line, exactly
    warned        the warnings, likewise

Times without a day are of 2012-05-07. Blocks of `python` are run as they are.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Final

import pytest

from cepheid.app import load
from cepheid.app.known import Known
from cepheid.app.question import ask
from cepheid.cli.engines import find_matches
from cepheid.language.checker import check
from cepheid.language.errors import Severity, Source
from cepheid.language.output import MatchPrinter
from cepheid.language.parser import examine
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.inference import infer
from cepheid.model.readers import read_events, without_duplicates
from cepheid.model.records import DeadLetter
from cepheid.model.streams import Stream
from cepheid.model.time import format_instant, parse_instant
from cepheid.model.types import Json

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
DAY: Final = "2012-05-07"

PAGES: Final = ("semantics.md", "coming-from.md", "testing.md", "service.md")
#: The rules of the contract: the last number of each part.
RULES: Final = {"E": 6, "G": 7, "Q": 7, "S": 11, "W": 7, "P": 5, "O": 3}
#: What follows a query and belongs to it.
PARTS: Final = ("yaml", "turtle", "events", "jsonl", "dead-letters", "matches", "json", "refused", "warned")
OUTCOMES: Final = ("matches", "json", "refused")


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after its fence, its text, and the heading it stands under."""

    page: str
    heading: str
    words: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Example:
    """A query and what is said of it."""

    name: str
    query: str
    options: tuple[str, ...]
    parts: dict[str, str] = field(default_factory=dict)

    @property
    def now(self) -> int:
        return next((instant(o.removeprefix("now=")) for o in self.options if o.startswith("now=")), 0)


def sections(page: str) -> dict[str, str]:
    """The text under each heading of a page; a `#` inside a fence is no heading."""
    found: dict[str, str] = {}
    heading, fenced = "", False
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines(keepends=True):
        fenced ^= line.startswith("```")
        if line.startswith("#") and not fenced:
            heading = line.strip("# \n")
            assert heading not in found, f"{page}: two headings '{heading}'"
        found[heading] = found.get(heading, "") + line
    return found


def blocks(page: str) -> Iterator[Block]:
    for heading, text in sections(page).items():
        for words, body in re.findall(r"^```(.*)\n((?:.*\n)*?)```$", text, flags=re.MULTILINE):
            yield Block(page, heading, tuple(words.split()), body)


def short(heading: str) -> str:
    """`S4. The ends` is S4; other headings are themselves."""
    return heading.partition(".")[0] if rule_of(heading) else heading.replace(" ", "_")


def rule_of(heading: str) -> str | None:
    found = re.match(r"([EGQSWPO]\d+)\. ", heading)
    return found[1] if found else None


def examples(page: str) -> list[Example]:
    found: list[Example] = []
    numbers: dict[str, int] = {}
    events: dict[str, dict[str, str]] = {}
    #: `yaml knowledge` and `turtle knowledge` hold for all examples of their part of the page.
    world: dict[str, dict[str, str]] = {}
    for block in blocks(page):
        word = block.words[0] if block.words else ""
        if word == "chi":
            number = numbers[block.heading] = numbers.get(block.heading, 0) + 1
            found.append(Example(f"{short(block.heading)}_{number}", block.text, block.words[1:]))
            found[-1].parts.update(events.get(block.heading, {}))
            found[-1].parts.update(world.get(block.heading.partition(".")[0][:1], {}))
        elif word in PARTS:
            if word in ("yaml", "turtle") and "knowledge" in block.words:
                world.setdefault(block.heading[:1], {})[word] = block.text
                continue
            if word in ("events", "jsonl"):
                events[block.heading] = {word: block.text}
                for other in ("events", "jsonl"):
                    found[-1].parts.pop(other, None)
            found[-1].parts[word] = block.text
    return found


def instant(text: str) -> int:
    return parse_instant(text if "T" in text else f"{DAY}T{text}")


def value(text: str) -> Json:
    """A value as it is written in an example: JSON's, or bare text."""
    try:
        read: Json = json.loads(text)
    except ValueError:
        return text
    return read


def record(line: str) -> str:
    """The line of JSON that an event in few words stands for."""
    stream, event_id, time, *attributes = shlex.split(line)
    pairs = (attribute.partition("=") for attribute in attributes)
    fields = {name: value(text) for name, _, text in pairs}
    return json.dumps({"stream": stream, "id": value(event_id), "time": format_instant(instant(time)), **fields})


def in_few_words(match: Mapping[str, Json]) -> str:
    """A match as `matches` has it: text, so that 1 is not 1.0."""
    parts = [match.get(name) or {} for name in ("events", "group", "select")]
    flat = {name: bound for part in parts if isinstance(part, dict) for name, bound in part.items()}
    window = match.get("window")
    if isinstance(window, dict):
        flat["window"] = f"{window['start']},{window['end']}"
    return json.dumps({**flat, "@": match["time"]}, sort_keys=True)


def wanted(line: str) -> str:
    """The same of a line of `matches`."""
    found: dict[str, Json] = {}
    for word in shlex.split(line):
        if word.startswith("@"):
            found["@"] = format_instant(instant(word[1:]))
        elif "=" in word:
            name, _, text = word.partition("=")
            found[name] = value(text)
        else:
            start, end = word.strip("[)").split(",")
            found["window"] = f"{format_instant(instant(start))},{format_instant(instant(end))}"
    return json.dumps(found, sort_keys=True)


def is_run(example: Example) -> bool:
    return "syntax" not in example.options


EXAMPLES: Final = [e for page in ("semantics.md", "coming-from.md") for e in examples(page)]
SYNTAX_ONLY: Final = [e for e in EXAMPLES if not is_run(e)]


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize("example", [e for e in EXAMPLES if is_run(e)], ids=attrgetter("name"))
def test_example(example: Example, engine: str, tmp_path: Path) -> None:
    parts = example.parts
    assert any(outcome in parts for outcome in OUTCOMES), "nothing is said of what the query finds"
    file = tmp_path / "events.jsonl"
    lines = parts["jsonl"].splitlines() if "jsonl" in parts else map(record, parts["events"].splitlines())
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    tree, problems = examine(Source("example.chi", example.query))
    assert tree is not None, "\n".join(p.render() for p in problems)
    known: Known | None = None
    if "yaml" in parts:
        (tmp_path / "app.yaml").write_text(parts["yaml"], encoding="utf-8")
        (tmp_path / "kb.ttl").write_text(parts.get("turtle", ""), encoding="utf-8")
        application = load(tmp_path / "app.yaml")
        graph = application.graph
        catalogue = Catalogue(graph.streams, graph.default_stream, graph.prefixes, graph.properties)
        known = application.known()
        if known is not None:
            catalogue = known.catalogue(catalogue)
    else:
        streams = {stream.name: stream for stream in infer([file]).streams}
        absent = {name for r in tree.ranges for name in r.streams} - set(streams)
        default = next(iter(streams)) if len(streams) == 1 else None
        streams |= {name: Stream(name, {}) for name in absent}
        catalogue = Catalogue(streams, default, empty=frozenset(absent))

    checked, problems = check(tree, catalogue)

    def said(severity: Severity) -> list[str]:
        return [p.message for p in problems if p.severity == severity]

    assert said("error") == parts.get("refused", "").splitlines()
    if "warned" in parts:
        assert said("warning") == parts["warned"].splitlines()
    if checked is None:
        return

    events, letters = [], []
    for item in read_events([file], [s for s in catalogue.streams.values() if s.name not in catalogue.empty]):
        if isinstance(item, DeadLetter):
            letters.append(f"{item.line}: {item.code}")
        else:
            events.append(item)
    assert letters == parts.get("dead-letters", "").splitlines()
    complete: list[Event] = sorted(without_duplicates(events), key=attrgetter("order"))

    question = ask(checked, known)
    printer = MatchPrinter(question.checked)
    found = [printer.as_json(match) for match in find_matches(engine, question, complete, example.now)]
    if "matches" in parts:
        lines = parts["matches"].splitlines()
        assert [in_few_words(match) for match in found] == ([] if lines == ["nothing"] else list(map(wanted, lines)))
    if "json" in parts:
        assert [json.dumps(match, ensure_ascii=False) for match in found] == parts["json"].splitlines()


@pytest.mark.parametrize("example", SYNTAX_ONLY, ids=attrgetter("name"))
def test_syntax(example: Example) -> None:
    tree, problems = examine(Source("example.chi", example.query))
    assert tree is not None, "\n".join(p.render() for p in problems)


PYTHON: Final = [b for page in ("semantics.md", "service.md") for b in blocks(page) if b.words == ("python",)]


@pytest.mark.parametrize("block", PYTHON, ids=[short(b.heading) for b in PYTHON])
def test_python(block: Block) -> None:
    assert "assert " in block.text, "an example that claims nothing can't be wrong"
    exec(compile(block.text, block.page, "exec"), {"__name__": "example"})


def test_the_blocks_of_testing_md_run(tmp_path: Path) -> None:
    """A block of Python whose first line is the name of a file is written to it; the others are run, as is `sh`."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ran = 0
    for block in blocks("testing.md"):
        if block.words == ("python",):
            name = re.match(r"# (\S+\.py)\n", block.text)
            if name:
                (tmp_path / name[1]).write_text(block.text, encoding="utf-8")
                continue
            command = [sys.executable, "-c", block.text]
        elif block.words == ("sh",):
            command = ["bash", "-euo", "pipefail", "-c", block.text]
        else:
            continue
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
        ran += 1
    assert ran > 0


def test_matching_in_python_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The blocks of that section are one program; a comment after a print is what it prints."""
    code = "".join(b.text for b in blocks("python.md") if b.heading == "Matching without Spark")
    exec(compile(code, "python.md", "exec"), {"__name__": "example"})
    printed = [line for line in code.splitlines() if line.startswith("# ")]
    assert printed
    assert capsys.readouterr().out.splitlines() == [line.removeprefix("# ") for line in printed]


# The pages


def rules() -> list[str]:
    return [f"{part}{number}" for part, last in RULES.items() for number in range(1, last + 1)]


def test_every_rule_is_there_in_order() -> None:
    assert [rule for heading in sections("semantics.md") if (rule := rule_of(heading))] == rules()


@pytest.mark.parametrize("rule", rules())
def test_every_rule_has_an_example_that_runs_or_says_why_not(rule: str) -> None:
    (heading,) = (h for h in sections("semantics.md") if rule_of(h) == rule)
    runs = [e for e in EXAMPLES if e.name.startswith(f"{rule}_") and is_run(e)]
    runs_python = any(b.heading == heading for b in PYTHON)
    assert runs or runs_python or "Not run by this version:" in sections("semantics.md")[heading]


@pytest.mark.parametrize("rule", rules())
def test_every_rule_names_its_tests_and_they_exist(rule: str) -> None:
    (text,) = (text for heading, text in sections("semantics.md").items() if rule_of(heading) == rule)
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert named or "Not run by this version:" in text
    for path, name in named:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), f"{path}::{name}"


def test_links_to_headings_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", (DOCS / page).read_text(encoding="utf-8")):
            headings = sections(target or page)
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}, (
                f"{page}: #{anchor}"
            )
