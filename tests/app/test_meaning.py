"""What the knowledge has to say about an application, at its place in the file; and how it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from cepheid.app import examine, load
from cepheid.app.application import Application
from cepheid.app.meaning import judged
from cepheid.knowledge import asking
from cepheid.knowledge.modes import Percent

TURTLE = """@prefix : <http://x#> .
:s1 :in :r1 . :s2 :in :r2 . :s3 :in :r2 . :s4 :in :r2 . :r1 a :Office . :r2 a :Hall .
"""
APP = """name: rooms
prefixes: {{"": "http://x#"}}
streams:
  air:
    attributes: {{sensor: string, flow: float}}
    semantics: {{sensor: {{property: ":src", entity: ":{{value}}"}}, flow: ":flow"}}
knowledge: {{sources: [kb.ttl], reasoning: none{more}}}
queries:
  asked:
    engine: spark
    text: |
      SELECT ?e.sensor
      FROM (?e, air)
      {path}
"""


def written(folder: Path, path: str, more: str = "") -> Path:
    (folder / "kb.ttl").write_text(TURTLE, encoding="utf-8")
    file = folder / "app.yaml"
    file.write_text(APP.format(path=path, more=more), encoding="utf-8")
    return file


def application(folder: Path, path: str, more: str = "") -> Application:
    found, diagnostics = examine(written(folder, path, more))
    assert found is not None, diagnostics
    return found


def said(folder: Path, path: str, more: str = "") -> list[str]:
    return [d.render().replace(f"{folder}/", "") for d in judged(application(folder, path, more))]


def test_an_unknown_name_is_told_with_line_and_column(tmp_path: Path) -> None:
    first, *_ = said(tmp_path, "PATH { ?e :src ?s . ?s :in/a :Ofice }")
    assert first.splitlines() == [
        "app.yaml:14:36: warning: the knowledge says nothing of :Ofice",
        "  14 |       PATH { ?e :src ?s . ?s :in/a :Ofice }",
        "     |                                    ^^^^^^",
        "  hint: did you mean :Office?",
    ]


def test_what_is_never_true_is_told_with_its_place(tmp_path: Path) -> None:
    (only,) = said(tmp_path, "PATH { ?e :src ?s . ?s :in ?r . ?r :in ?q }")
    assert only.startswith("app.yaml:14:14: warning: this PATH is never true, so nothing matches")
    (constant,) = said(tmp_path, "PATH { :s1 :in :r2 }")
    assert constant.startswith("app.yaml:14:14: warning: this PATH is never true")


def test_what_can_not_be_indexed_where_that_is_asked_for(tmp_path: Path) -> None:
    path = "PATH { ?e :flow ?f . ?e :src ?s . OPTIONAL { ?s :limit ?l } FILTER (!BOUND(?l) || ?f > ?l) }"
    assert any("app.yaml:14:7: error: PATH {" in text for text in said(tmp_path, path, ", semantics: index"))


def test_a_question_without_an_end_names_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Everything is near everything: ten million ways, some seconds; the thread that is left to its end has one.
    rooms = [f":n{i}" for i in range(10)]
    near = " . ".join(f"{room} :near {', '.join(rooms)}" for room in rooms)
    ways = " . ".join(f"?a{i} :near ?a{i + 1}" for i in range(6))
    path = f'PATH {{ ?e :src ?a0 . {ways} . FILTER (CONCAT(STR(?a1), STR(?a6)) = "none") }}'
    file = written(tmp_path, path)
    (tmp_path / "kb.ttl").write_text(f"@prefix : <http://x#> . {near} .", encoding="utf-8")
    monkeypatch.setattr(asking, "SECONDS", 0.2)
    monkeypatch.setattr(asking, "_GRACE", 0.1)
    (only,) = judged(load(file))
    assert (only.severity, str(only.span).rpartition("/")[2]) == ("error", "app.yaml:14:7")
    assert only.message.startswith("PATH {?e :src ?a0")
    assert only.message.endswith("no answer in 0.2 s; its parts may be a cartesian product, or a path without an end")


def test_too_many_solutions_name_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "SOLUTIONS", 5)
    (only,) = said(tmp_path, "JOIN (?e.sensor != ?x) PATH { ?e :src ?s . ?s :in ?r . ?x :in ?r }")
    assert only.startswith("app.yaml:14:30: error: PATH {?e :src ?s")
    assert "more than 5 solutions" in only


@pytest.mark.parametrize(
    ("more", "mode", "size", "interval"),
    [
        ("", "auto", 65_536, 0),
        (", semantics: cache", "cache", 65_536, 0),
        (", semantics: {mode: cache, size: 5%}", "cache", Percent(5.0), 0),
        (", semantics: {mode: buffer+cache, size: 100, interval: 1s}", "buffer+cache", 100, 1_000_000),
    ],
)
def test_how_paths_are_judged(tmp_path: Path, more: str, mode: str, size: int | Percent, interval: int) -> None:
    known = load(written(tmp_path, "", more)).known()
    assert known is not None
    assert (known.mode, known.size, known.interval) == (mode, size, interval)


def test_percent_are_of_the_entities_that_an_event_can_have(tmp_path: Path) -> None:
    path = "PATH { ?e :flow ?f . ?e :src ?s . OPTIONAL { ?s :limit ?l } FILTER (!BOUND(?l) || ?f > ?l) }"
    app = application(tmp_path, path, ", semantics: {mode: cache, size: 50%}")
    known = app.known()
    assert known is not None
    semantic = known.filter(app.plan().semantic["asked"])
    assert semantic is not None
    # s1 to s4, r1, r2, and the classes Office and Hall
    assert [cache.entries for cache in semantic.caches] == [4]


@pytest.mark.parametrize("size", ["0", "0%", "101%", "1.5", "many", "true"])
def test_what_is_no_size(tmp_path: Path, size: str) -> None:
    _, diagnostics = examine(written(tmp_path, "", f", semantics: {{mode: cache, size: {size}}}"))
    assert any("is not the size of a cache; write a number of entries, or 5%" in d.message for d in diagnostics)
