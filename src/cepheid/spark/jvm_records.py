"""Records of JSON become events in Spark's JVM, for Real-Time Mode, which has no place for `validate`'s Python.

The verdict is that of model/records.py (rule E3), written as expressions; a record that does not fit is left out here,
and is a dead letter to who archives the same records. `tests/spark/test_jvm_records.py` compares the two.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from cepheid.model.records import MAX_RECORD_BYTES
from cepheid.model.streams import IMPLIED, VALID_UNTIL, Stream
from cepheid.model.time import MAX_INSTANT, MIN_INSTANT
from cepheid.model.types import Type
from cepheid.spark.validate import Transform

#: The parts of a time as text: year, month, day, hour, minute, second, fraction, zone (model/time.py).
_INSTANT: Final = (
    r"^\s*(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::([0-5]\d)(?:[.,](\d{1,18}))?)?"
    r"\s*(Z|z|[+-](?:0\d|1[0-8])(?::?[0-5]\d)?)?)?\s*$"
)


def events_in_jvm(stream: Stream, *, alone: bool) -> Transform:
    """The events of a stream among records, the bytes in a column `raw`: id, time, and its attributes.

    `alone`: records that name no stream are of this one, because there is no other.
    """

    def transform(records: DataFrame) -> DataFrame:
        text = sf.try_validate_utf8(sf.col("raw").cast("string"))
        # Spark reads the first value and is content; as the only one of a list and of an object it is the only one.
        listed = sf.try_parse_json(sf.concat(sf.lit("["), "text", sf.lit("]")))
        inside = sf.try_parse_json(sf.concat(sf.lit('{"only":'), "text", sf.lit("}")))
        read = _once(listed=listed, inside=inside, names=sf.json_object_keys("text"))
        only = sf.try_variant_get("listed", "$[0]", "variant")
        parsed = (
            records.where(sf.length("raw") <= MAX_RECORD_BYTES)
            .select(_once(text=text))
            .select("once.text")
            .select(read)
            .select("once.*")
            .where(sf.col("names").isNotNull() & sf.col("inside").isNotNull() & sf.col("listed").isNotNull())
            .where(sf.try_variant_get("listed", "$[1]", "variant").isNull())
            .select(_once(json=only, names=sf.col("names")))
            .select("once.*")
        )
        spelled = {a: (a, *stream.spellings.get(a, ())) for a in stream.attributes}
        members = (*IMPLIED, VALID_UNTIL, *(spelling for own in spelled.values() for spelling in own))
        kinds = {_kind_name(m): sf.schema_of_variant(sf.try_variant_get("json", _path(m), "variant")) for m in members}
        typed = parsed.select("json", "names", _once(**kinds)).select("json", "names", "once.*")
        name = sf.try_variant_get("json", "$.stream", "string")
        own = (_kind("stream") == "STRING") & (name == stream.name)
        if alone:
            own |= _is_null("stream") | ((_kind("stream") == "STRING") & (name == ""))
        conditions = [own, _kind("id") == "BIGINT", _fits("time", Type.TIMESTAMP)]
        conditions.append(_is_null(VALID_UNTIL) | _fits(VALID_UNTIL, Type.TIMESTAMP))
        for attribute, spellings in spelled.items():
            kind = stream.attributes[attribute]
            conditions += [_is_null(s) | _fits(s, kind) for s in spellings]
            if len(spellings) > 1:
                given = (sf.when(_is_null(s), 0).otherwise(1) for s in spellings)
                conditions.append(reduce(lambda one, other: one + other, given) <= 1)
        if not stream.extras:
            conditions.append(sf.size(sf.array_except("names", sf.array(*map(sf.lit, members)))) == 0)
        events = typed.where(reduce(and_, conditions))
        values = [
            sf.coalesce(*(_value(s, stream.attributes[a]) for s in spellings)).alias(a)
            for a, spellings in spelled.items()
        ]
        return events.select(_value("id", Type.INT).alias("id"), _value("time", Type.TIMESTAMP).alias("time"), *values)

    return transform


def _once(**columns: Column) -> Column:
    """Columns that are computed once, however often they are read: Catalyst would write them out for each reader."""
    return sf.explode(sf.array(sf.struct(*(column.alias(name) for name, column in columns.items())))).alias("once")


def _path(name: str) -> str:
    return f"$['{name}']"


def _kind(name: str) -> Column:
    """The type that a member has as it is written; null if it is not there."""
    return sf.col(f"`{_kind_name(name)}`")


def _kind_name(name: str) -> str:
    return f"kind of {name}"


def _is_null(name: str) -> Column:
    return _kind(name).isNull() | (_kind(name) == "VOID")


def _fits(name: str, kind: Type) -> Column:
    found = _kind(name)
    match kind:
        case Type.TIMESTAMP:
            micros = sf.coalesce(_micros(name), sf.lit(MAX_INSTANT + 1))
            return micros.between(MIN_INSTANT, MAX_INSTANT)
        case Type.FLOAT:
            # Of something else than a number null, which is no number between these.
            value = sf.when(found.rlike(r"^(BIGINT|DOUBLE|DECIMAL\(.*)$"), _as_double(name))
            return sf.coalesce(value, sf.lit(float("inf"))).between(-_GREATEST, _GREATEST)
        case Type.INT:
            return found == "BIGINT"
        case Type.BOOL:
            return found == "BOOLEAN"
        case _:
            return found == "STRING"


_GREATEST: Final = 1.7976931348623157e308


def _as_double(name: str) -> Column:
    return sf.try_variant_get("json", _path(name), "double")


def _value(name: str, kind: Type) -> Column:
    match kind:
        case Type.TIMESTAMP:
            return sf.timestamp_micros(_micros(name))
        case Type.FLOAT:
            return _as_double(name)
        case Type.INT:
            return sf.try_variant_get("json", _path(name), "bigint")
        case Type.BOOL:
            return sf.try_variant_get("json", _path(name), "boolean")
        case _:
            return sf.try_variant_get("json", _path(name), "string")


def _micros(name: str) -> Column:
    """Microseconds of a time: integers as they are, and ISO 8601; null for anything else."""
    text = sf.try_variant_get("json", _path(name), "string")
    part = [sf.regexp_extract(text, _INSTANT, number) for number in range(9)]
    whole = [sf.when(p == "", 0).otherwise(p.try_cast("int")) for p in part[:7]]
    _, year, month, day, hour, minute, second = whole
    moment = sf.try_make_timestamp(year, month, day, hour, minute, second.cast("decimal(16,6)"), sf.lit("UTC"))
    fraction = sf.rpad(sf.substring(part[7], 1, 6), 6, "0").try_cast("long")
    digits = sf.rpad(sf.regexp_replace(sf.substring(part[8], 2, 5), ":", ""), 4, "0")
    minutes = sf.substring(digits, 1, 2).try_cast("long") * 60 + sf.substring(digits, 3, 2).try_cast("long")
    ahead = (
        sf.when(part[8].startswith("-"), -minutes).when(part[8].startswith("+"), minutes).otherwise(sf.lit(0))
        * 60_000_000
    )
    in_words = sf.unix_micros(moment) + fraction - ahead
    return sf.when(_kind(name) == "BIGINT", sf.try_variant_get("json", _path(name), "bigint")).when(
        (_kind(name) == "STRING") & (year > 0), in_words
    )
