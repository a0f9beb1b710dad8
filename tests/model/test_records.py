"""Which records fit their stream, and what is said of those that do not (rule E3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.model.events import Event
from cepheid.model.records import CODES, MAX_RECORD_BYTES, RecordDecoder, encode_event, parse_json_line
from cepheid.model.streams import Stream
from cepheid.model.types import Json, Misfit, Type, Value
from tests.model.strategies import json_values, streams_and_events

AIRFLOW = Stream(
    "airflowReport",
    {"sensorID": Type.STRING, "flowrate": Type.FLOAT, "count": Type.INT},
    spellings={"flowrate": ("airvolume", "airflow")},
)
ROOM = Stream("room", {"open": Type.BOOL, "when": Type.TIMESTAMP}, extras=True)
NINE = 1_336_381_200_000_000  # 2012-05-07T09:00:00Z


def decode(line: str | bytes, *streams: Stream, **options: Any) -> Event:
    record = parse_json_line(line if isinstance(line, bytes) else line.encode())
    return RecordDecoder(streams or [AIRFLOW], **options).decode(record)


def misfit(line: str | bytes, *streams: Stream, **options: Any) -> tuple[str, str]:
    with pytest.raises(Misfit) as caught:
        decode(line, *streams, **options)
    assert caught.value.code in CODES
    return caught.value.code, str(caught.value)


def with_attribute(text: str) -> str:
    return '{"id": 1, "time": 0, ' + text + "}"


def with_time(text: str) -> str:
    return '{"id": 1, "time": ' + text + "}"


def test_a_record_becomes_an_event() -> None:
    line = '{"stream": "airflowReport", "id": 7, "time": "2012-05-07T09:00:00Z", "sensorID": "D1", "flowrate": 5}'
    attributes: dict[str, Value] = {"sensorID": "D1", "flowrate": 5.0, "count": None}
    assert decode(line) == Event("airflowReport", 7, NINE, attributes)


def test_e3_a_missing_attribute_is_null() -> None:
    assert decode('{"id": 1, "time": 0}').attributes == {"sensorID": None, "flowrate": None, "count": None}


def test_another_spelling_is_the_attribute() -> None:
    assert decode(with_attribute('"airflow": 5')).attributes["flowrate"] == 5.0


def test_an_extra_attribute_is_ignored_where_the_stream_allows_it() -> None:
    assert decode(with_attribute('"open": true, "x": {"y": NaN}'), ROOM).attributes == {"open": True, "when": None}


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        # not a record
        ("", "not-json", "not JSON at column 1: Expecting value"),
        ("{", "not-json", "not JSON at column 2: Expecting property name enclosed in double quotes"),
        ('{"id": }', "not-json", "not JSON at column 8: Expecting value"),
        ('{"id": 1} {"id": 2}', "not-json", "not JSON at column 11: Extra data"),
        ('{"id": 1}\xa0', "not-json", "not JSON at column 10: Extra data"),
        ("[1, 2]", "not-json", "expected a JSON object, found array [1, 2]"),
        ("7", "not-json", "expected a JSON object, found int 7"),
        ("null", "not-json", "expected a JSON object, found null"),
        ('{"a": "\x01"}', "not-json", "not JSON at column 8: Invalid control character at"),
        (b"\x00\x01\xfe\xff", "not-utf8", "byte 3 (0xfe) is not UTF-8"),
        (b'{"sensorID": "\xed\xa0\x80"}', "not-utf8", "byte 15 (0xed) is not UTF-8"),
        ('{"a":' * 100_000, "not-json", "not JSON that can be read: nested too deeply"),
        # names
        ('{"id": 1, "id": 2, "time": 0}', "duplicate-attribute", "'id' is given twice"),
        (with_attribute('"flowrate": 1, "flowrate": 1'), "duplicate-attribute", "'flowrate' is given twice"),
        (
            with_attribute('"airflow": 1, "flowrate": 1'),
            "duplicate-attribute",
            "attribute 'flowrate' is given twice, as 'flowrate' and 'airflow'",
        ),
        (
            with_attribute('"flowrat": 1'),
            "unknown-attribute",
            "stream 'airflowReport' has no attribute 'flowrat'; did you mean 'flowrate'?",
        ),
        (
            with_attribute('"\\ud800": 1'),
            "unknown-attribute",
            "stream 'airflowReport' has no attribute '\\ud800'; known: airflow, airvolume, count, flowrate, sensorID",
        ),
        (
            '{"stream": "airflowreport", "time": 0}',
            "unknown-stream",
            "unknown stream string 'airflowreport'; did you mean 'airflowReport'?",
        ),
        ('{"stream": 5, "time": 0}', "unknown-stream", "unknown stream int 5"),
        ('{"stream": false, "time": 0}', "unknown-stream", "unknown stream bool False"),
        # values
        (
            with_attribute('"flowrate": "510"'),
            "wrong-type",
            "attribute 'flowrate': expected float, found string '510'",
        ),
        (with_attribute('"airflow": "510"'), "wrong-type", "attribute 'airflow': expected float, found string '510'"),
        (with_attribute('"count": 1.0'), "wrong-type", "attribute 'count': expected int, found float 1.0"),
        (with_attribute('"flowrate": NaN'), "not-finite", "attribute 'flowrate': NaN is not a reading"),
        (with_attribute('"flowrate": Infinity'), "not-finite", "attribute 'flowrate': infinity is not a reading"),
        (with_attribute('"flowrate": -Infinity'), "not-finite", "attribute 'flowrate': infinity is not a reading"),
        (with_attribute('"flowrate": 1e999'), "not-finite", "attribute 'flowrate': infinity is not a reading"),
        (with_attribute('"count": NaN'), "not-finite", "attribute 'count': NaN is not a reading"),
        (with_attribute('"sensorID": NaN'), "not-finite", "attribute 'sensorID': NaN is not a reading"),
        (
            with_attribute('"count": 9223372036854775808'),
            "out-of-range",
            "attribute 'count': int 9223372036854775808 does not fit in 64 bits",
        ),
        (with_attribute('"count": ' + "9" * 5000), "out-of-range", "a number has too many digits"),
        (
            with_attribute('"count": ' + "9" * 4000),
            "out-of-range",
            "attribute 'count': int of 13,288 bits does not fit in 64 bits",
        ),
        (
            with_attribute('"count": ' + "[" * 400 + "]" * 400),
            "wrong-type",
            "attribute 'count': expected int, found array [[[[...]]]]",
        ),
        (
            with_attribute('"sensorID": "D\\ud800"'),
            "not-utf8",
            "attribute 'sensorID': 'D\\ud800' is not valid text: a character in it is broken",
        ),
        # time
        ('{"id": 1}', "missing-time", "no 'time'"),
        (with_time("null"), "missing-time", "no 'time'"),
        (with_time('""'), "missing-time", "no 'time'"),
        (
            with_time('"noon"'),
            "wrong-type",
            "'time': 'noon' is not a time; write ISO 8601, such as 2012-05-07T09:00:00Z",
        ),
        (
            with_time("1.5"),
            "wrong-type",
            "'time': expected a time (ISO 8601 text or integer microseconds), found float 1.5",
        ),
        (with_time("NaN"), "not-finite", "'time': NaN is not a reading"),
        (
            with_time('"0000-12-31T23:59:59Z"'),
            "out-of-range",
            "'time': time '0000-12-31T23:59:59Z' is out of range; the years 1 to 9999 can be held",
        ),
        (
            with_time('"10000-01-01T00:00:00Z"'),
            "out-of-range",
            "'time': time '10000-01-01T00:00:00Z' is out of range; the years 1 to 9999 can be held",
        ),
        (
            with_time("253402300800000000"),
            "out-of-range",
            "'time': time 253402300800000000 us is out of range; the years 1 to 9999 can be held",
        ),
        (
            with_time("-62135596800000001"),
            "out-of-range",
            "'time': time -62135596800000001 us is out of range; the years 1 to 9999 can be held",
        ),
        (
            with_time("9" * 4000),
            "out-of-range",
            "'time': time of 13,288 bits us is out of range; the years 1 to 9999 can be held",
        ),
        # id
        ('{"id": 1.5, "time": 0}', "wrong-type", "'id': expected int or string, found float 1.5"),
        ('{"id": true, "time": 0}', "wrong-type", "'id': expected int or string, found bool True"),
        ('{"id": [1], "time": 0}', "wrong-type", "'id': expected int or string, found array [1]"),
        ('{"id": NaN, "time": 0}', "not-finite", "'id': NaN or infinity is no id"),
        (
            '{"id": 9223372036854775808, "time": 0}',
            "out-of-range",
            "'id': int 9223372036854775808 does not fit in 64 bits",
        ),
        (
            '{"id": "\\ud800", "time": 0}',
            "not-utf8",
            "'id': '\\ud800' is not valid text: a character in it is broken",
        ),
    ],
)
def test_e3_records_that_do_not_fit(line: str | bytes, code: str, message: str) -> None:
    assert misfit(line) == (code, message)


def test_e3_a_record_of_4_mib_fits_and_a_longer_one_does_not() -> None:
    head, tail = b'{"time": 0, "sensorID": "', b'"}'
    filling = b"x" * (MAX_RECORD_BYTES - len(head) - len(tail))
    assert decode(head + filling + tail + b"\r\n").time == 0
    assert misfit(head + filling + b"x" + tail) == (
        "too-long",
        "the record has 4,194,305 bytes; at most 4,194,304 are taken",
    )


def test_a_record_that_names_no_stream_belongs_to_the_only_one_or_the_default() -> None:
    assert decode('{"time": 0}', AIRFLOW).stream == "airflowReport"
    assert decode('{"stream": "", "time": 0}', AIRFLOW).stream == "airflowReport"
    assert decode('{"time": 0}', AIRFLOW, ROOM, default_stream="room").stream == "room"
    assert misfit('{"time": 0}', AIRFLOW, ROOM) == (
        "missing-stream",
        "no 'stream'; it is one of: airflowReport, room",
    )


def test_ids_are_counted_from_1_in_each_stream_by_events_only() -> None:
    decoder = RecordDecoder([AIRFLOW, ROOM])
    misfits: list[dict[str, Json]] = [{"stream": "room"}, {"stream": "room", "time": 0, "open": 5}]
    for broken in misfits:
        with pytest.raises(Misfit):
            decoder.decode(broken)
    names = ["airflowReport", "room", "room", "airflowReport", "room"]
    assert [decoder.decode({"stream": name, "time": 0}).id for name in names] == [1, 1, 2, 2, 3]


def test_ids_are_not_counted_where_that_is_off() -> None:
    assert misfit('{"time": 0}', count_ids=False) == ("missing-id", "no 'id'")


def test_a_stream_gives_all_its_ids_or_none() -> None:
    decoder = RecordDecoder([AIRFLOW])
    decoder.decode({"id": 1, "time": 0})
    with pytest.raises(Misfit, match=r"^no 'id', and earlier events of stream 'airflowReport' gave one$"):
        decoder.decode({"time": 0})
    decoder = RecordDecoder([AIRFLOW])
    decoder.decode({"time": 0})
    with pytest.raises(Misfit, match=r"^'id': earlier events of stream 'airflowReport' gave none and were counted$"):
        decoder.decode({"id": 1, "time": 0})


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (1, "a", "'id': expected int as for the others of stream 'airflowReport', found string 'a'"),
        ("a", 1, "'id': expected string as for the others of stream 'airflowReport', found int 1"),
        ("a", None, "no 'id', and the ids of stream 'airflowReport' are strings"),
    ],
)
def test_e1_a_stream_has_one_kind_of_id(first: Json, second: Json, message: str) -> None:
    decoder = RecordDecoder([AIRFLOW])
    decoder.decode({"id": first, "time": 0})
    with pytest.raises(Misfit) as caught:
        decoder.decode({"id": second, "time": 0})
    assert str(caught.value) == message


def test_e1_a_declared_kind_of_id_is_kept_to() -> None:
    stream = Stream("s", {}, id_kind="string")
    assert misfit('{"id": 1, "time": 0}', stream) == (
        "wrong-type",
        "'id': expected string as for the others of stream 's', found int 1",
    )


def test_a_misfit_does_not_decide_the_kind_of_id() -> None:
    decoder = RecordDecoder([AIRFLOW])
    with pytest.raises(Misfit):
        decoder.decode({"id": "a"})
    assert decoder.decode({"id": 1, "time": 0}).id == 1


def test_the_forms_of_one_decoder_share_their_ids() -> None:
    decoder = RecordDecoder([AIRFLOW])
    cells = decoder.in_form("text")
    assert [decoder.decode({"time": 0}).id, cells.decode({"time": "0"}).id, decoder.decode({"time": 0}).id] == [1, 2, 3]


def test_cells_are_text() -> None:
    decoder = RecordDecoder([AIRFLOW], form="text")
    record = {"id": "7", "time": "2012-05-07T09:00:00Z", "flowrate": "510", "sensorID": "", "other": ""}
    assert decoder.decode(record) == Event(
        "airflowReport", 7, NINE, {"sensorID": None, "flowrate": 510.0, "count": None}
    )


@pytest.mark.parametrize(("cell", "found"), [("7", 7), ("-7", -7), ("007", "007"), ("a7", "a7"), ("7.0", "7.0")])
def test_cells_show_the_kind_of_id(cell: str, found: int | str) -> None:
    assert RecordDecoder([AIRFLOW], form="text").decode({"id": cell, "time": "0"}).id == found


def test_a_dead_letter_is_labelled_with_a_declared_stream_only() -> None:
    decoder = RecordDecoder([AIRFLOW, ROOM])
    assert decoder.stream_of({"stream": "room"}) == "room"
    assert decoder.stream_of({"stream": "\ud800"}) is None
    assert decoder.stream_of({}) is None
    assert RecordDecoder([ROOM]).stream_of({}) == "room"


names = st.sampled_from(["stream", "id", "time", "sensorID", "flowrate", "airflow", "count", "x"])
some_values = json_values | st.sampled_from(["airflowReport", "2012-05-07", 0, 1, 1.5])


def is_sound(error: Misfit) -> bool:
    """Whether a misfit can be counted, and its message be printed."""
    return error.code in CODES and str(error).isprintable() and len(str(error)) < 300


@given(st.lists(st.dictionaries(names, some_values)), st.sampled_from(["json", "text"]))
def test_e3_any_json_is_an_event_or_a_misfit(records: list[dict[str, Any]], form: Any) -> None:
    decoder = RecordDecoder([AIRFLOW], form=form)
    misfits = []
    for record in records:
        cells = {name: str(value) for name, value in record.items()}
        try:
            event = decoder.decode(cells if form == "text" else record)
        except Misfit as error:
            misfits.append(error)
        else:
            encode_event(event, AIRFLOW.attributes)
    assert all(map(is_sound, misfits))


@given(st.binary() | st.text().map(str.encode) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_an_object_or_a_misfit(line: bytes) -> None:
    found: object
    try:
        found = parse_json_line(line)
    except Misfit as error:
        found = error
    assert is_sound(found) if isinstance(found, Misfit) else isinstance(found, dict)


@given(json_values.filter(lambda value: isinstance(value, dict)), st.sampled_from(["", " ", "\n", "\t \r\n"]))
def test_json_is_read_as_the_standard_library_reads_it(value: Any, space: str) -> None:
    text = space + json.dumps(value) + space
    assert repr(parse_json_line(text.encode())) == repr(json.loads(text))


@given(streams_and_events())
def test_events_survive_their_records(stream_and_events: tuple[Stream, list[Event]]) -> None:
    stream, events = stream_and_events
    decoder = RecordDecoder([stream])
    assert [decoder.decode(encode_event(event, stream.attributes)) for event in events] == events
