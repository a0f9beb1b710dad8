"""`cepheid match` as a user calls it: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_cli import cepheid

READINGS = """\
{"id": 1, "time": "2012-05-07T09:00:00Z", "sensorID": "D105VOL", "flowrate": 510.0}
{"id": 2, "time": "2012-05-07T09:00:10Z", "sensorID": "D106VOL", "flowrate": 520}
{"id": 4, "time": "2012-05-07T09:06:00Z", "sensorID": "D105VOL", "flowrate": 700}
{"id": 3, "time": "2012-05-07T09:01:00Z", "sensorID": "D105VOL", "flowrate": 580.5}
"""
RISING = """\
SELECT ?e1.sensorID, ?e2.flowrate - ?e1.flowrate AS rise
FILTER (?e1.flowrate > 500)
JOIN (?e2.sensorID = ?e1.sensorID)
JOIN (?e2.flowrate - ?e1.flowrate > 50)
SEQ (?e1, ?e2)
WINDOW (?e1, ?e2, 5min)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "readings.jsonl").write_text(READINGS)
    (tmp_path / "rising.chi").write_text(RISING)
    return tmp_path


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("engine", ["native", "reference", pytest.param("spark", marks=pytest.mark.spark)])
def test_jsonl(folder: Path, engine: str) -> None:
    done = cepheid("match", "rising.chi", "--events", "readings.jsonl", "--engine", engine, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    found = lines(done.stdout)
    ids = [match.pop("id") for match in found]
    assert len(set(ids)) == 2
    assert all(len(i) == 32 for i in ids)
    assert found == [
        {
            "time": "2012-05-07T09:01:00.000000Z",
            "events": {"e1": 1, "e2": 3},
            "select": {"sensorID": "D105VOL", "rise": 70.5},
        },
        {
            "time": "2012-05-07T09:06:00.000000Z",
            "events": {"e1": 3, "e2": 4},
            "select": {"sensorID": "D105VOL", "rise": 119.5},
        },
    ]


def test_table(folder: Path) -> None:
    done = cepheid("match", "rising.chi", "--events", "readings.jsonl", "--format", "table", cwd=folder)
    assert done.stdout == (
        "time                         sensorID  rise   ?e1  ?e2\n"
        "2012-05-07T09:01:00.000000Z  D105VOL   70.5   1    3\n"
        "2012-05-07T09:06:00.000000Z  D105VOL   119.5  3    4\n"
        "2 matches\n"
    )
    (folder / "none.chi").write_text("SELECT ?e.id FILTER (?e.flowrate > 1000)")
    assert (
        cepheid("match", "none.chi", "--events", "readings.jsonl", "--format", "table", cwd=folder).stdout
        == "no matches\n"
    )


def test_standard_input_and_several_files(folder: Path) -> None:
    (folder / "more.csv").write_text("id,time,sensorID,flowrate\n5,2012-05-07T09:07:00Z,D105VOL,800\n")
    code = [
        sys.executable,
        "-m",
        "cepheid.cli.main",
        "match",
        "rising.chi",
        "--events",
        "-",
        "more.csv",
        "--format",
        "table",
    ]
    done = subprocess.run(code, input=READINGS, capture_output=True, text=True, check=True, cwd=folder)
    # Without names for the streams, files that name none are one stream.
    assert done.stdout.endswith("3 matches\n")


def test_what_does_not_fit_is_said_and_the_rest_goes_on(folder: Path) -> None:
    with (folder / "readings.jsonl").open("a") as file:
        file.write('rubbish\n{"id": 9, "sensorID": "x"}\n{"id": 8, "time": "2012-05-07T09:00:00Z", "flowrate": NaN}\n')
    done = cepheid("match", "rising.chi", "--events", "readings.jsonl", cwd=folder)
    assert done.returncode == 0
    assert len(lines(done.stdout)) == 2
    assert "readings.jsonl:5: dead letter: not JSON at column 1" in done.stderr
    assert "readings.jsonl:6: dead letter: no 'time'" in done.stderr
    assert "readings.jsonl:7: dead letter:" in done.stderr


def test_an_application_gives_names(folder: Path) -> None:
    (folder / "app.yaml").write_text(
        "name: a\nprefixes: {hvc: 'http://example.org/hvac#'}\ndefault_stream: airflow\nstreams:\n"
        "  airflow:\n    attributes: {sensorID: string, flowrate: float}\n    spellings: {flowrate: [airvolume]}\n"
        "    semantics: {flowrate: 'hvc:airflow'}\n  other: {attributes: {x: float}}\narchive: {path: data}\n"
    )
    (folder / "events.jsonl").write_text(
        '{"stream": "airflow", "id": 1, "time": 0, "airvolume": 501}\n{"stream": "other", "id": 1, "time": 0, "x": 1}\n'
    )
    (folder / "q.chi").write_text("SELECT ?e.hvc:airflow FILTER (?e.airvolume > 500)")
    done = cepheid("match", "q.chi", "--events", "events.jsonl", "--app", "app.yaml", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    (match,) = lines(done.stdout)
    assert match["select"] == {"airflow": 501.0}
    assert match["time"] == "1970-01-01T00:00:00.000000Z"


def test_streams_of_an_application_that_no_file_has_are_warned_of(folder: Path) -> None:
    (folder / "app.yaml").write_text(
        "name: plant\n"
        "streams:\n"
        "  flow: {attributes: {sensorID: string, flowrate: float}}\n"
        "  level: {attributes: {sensorID: string}}\n"
        "queries:\n"
        "  high: {text: 'SELECT ?e.sensorID FROM (?e, flow) FILTER (?e.flowrate > 500)'}\n"
    )
    records = [{"stream": "flow", **json.loads(line)} for line in READINGS.splitlines()]
    (folder / "readings.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))

    def said(ranges: str) -> str:
        (folder / "q.chi").write_text(f"SELECT ?e.sensorID FROM {ranges}")
        done = cepheid("match", "q.chi", "--events", "readings.jsonl", "--app", "app.yaml", cwd=folder)
        assert done.returncode == 0
        return done.stderr

    assert said("(?e, flow)") == said("(?e, flow | level)") == ""
    assert said("(?e, level)") == "warning: the events are of 'flow', and the query reads 'level': there are none\n"
    derived = "warning: the files have no events of 'high', and nothing is derived here: `cepheid query` asks"
    assert said("(?e, high)").startswith(derived)
    assert said("(?e, flow | high)").startswith(derived)


def test_faults_of_a_query(folder: Path) -> None:
    (folder / "q.chi").write_text("SELECT ?e.sensorid\nFILTER (?e.flowrate > 'high')\n")
    done = cepheid("match", "q.chi", "--events", "readings.jsonl", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "q.chi:1:8: error: 'readings' has no attribute 'sensorid'" in done.stderr
    assert "hint: did you mean 'sensorID'?" in done.stderr
    assert "q.chi:2:9: error: a float and a string can't be compared (>)" in done.stderr


def test_state_without_a_bound_is_warned_of(folder: Path) -> None:
    (folder / "q.chi").write_text("SELECT ?a.id SEQ (?a, ?b)")
    done = cepheid("match", "q.chi", "--events", "readings.jsonl", cwd=folder)
    assert done.returncode == 0
    assert len(lines(done.stdout)) == 6
    assert "warning: no WINDOW bounds ?b" in done.stderr


def test_a_stream_that_no_file_has_is_empty(folder: Path) -> None:
    (folder / "q.chi").write_text(
        "SELECT ?a.id FROM (?a, readings), (?g, ghost) SEQ (?a, NOT ?g) WINDOW (?a, 1min) FILTER (?g.anything = 5)"
    )
    done = cepheid("match", "q.chi", "--events", "readings.jsonl", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert next(m["time"] for m in lines(done.stdout)) == "2012-05-07T09:01:00.000000Z", "the deadline"
    assert len(lines(done.stdout)) == 4


def test_several_streams_need_from(folder: Path) -> None:
    (folder / "two.jsonl").write_text('{"stream": "a", "id": 1, "time": 0}\n{"stream": "b", "id": 1, "time": 0}\n')
    (folder / "q.chi").write_text("SELECT ?e.id")
    done = cepheid("match", "q.chi", "--events", "two.jsonl", cwd=folder)
    assert done.returncode == 2
    assert "there is no FROM, and more than one stream to choose from (rule Q1)" in done.stderr
    (folder / "q.chi").write_text("SELECT ?e.id FROM (?e, a | b)")
    done = cepheid("match", "q.chi", "--events", "two.jsonl", cwd=folder)
    assert [m["events"]["e"] for m in lines(done.stdout)] == ["a/1", "b/1"]


def test_mixed_types_name_both_lines(folder: Path) -> None:
    (folder / "mixed.jsonl").write_text('{"id": 1, "time": 0, "x": 1}\n{"id": 2, "time": 0, "x": "one"}\n')
    (folder / "q.chi").write_text("SELECT ?e.x")
    done = cepheid("match", "q.chi", "--events", "mixed.jsonl", cwd=folder)
    assert done.returncode == 2
    assert "mixed.jsonl:2" in done.stderr
    assert "mixed.jsonl:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_now(folder: Path) -> None:
    (folder / "q.chi").write_text("SELECT ?e.id WITHIN [now - 1min, now]")
    done = cepheid("match", "q.chi", "--events", "readings.jsonl", "--now", "2012-05-07T09:01:00", cwd=folder)
    assert [m["events"]["e"] for m in lines(done.stdout)] == [1, 2, 3]
    done = cepheid("match", "q.chi", "--events", "readings.jsonl", "--now", "yesterday", cwd=folder)
    assert done.returncode == 2
    assert "'yesterday' is not a time" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no.chi", "--events", "readings.jsonl"), "no.chi: No such file or directory"),
        (("rising.chi", "--events", "no.jsonl"), "no.jsonl"),
        (("rising.chi", "--events", "rising.chi"), "rising.chi"),
        (("rising.chi",), "Missing option '--events'"),
        (("rising.chi", "--events", "readings.jsonl", "--knowledge", "no.ttl"), "no such source: no.ttl"),
    ],
)
def test_files_that_can_not_be_read(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = cepheid("match", *arguments, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


APPLICATION = """\
name: plant
streams:
  flow: {attributes: {room: string, x: float}, idle: 300ms}
archive: {path: data}
queries: {all: {text: "SELECT ?e.x FROM (?e, flow)"}}
"""


def line_of(id: int, seconds: float, x: float) -> str:
    return json.dumps({"id": id, "time": int(seconds * 1e6), "room": "r", "x": x}) + "\n"


def start_following(folder: Path, query: str, *arguments: str) -> subprocess.Popen[str]:
    (folder / "app.yaml").write_text(APPLICATION)
    (folder / "q.chi").write_text(query)
    command = [sys.executable, "-m", "cepheid.cli.main", "match", "q.chi", "--app", "app.yaml", "--follow", "--events"]
    return subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )


def test_follow_prints_a_match_as_soon_as_it_is_complete(tmp_path: Path) -> None:
    """Standard input stays open: what is read here was printed while more could have come."""
    query = "SELECT ?b.x - ?a.x AS rise SEQ (?a, ?b) JOIN (?a.room = ?b.room) WINDOW (?a, ?b, 10s)"
    process = start_following(tmp_path, query, "-")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line_of(1, 1, 5) + "rubbish\n" + line_of(2, 2, 7))
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["select"] == {"rise": 2.0}
    process.stdin.write(
        line_of(3, 1.5, 9) + line_of(2, 3, 9) + line_of(4, 4, 8)
    )  # late, a duplicate, and one that fits
    out, err = process.communicate(timeout=60)
    assert [m["events"] for m in lines(out)] == [{"a": 1, "b": 4}, {"a": 2, "b": 4}]
    assert "-:2: dead letter: not JSON" in err
    assert process.returncode == 0


def test_follow_a_file_that_grows_and_a_deadline_on_an_idle_stream(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(line_of(1, 1, 5))
    process = start_following(tmp_path, "SELECT ?a.x SEQ (?a, NOT ?b) WINDOW (?a, ?b, 1s)", "events.jsonl")
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["events"] == {"a": 1}, "nothing else came, and the clock went on"
    finally:
        process.kill()
        process.communicate()


def test_follow_refuses_state_without_a_bound(tmp_path: Path) -> None:
    process = start_following(tmp_path, "SELECT ?a.x SEQ (?a, ?b)", "-")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "error: no WINDOW bounds ?b" in err


def test_follow_needs_an_application(folder: Path) -> None:
    done = cepheid("match", "rising.chi", "--events", "-", "--follow", cwd=folder)
    assert done.returncode == 2
    assert "--follow needs --app" in done.stderr


def test_a_byte_order_mark_and_other_line_ends_do_no_harm(folder: Path) -> None:
    (folder / "rising.chi").write_bytes(b"\xef\xbb\xbf" + RISING.replace("\n", "\r\n").encode())
    (folder / "readings.jsonl").write_bytes(b"\xef\xbb\xbf" + READINGS.replace("\n", "\r\n").encode())
    done = cepheid("match", "rising.chi", "--events", "readings.jsonl", "--format", "table", cwd=folder)
    assert (done.stderr, done.stdout.splitlines()[-1]) == ("", "2 matches")


def why(folder: Path, query: str, name: str) -> list[str]:
    (folder / "q.chi").write_text(query)
    done = cepheid("match", "q.chi", "--events", "readings.jsonl", "--why", name, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [line.strip() for line in done.stdout.splitlines()]


def test_why_an_event_is_in_a_match(folder: Path) -> None:
    first, e1, e2, last = why(folder, RISING, "3")
    assert (first, e1, e2) == ("readings/3", "?e1: yes, it qualifies", "?e2: yes, it qualifies")
    assert last.startswith("in 2 matches: ")
    assert " as ?e2, " in last
    assert last.endswith(" as ?e1")


def test_why_an_event_is_in_no_match(folder: Path) -> None:
    assert why(folder, RISING, "readings/2")[3:] == [
        "in no match",
        "without JOIN (?e2.sensorID = ?e1.sensorID) it would be in 1",
    ]
    assert why(folder, RISING.replace("500", "515 AND ?e1.sensorID != 'x'"), "1")[1] == (
        "?e1: no, ?e1.flowrate > 515 is not true (flowrate = 510.0)"
    )
    silent = "SELECT ?a.id SEQ (?a, NOT ?b) WINDOW (?a, ?b, 2min) FILTER (?a.flowrate < 515) FILTER (?b.flowrate > 550)"
    assert why(folder, silent, "1")[-2:] == ["in no match", "without NOT ?b it would be in 1"]
    assert why(folder, RISING + "WITHIN [2012-05-07T09:05, )", "1")[1].startswith("is outside of WITHIN")


def test_why_of_an_event_that_is_not_there(folder: Path) -> None:
    done = cepheid("match", "rising.chi", "--events", "readings.jsonl", "--why", "99", cwd=folder)
    assert done.returncode == 2
    assert "no event 99 in the input" in done.stderr
