"""The types of attributes and which raw values fit them (rules E1 and E3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.model.types import INT64_MAX, INT64_MIN, Json, Misfit, Type
from cepheid.model.wording import describe, quote
from tests.model.strategies import json_values, values


def misfit(kind: Type, raw: Json) -> tuple[str, str]:
    with pytest.raises(Misfit) as caught:
        kind.from_json(raw)
    return caught.value.code, str(caught.value)


def text_misfit(kind: Type, raw: str) -> tuple[str, str]:
    with pytest.raises(Misfit) as caught:
        kind.from_text(raw)
    return caught.value.code, str(caught.value)


@pytest.mark.parametrize("kind", Type)
def test_a_type_is_found_by_its_name(kind: Type) -> None:
    assert Type.parse(kind.value) is kind


def test_spaces_in_a_type_name_do_not_matter() -> None:
    assert Type.parse(" array< uint8 > ") is Type.UINT8_ARRAY


def test_an_unknown_type_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown type 'flaot'; did you mean 'float'\?"):
        Type.parse("flaot")


@pytest.mark.parametrize("kind", Type)
def test_null_fits_every_type(kind: Type) -> None:
    assert kind.from_json(None) is None
    assert kind.from_text("") is None
    assert kind.to_json(None) is None


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (Type.BOOL, True, True),
        (Type.INT, -5, -5),
        (Type.INT, INT64_MIN, INT64_MIN),
        (Type.FLOAT, 5, 5.0),
        (Type.FLOAT, -0.5, -0.5),
        (Type.STRING, "", ""),
        (Type.TIMESTAMP, "1970-01-01T00:00:01Z", 1_000_000),
        (Type.TIMESTAMP, 7, 7),
        (Type.BYTES, "AAE=", b"\x00\x01"),
        (Type.UINT8_ARRAY, [0, 255], b"\x00\xff"),
        (Type.UINT8_ARRAY, "AAE=", b"\x00\x01"),
        (Type.FLOAT_ARRAY, [1, 2.5], (1.0, 2.5)),
        (Type.FLOAT_ARRAY, [], ()),
    ],
)
def test_json_values_that_fit(kind: Type, raw: Json, value: object) -> None:
    found = kind.from_json(raw)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "raw", "code", "message"),
    [
        (Type.BOOL, 1, "wrong-type", "expected bool, found int 1"),
        (Type.INT, True, "wrong-type", "expected int, found bool True"),
        (Type.INT, 5.0, "wrong-type", "expected int, found float 5.0"),
        (Type.INT, "5", "wrong-type", "expected int, found string '5'"),
        (Type.INT, INT64_MAX + 1, "out-of-range", "int 9223372036854775808 does not fit in 64 bits"),
        (Type.INT, 10**4000, "out-of-range", "int of 13,288 bits does not fit in 64 bits"),
        (Type.FLOAT, "5", "wrong-type", "expected float, found string '5'"),
        (Type.FLOAT, True, "wrong-type", "expected float, found bool True"),
        (Type.FLOAT, float("nan"), "not-finite", "NaN is not a reading"),
        (Type.FLOAT, float("inf"), "not-finite", "infinity is not a reading"),
        (Type.FLOAT, 10**400, "out-of-range", "int of 1,329 bits does not fit in a float"),
        (Type.STRING, 5, "wrong-type", "expected string, found int 5"),
        (Type.STRING, "a\ud800", "not-utf8", r"'a\ud800' is not valid text: a character in it is broken"),
        (Type.STRING, {"a": [1]}, "wrong-type", "expected string, found object {'a': [1]}"),
        (Type.TIMESTAMP, 5.0, "wrong-type", "expected a time (ISO 8601 text or integer microseconds), found float 5.0"),
        (Type.TIMESTAMP, "soon", "wrong-type", "'soon' is not a time; write ISO 8601, such as 2012-05-07T09:00:00Z"),
        (Type.BYTES, "a b", "wrong-type", "expected bytes as base64, found string 'a b'"),
        (Type.BYTES, [1], "wrong-type", "expected bytes, found array [1]"),
        (Type.UINT8_ARRAY, [1.0], "wrong-type", "expected array<uint8>, found array [1.0]"),
        (Type.UINT8_ARRAY, [True], "wrong-type", "expected array<uint8>, found array [True]"),
        (
            Type.UINT8_ARRAY,
            [256],
            "out-of-range",
            "expected array<uint8>, found a number outside 0..255 in array [256]",
        ),
        (Type.FLOAT_ARRAY, [1.0, None], "wrong-type", "expected float, found null"),
        (Type.FLOAT_ARRAY, [float("nan")], "not-finite", "NaN is not a reading"),
        (Type.FLOAT_ARRAY, 1.0, "wrong-type", "expected array<float>, found float 1.0"),
    ],
)
def test_json_values_that_do_not_fit(kind: Type, raw: Json, code: str, message: str) -> None:
    assert misfit(kind, raw) == (code, message)


@pytest.mark.parametrize(
    ("kind", "cell", "value"),
    [
        (Type.BOOL, " TRUE ", True),
        (Type.INT, "-007", -7),
        (Type.INT, "+5", 5),
        (Type.FLOAT, " 1e3 ", 1000.0),
        (Type.STRING, " a ", " a "),
        (Type.TIMESTAMP, "1970-01-01", 0),
        (Type.TIMESTAMP, "-5", -5),
        (Type.BYTES, "AAE=", b"\x00\x01"),
        (Type.UINT8_ARRAY, "[0, 1]", b"\x00\x01"),
        (Type.UINT8_ARRAY, "AAE=", b"\x00\x01"),
        (Type.FLOAT_ARRAY, "[0.5]", (0.5,)),
    ],
)
def test_cells_that_fit(kind: Type, cell: str, value: object) -> None:
    assert kind.from_text(cell) == value


@pytest.mark.parametrize(
    ("kind", "cell", "code", "message"),
    [
        (Type.BOOL, "yes", "wrong-type", "expected bool, found string 'yes'"),
        (Type.INT, "-+5", "wrong-type", "expected int, found string '-+5'"),
        (Type.INT, "1_000", "wrong-type", "expected int, found string '1_000'"),
        (Type.INT, "٣", "wrong-type", "expected int, found string '٣'"),
        (Type.INT, "9" * 20, "out-of-range", "int 99999999999999999999 does not fit in 64 bits"),
        (Type.INT, "9" * 5000, "out-of-range", f"int '{'9' * 37}...' does not fit in 64 bits"),
        (Type.FLOAT, "nan", "not-finite", "NaN is not a reading"),
        (Type.FLOAT, "-inf", "not-finite", "infinity is not a reading"),
        (Type.FLOAT, "1e999", "not-finite", "infinity is not a reading"),
        (Type.FLOAT, "1_0.5", "wrong-type", "expected float, found string '1_0.5'"),
        (Type.FLOAT, "٣", "wrong-type", "expected float, found string '٣'"),
        (
            Type.TIMESTAMP,
            "9" * 5000,
            "out-of-range",
            f"time '{'9' * 37}...' is out of range; the years 1 to 9999 can be held",
        ),
        (Type.FLOAT_ARRAY, "0.5", "wrong-type", "expected array<float>, found string '0.5'"),
        (Type.FLOAT_ARRAY, "[0.5", "wrong-type", "expected array<float>, found string '[0.5'"),
        (Type.FLOAT_ARRAY, "[NaN]", "not-finite", "NaN is not a reading"),
        (Type.FLOAT_ARRAY, "[" * 100_000, "wrong-type", f"expected array<float>, found string '{'[' * 37}...'"),
    ],
)
def test_cells_that_do_not_fit(kind: Type, cell: str, code: str, message: str) -> None:
    assert text_misfit(kind, cell) == (code, message)


@given(kind=st.sampled_from(Type), data=st.data())
def test_values_survive_json(kind: Type, data: st.DataObject) -> None:
    value = data.draw(values(kind))
    assert kind.from_json(kind.to_json(value)) == value


@given(st.sampled_from(Type), json_values)
def test_any_json_fits_or_is_a_misfit(kind: Type, raw: Json) -> None:
    message = ""
    try:
        value = kind.from_json(raw)
        assert kind.from_json(kind.to_json(value)) == value, "what fits can be written and read again"
    except Misfit as error:
        message = str(error)
        message.encode()
    assert message.isprintable()


@given(st.sampled_from(Type), st.text())
def test_any_cell_fits_or_is_a_misfit(kind: Type, cell: str) -> None:
    message = ""
    try:
        value = kind.from_text(cell)
        assert kind.from_json(kind.to_json(value)) == value, "what fits can be written and read again"
    except Misfit as error:
        message = str(error)
        message.encode()
    assert message.isprintable()


@given(json_values)
def test_descriptions_are_short_and_printable(raw: Json) -> None:
    assert len(describe(raw)) <= 100
    assert describe(raw).isprintable()


def test_descriptions_of_monsters() -> None:
    deep: Json = []
    for _ in range(100_000):
        deep = [deep]
    assert describe(deep) == "array [[[[...]]]]"
    assert describe("x" * 10_000_000) == f"string '{'x' * 37}...'"
    assert describe(10**100_000) == "int of 332,193 bits"
    assert describe({"k": list(range(100_000))}) == "object {'k': [0, 1, 2, 3, 4, 5, 6, 7, ...]}"
    assert quote("it's\x1b[31m") == '"it\'s\\x1b[31m"'
