"""The events of each variable as tables of SQL: streams side by side, FILTERs (rule 1 of the paper), what is known.

A variable's table `?e` has the columns `stream`, `number` or `name`, and `time`, which are the event's place in the
order of rule E2, and `_attribute` for each attribute that the query reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from cepheid.history.frames import Layout
from cepheid.history.sql import ColumnOf, NotExact, TotalOf, expression, name_of, quoted, variable_name
from cepheid.knowledge.tables import Lookup
from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.functions import ValueType
from cepheid.language.syntax import Expression, conjuncts
from cepheid.model.types import Type
from cepheid.plan.compile import is_looked_up
from cepheid.spark.columns import SPARK_TYPES

#: An event as a value: its place in the order of rule E2, as that of structs.
PLACE: Final = ("time", "stream", "number", "name")
PLACE_TYPE: Final = "struct<time:bigint,stream:int,number:bigint,name:string>"


class Tables:
    """Writes the tables of a query's variables."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.checked = layout, layout.checked
        self.query = layout.checked.query
        #: The tables of what is known, by the name that they have in the text.
        self.lookups: list[tuple[str, Lookup]] = []

    def text(self) -> str:
        """The tables, for WITH. Raises NotExact."""
        variables = self.checked.event_variables
        return ",\n".join(f"{variable_name(v)} AS (\n{self._table(v)}\n)" for v in variables)

    @property
    def joins(self) -> list[Expression]:
        """What JOINs demand, each by itself; what names one variable is in its table already."""
        parts = [part for join in self.query.joins for part in conjuncts(join)]
        return [part for part in parts if len(syntax.variables(part)) != 1]

    def column(self, attribute: syntax.Attribute) -> tuple[str, ValueType]:
        """An attribute, where the variable is a table or a column that has its columns."""
        variable, name = variable_name(attribute.variable), attribute.name
        if name == "time":
            return f"{variable}.time", ValueType.TIMESTAMP
        resolved = self.checked.attributes[attribute.variable, name]
        if name == "id":
            return f"{variable}.{'name' if resolved.type is ValueType.STRING else 'number'}", resolved.type
        return f"{variable}.{quoted('_' + name)}", resolved.type

    def attributes(self, variable: str) -> list[str]:
        """The attributes that have a column in a variable's table."""
        own = [name for owner, name in self.checked.attributes if owner == variable]
        return [name for name in own if name not in ("id", "time") and name[0] not in "?=!"]

    def streams(self, variable: str) -> tuple[str, ...]:
        return next(r.streams for r in self.query.ranges if r.variable == variable)

    def _table(self, variable: str) -> str:
        return "\nUNION ALL\n".join(self._part(variable, stream) for stream in self.streams(variable))

    def _part(self, variable: str, stream: str) -> str:
        is_text = self.checked.id_kinds[stream] == "string"
        columns = [
            f"{self.layout.names.index(stream)} AS stream",
            ("CAST(NULL AS bigint)" if is_text else "t.id") + " AS number",
            ("t.id" if is_text else "CAST(NULL AS string)") + " AS name",
            "unix_micros(t.time) AS time",
        ]
        columns += [
            f"{self._value(stream, variable, name)[0]} AS {quoted('_' + name)}" for name in self.attributes(variable)
        ]
        joined, conditions = "", []
        for lookup in self.checked.lookups:
            if lookup.variable == variable and lookup.stream == stream:
                assert isinstance(lookup, Lookup)
                join, condition = self._known(lookup)
                joined += join
                conditions.append(condition)
        conditions += self._own(variable, stream)
        where = "\n  WHERE " + " AND ".join(conditions) if conditions else ""
        table = quoted(f"events_{stream}")
        return f"  SELECT {', '.join(columns)}\n  FROM {table} AS t{joined}{where}"

    def _own(self, variable: str, stream: str) -> Iterator[str]:
        """What is demanded of the variable alone, or of nothing."""
        parts = [part for join in self.query.joins for part in conjuncts(join)]
        for demanded in (*self.query.filters, *(p for p in parts if syntax.variables(p))):
            if syntax.variables(demanded) in ((variable,), ()):
                if is_looked_up(demanded):
                    raise NotExact("a condition on what a PATH finds")
                yield expression(demanded, lambda a: self._value(stream, variable, a.name)).text

    def _value(self, stream: str, variable: str, name: str) -> tuple[str, ValueType]:
        """An attribute, of a row of the stream's table."""
        if name == "time":
            return "unix_micros(t.time)", ValueType.TIMESTAMP
        resolved = self.checked.attributes[variable, name]
        if name == "id":
            return "t.id", resolved.type
        target = name_of(resolved.type)
        own = resolved.names.get(stream)
        if own is None:
            return f"CAST(NULL AS {target})", resolved.type
        column, kind = f"t.{quoted(own)}", self.layout.streams[stream].attributes[own]
        if kind is Type.TIMESTAMP:
            return f"unix_micros({column})", resolved.type
        return column if ValueType.of(kind) is resolved.type else f"CAST({column} AS {target})", resolved.type

    def _known(self, lookup: Lookup) -> tuple[str, str]:
        """The join with a table of what is known, and the condition that something is."""
        if lookup.columns:
            raise NotExact("what a PATH finds, where it is used outside or joined by OR")
        otherwise = str(bool(lookup.table.otherwise)).lower()
        if not lookup.key:
            return "", str(bool(lookup.table.rows.get((), lookup.table.otherwise))).lower()
        view = f"known_{len(self.lookups)}"
        self.lookups.append((view, lookup))
        keys = " AND ".join(f"{view}.key{n} <=> t.{quoted(name)}" for n, name in enumerate(lookup.key))
        return f" LEFT JOIN {view} ON {keys}", f"coalesce({view}.found, {otherwise})"


def outputs_of(checked: Checked, column_of: ColumnOf, total_of: TotalOf) -> list[str]:
    """The columns of SELECT."""
    columns = []
    for number, output in enumerate(checked.outputs):
        found = expression(output.expression, column_of, total_of)
        given = found.text if found.type is output.type else f"CAST({found.text} AS {name_of(output.type)})"
        columns.append(f"{given} AS s{number}")
    return columns


def known_table(spark: SparkSession, layout: Layout, lookup: Lookup) -> DataFrame:
    """What is known, by key: whether there is anything."""
    own = layout.streams[lookup.stream].attributes
    keys = [
        st.StructField(f"key{number}", SPARK_TYPES[ValueType.of(own[name])]) for number, name in enumerate(lookup.key)
    ]
    rows: Sequence[tuple[object, ...]] = [(*key, bool(found)) for key, found in lookup.table.rows.items()]
    return spark.createDataFrame(rows, st.StructType([*keys, st.StructField("found", st.BooleanType())]))
