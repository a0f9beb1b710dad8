"""Moving windows of one variable, and their aggregates, as SQL (rules W1 to W5)."""

from __future__ import annotations

from cepheid.history.sql import expression, name_of, variable_name
from cepheid.history.sql_events import PLACE, Tables, outputs_of
from cepheid.history.sql_totals import Totals
from cepheid.language import syntax
from cepheid.language.output import is_of_window


def window_text(tables: Tables) -> str:
    """A query with a moving window, whose rows `rewrite.printing` reads. Raises NotExact."""
    return _Window(tables).text()


class _Window:
    def __init__(self, tables: Tables) -> None:
        self.tables, self.query, self.checked = tables, tables.query, tables.checked
        (self.window,) = (w for w in self.query.windows if isinstance(w, syntax.EventWindow))
        self.own = variable_name(self.window.variable)
        self.totals = Totals(self.window.variable, tables.column)
        self.keys = [tables.column(attribute)[0].partition(".")[2] for attribute in self.query.group_by]
        for attribute in self.query.group_by:
            name_of(tables.column(attribute)[1])

    def text(self) -> str:
        conditions = [o.condition for o in self.checked.outputs if o.condition is not None]
        conditions += [] if self.query.having is None else [self.query.having]
        where = [expression(c, self.tables.column, self.totals.column).text for c in conditions]
        outputs = self._outputs()
        sources = {"sliding": self._sliding, "length": self._length, "batch": self._batch, "session": self._session}
        found = f"WITH {self.tables.text()},\n{sources[self.window.kind]()}\nSELECT {outputs}\nFROM windows"
        return found + ("\nWHERE " + "\n  AND ".join(where) if where else "")

    def _outputs(self) -> str:
        if is_of_window(self.checked):
            columns = ["`end` AS time", "start", "`end`"]
            for number, attribute in enumerate(self.query.group_by):
                columns.append(f"{self.tables.column(attribute)[0]} AS g{number}")
        else:
            columns = [f"{self.own}.time AS time", f"struct({', '.join(f'{self.own}.{p}' for p in PLACE)}) AS e0"]
        return ", ".join([*columns, *outputs_of(self.checked, self.tables.column, self.totals.column)])

    def _partition(self) -> str:
        return f"PARTITION BY {', '.join(self.keys)} " if self.keys else ""

    def _each(self, frame: str) -> str:
        """A row for each event, with aggregates over a frame that ends there."""
        columns = [f"struct({self.own}.*) AS {self.own}", *self.totals.columns(" OVER frame")]
        return f"windows AS (\n  SELECT {', '.join(columns)}\n  FROM {self.own}\n  WINDOW frame AS ({frame})\n)"

    def _sliding(self) -> str:
        before = f"RANGE BETWEEN {self.window.size - 1}L PRECEDING AND CURRENT ROW"
        return self._each(f"{self._partition()}ORDER BY time {before}")

    def _length(self) -> str:
        before = f"ROWS BETWEEN {self.window.size - 1} PRECEDING AND CURRENT ROW"
        return self._each(f"{self._partition()}ORDER BY {', '.join(PLACE)} {before}")

    def _batch(self) -> str:
        size = self.window.size
        divided = f"  SELECT *, time - pmod(time, {size}L) AS start FROM {self.own}"
        return f"divided AS (\n{divided}\n),\n" + self._grouped("start", "start", f"start + {size}L")

    def _session(self) -> str:
        order = f"{self._partition()}ORDER BY {', '.join(PLACE)}"
        since = f"time - lag(time) OVER ({order})"
        broken = f"  SELECT *, coalesce({since} >= {self.window.size}L, true) AS is_first FROM {self.own}"
        run = f"count_if(is_first) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        divided = f"  SELECT *, {run} AS run FROM broken"
        return f"broken AS (\n{broken}\n),\ndivided AS (\n{divided}\n),\n" + self._grouped(
            "run", "min(time)", f"max(time) + {self.window.size}L"
        )

    def _grouped(self, by: str, start: str, end: str) -> str:
        """A row for each group and window; what its events share looks as that of the first."""
        place = f"struct({', '.join(PLACE)})"
        shared = ", ".join(f"min_by({key}, {place}) AS {key}" for key in dict.fromkeys(self.keys)) or "1 AS nothing"
        columns = [f"{start} AS start", f"{end} AS `end`", f"struct({shared}) AS {self.own}", *self.totals.columns()]
        keys = ", ".join([*self.keys, by])
        return f"windows AS (\n  SELECT {', '.join(columns)}\n  FROM divided AS {self.own}\n  GROUP BY {keys}\n)"
