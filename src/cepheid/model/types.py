"""The types an attribute can have (rule E1), and which raw values fit them (rule E3).

A value is held as: bool, int, float, str; a timestamp as microseconds; bytes and array<uint8> as bytes; array<float>
as a tuple of floats. Any may be None.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from cepheid.model.names import suggestion
from cepheid.model.time import RangeError, TimeError, check_instant, format_instant, parse_instant
from cepheid.model.wording import describe, quote, shorten

__all__ = ["Form", "Json", "Misfit", "Raw", "Type", "Value", "check_int64", "describe", "timestamp", "timestamp_text"]

Value: TypeAlias = bool | int | float | str | bytes | tuple[float, ...] | None
#: What a parsed JSON text holds.
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
#: What a raw record holds: JSON values, and in formats that have them (Parquet) bytes as they are.
Raw: TypeAlias = "Json | bytes"
#: How a raw record writes its values: typed, or all as text (CSV cells).
Form: TypeAlias = Literal["json", "text"]

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


class Misfit(ValueError):
    """A raw value that does not fit its type. `code` groups misfits for counting."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Type(Enum):
    """An attribute's type, by the name it has in the application file."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STRING = "string"
    TIMESTAMP = "timestamp"
    BYTES = "bytes"
    UINT8_ARRAY = "array<uint8>"
    FLOAT_ARRAY = "array<float>"

    @classmethod
    def parse(cls, text: str) -> Type:
        """The type of that name; spaces inside `array< uint8 >` don't matter."""
        try:
            return cls("".join(text.split()))
        except ValueError:
            hint = suggestion(text, (t.value for t in cls))
            raise ValueError(f"unknown type '{text}'" + (f"; {hint}" if hint else "")) from None

    @property
    def is_number(self) -> bool:
        return self in (Type.INT, Type.FLOAT)

    @property
    def is_array(self) -> bool:
        return self in (Type.UINT8_ARRAY, Type.FLOAT_ARRAY)

    def converter(self, form: Form) -> Callable[[Any], Value]:
        """The function behind `from_json` or `from_text`, for raw values that are not null or empty."""
        return _FROM_TEXT[self] if form == "text" else _FROM_JSON[self]

    def from_json(self, raw: Raw) -> Value:
        """The value that a JSON record means, or Misfit."""
        return None if raw is None else _FROM_JSON[self](raw)

    def from_text(self, raw: str) -> Value:
        """The value of a CSV cell, or Misfit; an empty cell is null."""
        return None if raw == "" else _FROM_TEXT[self](raw)

    def to_json(self, value: Value) -> Json:
        """The inverse of `from_json`, in the form that `match` prints (rule O3)."""
        if isinstance(value, bytes):
            return list(value) if self is Type.UINT8_ARRAY else base64.b64encode(value).decode()
        if isinstance(value, tuple):
            return list(value)
        if self is Type.TIMESTAMP and isinstance(value, int):
            return format_instant(value)
        return value


def _wrong(expected: Type | str, raw: object) -> Misfit:
    if isinstance(raw, float) and not math.isfinite(raw):
        return Misfit("not-finite", "NaN is not a reading" if math.isnan(raw) else "infinity is not a reading")
    name = expected.value if isinstance(expected, Type) else expected
    return Misfit("wrong-type", f"expected {name}, found {describe(raw)}")


def _bool(raw: Raw) -> Value:
    if isinstance(raw, bool):
        return raw
    raise _wrong(Type.BOOL, raw)


def check_int64(raw: int) -> int:
    """The number itself, if it fits in 64 bits."""
    if INT64_MIN <= raw <= INT64_MAX:
        return raw
    raise Misfit("out-of-range", f"int {shorten(raw)} does not fit in 64 bits")


def _int(raw: Raw) -> Value:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return check_int64(raw)
    raise _wrong(Type.INT, raw)


def _float(raw: Raw) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise _wrong(Type.FLOAT, raw)
    try:
        value = float(raw)
    except OverflowError:
        raise Misfit("out-of-range", f"int {shorten(raw)} does not fit in a float") from None
    if math.isfinite(value):
        return value
    raise _wrong(Type.FLOAT, value)


def _string(raw: Raw) -> Value:
    if not isinstance(raw, str):
        raise _wrong(Type.STRING, raw)
    if not raw.isascii():
        try:
            raw.encode()
        except UnicodeEncodeError:
            raise Misfit("not-utf8", f"{quote(raw)} is not valid text: a character in it is broken") from None
    return raw


def timestamp(raw: Raw) -> int:
    """Microseconds of a time in a record: ISO 8601 text, or integer microseconds."""
    try:
        if isinstance(raw, str):
            return parse_instant(raw)
        if isinstance(raw, int) and not isinstance(raw, bool):
            return check_instant(raw)
    except RangeError as error:
        raise Misfit("out-of-range", str(error)) from None
    except TimeError as error:
        raise Misfit("wrong-type", str(error)) from None
    raise _wrong("a time (ISO 8601 text or integer microseconds)", raw)


def _base64(raw: str, expected: Type) -> bytes:
    try:
        return base64.b64decode(raw, validate=True)
    except (binascii.Error, ValueError):
        raise Misfit("wrong-type", f"expected {expected.value} as base64, found {describe(raw)}") from None


def _bytes(raw: Raw) -> Value:
    if isinstance(raw, bytes):
        return raw
    if isinstance(raw, str):
        return _base64(raw, Type.BYTES)
    raise _wrong(Type.BYTES, raw)


def _uint8_array(raw: Raw) -> Value:
    if isinstance(raw, bytes):
        return raw
    if isinstance(raw, str):
        return _base64(raw, Type.UINT8_ARRAY)
    if not isinstance(raw, list) or any(type(item) is not int for item in raw):
        raise _wrong(Type.UINT8_ARRAY, raw)
    try:
        return bytes(raw)  # type: ignore[arg-type]
    except ValueError:
        raise Misfit(
            "out-of-range", f"expected array<uint8>, found a number outside 0..255 in {describe(raw)}"
        ) from None


def _float_array(raw: Raw) -> Value:
    if not isinstance(raw, list):
        raise _wrong(Type.FLOAT_ARRAY, raw)
    return tuple(_float(item) for item in raw)


_FROM_JSON: Final[dict[Type, Callable[[Raw], Value]]] = {
    Type.BOOL: _bool,
    Type.INT: _int,
    Type.FLOAT: _float,
    Type.STRING: _string,
    Type.TIMESTAMP: timestamp,
    Type.BYTES: _bytes,
    Type.UINT8_ARRAY: _uint8_array,
    Type.FLOAT_ARRAY: _float_array,
}


_DIGITS: Final = re.compile(r"[+-]?[0-9]+")
#: Far more than 64 bits need, and few enough for int() to be quick.
_MAX_DIGITS: Final = 40


def _bool_text(raw: str) -> Value:
    folded = raw.strip().lower()
    if folded in ("true", "false"):
        return folded == "true"
    raise _wrong(Type.BOOL, raw)


def _int_text(raw: str) -> Value:
    text = raw.strip()
    if _DIGITS.fullmatch(text) is None:
        raise _wrong(Type.INT, raw)
    if len(text) > _MAX_DIGITS:
        raise Misfit("out-of-range", f"int {quote(text)} does not fit in 64 bits")
    return check_int64(int(text))


def _float_text(raw: str) -> Value:
    text = raw.strip()
    try:
        if "_" in text or not text.isascii():  # which Python takes, and no other tool
            raise ValueError
        return _float(float(text))
    except Misfit:
        raise
    except ValueError:
        raise _wrong(Type.FLOAT, raw) from None


def timestamp_text(raw: str) -> int:
    """Microseconds of a time in a CSV cell: ISO 8601, or integer microseconds as digits."""
    text = raw.strip()
    if _DIGITS.fullmatch(text) is None:
        return timestamp(text)
    if len(text) > _MAX_DIGITS:
        raise Misfit("out-of-range", f"time {quote(text)} is out of range; the years 1 to 9999 can be held")
    return timestamp(int(text))


def _array_text(raw: str, expected: Type) -> Value:
    text = raw.strip()
    if not text.startswith("["):
        if expected is Type.UINT8_ARRAY:
            return _base64(text, expected)
        raise _wrong(expected, raw)
    try:
        items: Json = json.loads(text)
    except (ValueError, RecursionError):
        raise _wrong(expected, raw) from None
    return expected.from_json(items)


_FROM_TEXT: Final[dict[Type, Callable[[str], Value]]] = {
    Type.BOOL: _bool_text,
    Type.INT: _int_text,
    Type.FLOAT: _float_text,
    Type.STRING: _string,
    Type.TIMESTAMP: timestamp_text,
    Type.BYTES: lambda raw: _base64(raw, Type.BYTES),
    Type.UINT8_ARRAY: lambda raw: _array_text(raw, Type.UINT8_ARRAY),
    Type.FLOAT_ARRAY: lambda raw: _array_text(raw, Type.FLOAT_ARRAY),
}
