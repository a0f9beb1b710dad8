"""Streams as the input shows them (rule E3)."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.model.events import Event
from cepheid.model.inference import MixedTypes, infer
from cepheid.model.readers import read_events, rereadable
from cepheid.model.records import DeadLetter
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from tests.model.strategies import json_values

SAME = "; make them one, or declare the stream in an application"


class Files:
    """Writes files into a folder and infers from them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.paths: list[str] = []

    def jsonl(self, *records: dict[str, Any] | str, name: str = "a.jsonl") -> Files:
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        return self._add(name, "".join(line + "\n" for line in lines))

    def csv(self, text: str, name: str = "a.csv") -> Files:
        return self._add(name, text)

    def parquet(self, name: str = "a.parquet", **columns: Any) -> Files:
        self.paths.append(str(self._folder / name))
        pq.write_table(pa.table(columns), self.paths[-1])
        return self

    def _add(self, name: str, text: str) -> Files:
        self.paths.append(str(self._folder / name))
        Path(self.paths[-1]).write_text(text, newline="")
        return self

    def streams(self) -> tuple[Stream, ...]:
        return infer(self.paths).streams

    def only(self) -> Stream:
        (stream,) = self.streams()
        return stream

    def types(self) -> dict[str, str]:
        return {name: kind.value for name, kind in self.only().attributes.items()}

    def read(self) -> list[Event | DeadLetter]:
        shown = infer(self.paths)
        default = shown.streams[0].name if len(shown.streams) == 1 else None
        return list(read_events(self.paths, [*shown.streams, *shown.ruined], default_stream=default))

    def codes(self) -> list[str]:
        return [item.code if isinstance(item, DeadLetter) else "event" for item in self.read()]

    def error(self) -> str:
        with pytest.raises(MixedTypes) as caught:
            self.streams()
        return str(caught.value).replace(f"{self._folder}/", "")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_json_values_show_their_types(files: Files) -> None:
    record = {"b": True, "i": 1, "f": 1.0, "s": "2012-05-07T09:00:00Z", "u": [0, 255], "a": [256], "g": [1, 0.5]}
    files.jsonl({"id": 1, "time": 0} | record)
    assert files.types() == {
        "b": "bool",
        "i": "int",
        "f": "float",
        "s": "string",
        "u": "array<uint8>",
        "a": "array<float>",
        "g": "array<float>",
    }
    assert files.codes() == ["event"]


def test_e3_int_and_float_together_are_float(files: Files) -> None:
    files.jsonl({"time": 0, "x": 1}, {"time": 0, "x": 0.5}, {"time": 0, "x": 2})
    assert files.types() == {"x": "float"}
    assert [item.attributes["x"] for item in files.read() if isinstance(item, Event)] == [1.0, 0.5, 2.0]


def test_arrays_are_of_bytes_only_if_all_are(files: Files) -> None:
    assert files.jsonl({"time": 0, "x": []}, {"time": 0, "x": [7]}).types() == {"x": "array<uint8>"}
    files.jsonl({"time": 0, "x": [-1]}, name="b.jsonl")
    assert files.types() == {"x": "array<float>"}
    assert files.codes() == ["event"] * 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", None, 1], "a.jsonl:3: 'x' is int, but a.jsonl:1 has string" + SAME),
        ([1, 0.5, "a"], "a.jsonl:3: 'x' is string, but a.jsonl:1 has int" + SAME),
        ([0.5, 1, "a"], "a.jsonl:3: 'x' is string, but a.jsonl:1 has float" + SAME),
        ([None, True, 1], "a.jsonl:3: 'x' is int, but a.jsonl:2 has bool" + SAME),
        ([[1], 1], "a.jsonl:2: 'x' is int, but a.jsonl:1 has array<uint8>" + SAME),
        (["a", "b", [0.5]], "a.jsonl:3: 'x' is array<float>, but a.jsonl:1 has string" + SAME),
    ],
)
def test_e3_other_mixtures_name_both_lines(files: Files, values: list[object], message: str) -> None:
    assert files.jsonl(*({"time": 0, "x": value} for value in values)).error() == message


def test_e3_mixtures_across_files(files: Files) -> None:
    files.jsonl("", {"time": 0, "x": "a"}).csv("time,x\n0,\n0,5\n", name="b.csv")
    assert files.error() == "b.csv:3: 'x' is int, but a.jsonl:2 has string" + SAME


def test_each_stream_has_its_own_types(files: Files) -> None:
    files.jsonl({"stream": "s", "time": 0, "x": 1}, {"stream": "t", "time": 0, "x": "a", "y": 1})
    assert files.streams() == (
        Stream("s", {"x": Type.INT}, id_kind="int"),
        Stream("t", {"x": Type.STRING, "y": Type.INT}, id_kind="int"),
    )
    assert files.codes() == ["event"] * 2


def test_of_an_attribute_that_is_always_null_only_that_is_known(files: Files) -> None:
    (stream,) = files.jsonl({"time": 0, "x": None, "y": 1}).streams()
    assert stream.nulls == {"x"}


def test_or_what_other_streams_say_it_is(files: Files) -> None:
    files.csv("stream,time,x,y\ns,0,1.5,\nt,0,,2\n")
    both = {"x": Type.FLOAT, "y": Type.INT}
    assert [stream.attributes for stream in files.streams()] == [both, both]
    assert not any(stream.nulls for stream in files.streams())


def test_csv_cells_show_their_types(files: Files) -> None:
    files.csv("time,b,i,f,g,s,z,d,n\n2012-05-07,TRUE,-1,1e3,0.5,a,007,2012-05-07,\n0,false, 2 ,1,-1,true love,12,x,\n")
    assert files.types() == {
        "b": "bool",
        "i": "int",
        "f": "float",
        "g": "float",
        "s": "string",
        "z": "string",
        "d": "string",
        "n": "string",
    }
    second = files.read()[1]
    assert isinstance(second, Event)
    assert second.attributes == {
        "b": False,
        "i": 2,
        "f": 1.0,
        "g": -1.0,
        "s": "true love",
        "z": "12",
        "d": "x",
        "n": None,
    }


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["007", "8"], "string"),
        (["8", "007", "a"], "string"),
        (["00.5"], "string"),
        (["-01"], "string"),
        (["0", "0.5", "-0.5"], "float"),
        (["+5"], "float"),
        (["1_000"], "string"),
        (["0x10"], "string"),
        (["٣"], "string"),
        (["nan", "1"], "int"),
        (["nan", "0.5"], "float"),
        (["nan", "Bob"], "string"),
        (["nan"], "float"),
    ],
)
def test_odd_csv_cells(files: Files, cells: list[str], kind: str) -> None:
    assert files.csv("time,x\n" + "".join(f"0,{cell}\n" for cell in cells)).types() == {"x": kind}


def test_e3_csv_mixtures_name_both_lines(files: Files) -> None:
    assert files.csv("time,x\n0,5\n0,\n0,a\n").error() == "a.csv:4: 'x' is string, but a.csv:2 has int" + SAME


def test_csv_numbers_are_text_beside_zeros_but_json_numbers_are_not(files: Files) -> None:
    files.csv("time,x\n0,007\n").jsonl({"time": 0, "x": 5})
    assert files.error() == "a.jsonl:1: 'x' is int, but a.csv:2 has string" + SAME


def test_parquet_shows_its_schema(files: Files) -> None:
    files.parquet(
        time=pa.array([0, 1], pa.timestamp("ms")),
        f=pa.array([None, None], pa.float32()),
        t=pa.array([0, None], pa.timestamp("ns")),
        u=pa.array([[1], None], pa.list_(pa.uint8())),
        a=pa.array([[1], None], pa.list_(pa.int16())),
        b=pa.array([b"a", None]),
        n=pa.nulls(2),
    )
    assert files.types() == {
        "f": "float",
        "t": "timestamp",
        "u": "array<uint8>",
        "a": "array<float>",
        "b": "bytes",
        "n": "string",
    }
    assert files.codes() == ["event"] * 2


def test_parquet_bytes_beside_floats_are_floats(files: Files) -> None:
    files.parquet(time=[0], x=pa.array([[1]], pa.list_(pa.uint8()))).jsonl({"time": 0, "x": [0.5]})
    assert files.types() == {"x": "array<float>"}
    assert files.codes() == ["event"] * 2


def test_the_formats_agree(files: Files) -> None:
    rows = [(1, "D1", 5.5), (2, "D2", 6.0)]
    files.jsonl(*({"stream": "s", "id": i, "time": 0, "n": n, "x": x} for i, n, x in rows))
    files.csv("stream,id,time,n,x\n" + "".join(f"s,{i},0,{n},{x}\n" for i, n, x in rows))
    files.parquet(stream=["s", "s"], id=[1, 2], time=[0, 0], n=["D1", "D2"], x=[5.5, 6.0])
    streams = [infer([path]).streams for path in files.paths]
    assert streams[0] == streams[1] == streams[2]
    events = [list(read_events([path], streams[0])) for path in files.paths]
    assert events[0] == events[1] == events[2]


def test_a_record_without_a_stream_belongs_to_the_only_one(files: Files) -> None:
    files.jsonl({"time": 0, "x": 1}, {"stream": "s", "time": 0, "x": 0.5})
    assert files.only() == Stream("s", {"x": Type.FLOAT}, id_kind="int")
    assert [(item.stream, item.id) for item in files.read() if isinstance(item, Event)] == [("s", 1), ("s", 2)]


def test_a_record_without_a_stream_beside_several_is_a_dead_letter_and_shows_nothing(files: Files) -> None:
    files.jsonl({"stream": "s", "time": 0}, {"stream": "t", "time": 0}, {"time": 0, "x": 1})
    assert [stream.name for stream in files.streams()] == ["s", "t"]
    assert files.codes() == ["event", "event", "missing-stream"]


@pytest.mark.parametrize("name", ["airflow.jsonl", "airflow.JSON"])
def test_an_unnamed_stream_has_the_name_of_the_file(files: Files, name: str) -> None:
    assert files.jsonl({"time": 0}, name=name).only().name == "airflow"


def test_an_unnamed_stream_of_several_files_or_standard_input(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.jsonl({"time": 0}).csv("time\n0\n").only().name == "events"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"time": 0, "x": 1}\n')))
    with rereadable(["-"]) as copies:
        streams = infer(copies).streams
        assert streams == (Stream("events", {"x": Type.INT}, id_kind="int"),)
        assert list(read_events(copies, streams)) == [Event("events", 1, 0, {"x": 1})]


def test_standard_input_itself_cannot_be_inferred_from(files: Files) -> None:
    with pytest.raises(ValueError, match=r"standard input can be read only once; wrap the files in rereadable\(\)"):
        infer(["-"])


@pytest.mark.parametrize(
    ("ids", "kind"), [([1, 2], "int"), (["a", "b"], "string"), (["1"], "string"), ([None, None], "int")]
)
def test_ids_show_their_kind(files: Files, ids: list[object], kind: str) -> None:
    assert files.jsonl(*({"id": each, "time": 0} for each in ids)).only().id_kind == kind


@pytest.mark.parametrize(("ids", "kind"), [(["1", "2"], "int"), (["007", "8"], "string"), (["a", "b"], "string")])
def test_csv_ids_show_their_kind(files: Files, ids: list[str], kind: str) -> None:
    assert files.csv("id,time\n" + "".join(f"{each},0\n" for each in ids)).only().id_kind == kind
    assert files.codes() == ["event"] * 2


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, "a"], "a.jsonl:2: 'id' is string, but a.jsonl:1 has int" + SAME),
        (["a", "b", 1], "a.jsonl:3: 'id' is int, but a.jsonl:1 has string" + SAME),
        ([1, None], "a.jsonl:2: no 'id', but a.jsonl:1 has one; give one to all records of a stream or to none"),
        (
            [None, None, 1],
            "a.jsonl:3: 'id' is given, but a.jsonl:1 has none; give one to all records of a stream or to none",
        ),
    ],
)
def test_e1_kinds_of_id_do_not_mix(files: Files, ids: list[object], message: str) -> None:
    assert files.jsonl(*({"id": each, "time": 0} for each in ids)).error() == message


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ("rubbish", "not-json"),
        ({"x": "a"}, "missing-time"),
        ({"time": "noon", "x": "a"}, "wrong-type"),
        ({"time": 0, "x": float("nan")}, "not-finite"),
        ({"time": 0, "y": float("inf"), "x": "a"}, "not-finite"),
        ({"time": 0, "x": "a", "y": {}}, "wrong-type"),
        ({"time": 0, "x": "a", "y": [None]}, "wrong-type"),
        ('{"time": 0, "x": "\\ud800"}', "wrong-type"),
        ('{"time": 0, "y": "\\ud800"}', "not-utf8"),
        ({"id": 1.5, "time": 0, "x": 1}, "wrong-type"),
        ({"stream": 5, "time": 0, "x": "a"}, "unknown-stream"),
        ({"stream": "t", "x": "a"}, "missing-time"),
        ({"stream": "t", "id": "t1", "time": 0, "x": float("nan")}, "not-finite"),
    ],
)
def test_dead_letters_have_no_say(files: Files, record: dict[str, Any] | str, code: str) -> None:
    files.jsonl(record, {"stream": "s", "time": 0, "x": 1})
    assert files.only().name == "s"
    assert files.only().attributes["x"] is Type.INT
    assert files.codes() == [code, "event"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"time": "noon", "x": 5}, "'time': 'noon' is not a time; write ISO 8601, such as 2012-05-07T09:00:00Z"),
        ({"time": 0, "x": float("nan")}, "attribute 'x': NaN is not a reading"),
        ({"stream": "s", "x": 5}, "no 'time'"),
        ({"time": 0, "x": {}}, "attribute 'x': expected string, found object {}"),
        ({"id": "a7", "time": 0, "x": float("nan")}, "attribute 'x': NaN is not a reading"),
    ],
)
def test_where_all_are_dead_letters_each_has_its_reason(files: Files, record: dict[str, Any], reason: str) -> None:
    (found,) = files.jsonl(record).read()
    assert isinstance(found, DeadLetter)
    assert found.reason == reason


def test_parquet_dead_letters_have_no_say(files: Files) -> None:
    files.parquet(time=[0, None], stream=["s", "t"], x=[float("nan"), 0.5])
    assert files.streams()[0].attributes == {"x": Type.FLOAT}
    assert "event" not in files.codes()


def test_nothing_shows_nothing(files: Files) -> None:
    assert files.jsonl().streams() == ()
    assert files.csv("time,x\n").streams() == ()


records = st.dictionaries(
    st.sampled_from(["stream", "id", "time", "x", "y"]), json_values | st.sampled_from(["s", "t", 0, 1, "2012-05-07"])
)


@given(st.lists(records, max_size=6))
def test_whatever_the_records_each_is_an_event_or_a_dead_letter(some: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder)).jsonl(*some)
        with suppress(MixedTypes):
            assert len(files.read()) == len(some)
