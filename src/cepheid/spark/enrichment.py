"""What the knowledge adds to rows: `readings.transform(enrich(kb, "sensorID", room="bd:in"))`, a row for each answer.

The archive of an application has the same as columns of arrays, since there an event is one row: `Enrichment`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from cepheid.knowledge.tables import VALUE
from cepheid.language import syntax
from cepheid.model.names import suggestion
from cepheid.model.types import Type, Value
from cepheid.spark.columns import require
from cepheid.spark.knowledge import NotKnown, annotated, local_table, only_stream, quoted, types_of

if TYPE_CHECKING:
    from cepheid.app.known import Known
    from cepheid.knowledge.annotation import Annotation
    from cepheid.spark.validate import Transform

#: By stream and attribute, the new columns and their paths.
Wanted: TypeAlias = Mapping[str, Mapping[str, Mapping[str, str]]]


def enrich(knowledge: Known, column: str, /, *, stream: str | None = None, **paths: str) -> Transform:
    """The DataFrame with more columns: for each name, where its path leads from the entity of a column's value.

    A value without an entity, or from which a path leads nowhere, has nulls; from which it leads to several, a row for
    each. Raises UnsuitableColumns where the DataFrame has no such column, or one of another type.
    """
    name = stream or _stream_of(knowledge, column)
    annotation = _annotation(knowledge, name, column)
    fields = [st.StructField(alias, st.StringType()) for alias in paths]
    schema = st.StructType([st.StructField(column, _spark_type(annotation.type)), *fields])
    table = _reached(knowledge, name, column, paths)
    rows = [(key, *row) for key, found in table.items() for row in found]

    def transform(frame: DataFrame) -> DataFrame:
        require(types_of(frame), column, annotation.type, annotated(name))
        known = local_table(frame, rows, schema)
        return frame.join(sf.broadcast(known), on=column, how="left")

    return transform


class Enrichment:
    """What the streams of an application get from its knowledge, as it is when a batch of events is archived."""

    def __init__(self, wanted: Wanted, known: Callable[[], Known | None]) -> None:
        self._wanted, self._known = wanted, known
        self._version: tuple[int, int] | None = None
        self._found: dict[str, Transform] = {}

    def __call__(self) -> Mapping[str, Transform]:
        """For each stream that gets something, what adds it to the events of a batch. No answer is null."""
        known = self._known() if self._wanted else None
        if known is None:
            return {}
        with known.knowledge.reading() as version:
            if self._version != (id(known), version):
                self._found = {name: _each(known, name, own) for name, own in self._wanted.items()}
                self._version = id(known), version
        return self._found


#: What streams get of which nothing is wanted.
NOTHING: Final = Enrichment({}, lambda: None)


def _each(knowledge: Known, stream: str, wanted: Mapping[str, Mapping[str, str]]) -> Transform:
    """The events of a stream with more columns, each an array of all that its path leads to, in order."""
    tables = []
    for number, (attribute, paths) in enumerate(wanted.items()):
        found = _reached(knowledge, stream, attribute, paths)
        key, kind = f"key {number}", _spark_type(_annotation(knowledge, stream, attribute).type)
        fields = [st.StructField(column, st.ArrayType(st.StringType())) for column in paths]
        rows = [(value, *map(_all, zip(*each, strict=True))) for value, each in found.items() if each]
        tables.append((attribute, key, rows, st.StructType([st.StructField(key, kind), *fields])))

    def transform(events: DataFrame) -> DataFrame:
        columns = [*events.columns]
        for attribute, key, rows, schema in tables:
            known = sf.broadcast(local_table(events, rows, schema))
            events = events.join(known, events[quoted(attribute)] == known[quoted(key)], "left")
            columns += schema.names[1:]
        return events.select(*map(quoted, columns))

    return transform


def _all(answers: tuple[str | None, ...]) -> list[str] | None:
    """The answers of a path, each once; None if there is none."""
    return sorted({answer for answer in answers if answer is not None}) or None


def _reached(
    knowledge: Known, stream: str, column: str, paths: Mapping[str, str]
) -> dict[Value, list[tuple[str | None, ...]]]:
    """Where paths lead together from the entities of a column's values, for each value that is known of."""
    from cepheid.knowledge.index import keys_in, lookup_of
    from cepheid.language.parts import divide
    from cepheid.language.path import PathFault, path_fault

    annotation = _annotation(knowledge, stream, column)
    names = [f"to_{number}" for number in range(len(paths))]  # what users call columns may be ?e, too
    for path in paths.values():
        if fault := path_fault(path, knowledge.prefixes):
            raise NotKnown(f"'{path}' is no path: {fault}")
    optional = (f"OPTIONAL {{ ?entity {path} ?{name} }}" for name, path in zip(names, paths.values(), strict=True))
    group = syntax.PathGroup(f"?e <{annotation.property}> ?entity .\n" + "\n".join(optional))
    try:
        (part,) = divide(group, ["e"], set(names)).parts
    except PathFault as fault:
        raise NotKnown(f"{', '.join(paths.values())}: {fault}") from None
    columns = [VALUE + name for name in names]
    lookup = lookup_of(part, stream, columns, knowledge.annotations, knowledge.prefixes, "e")
    knowledge.knowledge.prepare()
    keys = keys_in(annotation, knowledge.knowledge)
    rows = lookup.rows_of([(key,) for key in keys], knowledge.knowledge) if keys else []
    return {key: [tuple(map(_text, row)) for row in found] for key, found in zip(keys, rows, strict=True)}


def _annotation(knowledge: Known, stream: str, column: str) -> Annotation:
    """What a column's values mean; NotKnown if that is no entity, from which a path could lead anywhere."""
    annotation = knowledge.annotations.properties(stream).get(column)
    if annotation is None:
        hint = suggestion(column, knowledge.annotations.properties(stream))
        raise NotKnown(f"'{column}' of '{stream}' is not annotated" + (f"; {hint}" if hint else ""))
    if annotation.kind == "literal":
        raise NotKnown(
            f"'{column}' of '{stream}' is a reading, and no path leads on from its values; take an attribute whose "
            "semantics say how a value leads to an entity (entity, lookup or table)"
        )
    return annotation


def _text(value: Value) -> str | None:
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _spark_type(kind: Type) -> st.DataType:
    return st.LongType() if kind is Type.INT else st.StringType()


def _stream_of(knowledge: Known, column: str) -> str:
    found = [name for name, own in knowledge.annotations.streams.items() if column in own]
    return found[0] if len(found) == 1 else only_stream(knowledge)
