"""Which columns of a DataFrame are what, and whether they are of types that fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import types as st

from cepheid.language.functions import ValueType
from cepheid.model.names import suggestion
from cepheid.model.streams import IMPLIED
from cepheid.model.types import Type
from cepheid.spark.clocks import LOG_COLUMNS, Clocks

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
#: What else a column may be, besides the attribute's own type: numbers are floats too, and microseconds times.
_ALSO: Final[Mapping[Type, Type]] = {Type.FLOAT: Type.INT, Type.TIMESTAMP: Type.INT, Type.UINT8_ARRAY: Type.BYTES}


class UnsuitableColumns(ValueError):
    """A DataFrame that does not have what events have, or not as it should be."""


class Columns:
    """Which columns of a DataFrame are what."""

    def __init__(self, frame: DataFrame, id: str, time: str, stream: str | None, arrival: str | None = None) -> None:
        self.id, self.time, self.stream, self.arrival = id, time, stream, arrival
        self.clocks = Clocks.of(frame, time)
        fields = {field.name: field.dataType for field in frame.schema.fields}
        self.id_type = self._required(
            fields, id, "id", (st.LongType, st.IntegerType, st.ShortType, st.ByteType, st.StringType)
        )
        self.time_type = self._required(fields, time, "time", (st.TimestampType, st.LongType))
        if stream is not None:
            self._required(fields, stream, "stream", (st.StringType,))
        if arrival is not None:
            self._required(fields, arrival, "arrival", (st.TimestampType, st.LongType))
        of_log = LOG_COLUMNS if self.clocks is not None and self.clocks.flagged else ()
        taken = {id, time, stream, *IMPLIED, *of_log}
        #: The columns that are nothing else, and so may be attributes.
        self.free = {name: kind for name, kind in fields.items() if name not in taken}
        found = {name: attribute_type(kind) for name, kind in self.free.items()}
        self.attributes = {name: kind for name, kind in found.items() if kind is not None}

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
                f"column '{name}', the {what} of events: expected {wanted}, found {fields[name].simpleString()}; cast "
                f'it: frame.withColumn("{name}", frame["{name}"].cast("{kinds[0]().simpleString()}")), or name another '
                f"column: match(query, {what}=...)"
            )
        return fields[name]


def attribute_type(kind: st.DataType) -> Type | None:
    """The type of an attribute that a column of Spark's type is; None if no attribute has such values."""
    if isinstance(kind, st.ArrayType) and isinstance(kind.elementType, st.DoubleType | st.FloatType):
        return Type.FLOAT_ARRAY
    return _TYPES.get(type(kind))


def fits(held: st.DataType, kind: Type) -> bool:
    """Whether a column of Spark's type can be an attribute of a type."""
    return attribute_type(held) in (kind, _ALSO.get(kind, kind))


def wanted_of(kind: Type) -> str:
    """The type of Spark that a column of an attribute should have."""
    return SPARK_TYPES[ValueType(kind.value)].simpleString()


def require(fields: Mapping[str, st.DataType], name: str, kind: Type, what: str) -> None:
    """Raises UnsuitableColumns if there is no column of that name, or it does not fit the type; `what` it is for."""
    wanted, held = wanted_of(kind), fields.get(name)
    if held is None:
        hint = suggestion(name, fields)
        raise UnsuitableColumns(
            f"the DataFrame has no column '{name}', {what}: expected {wanted}; rename the one that has it: "
            f'frame.withColumnRenamed(..., "{name}")' + (f"; {hint}" if hint else "")
        )
    if not fits(held, kind):
        raise UnsuitableColumns(
            f"column '{name}', {what}: expected {wanted}, found {held.simpleString()}; cast it: "
            f'frame.withColumn("{name}", frame["{name}"].cast("{wanted}"))'
        )
