"""Records judged in the JVM, for Real-Time Mode: the events that model/records.py makes of them, and no others."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from cepheid.model.records import RecordDecoder, parse_json_line
from cepheid.model.streams import Stream
from cepheid.model.types import Misfit, Type
from cepheid.plan.real_time import why_not
from cepheid.spark.jvm_records import events_in_jvm

pytestmark = pytest.mark.spark
STREAM = Stream(
    "air",
    {"k": Type.STRING, "n": Type.INT, "v": Type.FLOAT, "ok": Type.BOOL, "since": Type.TIMESTAMP, "a b": Type.FLOAT},
    id_kind="int",
    spellings={"v": ("value", "flow")},
)
GOOD = {"stream": "air", "id": 1, "time": 5}


def _record(**members: object) -> bytes:
    return json.dumps({**GOOD, **members}).encode()


RECORDS = [
    _record(),
    _record(k="x", n=-5, v=1.5, ok=True, since=7),
    _record(**{"a b": 0.1}),
    _record(v=0.1),
    _record(v=12345678901234567890.123),
    _record(v=2**60 + 1),
    _record(v=10**400),
    _record(v=5),
    _record(value=2.5),
    _record(flow=2.5, v=None),
    _record(flow=2.5, v=1.0),
    _record(v=float("nan")),
    _record(v=float("inf")),
    _record(v="1.5"),
    _record(v=True),
    _record(n=5.0),
    _record(n=2**63 - 1),
    _record(n=2**63),
    _record(n=True),
    _record(k=5),
    _record(k=None, n=None),
    _record(k="né ☃"),
    _record(k='quote " and \\ back'),
    _record(ok="true"),
    _record(ok=1),
    _record(other=1),
    _record(valid_until="2012-05-07T09:00:00Z"),
    _record(valid_until="soon"),
    _record(valid_until=None),
    _record(id=None),
    _record(id="7"),
    _record(id=7.0),
    _record(id=2**63),
    _record(id=-(2**63)),
    _record(stream="water"),
    _record(stream=None),
    _record(stream=""),
    _record(stream=5),
    *(
        _record(time=text)
        for text in (
            "2012-05-07T09:00:00Z",
            "2012-05-07T09:00:00.123456Z",
            "2012-05-07T09:00:00.1234567",
            "2012-05-07 09:00",
            " 2012-05-07 ",
            "2012-05-07T09:00:00,5+05:30",
            "2012-05-07T09:00:00 -0800",
            "2012-05-07T09:00:00+05",
            "2012-05-07T09:00:00z",
            "2012-02-30",
            "2012-13-01",
            "2012-05-07T24:00",
            "2012-05-07T09:00:60",
            "2012-05-07T09:61",
            "0000-01-01",
            "0001-01-01",
            "9999-12-31T23:59:59.999999",
            "0001-01-01T00:00:00+01:00",
            "2012-05-07T09:00:00+19:00",
            "2012-05-07T09:00:00+18:59",
            "2012",
            "yesterday",
            "",
            None,
            True,
            1.5,
            -5,
            253_402_300_799_999_999,
            253_402_300_800_000_000,
        )
    ),
    _record(since="2012-05-07T09:00:00Z"),
    _record(since="x"),
    b'{"id": 1, "time": 5}',
    b'{"stream": "air", "id": 1, "id": 2, "time": 5}',
    b'{"stream": "air", "id": 1, "time": 5} ',
    b'  {"stream": "air", "id": 1, "time": 5}',
    b'{"stream": "air", "id": 1, "time": 5',
    b'{"stream": "air", "id": 1, "time": 5, "v": 1e400}',
    b'{"stream": "air", "id": 1, "time": 5, "v": 1e2}',
    b'{"stream": "air", "id": 1e0, "time": 5}',
    b'{"stream": "air", "id": 1, "time": 5} {}',
    b"[1]",
    b"5",
    b"null",
    b"",
    b"no record",
    b'{"stream": "air", "id": 1, "time": 5, "k": "\xff"}',
]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("extras", [True, False])
def test_they_are_the_events_of_the_model(spark: SparkSession, alone: bool, extras: bool) -> None:
    stream = replace(STREAM, extras=extras)
    others = [] if alone else [Stream("water", {}, id_kind="int")]
    wanted = []
    for raw in RECORDS:
        decoder = RecordDecoder([stream, *others], count_ids=False)
        try:
            event = decoder.decode(parse_json_line(raw))
        except Misfit:
            continue
        if event.stream == "air":
            wanted.append((event.id, event.time, *event.attributes.values()))
    assert len(wanted) > 30
    frame = spark.createDataFrame([(raw,) for raw in RECORDS], "raw binary").coalesce(1)
    columns = "id", sf.unix_micros("time"), "k", "n", "v", "ok", sf.unix_micros("since"), "`a b`"
    found = frame.transform(events_in_jvm(stream, alone=alone)).select(*columns).collect()
    assert [tuple(row) for row in found] == wanted


def test_what_cannot_be_judged_is_said() -> None:
    assert why_not(STREAM) is None
    assert why_not(replace(STREAM, id_kind="string")) == "the ids of 'air' are text"
    samples = replace(STREAM, attributes={"samples": Type.UINT8_ARRAY}, spellings={})
    assert why_not(samples) == "'samples' of 'air' is array<uint8>"
