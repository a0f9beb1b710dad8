"""Where knowledge comes from: formats, imports, Brick, and files that are broken."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from cepheid.knowledge.sources import read
from cepheid.knowledge.store import Knowledge
from cepheid.language.errors import Rejected

LINE = "<http://example.org/s> <http://example.org/p> <http://example.org/o> ."
SAME = {
    "a.ttl": "@prefix ex: <http://example.org/> . ex:s ex:p ex:o .",
    "a.nt": LINE,
    "a.rdf": """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:ex="http://example.org/">
        <rdf:Description rdf:about="http://example.org/s"><ex:p rdf:resource="http://example.org/o"/></rdf:Description>
        </rdf:RDF>""",
    "a.jsonld": '{"@id": "http://example.org/s", "http://example.org/p": {"@id": "http://example.org/o"}}',
}


@pytest.mark.parametrize("name", SAME)
def test_every_format_says_the_same(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(SAME[name])
    assert read([name], tmp_path).parts[0].text == LINE + "\n"


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.ttl", "@prefix ex: <http://example.org/> .\nex:s ex:p ;", "a.ttl:2:"),
        ("a.ttl", "ex:s ex:p ex:o .", "a.ttl:1:1"),
        ("a.nt", LINE + "\n<s> <p> .", "a.nt:2:1"),
        ("a.jsonld", '{"@id": "http://example.org/s",\n "p": }', "a.jsonld:2:"),
        ("a.rdf", "<rdf>", "a.rdf"),
    ],
)
def test_a_broken_file_is_told_with_its_place(name: str, text: str, place: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Rejected) as caught:
        read([name], tmp_path)
    assert place in caught.value.diagnostics[0].render()


def test_named_graphs_are_not_lost_silently(tmp_path: Path) -> None:
    graph = '{"@id": "urn:g", "@graph": [{"@id": "urn:s", "urn:p": "o"}]}'
    (tmp_path / "a.jsonld").write_text(graph)
    with pytest.raises(Rejected, match="named graph <urn:g>"):
        read(["a.jsonld"], tmp_path)


def test_all_broken_files_are_told_at_once(tmp_path: Path) -> None:
    for name in ("a.ttl", "b.ttl"):
        (tmp_path / name).write_text("ex:s")
    with pytest.raises(Rejected) as caught:
        read(["a.ttl", "b.ttl"], tmp_path)
    assert len(caught.value.diagnostics) == 2


def ontology(iri: str, *imports: str) -> str:
    owl = "http://www.w3.org/2002/07/owl#"
    return f"<{iri}> a <{owl}Ontology> ." + "".join(f"<{iri}> <{owl}imports> <{other}> ." for other in imports)


def test_imports_are_found_by_name_and_by_what_files_declare_and_may_go_in_circles(tmp_path: Path) -> None:
    (tmp_path / "main.ttl").write_text(ontology("urn:main", "http://example.org/rooms", "urn:air"))
    (tmp_path / "rooms.ttl").write_text(ontology("http://example.org/rooms", "urn:main"))
    (tmp_path / "x17.ttl").write_text(ontology("urn:air"))
    (tmp_path / "unrelated.ttl").write_text("broken")
    found = read(["main.ttl"], tmp_path)
    assert [file.path.name for file, _ in found.files] == ["main.ttl", "rooms.ttl", "x17.ttl"]
    assert found.warnings == ()


def test_what_is_not_here_is_told_and_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "main.ttl").write_text(ontology("urn:main", "http://example.org/far"))
    assert "http://example.org/far is imported but not here" in read(["main.ttl"], tmp_path).warnings[0]


def test_names_that_are_near(tmp_path: Path) -> None:
    (tmp_path / "campus.ttl").write_text("")
    with pytest.raises(Rejected, match=r"(?s)no such source: campis\.ttl.*did you mean 'campus\.ttl'"):
        read(["campis.ttl"], tmp_path)
    with pytest.raises(Rejected, match=r"(?s)no Brick of version '9'.*there are 1\.1"):
        read(["brick:9"], tmp_path)


def test_brick_comes_without_importing_its_package(tmp_path: Path) -> None:
    knowledge = Knowledge.load(["brick:1.4"], folder=tmp_path)
    question = "SELECT ?c { brick:Zone_Air_Temperature_Sensor rdfs:subClassOf ?c }"
    prefixes = {
        "brick": "https://brickschema.org/schema/Brick#",
        "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    }
    assert prefixes["brick"] + "Sensor" in {row["c"].value for row in knowledge.select(question, prefixes)}
    assert importlib.util.find_spec("brickschema") is not None
    import sys

    assert "brickschema" not in sys.modules
