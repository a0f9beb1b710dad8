"""Aggregates in SQL, with exactly the values of the matcher (rule E6).

Spark adds floats in whatever order they come, with a rounding at each step; the matcher rounds once. So sums of floats
are functions of our own over the list of values. Of values that are equal but look different, 0.0 and -0.0, MIN and MAX
have the first event's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import types as st

from cepheid.history.sql import ColumnOf, NotExact, Sql, expression, quoted, variable_name
from cepheid.history.sql_events import PLACE
from cepheid.language import syntax
from cepheid.language.functions import ValueType

_T = ValueType


class Totals:
    """The aggregates of a query over one variable, each a column."""

    def __init__(self, variable: str, column_of: ColumnOf) -> None:
        self.variable, self._column_of = variable, column_of
        self._found: dict[syntax.Aggregate, tuple[str, ValueType]] = {}

    def column(self, e: syntax.Aggregate) -> tuple[str, ValueType]:
        """The column of an aggregate, and its type. Raises NotExact."""
        if e not in self._found:
            name = quoted(f"{e.function.lower()} {len(self._found)} of ?{self.variable}")
            self._found[e] = name, self._total(e, "").type
        return self._found[e]

    def names(self) -> list[str]:
        """The columns that were asked for."""
        return [name for name, _ in self._found.values()]

    def columns(self, over: str = "") -> Iterator[str]:
        """What gives these columns; `over` is said of each function: the frame of a window, or a FILTER."""
        for e, (name, _) in self._found.items():
            yield f"{self._total(e, over).text} AS {name}"

    def _total(self, e: syntax.Aggregate, over: str) -> Sql:
        own = variable_name(self.variable)
        if isinstance(e.argument, syntax.Variable):
            return Sql(f"count({own}.time){over}", _T.INT)
        value = expression(e.argument, self._column_of)
        if value.type is _T.NULL:
            raise NotExact(f"{e.function} of NULL itself")
        is_float, text = value.type is _T.FLOAT, value.text
        place = f"struct({', '.join(f'{own}.{part}' for part in PLACE)})"
        whole = f"sum(CAST({text} AS decimal(38, 0))){over}"
        match e.function:
            case "COUNT":
                return Sql(f"count({text}){over}", _T.INT)
            case "FIRST":
                return Sql(f"min_by({text}, {place}){over}", value.type)
            case "LAST":
                return Sql(f"max_by({text}, {place}){over}", value.type)
            case "MIN" | "MAX" if is_float:
                placed = f"if({text} IS NULL, NULL, struct({place} AS place, {text} AS value))"
                values = f"transform(array_sort(collect_list({placed}){over}), x -> x.value)"
                return Sql(f"exact_{e.function.lower()}({values})", _T.FLOAT)
            case "MIN" | "MAX":
                return Sql(f"{e.function.lower()}({text}){over}", value.type)
            case "SUM" if not is_float:
                return Sql(f"try_cast({whole} AS bigint)", _T.INT)
            case "AVG" if not is_float:
                count = f"nullif(CAST(count({text}){over} AS double), 0.0D)"
                return Sql(f"(CAST({whole} AS double) / {count})", _T.FLOAT)
            case function:
                return Sql(f"exact_{function.lower()}(collect_list({value.as_float}){over})", _T.FLOAT)


def exact_sum(values: Sequence[float]) -> float | None:
    """The sum, rounded once; None if there are no values, or if it is beyond the floats."""
    if not values:
        return None
    try:
        return math.fsum(values) + 0.0
    except OverflowError:  # on the way, if not at the end
        try:
            return float(sum(map(Fraction, values)))
        except OverflowError:
            return None


def exact_avg(values: Sequence[float]) -> float | None:
    """The sum by the number."""
    total = exact_sum(values)
    return None if total is None else total / len(values)


def exact_stddev(values: Sequence[float]) -> float | None:
    """The deviation of a sample."""
    mean = exact_avg(values)
    if mean is None or len(values) < 2:
        return None
    squares = [(x - mean) * (x - mean) for x in values]
    total = exact_sum(squares) if all(map(math.isfinite, squares)) else None
    return None if total is None else math.sqrt(total / (len(values) - 1))


def exact_min(values: Sequence[float]) -> float | None:
    """The least, and the first of those that are equal."""
    return min(values, default=None)


def exact_max(values: Sequence[float]) -> float | None:
    """The greatest, and the first of those that are equal."""
    return max(values, default=None)


_FUNCTIONS: Final[Mapping[str, Callable[[Sequence[float]], float | None]]] = {
    function.__name__: function for function in (exact_sum, exact_avg, exact_stddev, exact_min, exact_max)
}


def register_functions(spark: SparkSession) -> None:
    """Makes the functions known to a session."""
    for name, function in _FUNCTIONS.items():
        spark.udf.register(name, function, st.DoubleType())
