"""Bad and odd input of `cepheid match`, as a user meets it: what rules E1 to E4 say of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_cli import cepheid

APPLICATION = """\
name: plant
streams:
  flow:
    id: int
    attributes:
      {x: float, n: int, s: string, ok: bool, at: timestamp, raw: bytes, image: array<uint8>, wave: array<float>}
  free: {extras: true, attributes: {x: float}}
archive: {path: data}
default_stream: flow
"""


def match(folder: Path, query: str, *lines: str | bytes, app: str | None = None, **options: str) -> Any:
    """The matches, and what was said on standard error; a mistake is told by its exit code, and has no matches."""
    (folder / "q.chi").write_text(query)
    data = b"".join((one.encode() if isinstance(one, str) else one) + b"\n" for one in lines)
    (folder / "events.jsonl").write_bytes(data)
    arguments = [f"--{name}={value}" for name, value in options.items()]
    if app is not None:
        (folder / "app.yaml").write_text(app)
        arguments.append("--app=app.yaml")
    done = cepheid("match", "q.chi", "--events", "events.jsonl", *arguments, cwd=folder)
    assert "Traceback" not in done.stderr
    if done.returncode != 0:
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def bound(matches: list[dict[str, Any]], variable: str = "e") -> list[Any]:
    return [one["events"][variable] for one in matches]


def values(matches: list[dict[str, Any]], name: str = "x") -> list[Any]:
    return [one["select"][name] for one in matches]


# E1


def test_e1_times_are_microseconds_or_text_and_text_without_a_zone_is_utc(tmp_path: Path) -> None:
    found, said = match(
        tmp_path,
        "SELECT ?e.time AS x",
        '{"id": 1, "time": "2012-05-07T09:00:00+02:00"}',
        '{"id": 2, "time": "2012-05-07T07:00:00"}',
        '{"id": 3, "time": 1336374000000000}',
        '{"id": 4, "time": -1}',
    )
    assert said == ""
    assert bound(found) == [4, 1, 2, 3]
    assert values(found) == ["1969-12-31T23:59:59.999999Z", *["2012-05-07T07:00:00.000000Z"] * 3]


def test_e1_a_stream_has_one_kind_of_ids_and_the_error_names_both_lines(tmp_path: Path) -> None:
    said = match(tmp_path, "SELECT ?e.id", '{"id": 1, "time": 0}', '{"id": "1", "time": 1}')
    assert "events.jsonl:2: 'id' is string, but events.jsonl:1 has int" in said
    said = match(tmp_path, "SELECT ?e.id", '{"id": 1, "time": 0}', '{"time": 1}')
    assert "events.jsonl:2: no 'id', but events.jsonl:1 has one" in said
    found, said = match(
        tmp_path,
        "SELECT ?e.id AS x FROM (?e, a), (?f, b) WINDOW (?e, ?f, 0s)",
        '{"stream": "a", "id": 1, "time": 0}',
        '{"stream": "b", "id": "1", "time": 0}',
    )
    assert (values(found), said) == ([1], "")


def test_e1_any_attribute_may_be_null_or_missing(tmp_path: Path) -> None:
    found, said = match(
        tmp_path,
        "SELECT ?e.x, ?e.y FILTER (?e.x IS NULL)",
        '{"id": 1, "time": 0, "x": null, "y": null}',
        '{"id": 2, "time": 1}',
        '{"id": 3, "time": 2, "x": 5}',
    )
    assert (bound(found), values(found), values(found, "y"), said) == ([1, 2], [None, None], [None, None], "")


# E2

TIES = [
    '{"stream": "b", "id": 2, "time": 3}',
    '{"stream": "a", "id": 10, "time": 1}',
    '{"stream": "a", "id": 9, "time": 1}',
    '{"stream": "a_c", "id": "z", "time": 1}',
    '{"stream": "a_c", "id": "Z", "time": 1}',
    '{"stream": "b", "id": -1, "time": 1}',
    '{"stream": "b", "id": 7, "time": 0}',
]


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_e2_equal_and_reversed_times_are_put_in_order(tmp_path: Path, engine: str) -> None:
    single = "SELECT ?e.time AS x FROM (?e, a | b | a_c)"
    found, _ = match(tmp_path, single, *TIES, engine=engine)
    assert bound(found) == ["b/7", "a/9", "a/10", "a_c/Z", "a_c/z", "b/-1", "b/2"]
    # Events of one time are in no sequence.
    pairs = "SELECT ?e.time AS x FROM (?e, a | b | a_c), (?f, a | b) SEQ (?e, ?f) MATCH NEXT"
    found, _ = match(tmp_path, pairs, *TIES, engine=engine)
    assert list(zip(bound(found), bound(found, "f"), strict=True)) == [
        ("b/7", "a/9"),
        *((first, "b/2") for first in ["a/9", "a/10", "a_c/Z", "a_c/z", "b/-1"]),
    ]
    for seed in range(2):
        shuffled = random.Random(seed).sample(TIES, len(TIES))
        assert match(tmp_path, pairs, *shuffled, engine=engine)[0] == found


# E3


def test_e3_what_is_no_event_is_a_dead_letter_with_its_line_and_reason(tmp_path: Path) -> None:
    bad: list[tuple[str | bytes, str]] = [
        ('{"id": 3, "time": true, "x": 1}', "'time': expected a time"),
        ('{"id": 3, "time": null, "x": 1}', "no 'time'"),
        ('{"id": 3, "time": "soon", "x": 1}', "'time': 'soon' is not a time"),
        ('{"id": 3, "time": 1.5, "x": 1}', "'time': expected a time"),
        ('{"id": 3, "time": 9223372036854775808, "x": 1}', "out of range"),
        ('{"id": true, "time": 1, "x": 1}', "'id'"),
        ('{"id": 1.5, "time": 1, "x": 1}', "'id'"),
        ('{"id": 3, "time": 1, "x": 1e999}', "attribute 'x'"),
        ('{"id": 3, "time": 1, "x": -Infinity}', "attribute 'x'"),
        ('{"id": 3, "time": 1, "x": {"y": 1}}', "attribute 'x'"),
        ('{"id": 3, "time": 1, "x": ["a"]}', "attribute 'x'"),
        ("[1, 2]", ""),
        ("null", ""),
        ('{"id": 3, "time": 1, "x": 1, "x": 2}', "'x'"),
        ('{"id": 3, "time": 1, "x": 1', "not JSON"),
        (b'{"id": 3, "time": 1, "s": "\xff"}', "UTF-8"),
    ]
    good = '{"id": 1, "time": 0, "x": 1}', '{"id": 2, "time": 1, "x": 2.5}'
    for start in range(0, len(bad), 5):  # so many are shown one by one
        some = bad[start : start + 5]
        found, said = match(tmp_path, "SELECT ?e.x", good[0], *(line for line, _ in some), good[1])
        assert values(found) == [1.0, 2.5]
        told = said.splitlines()
        assert len(told) == len(some)
        for number, (one, (line, reason)) in enumerate(zip(told, some, strict=True), 2):
            assert one.startswith(f"events.jsonl:{number}: dead letter: "), line
            assert reason in one, line
    _, said = match(tmp_path, "SELECT ?e.x", *good, *(line for line, _ in bad))
    assert len(said.splitlines()) == 6
    assert said.splitlines()[-1].startswith("16 dead letters in all: ")


def test_e3_what_does_not_fit_the_declared_stream_is_a_dead_letter(tmp_path: Path) -> None:
    misfits = ['"x": "1"', '"n": 1.5', '"n": 9223372036854775808', '"s": 1', '"ok": 1', '"at": true', '"raw": "%"']
    misfits += ['"image": [256]', '"wave": [NaN]', '"unknown": 1']
    lines = [f'{{"stream": "flow", "id": {i}, "time": {i}, {misfit}}}' for i, misfit in enumerate(misfits)]
    lines += ['{"stream": "flow", "id": 90, "time": null}', '{"stream": "flow", "id": "a", "time": 1}']
    lines += ['{"stream": "no", "id": 1, "time": 1}', '{"id": 1, "time": 1}']
    fitting = '{"stream": "flow", "id": 1, "time": 9, "x": 1, "at": 0, "raw": "AA==", "image": [255], "wave": [1]}'
    found, said = match(tmp_path, "SELECT ?e.x", *lines, fitting, app=APPLICATION)
    assert (bound(found), values(found)) == ([1], [1.0])
    assert f"{len(lines)} dead letters in all: " in said
    assert "events.jsonl:1: dead letter: attribute 'x': expected float, found string '1'" in said


def test_e3_a_stream_that_allows_extras_has_them_left_out(tmp_path: Path) -> None:
    found, said = match(
        tmp_path,
        "SELECT ?e.x FROM (?e, free)",
        '{"stream": "free", "id": 1, "time": 0, "x": 1, "more": {"a": [1]}}',
        app=APPLICATION,
    )
    assert (values(found), said) == ([1.0], "")


def test_e3_int_and_float_are_float_and_other_mixtures_name_both_lines(tmp_path: Path) -> None:
    numbers = (
        '{"id": 1, "time": 0, "x": 1}',
        '{"id": 2, "time": 0, "x": 9007199254740993}',
        '{"id": 3, "time": 0, "x": 0.5}',
    )
    found, _ = match(tmp_path, "SELECT ?e.x", *numbers)
    assert values(found) == [1.0, 9007199254740992.0, 0.5]
    for first, second in [("1", '"one"'), ("true", "1"), ('"a"', "[1]"), ("0.5", "false")]:
        line = '{{"id": {}, "time": 0, "x": {}}}'
        said = match(tmp_path, "SELECT ?e.x", line.format(1, "null"), line.format(2, first), line.format(3, second))
        assert "events.jsonl:3" in said
        assert "events.jsonl:2" in said


def test_e3_input_without_events_has_no_stream_unless_from_names_one(tmp_path: Path) -> None:
    assert "there is no FROM, and no stream in the input (rule Q1)" in match(tmp_path, "SELECT ?e.id")
    assert "events.jsonl:1: dead letter: not JSON" in match(tmp_path, "SELECT ?e.id", "not json"), "why there is none"
    assert match(tmp_path, "SELECT ?e.id FROM (?e, flow)", "", "  ") == ([], "")
    assert match(tmp_path, "SELECT ?e.x", app=APPLICATION) == ([], "")


def test_e3_an_attribute_that_is_always_null_goes_with_any_type(tmp_path: Path) -> None:
    lines = '{"id": 1, "time": 1, "v": null, "n": 7}', '{"id": 2, "time": 2, "n": 8}'
    assert match(tmp_path, "SELECT ?e.n FILTER (?e.v > 1 OR NOT ?e.v)", *lines) == ([], "")
    found, _ = match(tmp_path, "SELECT ?e.n + ?e.v AS x FILTER (?e.v = 'a' OR ?e.n = 7)", *lines)
    assert values(found) == [None]
    found, _ = match(tmp_path, "SELECT AVG(?e.v) AS x, COUNT(?e.v) AS n WINDOW (?e, length, 2)", *lines)
    assert (values(found), values(found, "n")) == ([None, None], [0, 0])
    joined = "SELECT ?a.n AS x SEQ (?a, ?b) JOIN (?a.v = ?b.v) WINDOW (?a, ?b, 1s)"
    assert match(tmp_path, joined, *lines) == ([], "")
    found, _ = match(tmp_path, "SELECT ?e.v AS x, COUNT(?e) AS n WINDOW (?e, batch, 1s) GROUP BY ?e.v", *lines)
    assert (values(found), values(found, "n")) == ([None], [2])


def test_records_that_name_no_stream_are_of_the_only_one_that_is_read(tmp_path: Path) -> None:
    line = '{"id": 1, "time": 1, "n": 7}'
    found, said = match(tmp_path, "SELECT ?e.n AS x FROM (?e, flow)", line)
    assert (values(found), said) == ([7], "")
    found, said = match(tmp_path, "SELECT ?e.n AS x FROM (?e, flow | level)", line)
    assert found == []
    assert "the events are of 'events', and the query reads 'flow', 'level'" in said


def test_the_only_stream_of_an_application_need_not_be_named_beside_its_queries_and_operators(tmp_path: Path) -> None:
    app = """
name: a
default_stream: flow
streams: {flow: {attributes: {n: int, wave: array<float>}}}
graph: {spectrum: {kind: fft, inputs: [flow]}}
consumers: {c: {input: spectrum}}
queries: {some: {text: "SELECT ?e.n FILTER (?e.n > 5)"}}
"""
    found, said = match(tmp_path, "SELECT ?e.n AS x", '{"time": 1, "n": 7}', '{"time": 2, "n": 3}', app=app)
    assert (bound(found), values(found), said) == ([1, 2], [7, 3], "")
    derived = '{"stream": "some", "id": "m", "time": 1, "n": 7}'
    found, said = match(tmp_path, "SELECT ?e.n AS x FROM (?e, some)", derived, '{"time": 1, "n": 8}', app=app)
    assert (bound(found), values(found), said) == (["m"], [7], "")


def test_now_is_microseconds_or_text_as_times_are(tmp_path: Path) -> None:
    lines = '{"id": 1, "time": 1000000}', '{"id": 2, "time": 3000000}'
    for now in ("2000000", "1970-01-01T00:00:02Z"):
        found, _ = match(tmp_path, "SELECT ?e.time AS x WITHIN [now, )", *lines, now=now)
        assert bound(found) == [2]


# E4


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_e4_of_events_with_one_id_the_first_in_the_file_wins(tmp_path: Path, engine: str) -> None:
    found, said = match(
        tmp_path,
        "SELECT ?e.x FROM (?e, a | b)",
        '{"stream": "b", "id": 1, "time": 5, "x": 1}',
        '{"stream": "b", "id": 1, "time": 0, "x": 2}',  # earlier, but later in the file
        '{"stream": "a", "id": 1, "time": 3, "x": 3}',  # of another stream
        '{"stream": "a", "id": 1, "time": 3, "x": 3}',  # the same in all
        engine=engine,
    )
    assert (bound(found), values(found), said) == (["a/1", "b/1"], [3, 1], "")


def test_e4_a_record_that_does_not_fit_takes_no_id(tmp_path: Path) -> None:
    found, said = match(tmp_path, "SELECT ?e.x", '{"id": 1, "time": 0, "x": NaN}', '{"id": 1, "time": 1, "x": 2.5}')
    assert values(found) == [2.5]
    assert said.startswith("events.jsonl:1: dead letter: ")


def test_e4_duplicates_are_known_across_files_in_the_order_they_are_given(tmp_path: Path) -> None:
    (tmp_path / "q.chi").write_text("SELECT ?e.x")
    (tmp_path / "one.jsonl").write_text('{"stream": "s", "id": 1, "time": 9, "x": 1}\n')
    (tmp_path / "two.csv").write_text("stream,id,time,x\ns,1,0,2\ns,2,0,3\n")
    for files, wanted in [(("one.jsonl", "two.csv"), [3, 1]), (("two.csv", "one.jsonl"), [2, 3])]:
        done = cepheid("match", "q.chi", "--events", *files, cwd=tmp_path)
        assert [json.loads(line)["select"]["x"] for line in done.stdout.splitlines()] == wanted


def test_e4_nothing_in_a_file_is_late(tmp_path: Path) -> None:
    late = APPLICATION.replace("    id: int\n", "    id: int\n    lateness: 0s\n", 1)
    lines = ['{"stream": "flow", "id": 1, "time": 9000000}', '{"stream": "flow", "id": 2, "time": 0}']
    found, said = match(tmp_path, "SELECT ?b.id SEQ (?a, ?b) WINDOW (?a, ?b, 10s)", *lines, app=late)
    assert (bound(found, "a"), bound(found, "b"), said) == ([2], [1], "")
