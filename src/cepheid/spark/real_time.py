"""Queries in Real-Time Mode: filters, broadcast joins with what is known, and a projection, all in Spark's JVM.

plan/real_time.py says which queries can be planned so.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.spark.blake import with_match_id


class NotRealTime(ValueError):
    """A query that Real-Time Mode can't run, with the clause that prevents it."""


def in_jvm(kept: DataFrame, checked: Checked, place: dict[str, str], schema: st.StructType) -> DataFrame:
    """The matches among events that every condition has let through."""
    (given,), columns = checked.query.ranges, []
    for output, chosen in zip(checked.outputs, checked.query.select, strict=True):
        assert isinstance(chosen.expression, syntax.Attribute)
        field = schema["select"].dataType[output.name]  # type: ignore[index]
        columns.append(_read(checked, chosen.expression, place, field.dataType).alias(output.name))
    named = with_match_id(kept, "match", checked.normal_form, given.variable, given.streams[0], "id")
    return named.select(
        sf.col("match").alias("id"),
        sf.timestamp_micros("time").alias("time"),
        sf.struct(sf.col("id").alias(given.variable)).alias("events"),
        sf.struct(*columns).alias("select"),
    )


def _read(checked: Checked, attribute: syntax.Attribute, place: dict[str, str], kind: st.DataType) -> Column:
    if attribute.name in ("id", "time"):
        value = sf.col(attribute.name)
    else:
        value = sf.col(place[next(iter(checked.attributes[attribute.variable, attribute.name].names.values()))])
    return sf.timestamp_micros(value) if isinstance(kind, st.TimestampType) else value.cast(kind)
