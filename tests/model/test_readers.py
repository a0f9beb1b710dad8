"""Events read from files: the formats, their oddities, and what cannot be read (rules E3 and E4)."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.model import files, parquet_rows
from cepheid.model.events import Event
from cepheid.model.readers import Format, UnreadableFile, read_events, rereadable
from cepheid.model.records import CODES, MAX_RECORD_BYTES, DeadLetter
from cepheid.model.streams import Stream
from cepheid.model.time import parse_instant
from cepheid.model.types import Type

S = Stream("s", {"x": Type.FLOAT, "name": Type.STRING})
T = Stream("t", {"y": Type.INT})
ALL = Stream("all", {kind.name.lower(): kind for kind in Type})
HEADER = b"stream,id,time,x,name\n"


#: Writes a file of that name and content, and returns its path.
Make: TypeAlias = Callable[[str, bytes], str]


@pytest.fixture
def file(tmp_path: Path) -> Make:
    def make(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        return str(tmp_path / name)

    return make


def read(path: str, *streams: Stream, file_format: Format | None = None) -> list[Event | DeadLetter]:
    return list(read_events([path], streams or [S], file_format))


def ids(items: list[Event | DeadLetter]) -> list[object]:
    return [item.id if isinstance(item, Event) else item.code for item in items]


def letters(items: list[Event | DeadLetter]) -> list[tuple[int | None, str, str, bytes]]:
    return [(item.line, item.code, item.reason, item.raw) for item in items if isinstance(item, DeadLetter)]


def unreadable(path: str, *streams: Stream, file_format: Format | None = None) -> str:
    with pytest.raises(UnreadableFile) as caught:
        read(path, *streams, file_format=file_format)
    return str(caught.value).replace(str(Path(path).parent) + "/", "")


# JSON Lines


def test_json_lines(file: Make) -> None:
    path = file("a.jsonl", b'{"id": 7, "time": 0, "x": 1}\n\n \t\r\n{"id": 8, "time": 1}\r\n{"id": 9, "time": 2}')
    assert read(path) == [
        Event("s", 7, 0, {"x": 1.0, "name": None}),
        Event("s", 8, 1, {"x": None, "name": None}),
        Event("s", 9, 2, {"x": None, "name": None}),
    ]


def test_a_dead_letter_says_where_and_why_and_keeps_the_record(file: Make) -> None:
    path = file("a.jsonl", b'\n{"id": 7, "time": 0, "x": "1"}\r\n{"id": 8, "time": 0}\nrubbish\n')
    found = read(path)
    assert found[0] == DeadLetter(
        "wrong-type",
        "attribute 'x': expected float, found string '1'",
        b'{"id": 7, "time": 0, "x": "1"}',
        path,
        2,
        "s",
    )
    assert found[2] == DeadLetter("not-json", "not JSON at column 1: Expecting value", b"rubbish", path, 4, None)


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json", "a.JSONL", "a.jsonl.gz"])
def test_extensions_of_json_lines(file: Make, name: str) -> None:
    content = b'{"id": 7, "time": 0}\n'
    assert ids(read(file(name, gzip.compress(content) if name.endswith(".gz") else content))) == [7]


def test_the_format_can_be_given(file: Make) -> None:
    assert ids(read(file("a.txt", b'{"id": 7, "time": 0}\n'), file_format="jsonl")) == [7]
    assert ids(read(file("b.txt", b"id,time\n7,0\n"), file_format="csv")) == [7]


def test_a_byte_order_mark_is_tolerated(file: Make) -> None:
    assert ids(read(file("a.jsonl", b'\xef\xbb\xbf{"id": 7, "time": 0}\n'))) == [7]
    assert ids(read(file("a.csv", b"\xef\xbb\xbfid,time\n7,0\n"))) == [7]
    assert ids(read(file("b.jsonl", b"\xef\xbb\xbf\n"))) == []
    assert ids(read(file("c.jsonl", b"\xef\xbb\xbf"))) == []


def test_ids_are_counted_across_files(file: Make) -> None:
    paths = [file("a.jsonl", b'{"time": 0}\n{"time": 1}\n'), file("b.csv", b"time\n2\n"), file("c.json", b'{"time":3}')]
    assert [item.id for item in read_events(paths, [S]) if isinstance(item, Event)] == [1, 2, 3, 4]


def test_a_line_of_10_mb_is_a_dead_letter_with_its_true_length(file: Make) -> None:
    long = b'{"id": 1, "time": 0, "name": "' + b"x" * 10_000_000 + b'"}'
    for end in (b"\n", b"\r\n"):
        path = file("a.jsonl", b'{"id": 7, "time": 0}\n' + long + end + b'{"id": 9, "time": 0}\n')
        found = read(path)
        assert ids(found) == [7, "too-long", 9]
        letter = found[1]
        assert isinstance(letter, DeadLetter)
        assert letter.reason == "the record has 10,000,032 bytes; at most 4,194,304 are taken"
        assert letter.line == 2
        assert letter.raw == long[:MAX_RECORD_BYTES]


def test_a_long_line_is_not_held_in_memory(file: Make) -> None:
    for name, first in (("a.jsonl", b""), ("a.csv", HEADER)):
        path = file(name, first + b"x" * 64_000_000 + b"\n")
        tracemalloc.start()
        codes = [item.code for item in read_events([path], [S]) if isinstance(item, DeadLetter)]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert codes == ["too-long"]
        assert peak < 20_000_000


@pytest.mark.parametrize("extra", [-1, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_lines_around_the_limit_are_whole(file: Make, extra: int, end: bytes, start: bytes) -> None:
    line = b"x" * (MAX_RECORD_BYTES + extra)
    found = read(file("a.jsonl", start + line + end + (b'{"id": 7, "time": 0}' if end else b"")))
    content = line + end.removesuffix(b"\n").removesuffix(b"\r")
    is_long = len(content) > MAX_RECORD_BYTES
    assert ids(found) == ["too-long" if is_long else "not-json"] + ([7] if end else [])
    if is_long:
        assert letters(found)[0][2] == f"the record has {len(content):,} bytes; at most 4,194,304 are taken"


@given(st.lists(st.binary() | st.sampled_from([b"", b" ", b"{}", b'{"time": 0}', b'{"time": 0, "x": 1}\r'])))
def test_each_line_that_is_not_blank_gives_one_event_or_dead_letter(some: list[bytes]) -> None:
    content = b"\n".join(some)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_bytes(content)
        found = read(str(path))
    expected = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    numbers = [number for number, line in enumerate(expected, 1) if line.strip()]
    assert len(found) == len(numbers)
    for item, number in zip(found, numbers, strict=True):
        if isinstance(item, DeadLetter):
            assert item.code in CODES
            assert item.line == number
            assert item.raw == expected[number - 1].removesuffix(b"\r")


# CSV


def test_csv(file: Make) -> None:
    path = file("a.csv", b'time, x ,id\r\n2012-05-07T09:00:00Z,1.5,7\r\n\r\n"0","","8"\r\n')
    assert read(path) == [
        Event("s", 7, 1_336_381_200_000_000, {"x": 1.5, "name": None}),
        Event("s", 8, 0, {"x": None, "name": None}),
    ]


def test_quoted_cells_hold_line_ends_and_line_numbers_stay_physical(file: Make) -> None:
    path = file("a.csv", b'id,time,name\n1,0,"a ""b"",\n\nc\r\nd"\n2,oops,x\n"3","0","e"\n4,0\n')
    found = read(path)
    assert ids(found) == [1, "wrong-type", 3, "not-csv"]
    assert isinstance(found[0], Event)
    assert found[0].attributes["name"] == 'a "b",\n\nc\r\nd'
    assert [letter[0] for letter in letters(found)] == [6, 8]


def test_csv_of_several_streams(file: Make) -> None:
    path = file("a.csv", b"stream,id,time,x,y\ns,1,0,1.5,\nt,1,0,,2\nt,2,0,1.5,2\n,3,0,,\n")
    assert letters(read(path, S, T)) == [
        (4, "unknown-attribute", "stream 't' has no attribute 'x'; known: y", b"t,2,0,1.5,2"),
        (5, "missing-stream", "no 'stream'; it is one of: s, t", b",3,0,,"),
    ]


@pytest.mark.parametrize(
    ("row", "code", "reason"),
    [
        (b"s,1,0,1", "not-csv", "the row has 4 cells, the header 5"),
        (b"s,1,0,1,a,b", "not-csv", "the row has 6 cells, the header 5"),
        (b's,1,0,1,a"b"', "not-csv", "cell 5 has a quote in its middle; write it twice, in a quoted cell"),
        (b's,1,0,1,"a"b', "not-csv", "cell 5 has a quote in its middle; write it twice, in a quoted cell"),
        (b's,1,0,1,"a', "not-csv", "a quote is opened and not closed within 4,194,304 bytes"),
        (b"s,1,0,nan,a", "not-finite", "attribute 'x': NaN is not a reading"),
        (b"s,1,0,-inf,a", "not-finite", "attribute 'x': infinity is not a reading"),
        (b"s,1,0,1e999,a", "not-finite", "attribute 'x': infinity is not a reading"),
        (b"s,1,0,many,a", "wrong-type", "attribute 'x': expected float, found string 'many'"),
        (b"s,1,,1,a", "missing-time", "no 'time'"),
        (b"s,9223372036854775808,0,1,a", "out-of-range", "'id': int 9223372036854775808 does not fit in 64 bits"),
        (b"s,1,0,1,\xff", "not-utf8", "byte 9 (0xff) is not UTF-8"),
        (b'"s",1,0,1,\xff', "not-utf8", "byte 11 (0xff) is not UTF-8"),
        (b"\x00\x00", "not-csv", "the row has 1 cells, the header 5"),
        (
            b"s,1,10000-01-01,1,a",
            "out-of-range",
            "'time': time '10000-01-01' is out of range; the years 1 to 9999 can be held",
        ),
        (
            b"s,1,999999999999999999999,1,a",
            "out-of-range",
            "'time': time 999999999999999999999 us is out of range; the years 1 to 9999 can be held",
        ),
    ],
)
def test_rows_that_do_not_fit(file: Make, row: bytes, code: str, reason: str) -> None:
    found = read(file("a.csv", HEADER + row + b"\ns,2,0,1,b\n"))
    assert letters(found) == [(2, code, reason, row)]
    assert ids(found) == [code, 2]


def test_nul_bytes_in_csv_are_characters(file: Make) -> None:
    found = read(file("a.csv", HEADER + b"s,1,0,1,a\x00b\n"))
    assert found == [Event("s", 1, 0, {"x": 1.0, "name": "a\x00b"})]


def test_an_open_quote_costs_only_its_line(file: Make) -> None:
    good = b"s,%d,0,1,good\n"
    path = file("a.csv", HEADER + good % 1 + b's,2,0,1,"open\n' + b"".join(good % number for number in range(3, 1000)))
    assert ids(read(path)) == [1, "not-csv", *range(3, 1000)]


def test_an_open_quote_is_not_followed_forever(file: Make) -> None:
    even = b's,%d,0,1,"' + b'""' * 500 + b'"\n'
    lines = [even % number for number in range(2, 5000)]
    assert sum(map(len, lines)) > MAX_RECORD_BYTES
    path = file("a.csv", HEADER + b's,1,0,1,"open\n' + b"".join(lines) + b's,5000,0,1,"closed"\n')
    assert ids(read(path)) == ["not-csv", *range(2, 5001)]


def test_a_cell_of_4_mib_in_quotes(file: Make) -> None:
    lines = b"line\n" * 700_000
    assert ids(read(file("a.csv", HEADER + b's,1,0,1,"' + lines + b'"\n'))) == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.csv:1: no header row that names the columns: the file is empty"),
        (b"\n\n\xff,time\n", "a.csv:3: no header row that names the columns: byte 1 (0xff) is not UTF-8"),
        (b"7,2012-05-07,1.5\n", "a.csv:1: no stream has an attribute '7'; known: id, name, stream, time, x"),
        (b"id,x\n", "a.csv:1: no column 'time'; there are 'id', 'x'"),
        (b"id,time,nam\n", "a.csv:1: no stream has an attribute 'nam'; did you mean 'name'?"),
        (b"id,time,x,x\n", "a.csv:1: two columns are named 'x'"),
        (b"id,time,,x\n", "a.csv:1: column 3 has no name; the first row names the columns"),
        (
            b"x" * 10_000_000,
            "a.csv:1: no header row that names the columns: "
            "the record has 10,000,000 bytes; at most 4,194,304 are taken",
        ),
    ],
)
def test_headers_that_cannot_be_used(file: Make, content: bytes, message: str) -> None:
    assert unreadable(file("a.csv", content)) == message


def test_a_header_without_stream_needs_there_to_be_one(file: Make) -> None:
    path = file("a.csv", b"id,time,x\n")
    assert unreadable(path, S, T) == "a.csv:1: no column 'stream', and several streams are declared"


def test_unknown_columns_are_ignored_where_a_stream_allows_extras(file: Make) -> None:
    stream = Stream("s", {"x": Type.INT}, extras=True)
    assert read(file("a.csv", b"id,time,x,other\n1,0,5,nan\n"), stream) == [Event("s", 1, 0, {"x": 5})]


@given(st.lists(st.binary() | st.sampled_from([b'"', b's,1,0,1,"', b"s,1,0,1,a", b'"s",2,0,1,"a,\r\n""b"""', b'""'])))
def test_any_bytes_after_a_header_are_events_and_dead_letters(some: list[bytes]) -> None:
    content = b"\n".join(some)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes(HEADER + content)
        found = read(str(path))
    assert all(item.code in CODES for item in found if isinstance(item, DeadLetter))
    lines = [line for line in content.split(b"\n") if line.strip()]
    assert len(found) <= len(lines)
    if b'"' not in content:
        assert len(found) == len(lines)


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), min_size=2, max_size=2), max_size=5))
def test_csv_is_read_as_the_standard_library_writes_it(cells: list[list[str]]) -> None:
    stream = Stream("s", {"a": Type.STRING, "b": Type.STRING})
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["time", "a", "b"])
    writer.writerows([["0", *row] for row in cells])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes(text.getvalue().encode())
        found = read(str(path), stream)
    assert [list(item.attributes.values()) for item in found if isinstance(item, Event)] == [
        [cell or None for cell in row] for row in cells
    ]


# Parquet


def parquet(tmp_path: Path, **columns: Any) -> str:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path, id=[7, 8], time=[0, 1], x=[1.5, None], name=["a", None])
    assert read(path) == [
        Event("s", 7, 0, {"x": 1.5, "name": "a"}),
        Event("s", 8, 1, {"x": None, "name": None}),
    ]


@pytest.mark.parametrize(
    ("attribute", "column", "expected"),
    [
        *[("int", pa.array([1, None], kind), [1, None]) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())],
        *[
            ("int", pa.array([1, None], kind), [1, None])
            for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
        ],
        ("float", pa.array([1, 2], pa.int32()), [1.0, 2.0]),
        ("float", pa.array([0.5, None], pa.float32()), [0.5, None]),
        ("float", pa.array([0.5, None], pa.float16()), [0.5, None]),
        ("bool", pa.array([True, None]), [True, None]),
        ("string", pa.array(["ß", ""], pa.large_string()), ["ß", ""]),
        ("string", pa.array(["a", None]).dictionary_encode(), ["a", None]),
        ("string", pa.nulls(2), [None, None]),
        ("timestamp", pa.array([1, None], pa.timestamp("s")), [1_000_000, None]),
        ("timestamp", pa.array([-1, 1], pa.timestamp("ms", "Europe/Berlin")), [-1_000, 1_000]),
        ("timestamp", pa.array([-1, 1], pa.timestamp("us", "UTC")), [-1, 1]),
        ("timestamp", pa.array([-1, 1_999], pa.timestamp("ns")), [-1, 1]),
        ("timestamp", pa.array(["1970-01-01", None]), [0, None]),
        ("timestamp", pa.array([5, None]), [5, None]),
        ("bytes", pa.array([b"\xff", b""]), [b"\xff", b""]),
        ("bytes", pa.array([b"\xff", None], pa.binary(1)), [b"\xff", None]),
        ("bytes", pa.array(["AAE=", None]), [b"\x00\x01", None]),
        ("uint8_array", pa.array([[0, 255], None], pa.list_(pa.uint8())), [b"\x00\xff", None]),
        ("uint8_array", pa.array([[], None], pa.list_(pa.uint8())), [b"", None]),
        ("uint8_array", pa.array([None, None], pa.list_(pa.uint8())), [None, None]),
        ("uint8_array", pa.array([[0, 255], None], pa.list_(pa.uint8(), 2)), [b"\x00\xff", None]),
        ("uint8_array", pa.array([[0, 255], None], pa.large_list(pa.uint8())), [b"\x00\xff", None]),
        ("uint8_array", pa.array([[0, 255], None], pa.list_(pa.int64())), [b"\x00\xff", None]),
        ("uint8_array", pa.array([b"\xff", None]), [b"\xff", None]),
        ("float_array", pa.array([[0.5], None], pa.list_(pa.float32())), [(0.5,), None]),
        ("float_array", pa.array([[1], []], pa.list_(pa.int16())), [(1.0,), ()]),
        ("float_array", pa.array([[1], []], pa.list_(pa.uint8())), [(1.0,), ()]),
    ],
)
def test_parquet_columns_of_all_types(tmp_path: Path, attribute: str, column: pa.Array[Any], expected: object) -> None:
    found = read(parquet(tmp_path, time=[0, 0], **{attribute: column}), ALL)
    assert [item.attributes[attribute] for item in found if isinstance(item, Event)] == expected


def test_parquet_times_written_by_old_spark(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    times = pa.array([datetime(1, 1, 1), datetime(9999, 12, 31)], pa.timestamp("us"))  # noqa: DTZ001
    pq.write_table(pa.table({"time": times}), path, use_deprecated_int96_timestamps=True)
    assert [item.time for item in read(str(path)) if isinstance(item, Event)] == [
        parse_instant("0001-01-01"),
        parse_instant("9999-12-31"),
    ]


@pytest.mark.parametrize(
    ("columns", "code", "reason"),
    [
        ({"x": [float("nan")]}, "not-finite", "attribute 'x': NaN is not a reading"),
        ({"x": [float("-inf")]}, "not-finite", "attribute 'x': infinity is not a reading"),
        ({"time": pa.array([None], pa.int64())}, "missing-time", "no 'time'"),
        (
            {"time": pa.array([2**62], pa.timestamp("ms"))},
            "out-of-range",
            "'time': time 4611686018427387904000 us is out of range; the years 1 to 9999 can be held",
        ),
        ({"stream": ["u"]}, "unknown-stream", "unknown stream string 'u'; known: s"),
        (
            {"id": pa.array([2**63], pa.uint64())},
            "out-of-range",
            "'id': int 9223372036854775808 does not fit in 64 bits",
        ),
    ],
)
def test_parquet_rows_that_do_not_fit(tmp_path: Path, columns: dict[str, Any], code: str, reason: str) -> None:
    found = read(parquet(tmp_path, **({"time": [0]} | columns)))
    assert [(item[0], item[1], item[2]) for item in letters(found)] == [(1, code, reason)]


def test_a_parquet_dead_letter_keeps_its_row_as_json(tmp_path: Path) -> None:
    stream = Stream("s", {"x": Type.FLOAT, "b": Type.BYTES})
    found = read(parquet(tmp_path, time=[0, 0], b=[b"a", b"\xff"], x=[1.0, float("nan")]), stream)
    assert letters(found)[0][0] == 2
    assert json.loads(letters(found)[0][3])["b"] == "/w=="


def test_parquet_text_that_is_not_utf8_costs_its_row(tmp_path: Path) -> None:
    raw = pa.array([b"a", b"\xff", None])
    names = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    found = read(parquet(tmp_path, time=[0, 0, 0], name=names))
    assert ids(found) == [1, "not-utf8", 2]
    assert letters(found)[0][2] == r"attribute 'name': '\udcff' is not valid text: a character in it is broken"


def test_parquet_arrays_with_nulls_inside_cost_their_row(tmp_path: Path) -> None:
    stream = Stream("s", {"a": Type.UINT8_ARRAY, "b": Type.FLOAT_ARRAY})
    column = pa.array([[1, None], [1]], pa.list_(pa.uint8()))
    found = read(parquet(tmp_path, time=[0, 0], a=column), stream)
    assert ids(found) == ["wrong-type", 1]
    assert letters(found)[0][2] == "attribute 'a': expected array<uint8>, found array [1, None]"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"x": [Decimal("1.5")]},
            "a.parquet: column 'x' is decimal128(2, 1), which no attribute has; convert or drop it",
        ),
        (
            {"x": [{"a": 1}]},
            "a.parquet: column 'x' is struct<a: int64>, which no attribute has; convert or drop it",
        ),
        (
            {"x": [["a"]]},
            "a.parquet: column 'x' is list<element: string>, which no attribute has; convert or drop it",
        ),
        ({"x": ["1.5"]}, "a.parquet: column 'x' is string; expected float"),
        ({"name": [1.5]}, "a.parquet: column 'name' is double; expected string"),
        ({"time": [1.5]}, "a.parquet: column 'time' is double; expected timestamp, int or string"),
        ({"id": [1.5]}, "a.parquet: column 'id' is double; expected int or string"),
        ({"stream": [5]}, "a.parquet: column 'stream' is int64; expected string"),
        ({"nam": ["a"]}, "a.parquet: no stream has an attribute 'nam'; did you mean 'name'?"),
    ],
)
def test_parquet_columns_that_cannot_be_used(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    assert unreadable(parquet(tmp_path, **({"time": [0]} | columns))) == message


def test_parquet_without_time(tmp_path: Path) -> None:
    assert unreadable(parquet(tmp_path, Timestamp=[0]), ALL).startswith(
        "a.parquet: no stream has an attribute 'Timestamp'"
    )
    stream = Stream("s", {}, extras=True)
    assert unreadable(parquet(tmp_path, Timestamp=[0]), stream) == "a.parquet: no column 'time'; rename 'Timestamp'"


def test_parquet_columns_that_no_stream_uses_may_be_of_any_type(tmp_path: Path) -> None:
    stream = Stream("s", {"x": Type.INT}, extras=True)
    path = parquet(tmp_path, time=[0], x=[1], other=[Decimal("1.5")])
    assert read(path, stream) == [Event("s", 1, 0, {"x": 1})]


def test_parquet_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "_BATCH_ROWS", 3)
    arrays = [None if number % 3 else [number % 256] * number for number in range(20)]
    path = parquet(tmp_path, time=list(range(20)), a=pa.array(arrays, pa.list_(pa.uint8())))
    found = read(path, Stream("s", {"a": Type.UINT8_ARRAY}))
    assert [item.attributes["a"] for item in found if isinstance(item, Event)] == [
        None if array is None else bytes(array) for array in arrays
    ]


def test_files_that_are_not_parquet(file: Make) -> None:
    assert unreadable(file("a.parquet", b"")).startswith("a.parquet: not a sound Parquet file: ")
    assert unreadable(file("a.parquet", b"stream,id\n" * 10)).startswith(
        "a.parquet: not a sound Parquet file: Parquet magic"
    )


def test_a_parquet_file_that_is_cut_or_broken(tmp_path: Path) -> None:
    path = parquet(tmp_path, time=list(range(1000)), name=[str(number) for number in range(1000)])
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[:-100])
    assert "a.parquet: not a sound Parquet file: " in unreadable(path)
    Path(path).write_bytes(whole[:4] + b"\xff" * 2000 + whole[2004:])
    assert "a.parquet: " in unreadable(path)


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(tmp_path, time=[0])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert unreadable(path) == "a.parquet: Parquet needs the package pyarrow; pip install pyarrow"


def test_reading_text_loads_no_heavy_package(file: Make) -> None:
    program = """
import sys
from cepheid.model.inference import infer
from cepheid.model.readers import read_events
import cepheid.model.writers
assert len(list(read_events(sys.argv[1:], infer(sys.argv[1:]).streams))) == 2
print({"numpy", "pandas", "pyarrow", "pyspark"} & set(sys.modules))
"""
    paths = [file("a.jsonl", b'{"time": 0}\n'), file("b.csv", b"time\n0\n")]
    done = subprocess.run([sys.executable, "-c", program, *paths], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# Files and standard input


def test_an_unknown_extension_is_refused_with_the_known_ones(file: Make) -> None:
    expected = "it ends in one of .jsonl[.gz], .ndjson[.gz], .json[.gz], .csv[.gz], .parquet"
    assert unreadable(file("a.txt", b"")) == f"a.txt: the format cannot be told from this name; {expected}"
    assert unreadable(file("a.parquet.gz", b"")).startswith("a.parquet.gz: the format cannot be told from this name")


def test_files_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert unreadable(str(tmp_path / "no.jsonl")) == "no.jsonl: no such file"
    assert unreadable(str(tmp_path / "no.parquet")) == "no.parquet: no such file"
    assert unreadable(str(tmp_path)) == f"{tmp_path.name}: this is a directory; name the files in it"
    (tmp_path / "folder.csv").mkdir()
    assert unreadable(str(tmp_path / "folder.csv")) == "folder.csv: this is a directory; name the files in it"
    (tmp_path / "a.jsonl").write_text("")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert unreadable(str(tmp_path / "a.jsonl")) == "a.jsonl: no permission to read it"


def test_gzip_that_is_cut_or_none(file: Make) -> None:
    lines = b"".join(b'{"id": %d, "time": 0}\n' % number for number in range(100_000))
    packed = gzip.compress(lines)
    path = file("a.jsonl.gz", packed[: len(packed) // 2])
    taken: list[Event | DeadLetter] = []
    with pytest.raises(UnreadableFile, match=r"a\.jsonl\.gz: the gzip data is cut off; the end of the file is missing"):
        taken.extend(read_events([path], [S]))
    assert unreadable(file("b.csv.gz", b"id,time\n")) == ("b.csv.gz: not sound gzip data: Not a gzipped file (b'id')")
    broken = bytearray(packed)
    broken[len(packed) // 2] ^= 0xFF
    assert unreadable(file("c.jsonl.gz", bytes(broken))).startswith("c.jsonl.gz: not sound gzip data: ")


def test_what_comes_before_a_fault_is_read(file: Make) -> None:
    packed = gzip.compress(os.urandom(3_000_000).hex().encode() + b"\n")
    path = file("a.jsonl.gz", gzip.compress(b'{"id": 7, "time": 0}\n') + packed[:-100])
    events = read_events([path], [S])
    assert isinstance(next(events), Event)
    with pytest.raises(UnreadableFile):
        list(events)


def test_standard_input_is_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"id": 7, "time": 0}\nx\n')))
    found = read("-")
    assert ids(found) == [7, "not-json"]
    assert isinstance(found[1], DeadLetter)
    assert found[1].source == "standard input"


def test_standard_input_can_be_csv_but_parquet_only_from_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"id,time\n7,0\n")))
    assert ids(read("-", file_format="csv")) == [7]
    assert unreadable("-", file_format="parquet") == (
        "standard input: Parquet is read from its end; write it to a file and name that"
    )
    content = Path(parquet(tmp_path, time=[0])).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    with rereadable(["-"], "parquet") as copies:
        assert len(list(read_events(copies, [S]))) == 1


def test_standard_input_can_be_read_twice_from_a_copy(file: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"id": 7, "time": 0}\nx\n')))
    path = file("a.jsonl", b'{"id": 8, "time": 0}\n')
    with rereadable([path, "-"]) as copies:
        for _ in range(2):
            found = list(read_events(copies, [S]))
            assert ids(found) == [8, 7, "not-json"]
            assert isinstance(found[2], DeadLetter)
            assert found[2].source == "standard input"
        copy = copies[1].path
    assert not Path(copy).exists()


def test_a_pipe_is_like_standard_input() -> None:
    reading, writing = os.pipe()
    os.write(writing, b'{"id": 7, "time": 0}\n')
    os.close(writing)
    try:
        with rereadable([f"/dev/fd/{reading}"]) as copies:
            assert [ids(list(read_events(copies, [S]))) for _ in range(2)] == [[7], [7]]
    finally:
        os.close(reading)


def test_standard_input_is_copied_only_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * 3000)))
    monkeypatch.setattr(files, "MAX_SPOOL_BYTES", 2000)
    with pytest.raises(UnreadableFile) as caught, rereadable(["-"]):
        pass
    assert str(caught.value) == "standard input: longer than 2,000 bytes; write it to a file and name that"
