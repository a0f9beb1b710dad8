"""Files that an application's knowledge is made of: what is wrong with them is told at once, by whoever asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from cepheid.app import load
from cepheid.app.knowledge import load_knowledge
from cepheid.app.known import known
from cepheid.app.meaning import examine_all
from cepheid.language.errors import Rejected

HEAD = 'name: a\nprefixes: {x: "http://x#"}\n'
STREAM = "streams: {a: {attributes: {v: string}}}\n"
TABLE = "streams: {a: {attributes: {v: string}, semantics: {v: {property: x:flow, table: %s}}}}\n"
FILES: dict[str, str | bytes] = {
    "bad.ttl": "x:a x:b",
    "good.ttl": "@prefix x: <http://x#> . x:a x:in x:b .",
    "bad.rq": "CONSTRUCT {",
    "ask.rq": "ASK {}",
    "empty.rq": "",
    "latin.ttl": b'<urn:a> <urn:b> "\xe9" .',
    "latin.csv": b"value,entity\n\xe9,x:a\n",
    "bad.csv": "value,entity\na,y:a\nb\nc,x:c\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def places(path: Path) -> list[str]:
    """Where errors are; all have a line with a caret, and a hint."""
    errors = [said for said in examine_all(path.name)[1] if said.severity == "error"]
    for said in errors:
        assert "^" in said.render(), said
        assert said.hint, said
    return [str(said.span) for said in errors]


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        (STREAM + "knowledge: {sources: [good.ttl]}", []),
        (STREAM + "knowledge: {sources: [good.ttl, bad.ttl]}", ["bad.ttl:1:1"]),
        (STREAM + "knowledge: {sources: ['brick:9.9']}", ["app.yaml:4:23"]),
        (STREAM + "knowledge: {sources: [good.ttl, .]}", ["app.yaml:4:33"]),
        (STREAM + "knowledge: {sources: ['http://x/y.ttl']}", ["app.yaml:4:23"]),
        (STREAM + "knowledge: {sources: [latin.ttl]}", ["latin.ttl:1:18"]),
        (STREAM + "knowledge: {rules: [absent.rq, bad.rq, ask.rq, empty.rq]}", ["app.yaml:4:21", "ask.rq:1:1"]),
        (TABLE % "absent.csv", ["app.yaml:3:81"]),
        (TABLE % "latin.csv", ["app.yaml:3:81"]),
        (TABLE % "bad.csv", ["bad.csv:2:3", "bad.csv:3:1"]),
    ],
)
def test_files_are_read_though_no_query_asks(folder: Path, sections: str, wanted: list[str]) -> None:
    (folder / "app.yaml").write_text(HEAD + sections)
    found = places(folder / "app.yaml")
    assert set(wanted) <= set(found)
    assert len(found) == max(len(wanted), 4 if "empty.rq" in sections else 0)


def test_whoever_needs_the_knowledge_is_told_the_same(folder: Path) -> None:
    text = HEAD + TABLE % "bad.csv" + "knowledge: {sources: [absent.ttl], rules: [absent.rq]}\n"
    (folder / "app.yaml").write_text(text + 'queries: {q: {text: "SELECT ?e.id PATH {?e x:flow/x:in x:b}"}}')
    _, told = examine_all("app.yaml")
    app = load("app.yaml")
    for ask in (app.known, app.plan):
        with pytest.raises(Rejected) as rejected:
            ask()
        assert {str(d.span) for d in rejected.value.diagnostics} == {str(d.span) for d in told}
    with pytest.raises(Rejected) as rejected:
        load_knowledge(app)
    assert [str(d.span) for d in rejected.value.diagnostics] == ["app.yaml:4:23", "app.yaml:4:44"]


def test_what_a_command_line_names_has_no_place_in_the_application(folder: Path) -> None:
    (folder / "app.yaml").write_text(HEAD + STREAM + "knowledge: {sources: [good.ttl]}")
    with pytest.raises(Rejected) as rejected:
        known(load("app.yaml"), ["absent.ttl"])
    assert [d.span for d in rejected.value.diagnostics] == [None]


def test_a_contradiction_is_told_at_the_knowledge(folder: Path) -> None:
    owl = "<http://www.w3.org/2002/07/owl#disjointWith>"
    (folder / "good.ttl").write_text(f"@prefix x: <http://x#> . x:C {owl} x:D . x:a a x:C, x:D .")
    text = HEAD + STREAM + "knowledge: {sources: [good.ttl]}\n"
    (folder / "app.yaml").write_text(text + 'queries: {q: {text: "SELECT ?e.id PATH {x:a x:in x:b}"}}')
    assert places(folder / "app.yaml") == ["app.yaml:4:1"]


def test_many_broken_lines_of_a_table_are_counted(folder: Path) -> None:
    (folder / "bad.csv").write_text("value;entity\n" + "a;x:b\n" * 1000)
    (folder / "app.yaml").write_text(HEAD + TABLE % "bad.csv")
    told = [said for said in examine_all("app.yaml")[1] if said.severity == "error"]
    assert len(told) == 20
    assert "980 more lines are broken" in told[-1].message
