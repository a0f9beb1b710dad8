"""Events that correlate by what they mean, divided by it: those of one room are matched by one task.

    JOIN on ?room of PATH {?a :in ?room . ?b :in ?room}

What is known is joined by broadcast first: it says in which buckets an event is, by the values that its PATH variable
can have. In each the matcher knows of its values only, so that nothing is found twice but by two of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyspark.sql.functions as sf
import pyspark.sql.types as st
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from cepheid.knowledge.tables import Lookup, Row, Table
from cepheid.language.checker import Checked
from cepheid.model.types import Value
from cepheid.plan.division import Meaning
from cepheid.plan.matcher import Matcher


def divided(events: DataFrame, checked: Checked, meaning: Meaning, place: dict[str, str], buckets: int) -> DataFrame:
    """The events with a bucket, once for each that they are in, together and in order of time."""
    columns = [*events.columns]
    found: list[Column] = []
    for number, column in meaning.columns.items():
        lookup = checked.lookups[number]
        assert isinstance(lookup, Lookup)
        events, own = _joined(events, lookup, column, place[lookup.key[0]], f"meant_{number}", buckets)
        found.append(own)
    bucket = sf.explode(sf.array_distinct(sf.flatten(sf.array(*found)))).alias("bucket")
    named = events.select(*columns, bucket)
    return named.repartition(buckets, "bucket").sortWithinPartitions("bucket", "time", "stream", "id")


def _joined(
    events: DataFrame, lookup: Lookup, column: int, key: str, name: str, buckets: int
) -> tuple[DataFrame, Column]:
    """The events joined with the buckets of a lookup's keys, and those of each event."""

    def buckets_of(rows: Iterable[Row]) -> list[int]:
        return sorted({_bucket(row[column], buckets) for row in rows if row[column] is not None})

    table = lookup.table
    entries = [(key[0], buckets_of(rows)) for key, rows in table.rows.items() if key[0] is not None]
    whole = any(isinstance(value, int) for value, _ in entries)
    schema = st.StructType(
        [
            st.StructField(f"{name}_key", st.LongType() if whole else st.StringType()),
            st.StructField(name, st.ArrayType(st.IntegerType())),
        ]
    )
    known = events.sparkSession.createDataFrame(entries, schema)
    is_here = sf.col("stream") == lookup.stream
    joined = events.join(sf.broadcast(known), on=(sf.col(key) == sf.col(f"{name}_key")) & is_here, how="left")
    of_null = _listed(buckets_of(table.rows.get((None,), table.otherwise)))
    otherwise = sf.when(sf.col(key).isNull(), of_null).otherwise(_listed(buckets_of(table.otherwise)))
    return joined, sf.when(is_here, sf.coalesce(sf.col(name), otherwise)).otherwise(_listed([]))


def _listed(buckets: list[int]) -> Column:
    return sf.array(*map(sf.lit, buckets)).cast(st.ArrayType(st.IntegerType()))


def _bucket(value: Value, buckets: int) -> int:
    """Equal values, equal buckets: 2 is 2.0."""
    plain = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return zlib.crc32(repr(plain).encode()) % buckets


def matching_by(
    checked: Checked, meaning: Meaning, now: int, schema: st.StructType, names: list[str], buckets: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The matcher as a task runs it, a bucket after the other; `names` are those of the columns before the bucket."""
    from cepheid.spark.matching import given

    target = to_arrow_schema(schema, timezone="UTC")

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        current, matcher = -1, None
        for batch in batches:
            for bucket, rows in _runs(batch):
                if matcher is None or bucket != current:
                    if matcher is not None:
                        yield from given(matcher.advance_batches(None), target)
                    current, matcher = bucket, Matcher(_of_bucket(checked, meaning, bucket, buckets), now)
                matcher.push_batch(rows.rename_columns(names))
                yield from given(matcher.advance_batches(rows.column(2)[-1].as_py()), target)
        if matcher is not None:
            yield from given(matcher.advance_batches(None), target)

    return in_executor


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of one bucket after the other, without it."""
    bucket = batch.column(batch.num_columns - 1).to_numpy()
    plain = batch.select(batch.schema.names[:-1])
    ends = [*(np.flatnonzero(np.diff(bucket)) + 1).tolist(), len(bucket)]
    start = 0
    for end in ends if len(bucket) else []:
        yield int(bucket[start]), plain.slice(start, end - start)
        start = end


def _of_bucket(checked: Checked, meaning: Meaning, bucket: int, buckets: int) -> Checked:
    """The query that knows of the values in one bucket only."""

    def less(table: Table, column: int) -> Table:
        def kept(rows: tuple[Row, ...]) -> tuple[Row, ...]:
            return tuple(r for r in rows if r[column] is not None and _bucket(r[column], buckets) == bucket)

        rows = {key: kept(rows) for key, rows in table.rows.items()}
        return Table(rows, kept(table.otherwise), table.complete, table.version)

    lookups = [
        replace(look, table=less(look.table, meaning.columns[number]))
        if isinstance(look, Lookup) and number in meaning.columns
        else look
        for number, look in enumerate(checked.lookups)
    ]
    return replace(checked, lookups=tuple(lookups))
