"""Knowledge for DataFrames: `readings.transform(where("PATH {...}", kb))`, and the tables that PATHs of `match` are.

What is known is a small table by key, filled once on the driver; a DataFrame, batch or streaming, is joined with it by
broadcast, which Catalyst plans like any other join.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from cepheid.knowledge.tables import FLAG, Key, Lookup, Table
from cepheid.language.checker import Checked, check
from cepheid.language.errors import Rejected, Source
from cepheid.language.parser import examine
from cepheid.language.parts import Divided
from cepheid.language.scope import Catalogue
from cepheid.model.streams import Stream
from cepheid.model.types import INT64_MIN, Value
from cepheid.spark.columns import require

if TYPE_CHECKING:
    from cepheid.app.known import Known
    from cepheid.spark.validate import Transform

#: For each variable whether its lookups find anything, each for the rows of one stream.
Flags: TypeAlias = dict[str, list[tuple[str, Column]]]
#: Keys that are not known beforehand are taken from a batch DataFrame, up to so many.
_MOST_KEYS: Final = 1_000_000
#: Up to so many keys are a condition of the plan, which costs no job of its own as a join with a table does.
_MOST_LISTED: Final = 2_000
#: Under this name the progress of a stream says of how many events a value has no entity.
STRANGERS: Final = "unknown"
#: How Spark holds the keys of what is known.
_KINDS: Final[Mapping[type, st.DataType]] = {
    bool: st.BooleanType(),
    int: st.LongType(),
    float: st.DoubleType(),
    str: st.StringType(),
    bytes: st.BinaryType(),
}
#: Text that means the same between quotes, whatever the session's settings say of escapes.
_PLAIN: Final = re.compile(r"[^'\\$]*")


class NotKnown(ValueError):
    """Something that can't be known of a DataFrame: no annotation, or a stream whose keys are not known beforehand."""


def where(path: str, knowledge: Known, *, stream: str | None = None) -> Transform:
    """The rows of which a PATH about `?e` is true, as a function for `df.transform`.

    `stream` says whose annotations hold; it can be left out where the knowledge annotates one. Raises UnsuitableColumns
    where an annotated attribute that the PATH reads is no column, or one of another type.
    """
    from cepheid.spark.filters import condition_of

    name = stream or only_stream(knowledge)
    text = path if path.lstrip().upper().startswith(("PATH", "(")) else f"PATH {{{path}}}"
    query = f"SELECT ?e.time FROM (?e, {name})\n{text}"  # noqa: S608 - our own language, and checked
    tree, problems = examine(Source("PATH", query))
    if tree is None:
        raise Rejected(problems)

    def transform(frame: DataFrame) -> DataFrame:
        types = types_of(frame)
        own = knowledge.annotations.properties(name)
        attributes = {a: annotation.type for a, annotation in own.items() if a in types}
        catalogue = named(Catalogue({name: Stream(name, attributes, id_kind="int")}, name), knowledge)
        checked, problems = check(tree, catalogue)
        if checked is None:
            raise Rejected(problems)
        checked = lowered(checked, knowledge, frame, None, types)
        columns, place = list(frame.columns), {a: a for a in attributes}
        for attribute in attributes:
            if isinstance(types[attribute], st.TimestampType):
                place[attribute] = f"{attribute} in microseconds"
                frame = frame.withColumn(place[attribute], _as_known(attribute, types))
        frame, flags = with_known(frame, checked, place)
        for _, flag in flags.get("e", ()):
            frame = frame.where(flag)
        for lookup in checked.lookups:
            if isinstance(lookup, Lookup) and len(lookup.key) > 1:
                frame = _known_together(frame, lookup, place)
        for condition in (*checked.query.filters, *checked.query.joins):
            found = condition_of(condition, lambda a: sf.col(quoted(place.get(a.name, a.name))))
            if found is None:
                raise NotKnown(f"{path}: this condition is not one that Spark can judge by itself; use match")
            frame = frame.where(found)
        return frame.select(*map(quoted, columns))

    return transform


def _as_known(name: str, types: Mapping[str, st.DataType]) -> Column:
    """A column as tables of what is known have its values: times as microseconds."""
    column = sf.col(quoted(name))
    return sf.unix_micros(column) if isinstance(types[name], st.TimestampType) else column


def _known_together(frame: DataFrame, lookup: Lookup, place: Mapping[str, str]) -> DataFrame:
    """The rows whose values of several attributes, in the columns `place`, a table has rows for, taken together."""
    if lookup.columns and lookup.columns[0][0] == FLAG:
        return frame  # a condition asks for it
    columns = [place[name] for name in lookup.key]
    kinds = [frame.schema[column].dataType for column in columns]
    names = [f"key_{number}" for number in range(len(kinds))]
    known = [key for key, rows in lookup.table.rows.items() if rows]
    table = frame.sparkSession.createDataFrame(known, st.StructType(list(map(st.StructField, names, kinds))))
    pairs = zip(columns, names, strict=True)
    same = (frame[quoted(column)].eqNullSafe(table[key]) for column, key in pairs)
    return frame.join(sf.broadcast(table), reduce(Column.__and__, same), "left_semi")


def types_of(frame: DataFrame) -> dict[str, st.DataType]:
    return {field.name: field.dataType for field in frame.schema.fields}


def only_stream(knowledge: Known) -> str:
    found = knowledge.annotations.only_stream
    if found is None:
        names = ", ".join(sorted(knowledge.annotations.streams)) or "none"
        raise NotKnown(f"say whose annotations hold: stream=...; annotated are: {names}")
    return found


def named(catalogue: Catalogue, knowledge: Known) -> Catalogue:
    """A catalogue of DataFrames' columns, which also go by the properties that they are annotated with (rule P5)."""
    properties = {
        stream: {annotation.property: a for a, annotation in own.items() if a in catalogue.streams[stream].attributes}
        for stream, own in knowledge.annotations.streams.items()
        if stream in catalogue.streams
    }
    return knowledge.catalogue(replace(catalogue, prefixes=knowledge.prefixes, properties=properties))


def lowered(
    checked: Checked,
    knowledge: Known | None,
    frame: DataFrame,
    stream: str | None,
    fields: Mapping[str, st.DataType],
) -> Checked:
    """The query with its PATHs judged by what is known; keys that are not known beforehand are the DataFrame's.

    `fields` are the columns that may be attributes.
    """
    if knowledge is None:
        raise NotKnown("PATH needs knowledge: match(query, knowledge=...)")
    semantic = knowledge.lower(checked)
    for name, own in knowledge.annotations.streams.items():
        read = _read(semantic.checked, name)
        for attribute, annotation in own.items():
            if attribute in read:
                require(fields, attribute, annotation.type, annotated(name))
    for lookup in semantic.lookups:
        if lookup.table.complete:
            continue
        if frame.isStreaming:
            raise NotKnown(
                f"PATH {{{lookup.part.text}}} asks about values that are not known beforehand; "
                "on a stream only what is indexed can be judged"
            )
        rows = frame if stream is None else frame.where(sf.col(f"`{stream}`") == lookup.stream)
        keyed = rows.select(*(_as_known(name, fields).alias(name) for name in lookup.key))
        found = keyed.distinct().limit(_MOST_KEYS + 1).collect()
        if len(found) > _MOST_KEYS:
            raise NotKnown(f"PATH {{{lookup.part.text}}}: more than {_MOST_KEYS:,} different {', '.join(lookup.key)}")
        keys = [tuple(row) for row in found]
        known = lookup.rows_of(keys, knowledge.knowledge) if keys else []
        lookup.table.rows = dict(zip(keys, known, strict=True))
        lookup.table.complete = True
    return semantic.checked


def _read(checked: Checked, stream: str) -> set[str]:
    """The attributes of a stream that a query reads, and by which it looks up what is known."""
    named = {r.names[stream] for r in checked.attributes.values() if stream in r.names}
    return named.union(*(x.key for x in checked.lookups if isinstance(x, Lookup) and x.stream == stream))


def annotated(stream: str) -> str:
    return f"an annotated attribute of stream '{stream}'"


def portable(checked: Checked) -> Checked:
    """The query as executors take it: the tables, and nothing that knows how they were filled."""
    lookups = tuple(
        Lookup(look.variable, look.stream, look.key, look.columns, look.table)
        for look in checked.lookups
        if isinstance(look, Lookup)
    )
    return replace(checked, lookups=lookups, paths=Divided())


def without_settled(checked: Checked) -> Checked:
    """The query as it is judged of events that `with_known` has let through: without lookups that all of them pass.

    Those are the ones that every variable of a stream has.
    """
    if checked.query.match == "STRICT":
        return checked
    over = {s: [r.variable for r in checked.query.ranges if s in r.streams] for s in checked.streams}

    def is_settled(lookup: Lookup) -> bool:
        if lookup.columns or len(lookup.key) > 1:
            return False
        alike = {
            other.variable
            for other in checked.lookups
            if isinstance(other, Lookup)
            and (other.stream, other.key, other.columns) == (lookup.stream, lookup.key, ())
            and _entries(other.table) == _entries(lookup.table)
        }
        return alike >= set(over[lookup.stream])

    left = tuple(x for x in checked.lookups if not isinstance(x, Lookup) or not is_settled(x))
    return replace(checked, lookups=left)


def _entries(table: Table) -> dict[Key, bool]:
    """For each key whether anything is found; under the empty one what is said of all others."""
    return {
        **{values: bool(rows) for values, rows in table.rows.items()},
        (): bool(table.rows.get((), table.otherwise)),
    }


def with_known(frame: DataFrame, checked: Checked, columns: Mapping[str, str]) -> tuple[DataFrame, Flags]:
    """The DataFrame with what is known: for each variable whether its lookups find anything, by stream.

    `columns` are those of the attributes, by name. Lookups that find the same for the same key share a join.
    """
    flags: Flags = {}
    joined: list[tuple[str, dict[Key, bool], Column]] = []
    for number, lookup in enumerate(checked.lookups):
        if not isinstance(lookup, Lookup) or (lookup.columns and lookup.columns[0][0] == FLAG):
            continue
        if len(lookup.key) == 1:
            (key,), entries = lookup.key, _entries(lookup.table)
            flag = next((flag for name, known, flag in joined if name == key and known == entries), None)
            if flag is None:
                flag = _listed(lookup.table, columns[key])
                if flag is None:
                    flag = sf.col(f"known_{number}")
                    frame = _joined(frame, lookup.table, sf.col(quoted(columns[key])), f"known_{number}")
                joined.append((key, entries, flag))
            flags.setdefault(lookup.variable, []).append((lookup.stream, flag))
        elif not lookup.key:
            found = bool(lookup.table.rows.get((), lookup.table.otherwise))
            flags.setdefault(lookup.variable, []).append((lookup.stream, sf.lit(found)))
    return frame, flags


def count_strangers(checked: Checked, stream: str) -> Transform:
    """A streaming DataFrame as it is, whose progress says of how many events a value has no entity (STRANGERS).

    `stream` is the column that says which stream an event is of; attributes have columns of their names.
    """

    def transform(frame: DataFrame) -> DataFrame:
        columns, strange = list(frame.columns), sf.lit(False)
        tables: dict[tuple[str, str], Table] = {}
        for lookup in checked.lookups:
            if isinstance(lookup, Lookup) and len(lookup.key) == 1:
                tables.setdefault((lookup.stream, lookup.key[0]), lookup.table)
        for number, ((name, key), table) in enumerate(tables.items()):
            all_keys = Table(dict.fromkeys(table.rows, ((),)))
            is_known = _listed(all_keys, key)
            if is_known is None:
                is_known = sf.col(f"known_{number}")
                frame = _joined(frame, all_keys, sf.col(quoted(key)), f"known_{number}")
            of_it = (sf.col(quoted(stream)) == name) & sf.col(quoted(key)).isNotNull()
            strange = strange | (of_it & ~is_known)
        if not tables:
            return frame
        frame = frame.observe(STRANGERS, sf.count_if(strange).alias(STRANGERS))
        return frame.select(*map(quoted, columns))

    return transform


def _unusual(table: Table) -> list[Value]:
    """The keys that are not as `otherwise` says, null aside: only those have to be listed."""
    usual = bool(table.otherwise)
    return [v[0] for v, rows in table.rows.items() if v[0] is not None and bool(rows) is not usual]


def _otherwise(table: Table, key: Column) -> Column:
    """Whether a key that is not listed has rows."""
    usual, of_null = bool(table.otherwise), bool(table.rows.get((None,), table.otherwise))
    return sf.lit(usual) if of_null is usual else sf.when(key.isNull(), sf.lit(of_null)).otherwise(sf.lit(usual))


def _listed(table: Table, key: str) -> Column | None:
    """Whether a column's value has rows, as a condition; None if there are too many, or they might be misread."""
    keys = _unusual(table)
    if len(keys) > _MOST_LISTED:
        return None
    words = [word for value in keys if (word := _constant(value)) is not None]
    if len(words) < len(keys) or len({type(value) for value in keys}) > 1:
        return None
    if not keys:
        return _otherwise(table, sf.col(quoted(key)))
    # As text, because each constant would be a call to the JVM.
    is_listed = sf.expr(f"{quoted(key)} IN ({', '.join(words)})")
    if not table.otherwise and not table.rows.get((None,)):
        return is_listed  # of null it is not true
    return sf.coalesce(~is_listed if table.otherwise else is_listed, _otherwise(table, sf.col(quoted(key))))


def _constant(value: Value) -> str | None:
    """A value in SQL, if it is one that can't be misread."""
    if isinstance(value, str):
        return f"'{value}'" if _PLAIN.fullmatch(value) else None
    return f"{value}L" if type(value) is int and value > INT64_MIN else None


def quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _joined(frame: DataFrame, table: Table, key: Column, flag: str) -> DataFrame:
    """The DataFrame with a column that says whether a key has rows."""
    usual, keys = bool(table.otherwise), _unusual(table)
    kind = _KINDS[type(keys[0])] if keys else st.StringType()
    schema = st.StructType([st.StructField(f"{flag}_key", kind), st.StructField(f"{flag}_found", st.BooleanType())])
    known = local_table(frame, [(value, not usual) for value in keys], schema)
    joined = frame.join(sf.broadcast(known), on=key == sf.col(f"{flag}_key"), how="left")
    found = sf.coalesce(sf.col(f"{flag}_found"), _otherwise(table, key))
    return joined.withColumn(flag, found).drop(f"{flag}_key", f"{flag}_found")


def local_table(frame: DataFrame, rows: Sequence[tuple[object, ...]], schema: st.StructType) -> DataFrame:
    """A small table for the executors. From Arrow it is a part of the plan; from a list it would be a job of Python."""
    columns = to_arrow_schema(schema)
    values = zip(*rows, strict=True) if rows else ([] for _ in columns)
    arrays = [pa.array(column, type=field.type) for column, field in zip(values, columns, strict=True)]
    return frame.sparkSession.createDataFrame(pa.Table.from_arrays(arrays, schema=columns), schema)
