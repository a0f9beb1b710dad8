"""`cepheid annotate` and `cepheid knowledge`, on the example campus."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner

from cepheid.cli.annotate import command as annotate
from cepheid.cli.knowledge import command as knowledge

APP = """
name: small
prefixes: {ex: "http://example.org/", evt: "http://example.org/event#"}
streams:
  air:
    attributes: {sensorID: string, device: int, flowrate: float, note: string}
    SEMANTICS
knowledge: {sources: [rooms.ttl]}
"""
ROOMS = """@prefix ex: <http://example.org/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
ex:s-A1-VOL ex:id "76284" . ex:s-A2-VOL ex:id "35143" . ex:flowRate a owl:DatatypeProperty .
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPHEID_HOME", str(tmp_path / "home"))


def app(folder: Path, semantics: str = "") -> str:
    (folder / "rooms.ttl").write_text(ROOMS)
    events = [("A1", 76284), ("A2", 35143), ("X9", 1)]
    (folder / "events.jsonl").write_text(
        "".join(
            json.dumps({"id": i, "time": i, "sensorID": name, "device": device, "flowrate": 1.5, "note": "x"}) + "\n"
            for i, (name, device) in enumerate(events, 1)
        )
    )
    (folder / "app.yaml").write_text(APP.replace("SEMANTICS", semantics))
    return str(folder / "app.yaml")


def run(*arguments: str) -> str:
    command = annotate if arguments[0] == "annotate" else knowledge
    done = CliRunner().invoke(command, [*arguments[1:]], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_mappings_are_proposed(tmp_path: Path) -> None:
    told = run("annotate", app(tmp_path), "--events", str(tmp_path / "events.jsonl"))
    assert 'could be  sensorID: {property: evt:hasSource, entity: "ex:s-{value}-VOL"}   # 2 of 3 values' in told
    assert "could be  flowrate: ex:flowRate" in told
    assert "note: no meaning yet" in told


def test_numbers_are_looked_up_as_text(tmp_path: Path) -> None:
    told = run("annotate", app(tmp_path), "--events", str(tmp_path / "events.jsonl"))
    assert "could be  device: {property: evt:hasSource, lookup: ex:id}   # 2 of 3 values" in told


def test_values_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    semantics = (
        'semantics: {sensorID: {property: "evt:hasSource", entity: "ex:s-{value}-VOL"}, flowrate: "ex:flowRate"}'
    )
    told = run("annotate", app(tmp_path, semantics), "--events", str(tmp_path / "events.jsonl"))
    assert "by template: 2 of 3 values lead to an entity\n    nowhere: X9\n" in told
    assert "could be  sensorID" not in told


def test_a_misspelt_lookup_is_told(tmp_path: Path) -> None:
    semantics = 'semantics: {device: {property: "evt:hasSource", lookup: "ex:idd"}}'
    told = run("annotate", app(tmp_path, semantics), "--events", str(tmp_path / "events.jsonl"))
    assert "nothing has a ex:idd; did you mean ex:id?" in told
    assert "could be  device: {property: evt:hasSource, lookup: ex:id}" in told


def test_a_change_is_checked_kept_and_in_force(tmp_path: Path) -> None:
    file = app(tmp_path)
    (tmp_path / "new.ttl").write_text('<http://example.org/s-A3-VOL> <http://example.org/id> "9" .')
    assert run("knowledge", "apply", file, str(tmp_path / "new.ttl")).startswith("1 triples became true, 0 ceased")
    run("knowledge", "apply", file, "--remove", str(tmp_path / "new.ttl"))
    run("knowledge", "apply", file, str(tmp_path / "new.ttl"))
    run("knowledge", "export", file, str(tmp_path / "all.nt"))
    assert "s-A3-VOL" in (tmp_path / "all.nt").read_text()


def test_the_example_holds_together(tmp_path: Path) -> None:
    example = resources.files("cepheid.examples.campus") / "app.yaml"
    told = run("knowledge", "show", str(example))
    assert "source   brick:1.4" in told
    assert "warning" not in told
