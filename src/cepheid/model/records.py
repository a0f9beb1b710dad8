"""Raw records become events, or dead letters with a reason (rule E3).

This is the one place where it is decided whether a record fits its stream: the readers of files, the Spark pipeline and
the real-time intake all ask here.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, TypeAlias

from cepheid.model.events import Event, EventId
from cepheid.model.names import suggestion
from cepheid.model.streams import IMPLIED, VALID_UNTIL, Stream
from cepheid.model.time import format_instant
from cepheid.model.types import (
    INT64_MAX,
    INT64_MIN,
    Form,
    Json,
    Misfit,
    Raw,
    Type,
    Value,
    check_int64,
    timestamp,
    timestamp_text,
)
from cepheid.model.wording import describe, quote

#: A record longer than this is refused rather than held in memory: no sensor sends 4 MiB in one reading.
MAX_RECORD_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that fits no stream: kept as it came, with the reason and where it stood.

    `code` is one of CODES, for counting; `raw` is the record's bytes, cut at MAX_RECORD_BYTES.
    """

    code: str
    reason: str
    raw: bytes
    source: str
    line: int | None = None
    stream: str | None = None


#: The reasons that can befall a record, with what they mean.
CODES: Final[Mapping[str, str]] = {
    "not-utf8": "the bytes are not UTF-8 text",
    "not-json": "the line is not a JSON object",
    "not-csv": "the row has another number of cells than the header",
    "too-long": "the record is longer than 4 MiB",
    "duplicate-attribute": "an attribute is given twice",
    "missing-stream": "the record names no stream, and there are several",
    "unknown-stream": "the record names a stream that is not declared here",
    "missing-time": "the record has no time",
    "missing-id": "the record has no id",
    "unknown-attribute": "the stream has no such attribute and allows no extras",
    "wrong-type": "a value has another type than its attribute",
    "out-of-range": "a number or a time is too large or too small to hold",
    "not-finite": "a value is NaN or infinite",
    "unreadable-file": "a file of CSV or Parquet can't be read; it counts as one record",
}


#: A raw record where it stood: its line (or row) number, what it holds or why it cannot be read, and its bytes. A row
#: of Parquet has no bytes of its own: None.
RawRecord: TypeAlias = tuple[int, Mapping[str, Raw] | Misfit, bytes | None]


def too_long(length: int) -> Misfit:
    """The misfit of a record of so many bytes."""
    return Misfit("too-long", f"the record has {length:,} bytes; at most {MAX_RECORD_BYTES:,} are taken")


def decode_utf8(raw: bytes) -> str:
    """The text of a record's bytes; Misfit if they are not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Misfit("not-utf8", f"byte {error.start + 1} (0x{raw[error.start]:02x}) is not UTF-8") from None


def parse_json_line(line: bytes) -> dict[str, Json]:
    """The JSON object on a line of bytes; raises Misfit for anything else, however odd."""
    if len(line) > MAX_RECORD_BYTES and (length := len(line.rstrip(b"\r\n"))) > MAX_RECORD_BYTES:
        raise too_long(length)
    text = decode_utf8(line)
    try:
        record = _parse_json(text)
    except json.JSONDecodeError as error:
        raise Misfit("not-json", f"not JSON at column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise Misfit("not-json", "not JSON that can be read: nested too deeply") from None
    except Misfit:
        raise
    except ValueError:  # a number of thousands of digits
        raise Misfit("out-of-range", "a number has too many digits") from None
    if not isinstance(record, dict):
        raise Misfit("not-json", f"expected a JSON object, found {describe(record)}")
    return record


def _object_without_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) < len(pairs):
        name = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise Misfit("duplicate-attribute", f"{quote(name)} is given twice")
    return result


_JSON: Final = json.JSONDecoder(object_pairs_hook=_object_without_repeats)


def _parse_json(text: str) -> Json:
    """`json.loads`, without the third of its time that goes into looking for white space."""
    if text.startswith("{"):
        value, end = _JSON.raw_decode(text)
        if not text[end:].strip(" \t\r\n"):
            return value  # type: ignore[no-any-return]
    return _JSON.decode(text)  # type: ignore[no-any-return]


class RecordDecoder:
    """Turns records of some streams into events.

    `form` says how values are written: "json" (typed values) or "text" (CSV cells). `default_stream` is taken where a
    record names none; with `count_ids` a record without an id gets the next number of its stream, from 1. A stream
    either gives all its ids or none, or a counted id could be that of another event.
    """

    def __init__(
        self,
        streams: Iterable[Stream],
        *,
        form: Form = "json",
        default_stream: str | None = None,
        count_ids: bool = True,
    ) -> None:
        self._decoders = {stream.name: _StreamDecoder(stream, form, _Ids(stream, count_ids)) for stream in streams}
        self._default = default_stream
        if default_stream is None and len(self._decoders) == 1:
            self._default = next(iter(self._decoders))

    def in_form(self, form: Form) -> RecordDecoder:
        """A decoder of the same streams for records in another form; the ids seen or counted so far are shared."""
        other = RecordDecoder((), default_stream=self._default)
        other._decoders = {name: decoder.in_form(form) for name, decoder in self._decoders.items()}
        return other

    def decode(self, record: Mapping[str, Raw]) -> Event:
        """The event that a record means; Misfit if it fits no stream."""
        name = self._name_in(record)
        decoder = self._decoders.get(name) if isinstance(name, str) else None
        if decoder is None:
            self._refuse_stream(name)
        return decoder.decode(record)

    def stream_of(self, record: Mapping[str, Raw]) -> str | None:
        """The declared stream that a record belongs to, if it names one, for labelling dead letters."""
        name = self._name_in(record)
        return name if isinstance(name, str) and name in self._decoders else None

    def _name_in(self, record: Mapping[str, Raw]) -> Raw:
        name = record.get("stream")
        return self._default if name is None or name == "" else name

    def _refuse_stream(self, name: Raw) -> NoReturn:
        if name is None:
            known = ", ".join(sorted(self._decoders)) or "none, as none is declared"
            raise Misfit("missing-stream", f"no 'stream'; it is one of: {known}")
        hint = _hint(name[:100], tuple(self._decoders)) if isinstance(name, str) else None
        raise Misfit("unknown-stream", f"unknown stream {describe(name)}" + (f"; {hint}" if hint else ""))


class _Ids:
    """The ids of one stream: one kind, and either all given or all counted."""

    def __init__(self, stream: Stream, may_count: bool) -> None:
        self._stream = stream.name
        self._kind = stream.id_kind
        self._may_count = may_count
        self._given = False
        self._counted = 0

    def decode(self, raw: Raw, text: bool) -> EventId:
        if type(raw) is int and self._given and self._kind == "int":  # what nearly all are
            return raw if INT64_MIN <= raw <= INT64_MAX else self._read(raw, text)
        if raw is None or (text and raw == ""):
            return self._count()
        if self._counted:
            raise Misfit("wrong-type", f"'id': earlier events of stream '{self._stream}' gave none and were counted")
        value = self._read(raw, text)
        kind: Literal["int", "string"] = "int" if isinstance(value, int) else "string"
        if self._kind is None:
            self._kind = kind
        elif kind != self._kind:
            raise Misfit(
                "wrong-type",
                f"'id': expected {self._kind} as for the others of stream '{self._stream}', found {describe(raw)}",
            )
        self._given = True
        return value

    def _count(self) -> int:
        if not self._may_count:
            raise Misfit("missing-id", "no 'id'")
        if self._kind == "string":
            raise Misfit("missing-id", f"no 'id', and the ids of stream '{self._stream}' are strings")
        if self._given:
            raise Misfit("missing-id", f"no 'id', and earlier events of stream '{self._stream}' gave one")
        self._kind = "int"
        self._counted += 1
        return self._counted

    def _read(self, raw: Raw, text: bool) -> EventId:
        try:
            if isinstance(raw, str):
                if text and (self._kind == "int" or (self._kind is None and is_plain_int(raw))):
                    return int(Type.INT.from_text(raw))  # type: ignore[arg-type]
                return str(Type.STRING.from_json(raw))
            if isinstance(raw, int) and not isinstance(raw, bool):
                return check_int64(raw)
            if isinstance(raw, float) and not math.isfinite(raw):
                raise Misfit("not-finite", "NaN or infinity is no id")
            raise Misfit("wrong-type", f"expected int or string, found {describe(raw)}")
        except Misfit as misfit:
            raise Misfit(misfit.code, f"'id': {misfit}") from None


def is_plain_int(text: str) -> bool:
    """Whether text is a number as programs print it; `007` is rather a name that happens to have only digits."""
    digits = text.strip().removeprefix("-")
    return digits.isascii() and digits.isdecimal() and (digits[0] != "0" or text.strip() == "0")


class _StreamDecoder:
    """Decodes the records of one stream."""

    def __init__(self, stream: Stream, form: Form, ids: _Ids) -> None:
        self._stream = stream
        self._name = stream.name
        self._text = form == "text"
        self._ids = ids
        #: By each spelling: the attribute and what reads its values.
        self._fields: dict[str, tuple[str, Callable[[Any], Value]]] = {}
        for name, kind in stream.attributes.items():
            convert = kind.converter(form)
            for spelling in (name, *stream.spellings.get(name, ())):
                self._fields[spelling] = (name, convert)
        self._nulls: dict[str, Value] = dict.fromkeys(stream.attributes)

    def in_form(self, form: Form) -> _StreamDecoder:
        return _StreamDecoder(self._stream, form, self._ids)

    def decode(self, record: Mapping[str, Raw]) -> Event:
        fields, text = self._fields, self._text
        attributes = self._nulls.copy()
        time = self._decode_time(record.get("time"))
        for spelling, raw in record.items():
            if spelling in fields:
                if raw is None or (text and raw == ""):
                    continue
                name, convert = fields[spelling]
                try:
                    attributes[name] = convert(raw)
                except Misfit as misfit:
                    raise Misfit(misfit.code, f"attribute '{spelling}': {misfit}") from None
            elif spelling == VALID_UNTIL:
                self._check_end(raw)
            elif spelling not in IMPLIED and not self._stream.extras and not (text and raw == ""):
                self._refuse_attribute(spelling)
        if self._stream.spellings:
            self._refuse_repeats(record)
        # The id last, so that only events count and only events show the stream's kind of id.
        return Event(self._name, self._ids.decode(record.get("id"), text), time, attributes)

    def _check_end(self, raw: Raw) -> None:
        """The end of an event's validity is for the service; here it only has to be right."""
        if raw is None or (self._text and raw == ""):
            return
        try:
            timestamp_text(raw) if self._text and isinstance(raw, str) else timestamp(raw)
        except Misfit as misfit:
            raise Misfit(misfit.code, f"'valid_until': {misfit}") from None

    def _decode_time(self, raw: Raw) -> int:
        if raw is None or raw == "":
            raise Misfit("missing-time", "no 'time'")
        try:
            return timestamp_text(raw) if self._text and isinstance(raw, str) else timestamp(raw)
        except Misfit as misfit:
            raise Misfit(misfit.code, f"'time': {misfit}") from None

    def _refuse_repeats(self, record: Mapping[str, Raw]) -> None:
        for name, spellings in self._stream.spellings.items():
            nulls = (None, "") if self._text else (None,)
            given = [spelling for spelling in (name, *spellings) if record.get(spelling) not in nulls]
            if len(given) > 1:
                raise Misfit(
                    "duplicate-attribute", f"attribute '{name}' is given twice, as '{given[0]}' and '{given[1]}'"
                )

    def _refuse_attribute(self, spelling: str) -> NoReturn:
        hint = _hint(spelling[:100], tuple(self._fields))
        raise Misfit(
            "unknown-attribute",
            f"stream '{self._name}' has no attribute {quote(spelling)}" + (f"; {hint}" if hint else ""),
        )


@functools.lru_cache(maxsize=1024)
def _hint(name: str, known: tuple[str, ...]) -> str | None:
    """A suggestion, remembered: the same misspelling tends to come with every record, and looking is slow."""
    return suggestion(name, known)


def encode_event(event: Event, types: Mapping[str, Type]) -> dict[str, Json]:
    """The JSON record of an event, as `RecordDecoder` reads it."""
    record: dict[str, Json] = {"stream": event.stream, "id": event.id, "time": format_instant(event.time)}
    for name, value in event.attributes.items():
        record[name] = types[name].to_json(value)
    return record
