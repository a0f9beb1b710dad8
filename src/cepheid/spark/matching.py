"""Pattern matching for any batch DataFrame: `readings.transform(match("SELECT ... SEQ (?a, ?b) ..."))`.

What Catalyst can do is left to Catalyst: columns that the query does not read are dropped, and so are rows that no
variable's filters let through. What it cannot is the native matcher, over Arrow, in the executors: rows are brought
together by the query's key, sorted by time, and matched as they stream by.
"""

from __future__ import annotations

import time as clock
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

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
from cepheid.language.functions import ValueType
from cepheid.language.parser import examine
from cepheid.language.scope import Catalogue
from cepheid.model.names import suggestion
from cepheid.model.streams import IMPLIED, Stream
from cepheid.model.types import Type
from cepheid.plan.matcher import Matcher
from cepheid.spark.filters import in_time, qualifies
from cepheid.spark.knowledge import lowered, named, portable, with_known
from cepheid.spark.validate import Transform

if TYPE_CHECKING:
    from cepheid.app.known import Known

#: The stream of a DataFrame whose query names none.
ONLY_STREAM: Final = "events"

_TYPES: Final[dict[type[st.DataType], Type]] = {
    st.BooleanType: Type.BOOL,
    st.ByteType: Type.INT,
    st.ShortType: Type.INT,
    st.IntegerType: Type.INT,
    st.LongType: Type.INT,
    st.FloatType: Type.FLOAT,
    st.DoubleType: Type.FLOAT,
    st.StringType: Type.STRING,
    st.TimestampType: Type.TIMESTAMP,
    st.BinaryType: Type.BYTES,
}
#: How the values of queries are held by Spark; what knows no type of its own is text.
SPARK_TYPES: Final[dict[ValueType, st.DataType]] = {
    ValueType.NULL: st.StringType(),
    ValueType.NODE: st.StringType(),
    ValueType.BOOL: st.BooleanType(),
    ValueType.INT: st.LongType(),
    ValueType.FLOAT: st.DoubleType(),
    ValueType.STRING: st.StringType(),
    ValueType.TIMESTAMP: st.TimestampType(),
    ValueType.DURATION: st.LongType(),
    ValueType.BYTES: st.BinaryType(),
    ValueType.UINT8_ARRAY: st.BinaryType(),
    ValueType.FLOAT_ARRAY: st.ArrayType(st.DoubleType()),
}


class UnsuitableColumns(ValueError):
    """A DataFrame that does not have what events have, or not as it should be."""


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
) -> Transform:
    """The matches of a query in a batch DataFrame of events, as a function for `df.transform`.

    `id`, `time` and `stream` name the columns that say what an event is called, when it happened (a timestamp, or
    microseconds) and, where the query has several streams, to which it belongs. Every other column of a simple type is
    an attribute. Rows without an id or a time, or with NaN or infinity in an attribute that the query reads, are no
    events (rule E3); duplicates are the caller's to drop. `knowledge` is what PATHs are judged by; the streams that it
    annotates have the names that FROM gives them.

    The result has a row a match: id, time, events (a struct of ids by variable), select (a struct of the values); for
    batch and session windows, window and group instead of events. Raises Rejected if the query is wrong, and
    UnsuitableColumns.
    """
    tree = _tree(query)
    moment = clock.time_ns() // 1000 if now is None else now

    def transform(frame: DataFrame) -> DataFrame:
        if frame.isStreaming:
            raise UnsuitableColumns("match is for batch DataFrames; this one is a stream")
        columns = _Columns(frame, id, time, stream)
        checked = _check(tree, columns, knowledge)
        if checked.query.path is not None:
            checked = lowered(checked, knowledge, frame, stream)
        return _matched(frame, checked, columns, moment)

    return transform


def match_checked(checked: Checked, *, stream: str, now: int) -> Transform:
    """The matches of a query that was checked, and has no PATHs left, in a DataFrame of its streams' attributes."""

    def transform(frame: DataFrame) -> DataFrame:
        return _matched(frame, checked, _Columns(frame, "id", "time", stream), now)

    return transform


def _matched(frame: DataFrame, checked: Checked, columns: _Columns, moment: int) -> DataFrame:
    events = _gather(_events(frame, checked, columns, moment), checked)
    schema = _schema(checked, columns.id_type)
    return events.mapInArrow(_matching(portable(checked), moment, schema), schema)


def _tree(query: Query) -> syntax.Query:
    if isinstance(query, syntax.Query):
        return query
    if isinstance(query, Q):
        return query.tree
    tree, problems = examine(Source("query", query))
    if tree is None:
        raise Rejected(problems)
    return tree


class _Columns:
    """Which columns of a DataFrame are what."""

    def __init__(self, frame: DataFrame, id: str, time: str, stream: str | None) -> None:
        self.id, self.time, self.stream = id, time, stream
        fields = {field.name: field.dataType for field in frame.schema.fields}
        self.id_type = self._required(
            fields, id, "id", (st.LongType, st.IntegerType, st.ShortType, st.ByteType, st.StringType)
        )
        self.time_type = self._required(fields, time, "time", (st.TimestampType, st.LongType))
        if stream is not None:
            self._required(fields, stream, "stream", (st.StringType,))
        self.attributes: dict[str, Type] = {}
        for name, kind in fields.items():
            found = _attribute_type(kind)
            if name not in (id, time, stream) and name not in IMPLIED and found is not None:
                self.attributes[name] = found

    def _required(
        self, fields: dict[str, st.DataType], name: str, what: str, kinds: tuple[type[st.DataType], ...]
    ) -> st.DataType:
        if name not in fields:
            hint = suggestion(name, fields)
            raise UnsuitableColumns(
                f"the DataFrame has no column '{name}' for the {what} of events; name another: match(query, {what}=...)"
                + (f"; {hint}" if hint else "")
            )
        if not isinstance(fields[name], kinds):
            wanted = " or ".join(kind().simpleString() for kind in kinds)
            raise UnsuitableColumns(
                f"column '{name}', the {what} of events: expected {wanted}, found {fields[name].simpleString()}"
            )
        return fields[name]


def _attribute_type(kind: st.DataType) -> Type | None:
    if isinstance(kind, st.ArrayType) and isinstance(kind.elementType, st.DoubleType | st.FloatType):
        return Type.FLOAT_ARRAY
    return _TYPES.get(type(kind))


def _check(tree: syntax.Query, columns: _Columns, knowledge: Known | None) -> Checked:
    only = ONLY_STREAM if knowledge is None else knowledge.annotations.only_stream or ONLY_STREAM
    names = list(dict.fromkeys(s for r in tree.ranges for s in r.streams)) or [only]
    if len(names) > 1 and columns.stream is None:
        raise UnsuitableColumns(
            f"the query reads {', '.join(names)}; say which column tells them apart: match(query, stream=...)"
        )
    id_kind = "string" if isinstance(columns.id_type, st.StringType) else "int"
    streams = {name: Stream(name, columns.attributes, id_kind=id_kind) for name in names}  # type: ignore[arg-type]
    catalogue = Catalogue(streams, names[0] if len(names) == 1 else None)
    checked, problems = check(tree, catalogue if knowledge is None else named(catalogue, knowledge))
    if checked is None:
        raise Rejected(problems)
    for problem in problems:
        warnings.warn(problem.message, UserWarning, stacklevel=4)
    return checked


def _column(name: str) -> Column:
    return sf.col("`" + name.replace("`", "``") + "`")


def _events(frame: DataFrame, checked: Checked, columns: _Columns, now: int) -> DataFrame:
    """The rows that may matter: stream, id, time and the attributes that are read; times as microseconds."""
    wanted = _attributes(checked)
    time = _column(columns.time)
    micros = sf.unix_micros(time) if isinstance(columns.time_type, st.TimestampType) else time
    only = checked.streams[0]
    stream = sf.lit(only) if columns.stream is None else _column(columns.stream)
    event_id = _column(columns.id)
    selected = [
        stream.alias("stream"),
        event_id.alias("id") if isinstance(columns.id_type, st.StringType) else event_id.cast("long").alias("id"),
        micros.alias("time"),
        *(_raw(name, columns.attributes[name]).alias(f"attribute_{i}") for i, name in enumerate(wanted)),
    ]
    place = {name: f"attribute_{i}" for i, name in enumerate(wanted)}
    flags: dict[str, list[tuple[str, Column]]] = {}

    def column_of(attribute: syntax.Attribute) -> Column:
        if attribute.name in ("id", "time"):
            return sf.col(attribute.name)
        return sf.col(place[next(iter(checked.attributes[attribute.variable, attribute.name].names.values()))])

    events = frame.select(*selected).where(sf.col("id").isNotNull() & sf.col("time").isNotNull())
    for name, column in place.items():
        if columns.attributes[name] is Type.FLOAT:
            value = sf.col(column)
            events = events.where(value.isNull() | (~sf.isnan(value) & (sf.abs(value) != sf.lit(float("inf")))))
    events = events.where(in_time(checked.query.within, now, sf.col("time")))
    own = list(events.columns)
    if checked.query.match != "STRICT":
        events, flags = with_known(events, checked, {name: sf.col(column) for name, column in place.items()})
    qualifying = events.where(qualifies(checked, sf.col("stream"), column_of, lambda v: flags.get(v, ())))
    return qualifying.select(*own)


def _raw(name: str, kind: Type) -> Column:
    """An attribute as the matcher takes it."""
    column = _column(name)
    if kind is Type.TIMESTAMP:
        return sf.unix_micros(column)
    return column.cast("double") if kind is Type.FLOAT else column.cast("long") if kind is Type.INT else column


def _attributes(checked: Checked) -> list[str]:
    """The attributes that the query reads, each once."""
    names = [n for r in checked.attributes.values() for n in r.names.values() if n not in ("id", "time")]
    keys = [name for lookup in checked.lookups if isinstance(lookup, Lookup) for name in lookup.key]
    return [name for name in dict.fromkeys((*names, *keys)) if not name.startswith("?")]


def _gather(events: DataFrame, checked: Checked) -> DataFrame:
    """Brings together what can be in one match, in order of time."""
    keys = key_attributes(checked)
    query = checked.query
    place = {name: f"attribute_{i}" for i, name in enumerate(_attributes(checked))}
    moving = any(isinstance(w, syntax.EventWindow) for w in query.windows)
    if len(query.ranges) == 1 and not moving and not query.seq:
        return events  # each event is a match by itself
    if not keys:
        warnings.warn(
            "the query has no key that all its variables share, so all events are matched in one task",
            NoKey,
            stacklevel=4,
        )
        return events.coalesce(1).sortWithinPartitions("time", "stream", "id")
    columns = [sf.col(place[name]) for name in keys]
    if not moving and len(_always_bound(query)) > 1:
        # Two events that must be there must be joined by the key, and a null joins nothing. One alone may match with
        # a null, if only a NOT is joined to it; and in GROUP BY nulls are a group.
        for column in columns:
            events = events.where(column.isNotNull())
    return events.repartition(*columns).sortWithinPartitions("time", "stream", "id")


def key_attributes(checked: Checked) -> list[str]:
    """The attributes that events of one match have in common, whichever variable they are bound to."""
    query = checked.query
    if any(isinstance(w, syntax.EventWindow) for w in query.windows):
        names = [_names(checked, a.variable, a.name) for a in query.group_by]
        return [next(iter(n)) for n in names if len(n) == 1] if all(len(n) == 1 for n in names) else []
    keys = []
    for klass in checked.partition.classes:
        if set(klass) != {r.variable for r in query.ranges}:
            continue  # a NOT variable that is not joined sees the events of every key
        names_of_class = set().union(*(_names(checked, v, name) for v, names in klass.items() for name in names))
        if len(names_of_class) == 1 and not next(iter(names_of_class)).startswith("?"):
            keys.append(names_of_class.pop())
    return list(dict.fromkeys(keys))


def _always_bound(query: syntax.Query) -> set[str]:
    """The variables that are bound in every match."""
    loose: set[str] = set()
    for step in query.seq:
        if isinstance(step, syntax.Maybe | syntax.Absent | syntax.AnyOf) or (
            isinstance(step, syntax.Many) and step.least == 0
        ):
            loose.update(syntax.step_variables(step))
    return {r.variable for r in query.ranges} - loose


def _names(checked: Checked, variable: str, name: str) -> set[str]:
    return set(checked.attributes[variable, name].names.values()) - {"id", "time"}


def _matching(
    checked: Checked, now: int, schema: st.StructType
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    names = ["stream", "id", "time", *_attributes(checked)]
    target = to_arrow_schema(schema, timezone="UTC")

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matcher = Matcher(checked, now)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            matcher.push_batch(batch.rename_columns(names))
            # The rows of a task come in order of time, so none before the last one's is still to come.
            yield from _given(matcher.advance_batches(batch.column(2)[-1].as_py()), target)
        yield from _given(matcher.advance_batches(None), target)

    return in_executor


def _given(batches: Iterable[MatchBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return (pa.record_batch(batch).cast(schema) for batch in batches)


def _schema(checked: Checked, id_type: st.DataType) -> st.StructType:
    event_id = st.StringType() if isinstance(id_type, st.StringType) else st.LongType()
    many = {s.variable for s in checked.query.seq if isinstance(s, syntax.Many)}
    absent = {s.variable for s in checked.query.seq if isinstance(s, syntax.Absent)}
    kinds = {w.kind for w in checked.query.windows if isinstance(w, syntax.EventWindow)}
    spans = bool(kinds & {"batch", "session"})
    bound = []
    for given in checked.query.ranges:
        if given.variable not in absent and not spans:
            one = st.StringType() if len(given.streams) > 1 else event_id
            bound.append(st.StructField(given.variable, st.ArrayType(one) if given.variable in many else one))
    selected = [st.StructField(o.name, SPARK_TYPES[o.type]) for o in checked.outputs]
    fields = [
        st.StructField("id", st.StringType()),
        st.StructField("time", st.TimestampType()),
        *([st.StructField("events", st.StructType(bound))] if bound else []),
        st.StructField("select", st.StructType(selected)),
    ]
    if spans:
        ends = [st.StructField("start", st.TimestampType()), st.StructField("end", st.TimestampType())]
        group = [
            st.StructField(name, SPARK_TYPES[checked.attributes[a.variable, a.name].type])
            for name, a in zip(checked.groups, checked.query.group_by, strict=True)
        ]
        fields.append(st.StructField("window", st.StructType(ends)))
        fields += [st.StructField("group", st.StructType(group))] if group else []
    return st.StructType(fields)
