"""Batch windows that Catalyst has: totals that come out the same in whatever order Spark adds them up.

Those are counts, and sums, means and extremes of whole numbers. Of floats the matcher's are exact with one rounding
(rule E6), and Spark's own are not.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.functions import arrow_udf

from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.functions import ValueType
from cepheid.language.syntax import Expression, conjuncts
from cepheid.model.matches import MatchIds
from cepheid.spark.filters import condition_of

#: What Catalyst groups as the matcher does. Of floats 0.0 and -0.0 are one group that has the look of the first.
_GROUPS: Final = (ValueType.STRING, ValueType.INT, ValueType.BOOL, ValueType.TIMESTAMP)
_WHOLE: Final = (ValueType.INT, ValueType.TIMESTAMP)


class Totals:
    """A query of one batch window as Catalyst has it."""

    def __init__(self, checked: Checked, window: syntax.EventWindow, column_of: Callable[[str], Column]) -> None:
        self._checked, self._window, self._column_of = checked, window, column_of
        self._totals: dict[syntax.Aggregate, Column] = {}
        self._conditions: list[Column] = []

    @staticmethod
    def of(checked: Checked, column_of: Callable[[str], Column]) -> Totals | None:
        """None if the query is none that Catalyst has; `column_of` has the columns of attributes, by their names."""
        window = checked.query.windows[0] if checked.query.windows else None
        if not isinstance(window, syntax.EventWindow) or window.kind != "batch":
            return None
        found = Totals(checked, window, column_of)
        return found if found._is_whole() and not (checked.lookups or checked.used or checked.related) else None

    def _is_whole(self) -> bool:
        """Whether Catalyst has all of it; then it knows the totals and the conditions on them."""
        query, outputs = self._checked.query, self._checked.outputs
        for condition in chain.from_iterable(map(conjuncts, (*query.filters, *query.joins))):
            # Rows that these do not let through are gone already; constants no one has judged.
            if isinstance(condition, syntax.Constant) or condition_of(condition, lambda _: sf.lit(None)) is None:
                return False
        if not all(self._type(attribute) in _GROUPS for attribute in query.group_by):
            return False
        having = [*(output.condition for output in outputs), query.having]
        for expression in [*(output.expression for output in outputs), *(h for h in having if h is not None)]:
            for aggregate in syntax.walk(expression):
                if isinstance(aggregate, syntax.Aggregate) and not self._has(aggregate):
                    return False
        if not all(isinstance(o.expression, syntax.Attribute | syntax.Aggregate) for o in outputs):
            return False
        judged = [condition_of(self._with_totals(h), self._in_group) for h in having if h is not None]
        self._conditions = [condition for condition in judged if condition is not None]
        return len(self._conditions) == len(judged)

    def _has(self, aggregate: syntax.Aggregate) -> bool:
        """Whether a total is one of Catalyst's."""
        function, argument = aggregate.function, aggregate.argument
        if function == "COUNT" and isinstance(argument, syntax.Variable):
            self._totals[aggregate] = sf.count(sf.lit(1))
            return True
        if not isinstance(argument, syntax.Attribute) or argument.name[0] in "?=!":
            return False
        column, kind = self._attribute(argument), self._type(argument)
        if function == "COUNT":
            self._totals[aggregate] = sf.count(column)
        elif function in ("MIN", "MAX") and kind in _WHOLE:
            self._totals[aggregate] = sf.min(column) if function == "MIN" else sf.max(column)
        elif function in ("SUM", "AVG") and kind is ValueType.INT:
            # In two halves, because a sum of integers may pass beyond them on its way; as decimals it would be slow.
            high, low = (sf.sum(half).cast("decimal(20, 0)") for half in (sf.shiftright(column, 32), _low(column)))
            whole = high * sf.lit(1 << 32).cast("decimal(11, 0)") + low
            count = sf.nullif(sf.count(column), sf.lit(0)).cast("double")
            self._totals[aggregate] = (
                whole.try_cast("bigint") if function == "SUM" else whole.cast("double") / count  # by nothing: null
            )
        else:
            return False
        return True

    def matches(self, events: DataFrame, schema: st.StructType) -> DataFrame:
        """The matches of events that all conditions on single events have let through."""
        size = self._window.size
        keys = [self._attribute(a).alias(f"group {n}") for n, a in enumerate(self._checked.query.group_by)]
        start = (sf.col("time") - sf.pmod(sf.col("time"), sf.lit(size))).alias("start")
        totals = [total.alias(f"total {n}") for n, total in enumerate(self._totals.values())]
        windows = events.groupBy(*keys, start).agg(*totals or [sf.count(sf.lit(1))])
        for condition in self._conditions:
            windows = windows.where(condition)
        groups = [sf.col(f"`group {n}`") for n in range(len(keys))]
        start, end = sf.col("start"), sf.col("start") + sf.lit(size)
        columns: dict[str, Column | list[Column]] = {
            "id": _ids(self._checked.normal_form)(*groups, start),
            "time": end,
            "select": [self._in_group(self._with_totals(output.expression)) for output in self._checked.outputs],
            "window": [start, end],
            "group": groups,
        }
        return windows.select(*(_as(field, columns[field.name]) for field in schema.fields))

    def _with_totals(self, expression: Expression) -> Expression:
        """An expression in which totals are attributes, as which their columns go."""
        return syntax.replaced(expression, self._put, totals=True)

    def _put(self, part: Expression) -> Expression:
        """A total as an attribute, which its column is."""
        if not isinstance(part, syntax.Aggregate):
            return part
        return syntax.Attribute("", f"total {list(self._totals).index(part)}")

    def _in_group(self, attribute: Expression) -> Column:
        """The column of an attribute that the events of a window share, or of a total."""
        assert isinstance(attribute, syntax.Attribute)
        if attribute.variable == "":
            return sf.col(f"`{attribute.name}`")
        keys = [(a.variable, a.name) for a in self._checked.query.group_by]
        return sf.col(f"`group {keys.index((attribute.variable, attribute.name))}`")

    def _attribute(self, attribute: syntax.Attribute) -> Column:
        if attribute.name in ("id", "time"):
            return sf.col(attribute.name)
        return self._column_of(next(iter(self._checked.attributes[attribute.variable, attribute.name].names.values())))

    def _type(self, attribute: syntax.Attribute) -> ValueType:
        return self._checked.attributes[attribute.variable, attribute.name].type


def _low(column: Column) -> Column:
    """The lower 32 bits of an integer, as a number from 0 on."""
    return column.bitwiseAND(sf.lit(0xFFFFFFFF))


def _as(field: st.StructField, value: Column | list[Column]) -> Column:
    """Values as a column of matches: those of a struct with their names, times as such."""
    if isinstance(field.dataType, st.StructType):
        assert isinstance(value, list)
        return sf.struct(*map(_as, field.dataType.fields, value)).alias(field.name)
    assert isinstance(value, Column)
    is_time = isinstance(field.dataType, st.TimestampType)
    return (sf.timestamp_micros(value) if is_time else value).alias(field.name)


def _ids(normal_form: str) -> Callable[..., Column]:
    """The ids of matches, by the values of their groups and the starts of their windows."""

    def made(*columns: pa.Array) -> pa.Array:
        ids = MatchIds(normal_form)
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array(ids.of_windows(rows), pa.string())

    found: Callable[..., Column] = arrow_udf(made, st.StringType())  # type: ignore[call-overload]
    return found
