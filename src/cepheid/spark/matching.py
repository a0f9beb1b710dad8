"""Pattern matching for any DataFrame: `readings.transform(match("SELECT ... SEQ (?a, ?b) ..."))`.

What Catalyst can do is left to Catalyst: columns that the query does not read are dropped, and so are rows that no
variable's filters let through; batch windows whose totals come out the same there are its own (windows.py). What it
cannot is the native matcher, over Arrow, in the executors: rows are brought together by the query's key, sorted by
time, and matched as they stream by. streaming.py does it for streams.
"""

from __future__ import annotations

import time as clock
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from cepheid._native import MatchBatch
from cepheid.knowledge.tables import Lookup
from cepheid.language import syntax
from cepheid.language.build import Q
from cepheid.language.checker import Checked, check
from cepheid.language.errors import Rejected, Source
from cepheid.language.output import is_of_window, named_events
from cepheid.language.parser import examine
from cepheid.language.scope import Catalogue
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.division import Meaning, always_bound, is_alone, is_moving, key_attributes, reach
from cepheid.plan.matcher import Matcher
from cepheid.spark.clocks import Live
from cepheid.spark.columns import SPARK_TYPES, Columns, UnsuitableColumns
from cepheid.spark.filters import in_time, qualifies
from cepheid.spark.knowledge import Flags, lowered, named, portable, with_known, without_settled
from cepheid.spark.meaning import divided as divided_by
from cepheid.spark.meaning import matching_by
from cepheid.spark.recovered import CAME
from cepheid.spark.slices import in_slices, sliced
from cepheid.spark.validate import Transform
from cepheid.spark.windows import Totals

if TYPE_CHECKING:
    from cepheid.app.known import Known

#: The stream of a DataFrame whose query names none.
ONLY_STREAM: Final = "events"
#: A task has so many matchers, each for a part of its keys, and gives them so many rows at once; the rows of what is
#: known, which each of them has, are no more than this in all.
_MATCHERS: Final = 32
_ROWS: Final = 1 << 18
_TABLE_ROWS: Final = 1_000_000


class NoKey(UserWarning):
    """A query without a key: all its events are matched in one task."""


Query: TypeAlias = str | Q | syntax.Query


def match(
    query: Query,
    *,
    id: str = "id",
    time: str = "time",
    stream: str | None = None,
    now: int | None = None,
    knowledge: Known | None = None,
    live: Live | None = None,
) -> Transform:
    """The matches of a query in a DataFrame of events, batch or streaming, as a function for `df.transform`.

    `id`, `time` and `stream` name the columns that say what an event is called, when it happened (a timestamp, or
    microseconds) and, where the query has several streams, to which it belongs. Every other column of a simple type is
    an attribute. Rows without an id or a time, or with NaN or infinity in an attribute that the query reads, are no
    events (rule E3); duplicates are the caller's to drop. Of the log's events (history/log_source.py) those that are
    flagged as late or duplicate take part in nothing. `knowledge` is what PATHs are judged by; the streams that it
    annotates have the names that FROM gives them.

    A streaming DataFrame needs a watermark on its time, which says how late events may come: `withWatermark("time",
    "10 seconds")`. `live` has what else can be said of streams. `now` is that of the first start there.

    The result has a row a match: id, time, events (a struct of ids by variable), select (a struct of the values); for
    batch and session windows, window and group instead of events. Raises Rejected if the query is wrong, and
    UnsuitableColumns.
    """
    tree = _tree(query)
    moment = clock.time_ns() // 1000 if now is None else now

    def transform(frame: DataFrame) -> DataFrame:
        columns = Columns(frame, id, time, stream, live.arrival if live is not None and frame.isStreaming else None)
        checked = _check(tree, columns, knowledge, live=frame.isStreaming)
        if checked.query.path is not None:
            checked = lowered(checked, knowledge, frame, stream, columns.free)
        return _matched(frame, checked, columns, moment, live or Live())

    return transform


def match_checked(
    checked: Checked, *, stream: str, now: int, live: Live | None = None, version: int | None = None
) -> Transform:
    """The matches of a query that was checked, and has no PATHs left, in a DataFrame of its streams' attributes.

    `version` is that of the knowledge by which PATHs were judged; matches say it.
    """

    def transform(frame: DataFrame) -> DataFrame:
        columns = Columns(frame, "id", "time", stream, None if live is None else live.arrival)
        found = _matched(frame, checked, columns, now, live or Live(), version or 0)
        return found if version is None else found.withColumn("knowledge", sf.lit(version).cast("long"))

    return transform


def _matched(frame: DataFrame, checked: Checked, columns: Columns, now: int, live: Live, version: int = 0) -> DataFrame:
    checked = portable(checked)
    schema = _schema(checked, columns.id_type)
    events = _events(frame, checked, columns)
    if frame.isStreaming:
        from cepheid.spark.streaming import match_stream

        return match_stream(events, checked, columns, now, schema, live, version)
    events = only_relevant(events, checked, now)
    meaning = None if is_alone(checked) or key_columns(checked) else Meaning.of(checked)
    if meaning is not None:
        return _matched_by(events, checked, meaning, now, schema)
    left = without_settled(checked)
    place = places(checked)
    totals = Totals.of(left, lambda name: sf.col(place[name]))
    if totals is not None:
        return totals.matches(events, schema)
    gathered = _gather(events, left)
    return gathered.mapInArrow(matching(left, now, schema, by_slices="since" in gathered.columns), schema)


def _matched_by(events: DataFrame, checked: Checked, meaning: Meaning, now: int, schema: st.StructType) -> DataFrame:
    """The matches of events that have no attribute in common, but something that is known of them."""
    place = places(checked)
    buckets = int(events.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
    work = matching_by(checked, meaning, now, schema, ["stream", "id", "time", *place], buckets)
    found = divided_by(events, checked, meaning, place, buckets).mapInArrow(work, schema)
    return found.dropDuplicates(["id"]) if meaning.is_hidden else found


def _tree(query: Query) -> syntax.Query:
    if isinstance(query, syntax.Query):
        return query
    if isinstance(query, Q):
        return query.tree
    tree, problems = examine(Source("query", query))
    if tree is None:
        raise Rejected(problems)
    return tree


def _check(tree: syntax.Query, columns: Columns, knowledge: Known | None, *, live: bool) -> Checked:
    only = ONLY_STREAM if knowledge is None else knowledge.annotations.only_stream or ONLY_STREAM
    names = list(dict.fromkeys(s for r in tree.ranges for s in r.streams)) or [only]
    if len(names) > 1 and columns.stream is None:
        raise UnsuitableColumns(
            f"the query reads {', '.join(names)}; say which column tells them apart: match(query, stream=...)"
        )
    id_kind = "string" if isinstance(columns.id_type, st.StringType) else "int"
    streams = {name: Stream(name, columns.attributes, id_kind=id_kind) for name in names}  # type: ignore[arg-type]
    catalogue = Catalogue(streams, names[0] if len(names) == 1 else None)
    checked, problems = check(tree, catalogue if knowledge is None else named(catalogue, knowledge), live=live)
    if checked is None:
        others = {name: kind for name, kind in columns.free.items() if name not in columns.attributes}
        for name, found in others.items():
            if any(problem.code == "unknown-attribute" and f"'{name}'" in problem.message for problem in problems):
                raise UnsuitableColumns(
                    f"column '{name}', which the query reads: expected a boolean, number, string, timestamp, binary or "
                    f"array<double>, found {found.simpleString()}; cast it, or leave it out"
                )
        raise Rejected(problems)
    for problem in problems:
        warnings.warn(problem.message, UserWarning, stacklevel=4)
    return checked


def _column(name: str) -> Column:
    return sf.col("`" + name.replace("`", "``") + "`")


def _events(frame: DataFrame, checked: Checked, columns: Columns) -> DataFrame:
    """The events of the query's streams: stream, id, time and the attributes that are read; times as microseconds."""
    time = _column(columns.time)
    micros = sf.unix_micros(time) if isinstance(columns.time_type, st.TimestampType) else time
    stream = sf.lit(checked.streams[0]) if columns.stream is None else _column(columns.stream)
    event_id = _column(columns.id)
    selected = [
        stream.alias("stream"),
        event_id.alias("id") if isinstance(columns.id_type, st.StringType) else event_id.cast("long").alias("id"),
        micros.alias("time"),
        *(_raw(name, columns.attributes[name]).alias(place) for name, place in places(checked).items()),
        *([] if columns.arrival is None else [_column(columns.arrival).alias("arrival")]),
        *([sf.col("offset"), _column(CAME).alias("came")] if CAME in frame.columns else []),
    ]
    if columns.clocks is not None and columns.clocks.flagged:
        frame = frame.where("NOT late AND NOT duplicate")
    events = frame.select(*selected).where(sf.col("id").isNotNull() & sf.col("time").isNotNull())
    for name, place in places(checked).items():
        if columns.attributes[name] is Type.FLOAT:
            value = sf.col(place)
            events = events.where(value.isNull() | (~sf.isnan(value) & (sf.abs(value) != sf.lit(float("inf")))))
    return events.where(sf.col("stream").isin(list(checked.streams)))


def relevant(events: DataFrame, checked: Checked, now: int | None) -> tuple[DataFrame, Column]:
    """Whether an event may be in a match, as a condition on the events joined with what is known of them.

    Without `now` a WITHIN that depends on it is left to the matcher.
    """
    place = places(checked)
    flags: Flags = {}
    if checked.query.match != "STRICT":
        events, flags = with_known(events, checked, place)

    def column_of(attribute: syntax.Attribute) -> Column:
        if attribute.name in ("id", "time"):
            return sf.col(attribute.name)
        return sf.col(place[next(iter(checked.attributes[attribute.variable, attribute.name].names.values()))])

    condition = qualifies(checked, sf.col("stream"), column_of, lambda v: flags.get(v, ()))
    if now is None and depends_on_now(checked):
        return events, condition
    return events, condition & in_time(checked.query.within, now or 0, sf.col("time"))


def only_relevant(events: DataFrame, checked: Checked, now: int) -> DataFrame:
    """The events that may be in a match."""
    known, condition = relevant(events, checked, now)
    return known.where(condition).select(*events.columns)


def depends_on_now(checked: Checked) -> bool:
    """Whether WITHIN is said by `now`."""
    within = checked.query.within
    return within is not None and any(end is not None and end.now for end in (within.low, within.high))


def _raw(name: str, kind: Type) -> Column:
    """An attribute as the matcher takes it."""
    column = _column(name)
    if kind is Type.TIMESTAMP:
        return sf.unix_micros(column)
    return column.cast("double") if kind is Type.FLOAT else column.cast("long") if kind is Type.INT else column


def places(checked: Checked) -> dict[str, str]:
    """The columns of the attributes that the query reads, by their names."""
    names = [n for r in checked.attributes.values() for n in r.names.values() if n not in ("id", "time")]
    keys = [name for lookup in checked.lookups if isinstance(lookup, Lookup) for name in lookup.key]
    read = [name for name in dict.fromkeys((*names, *keys)) if not name.startswith("?")]
    return {name: f"attribute_{i}" for i, name in enumerate(read)}


def _gather(events: DataFrame, checked: Checked) -> DataFrame:
    """Brings together what can be in one match, in order of time, with a column that says whose matcher's it is."""
    columns = needed(events, checked)
    if is_alone(checked):
        return events.select(*columns)
    keys = key_columns(checked)
    if not keys:
        back = reach(checked)
        if isinstance(back, int):
            return sliced(events.select(*columns), back)
        warnings.warn(
            "the query has no key that all its variables share, and can't be divided by time either, so all events are "
            f"matched in one task: {back}",
            NoKey,
            stacklevel=4,
        )
        return events.select(*columns).coalesce(1).sortWithinPartitions("time")
    part = sf.pmod(sf.xxhash64(*keys), sf.lit(_matchers(checked))).cast("byte")
    kept = events.where(in_partition(checked)).select(*columns, part.alias("part"))
    # By time alone, which Spark sorts as numbers: the matcher brings events of one time into their order.
    return kept.repartition(*keys).sortWithinPartitions("time")


def needed(events: DataFrame, checked: Checked) -> list[str]:
    """The columns of events that a matcher takes. The stream is left out where there is one: a text a row is dear."""
    read = {
        "id",
        "time",
        "arrival",
        "offset",
        "came",
        *places(checked).values(),
        *(["stream"] if len(checked.streams) > 1 else []),
    }
    return [name for name in events.columns if name in read]


def _matchers(checked: Checked) -> int:
    """How many matchers a task has for its keys: each goes through events that fit into the processor's caches."""
    rows = sum(len(lookup.table.rows) for lookup in checked.lookups if isinstance(lookup, Lookup))
    return max(1, min(_MATCHERS, _TABLE_ROWS // max(1, rows)))


def key_columns(checked: Checked) -> list[Column]:
    """The columns of the key; none: all events belong together."""
    place = places(checked)
    return [sf.col(place[name]) for name in key_attributes(checked)]


def in_partition(checked: Checked) -> Column:
    """Whether an event's key has no null, where that is needed.

    Two events that must be there must be joined by the key, and a null joins nothing. One alone may match with a null,
    if only a NOT is joined to it; and in GROUP BY nulls are a group.
    """
    needed = not is_moving(checked) and len(always_bound(checked.query)) > 1
    return reduce(and_, [column.isNotNull() for column in key_columns(checked)] if needed else [], sf.lit(True))


def matching(
    checked: Checked, now: int, schema: st.StructType, *, by_slices: bool = False
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The matcher as a task runs it: over complete input in order of time, or of slices and time; in any order where
    each event matches by itself."""
    names = [*(["stream"] if len(checked.streams) > 1 else []), "id", "time", *places(checked)]
    alone = is_alone(checked)
    target = to_arrow_schema(schema, timezone="UTC")
    several = _matchers(checked)

    def found(matcher: Matcher, until: int | None) -> Iterator[pa.RecordBatch]:
        return given(matcher.advance_batches(until), target)

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        whole = (rows.rename_columns([*names, *rows.column_names[len(names) :]]) for rows in tables(batches, _ROWS))
        if by_slices:
            for own, those in in_slices(whole):
                matcher = Matcher(checked, now)
                for rows in those:
                    for batch in rows.to_batches():
                        matcher.push_batch(batch)
                    yield from map(own.own, found(matcher, rows.column("time")[-1].as_py()))
                yield from map(own.own, found(matcher, None))
            return
        matchers: list[Matcher] = []
        for rows in whole:
            if alone:  # in no order: what is in the next rows may be earlier
                matcher = Matcher(checked, now)
                for batch in rows.to_batches():
                    matcher.push_batch(batch)
                yield from found(matcher, None)
                continue
            # The rows of a task come in order of time, so none before the last one's is still to come.
            last = rows.column("time")[-1].as_py()
            parts = [rows]
            if "part" in rows.column_names:
                parts = divided(rows.drop_columns("part"), rows.column("part"), several)
            matchers = matchers or [Matcher(checked, now) for _ in parts]
            for matcher, part in zip(matchers, parts, strict=True):
                for batch in part.to_batches():
                    matcher.push_batch(batch)
                yield from found(matcher, last)
        for matcher in matchers:
            yield from found(matcher, None)

    return in_executor


def tables(batches: Iterable[pa.RecordBatch], most: int | None) -> Iterator[pa.Table]:
    """Batches brought together to tables of so many rows or a little more; None: to one."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
        if most is not None and count >= most:
            yield pa.Table.from_batches(held)
            held, count = [], 0
    if held:
        yield pa.Table.from_batches(held)


def divided(rows: pa.Table, part: pa.ChunkedArray, parts: int) -> list[pa.Table]:
    """The rows of each part, in their order."""
    numbers = part.to_numpy()
    order = np.argsort(numbers, kind="stable")
    sorted_rows = rows.take(pa.array(order)).combine_chunks()
    ends = np.searchsorted(numbers[order], np.arange(parts + 1))
    return [sorted_rows.slice(ends[i], ends[i + 1] - ends[i]) for i in range(parts)]


def given(batches: Iterable[MatchBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Matches as Spark takes them."""
    return (pa.record_batch(batch).cast(schema) for batch in batches)


def _schema(checked: Checked, id_type: st.DataType) -> st.StructType:
    event_id = st.StringType() if isinstance(id_type, st.StringType) else st.LongType()
    bound = []
    for given, is_many in named_events(checked):
        one = st.StringType() if len(given.streams) > 1 else event_id
        bound.append(st.StructField(given.variable, st.ArrayType(one) if is_many else one))
    selected = [st.StructField(o.name, SPARK_TYPES[o.type]) for o in checked.outputs]
    fields = [
        st.StructField("id", st.StringType()),
        st.StructField("time", st.TimestampType()),
        *([st.StructField("events", st.StructType(bound))] if bound else []),
        st.StructField("select", st.StructType(selected)),
    ]
    if is_of_window(checked):
        ends = [st.StructField("start", st.TimestampType()), st.StructField("end", st.TimestampType())]
        group = [
            st.StructField(name, SPARK_TYPES[checked.attributes[a.variable, a.name].type])
            for name, a in zip(checked.groups, checked.query.group_by, strict=True)
        ]
        fields.append(st.StructField("window", st.StructType(ends)))
        fields += [st.StructField("group", st.StructType(group))] if group else []
    return st.StructType(fields)
