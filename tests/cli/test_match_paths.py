"""`cepheid match` with PATHs: knowledge from the application and from files, what is refused, and what follows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

APP = """name: campus
prefixes: {"": "http://x#"}
streams:
  air:
    attributes: {sensor: string, flow: float}
    semantics: {flow: ":flow", sensor: {property: ":src", entity: ":{value}"}}
"""
KNOWLEDGE = "@prefix : <http://x#> . :s1 :in :r1 . :s2 :in :r2 . :r1 a :Office .\n"
QUERY = "SELECT ?e.sensor, ?r PATH {?e :src ?s . ?s :in ?r . ?r a :Office}"
EVENTS = [
    {"id": 1, "time": "2012-05-07T09:00:00Z", "sensor": "s1", "flow": 1.0},
    {"id": 2, "time": "2012-05-07T09:00:01Z", "sensor": "s2", "flow": 1.0},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.yaml").write_text(APP, encoding="utf-8")
    (tmp_path / "kb.ttl").write_text(KNOWLEDGE, encoding="utf-8")
    (tmp_path / "query.chi").write_text(QUERY, encoding="utf-8")
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in EVENTS), encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cepheid.cli.main", "match", "query.chi", "--events", "events.jsonl", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_knowledge_from_files_and_from_the_application(folder: Path) -> None:
    given = run(folder, "--app", "app.yaml", "--knowledge", "kb.ttl")
    assert [json.loads(line)["select"] for line in given.stdout.splitlines()] == [{"sensor": "s1", "r": "http://x#r1"}]
    (folder / "app.yaml").write_text(APP + "knowledge: {sources: [kb.ttl]}\n", encoding="utf-8")
    assert run(folder, "--app", "app.yaml").stdout == given.stdout
    assert run(folder, "--app", "app.yaml", "--engine", "reference").stdout == given.stdout


def test_values_with_no_entity_are_counted(folder: Path) -> None:
    """Rule P1."""
    looked_up = APP.replace('entity: ":{value}"', 'lookup: ":name"')
    (folder / "app.yaml").write_text(looked_up, encoding="utf-8")
    (folder / "kb.ttl").write_text(KNOWLEDGE + ':s1 :name "s1" .\n', encoding="utf-8")
    done = run(folder, "--app", "app.yaml", "--knowledge", "kb.ttl")
    assert [json.loads(line)["events"] for line in done.stdout.splitlines()] == [{"e": 1}]
    assert done.stderr == "note: no entity for air.sensor 's2', in 1 events\n"


def test_without_knowledge_a_path_is_refused(folder: Path) -> None:
    done = run(folder, "--app", "app.yaml")
    assert done.returncode == 2
    assert "PATH needs knowledge, and there is none" in done.stderr


def test_knowledge_that_is_not_there(folder: Path) -> None:
    done = run(folder, "--app", "app.yaml", "--knowledge", "nowhere.ttl")
    assert done.returncode == 2
    assert "nowhere.ttl" in done.stderr
    assert "Traceback" not in done.stderr


def test_why_shows_the_triples_or_where_it_stopped(folder: Path) -> None:
    options = ("--app", "app.yaml", "--knowledge", "kb.ttl", "--why")
    assert "?e: :s1 :in :r1" in run(folder, *options, "1").stdout
    assert "no, it stops at :r2 a :Office" in run(folder, *options, "2").stdout
    (folder / "query.chi").write_text("SELECT ?e.id PATH {?e :src/:in/a ?kind}", encoding="utf-8")
    lines = run(folder, *options, "1").stdout.splitlines()
    assert re.fullmatch("  by the knowledge [0-9a-f]{16}", lines[1])
    assert lines[2:5] == ["  ?e: ?e :src :s1", "  ?e: :s1 :in :r1", "  ?e: :r1 a :Office"]


def test_follow_follows_the_knowledge_too(folder: Path) -> None:
    (folder / "app.yaml").write_text(APP + "knowledge: {sources: [kb.ttl]}\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "cepheid.cli.main",
        "match",
        "query.chi",
        "--events",
        "-",
        "--app",
        "app.yaml",
        "--follow",
    ]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def send(number: int, sensor: str) -> None:
            assert process.stdin is not None
            moment = f"2012-05-07T09:{number // 60:02}:{number % 60:02}Z"
            process.stdin.write(
                json.dumps({"stream": "air", "id": number, "time": moment, "sensor": sensor, "flow": 1.0}) + "\n"
            )
            process.stdin.flush()

        send(1, "s1")
        first = json.loads(process.stdout.readline())
        (folder / "kb.ttl").write_text(KNOWLEDGE + ":r2 a :Office .\n", encoding="utf-8")
        # Events of the other sensor, until the new version is in force.
        number = 1
        found: list[str] = []
        while not found and number < 600:
            number += 1
            send(number, "s2")
            time.sleep(0.1)
            found = _ready(process)
        process.stdin.close()
        second = json.loads(found[0])
    assert (first["events"], first["knowledge"]) == ({"e": 1}, 1)
    assert (second["select"]["sensor"], second["knowledge"]) == ("s2", 2)


def _ready(process: subprocess.Popen[str]) -> list[str]:
    import select

    assert process.stdout is not None
    return [process.stdout.readline()] if select.select([process.stdout], [], [], 0)[0] else []
