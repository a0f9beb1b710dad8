"""The intake's verdicts on JSON records are those of `RecordDecoder`, the one place where fit is decided (rule E3)."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cepheid._native import JsonDecoder
from cepheid.model.records import MAX_RECORD_BYTES, RecordDecoder, parse_json_line
from cepheid.model.streams import Stream
from cepheid.model.types import Misfit, Type
from cepheid.service.intake import IntakeConfig, in_order
from tests.model.strategies import json_values

EVERY = Stream("every", {kind.name.lower(): kind for kind in Type}, spellings={"float": ("flow", "flaw")})
LAX = Stream("lax", {"open": Type.BOOL}, extras=True, id_kind="string")
TWO = (EVERY, LAX)


def verdicts(lines: Sequence[bytes], streams: Sequence[Stream]) -> tuple[list[object], list[object]]:
    """What Python and the native core say of lines that come one after another."""
    streams = in_order(streams)
    config = IntakeConfig(streams, Path("unused"), [])
    native, python = JsonDecoder(config.to_json()), RecordDecoder(streams)
    ours: list[object] = []
    theirs: list[object] = []
    for line in lines:
        try:
            event = python.decode(parse_json_line(line))
            theirs.append((event.stream, event.id, event.time, tuple(event.attributes.values())))
        except Misfit as misfit:
            theirs.append(misfit.code)
        found: Any = native.decode(line)
        if len(found) == 4:
            stream, event_id, time, values = found
            ours.append((streams[stream].name, event_id, time, values))
        else:
            ours.append(found[0])
    return ours, theirs


def agree(lines: Sequence[bytes], streams: Sequence[Stream]) -> None:
    ours, theirs = verdicts(lines, streams)
    # By repr, so that 1 is not 1.0 nor True, and -0.0 not 0.0.
    assert list(map(repr, ours)) == list(map(repr, theirs)), lines


digits = st.text(string.digits, min_size=1, max_size=10)
times = (
    st.builds(
        "{}{}-{}-{}{}{}:{}{}{}{}".format,
        st.sampled_from(["", "", "", "-", "+", " ", "\x1c", "\u00a0"]),
        st.sampled_from(["2012", "0000", "0001", "9999", "10000", "02012", "1900", "2000", "12"]),
        st.sampled_from(["05", "00", "12", "13", "2", "02"]),
        st.sampled_from(["07", "28", "29", "30", "31", "32", "00"]),
        st.sampled_from(["T", "T", " ", "t", ""]),
        st.sampled_from(["09", "23", "24", "9"]),
        st.sampled_from(["00", "59", "60"]),
        st.sampled_from(["", ":00", ":59.5", ":60", ":00,123456789", ":00.", ":07.000001"]),
        st.sampled_from(["", "Z", "z", " Z", "+02", "-18:00", "+1900", "+02:0", "+0260", "\tZ ", "Z\u3000"]),
        st.sampled_from(["", "", "", "\n", "x"]),
    )
    | st.sampled_from(["2012-05-07", "2012-05-07T", "now", "", " ", "2012-05-07\x1f"])
    | st.datetimes().map(lambda moment: moment.isoformat() + "Z")
)
base64s = st.binary(max_size=6).map(lambda raw: __import__("base64").b64encode(raw).decode()) | st.text(
    "AQz09+/=- \n", max_size=8
)
raw_values = (
    json_values
    | times
    | base64s
    | st.lists(st.integers(-1, 256) | st.floats() | st.booleans(), max_size=4)
    | st.integers(-(2**64), 2**64)
    | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 1e308, 10**308, 10**309, 253402300800000000])
)
names = st.sampled_from(
    [*EVERY.attributes, "flow", "flaw", "open", "stream", "id", "time", "valid_until", "Float"]
) | st.text(max_size=3)
records = st.builds(
    lambda few, some: {**few, **some},
    st.fixed_dictionaries(
        {"time": st.integers(-5, 10**16) | times | raw_values, "id": st.integers() | st.text() | raw_values},
        optional={"stream": st.sampled_from(["every", "lax", "", "other", None]) | raw_values},
    ),
    st.dictionaries(names, raw_values, max_size=5),
)


@given(st.lists(st.builds(json.dumps, records, ensure_ascii=st.booleans()), max_size=6), st.booleans())
@settings(max_examples=300, deadline=None)
def test_e3_records(lines: list[str], both: bool) -> None:
    agree([line.encode("utf-8", "surrogatepass") for line in lines], TWO if both else [EVERY])


@given(st.dictionaries(st.sampled_from(list(EVERY.attributes)), raw_values, max_size=2))
@settings(max_examples=300, deadline=None)
def test_e3_values(attributes: dict[str, object]) -> None:
    agree([json.dumps({"id": 1, "time": 0, **attributes}).encode()], [EVERY])


@given(
    st.builds(json.dumps, records, ensure_ascii=st.booleans()),
    st.integers(0),
    st.integers(0, 3),
    st.binary(max_size=3)
    | st.sampled_from([b"\\u12", b"\\ud83d\\ude00", b"NaN", b"-Infinity", b"01", b"1.", b"\xff", b'"']),
)
@settings(max_examples=600, deadline=None)
def test_e3_lines_that_were_changed(line: str, at: int, cut: int, put: bytes) -> None:
    raw = line.encode("utf-8", "surrogatepass")
    at %= len(raw) + 1
    agree([raw[:at] + put + raw[at + cut :]], [EVERY])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"nul",
        b'{"a": 1, "a": 2} x',
        b'[{"a": 1, "a": 2}]',
        b'{"id": 1, "time": 0} x',
        b'{"id": 1, "time": 0}\r\n',
        b'\xef\xbb\xbf{"id": 1, "time": 0}',
        b' {"id": 1, "time": 0}',
        b'{"id": 1, "time": 0, "int": ' + b"9" * 4300 + b"}",
        b'{"id": 1, "time": 0, "int": ' + b"9" * 4301 + b"}",
        b'{"id": 1, "time": 0, "int": -' + b"9" * 4300 + b"}",
        b'{"id": 1, "time": 0, "float": ' + b"9" * 309 + b"}",
        b'{"id": 1, "time": 0, "float": 179769313486231580793728971405301e276}',
        b'{"id": 1, "time": 0, "float": 1e999}',
        b'{"id": 1, "time": 0, "float": 1, "flow": null, "flaw": 2}',
        b'{"id": 1, "time": 0, "string": "\\ud83d\\ude00"}',
        b'{"id": 1, "time": 0, "string": "\\ud83d\\u0041"}',
        b'{"id": 1, "time": 0, "string": "\\ude00"}',
        b'{"id": 1, "time": 0, "string": "\\ud83d\\uZZZZ"}',
        b'{"id": 1, "time": 0, "string": "\\u00"}',
        b'{"id": 1, "time": 0, "string": "\x01"}',
        b'{"id": 1, "time": 0, "string": "a' + b"b" * MAX_RECORD_BYTES + b'"}',
        b'{"x": ' + b"[" * 500 + b"]" * 500 + b', "id": 1, "time": 0}',
        b"[" * 100_000,
        b'{"id": true, "time": 0}',
        b'{"id": NaN, "time": 0}',
        b'{"id": 1.0, "time": 0}',
        b'{"id": 1, "time": ""}',
        b'{"id": 1, "time": NaN}',
        b'{"stream": 5, "id": 1, "time": 0}',
    ],
    ids=lambda line: line[:40].decode("latin-1"),
)
def test_e3_odd_lines(line: bytes) -> None:
    agree([line], [EVERY])
    agree([line], TWO)


@pytest.mark.parametrize(
    "ids",
    [
        ["1", "2"],
        ["1", '"a"'],
        ['"a"', "1"],
        ["null", "null", "1"],
        ["1", "null"],
        ['"a"', "null"],
        ["null", '"a"', "null"],
    ],
    ids=" ".join,
)
def test_one_kind_of_ids_all_given_or_all_counted(ids: list[str]) -> None:
    lines = [f'{{"id": {each}, "time": {at}}}'.encode() for at, each in enumerate(ids)]
    agree(lines, [Stream("s", {})])
    agree(lines, [Stream("s", {}, id_kind="int")])
    agree(lines, [Stream("s", {}, id_kind="string")])
