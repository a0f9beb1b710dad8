"""Events and dead letters written to files, and read back."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tempfile
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.model import parquet_writer
from cepheid.model.events import Event
from cepheid.model.files import UnreadableFile
from cepheid.model.readers import read_events
from cepheid.model.records import DeadLetter
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.model.writers import DeadLetterWriter, UnwritableFile, event_writer
from tests.model.strategies import streams_and_events

NINE = 1_336_381_200_000_000  # 2012-05-07T09:00:00Z
AIRFLOW = Stream("airflow", {"sensor": Type.STRING, "rate": Type.FLOAT})
ROOM = Stream("room", {"open": Type.BOOL, "rate": Type.FLOAT})
ALL = Stream("all", {kind.name.lower(): kind for kind in Type}, id_kind="int")
FULL = Event(
    "all",
    7,
    NINE,
    {
        "bool": True,
        "int": -5,
        "float": 0.1,
        "string": 'a, "b"\r\nß',
        "timestamp": NINE + 1,
        "bytes": b"\x00\xff",
        "uint8_array": b"\x00\xff",
        "float_array": (0.1, 2.0),
    },
)
EMPTY = Event("all", 8, NINE, dict.fromkeys(ALL.attributes))


def write(path: Path, streams: list[Stream], events: list[Event]) -> Path:
    with event_writer(path, streams) as writer:
        for event in events:
            writer.write(event)
    return path


def test_the_text_of_json_lines(tmp_path: Path) -> None:
    lines = write(tmp_path / "a.jsonl", [ALL], [FULL, EMPTY]).read_text().splitlines()
    assert lines[0] == (
        '{"stream": "all", "id": 7, "time": "2012-05-07T09:00:00.000000Z", "bool": true, "int": -5, "float": 0.1, '
        '"string": "a, \\"b\\"\\r\\nß", "timestamp": "2012-05-07T09:00:00.000001Z", "bytes": "AP8=", '
        '"uint8_array": [0, 255], "float_array": [0.1, 2.0]}'
    )
    assert json.loads(lines[1])["float_array"] is None


def test_the_text_of_csv(tmp_path: Path) -> None:
    assert write(tmp_path / "a.csv", [ALL], [FULL, EMPTY]).read_bytes().decode() == (
        "stream,id,time,bool,int,float,string,timestamp,bytes,uint8_array,float_array\n"
        'all,7,2012-05-07T09:00:00.000000Z,true,-5,0.1,"a, ""b""\r\nß",2012-05-07T09:00:00.000001Z,AP8=,"[0, 255]",'
        '"[0.1, 2.0]"\n'
        "all,8,2012-05-07T09:00:00.000000Z,,,,,,,,\n"
    )


def test_the_columns_of_parquet(tmp_path: Path) -> None:
    schema = pq.read_schema(write(tmp_path / "a.parquet", [ALL], [FULL, EMPTY]))
    assert {field.name: str(field.type) for field in schema} == {
        "stream": "string",
        "id": "int64",
        "time": "timestamp[us, tz=UTC]",
        "bool": "bool",
        "int": "int64",
        "float": "double",
        "string": "string",
        "timestamp": "timestamp[us, tz=UTC]",
        "bytes": "binary",
        "uint8_array": "list<element: uint8>",
        "float_array": "list<element: double>",
    }


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "a.jsonl.gz", "a.csv.gz"])
def test_several_streams_in_one_file(tmp_path: Path, name: str) -> None:
    events = [
        Event("airflow", 1, NINE, {"sensor": "D1", "rate": 0.1}),
        Event("room", 1, NINE, {"open": False, "rate": None}),
        Event("room", 2, NINE, {"open": None, "rate": 2.0}),
    ]
    path = write(tmp_path / name, [AIRFLOW, ROOM], events)
    assert list(read_events([path], [AIRFLOW, ROOM])) == events


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_no_events_at_all(tmp_path: Path, name: str) -> None:
    assert list(read_events([write(tmp_path / name, [ALL], [])], [ALL])) == []


@pytest.mark.parametrize("extension", ["jsonl", "parquet"])
@given(stream_and_events=streams_and_events())
def test_what_was_written_is_read(extension: str, stream_and_events: tuple[Stream, list[Event]]) -> None:
    stream, events = stream_and_events
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / f"a.{extension}", [stream], events)
        assert list(read_events([path], [stream])) == events


@given(streams_and_events(has_empty_text=False))
def test_what_was_written_to_csv_is_read(stream_and_events: tuple[Stream, list[Event]]) -> None:
    stream, events = stream_and_events
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "a.csv", [stream], events)
        assert list(read_events([path], [stream])) == events


def test_csv_cannot_tell_an_empty_string_from_null(tmp_path: Path) -> None:
    stream = Stream("s", {"x": Type.STRING, "y": Type.BYTES, "z": Type.UINT8_ARRAY})
    path = write(tmp_path / "a.csv", [stream], [Event("s", 1, 0, {"x": "", "y": b"", "z": b""})])
    assert list(read_events([path], [stream])) == [Event("s", 1, 0, {"x": None, "y": None, "z": b""})]


def test_csv_has_no_empty_id(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="an empty id cannot be written to CSV, where an empty cell is none"):
        write(tmp_path / "a.csv", [AIRFLOW], [Event("airflow", "", 0)])


def test_csv_text_ids_that_look_like_numbers_need_their_kind(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [Stream("s", {})], [Event("s", "7", 0)])
    assert list(read_events([path], [Stream("s", {}, id_kind="string")])) == [Event("s", "7", 0, {})]
    assert list(read_events([path], [Stream("s", {})])) == [Event("s", 7, 0, {})]


@given(st.lists(st.none() | st.binary(max_size=5)), st.integers(1, 4))
def test_parquet_row_groups_hold_all_rows(arrays: list[bytes | None], rows: int) -> None:
    stream = Stream("s", {"x": Type.UINT8_ARRAY})
    events = [Event("s", number, 0, {"x": array}) for number, array in enumerate(arrays)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_writer, "_GROUP_ROWS", rows)
        path = write(Path(folder) / "a.parquet", [stream], events)
        assert pq.ParquetFile(path).metadata.num_row_groups >= len(events) // rows
        assert list(read_events([path], [stream])) == events


def test_parquet_flushes_by_size_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "_GROUP_BYTES", 10)
    stream = Stream("s", {"x": Type.BYTES})
    path = write(tmp_path / "a.parquet", [stream], [Event("s", number, 0, {"x": b"12345"}) for number in range(6)])
    assert pq.ParquetFile(path).metadata.num_row_groups >= 3


def test_a_parquet_column_has_one_type(tmp_path: Path) -> None:
    other = Stream("other", {"rate": Type.INT})
    with pytest.raises(ValueError, match="attribute 'rate' is float in stream 'airflow' and int in 'other'; a Parquet"):
        write(tmp_path / "a.parquet", [AIRFLOW, other], [])
    with pytest.raises(ValueError, match="id 'a' is string, others are int; a Parquet column has one type"):
        write(tmp_path / "a.parquet", [AIRFLOW], [Event("airflow", 1, 0), Event("airflow", "a", 0)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_an_event_of_another_stream_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="the writer was given no stream 'room'"):
        write(tmp_path / name, [AIRFLOW], [Event("room", 1, 0)])


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "a.jsonl.gz"])
def test_a_failure_leaves_the_old_file_and_no_half_one(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")

    def fail() -> None:
        with event_writer(path, [AIRFLOW]) as writer:
            writer.write(Event("airflow", 1, 0))
            assert path.read_bytes() == b"old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real.jsonl")
    write(tmp_path / "link.jsonl", [AIRFLOW], [Event("airflow", 1, 0)])
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "real.jsonl").stat().st_size > 0


def test_a_device_is_not_replaced() -> None:
    with event_writer("/dev/null", [AIRFLOW], "jsonl") as writer:
        writer.write(Event("airflow", 1, 0))
    assert Path("/dev/null").is_char_device()


def test_equal_events_give_equal_compressed_files(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl.gz", [ALL], [FULL])
    other = write(tmp_path / "other.jsonl.gz", [ALL], [FULL])
    assert one.read_bytes() == other.read_bytes()
    assert json.loads(gzip.decompress(one.read_bytes()))["id"] == 7


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UnwritableFile, match=r"no/a\.jsonl: cannot be written: No such file or directory"):
        write(tmp_path / "no" / "a.jsonl", [AIRFLOW], [])
    with pytest.raises(UnreadableFile, match=r"a\.xml: the format cannot be told from this name"):
        write(tmp_path / "a.xml", [AIRFLOW], [])
    with (
        pytest.raises(UnwritableFile, match="standard output: Parquet is for files; name one"),
        event_writer("-", [AIRFLOW], "parquet"),
    ):
        pass


def test_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output))
    with event_writer("-", [AIRFLOW]) as writer:
        writer.write(Event("airflow", 1, 0, {"rate": 1.0}))
    assert json.loads(output.getvalue())["rate"] == 1.0


def test_not_a_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write(tmp_path / "a.jsonl", [AIRFLOW], [Event("airflow", 1, 0, {"rate": float("nan")})])


def test_dead_letters(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    with DeadLetterWriter(path) as writer:
        writer.write(DeadLetter("missing-time", "no 'time'", b'{"x": "\xc3\x9f"}', "a.jsonl", 3, "s"))
        writer.write(DeadLetter("not-utf8", "byte 1 (0xff) is not UTF-8", b"\xff\n", "a.jsonl", 4))
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {
            "source": "a.jsonl",
            "line": 3,
            "stream": "s",
            "code": "missing-time",
            "reason": "no 'time'",
            "raw": '{"x": "ß"}',
        },
        {
            "source": "a.jsonl",
            "line": 4,
            "stream": None,
            "code": "not-utf8",
            "reason": "byte 1 (0xff) is not UTF-8",
            "raw_base64": "/wo=",
        },
    ]


def test_parquet_of_others_reads_what_we_write(tmp_path: Path) -> None:
    table: pa.Table = pq.read_table(write(tmp_path / "a.parquet", [ALL], [FULL, EMPTY]))
    assert table.column("uint8_array").to_pylist() == [[0, 255], None]
    assert table.column("float_array").to_pylist() == [[0.1, 2.0], None]
