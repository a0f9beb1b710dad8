"""Strategy: the whole query as one text of Spark SQL over the archived events and the semantic tables.

The paper's plain query rewriting (section 5.2), by its rules, with SQL in the place of SPARQL:

    FILTER   a condition on the variable's table                        rule 1   sql_events.py
    JOIN     a condition between two of them                            rule 2   sql_pattern.py
    SEQ      each step's times are below those of the next              rule 3
    WINDOW   the greatest time of its variables minus the least         rule 4
    order    all strategies' matches are sorted as rule O2 says         rule 5   order.py

and beyond these moving windows and aggregates (sql_window.py, sql_totals.py). What can't be said exactly in SQL is
refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame

from cepheid.history.asked import Asked
from cepheid.history.found import FOUND, lines
from cepheid.history.frames import Layout, in_times
from cepheid.history.order import Place, order_of, order_of_group
from cepheid.history.past import Past
from cepheid.history.sql import NotExact
from cepheid.history.sql_events import Tables, known_table
from cepheid.history.sql_pattern import pattern_text
from cepheid.history.sql_totals import register_functions
from cepheid.history.sql_window import window_text
from cepheid.knowledge.tables import Lookup
from cepheid.language.checker import Checked
from cepheid.language.output import MatchPrinter, is_of_window, named_events
from cepheid.model.matches import Bound, EventRef, Match, MatchIds, Window
from cepheid.model.types import Value
from cepheid.spark.knowledge import portable

_Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Rewritten:
    """A query as SQL. The tables it names are `events_<stream>`, and `known_<number>` for its lookups.

    Its columns: `time`; `e0`, `e1`, ... the bound events; `s0`, ... the selected values; of batch and session windows
    `start`, `end` and `g0`, ... instead of events.
    """

    text: str
    lookups: tuple[tuple[str, Lookup], ...]


def rewrite(past: Past, asked: Asked, layout: Layout) -> DataFrame:
    """The matches, in no order: rows of FOUND. Raises NotExact."""
    rewritten = rewritten_of(layout)
    for name in layout.names:
        in_times(past.events(layout.streams[name]), asked.times).createOrReplaceTempView(f"events_{name}")
    for view, lookup in rewritten.lookups:
        known_table(past.spark, layout, lookup).createOrReplaceTempView(view)
    register_functions(past.spark)
    return past.spark.sql(rewritten.text).mapInArrow(_printing(layout.checked, layout.names), FOUND)


def rewritten_of(layout: Layout) -> Rewritten:
    """The query as SQL. Raises NotExact, which says what can't be."""
    query, checked = layout.checked.query, layout.checked
    if query.match != "ANY":
        raise NotExact(f"MATCH {query.match}")
    if query.after != "KEEP":
        raise NotExact(f"AFTER MATCH {query.after}")
    if checked.used:
        raise NotExact("PATH variables that are used outside")
    if checked.related:
        raise NotExact("a JOIN on what a PATH finds")
    names = [*checked.event_variables, *(f"{v}.{name}" for v, name in checked.attributes)]
    if len({name.lower() for name in names}) < len(names):
        raise NotExact("names that differ in capitals only, which SQL does not tell apart")
    tables = Tables(layout)
    text = window_text(tables) if layout.is_moving else pattern_text(tables)
    return Rewritten(text, tuple(tables.lookups))


def _printing(checked: Checked, names: list[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows of a rewritten query to rows of FOUND, for `mapInArrow`."""
    variables = [given.variable for given, _ in named_events(checked)]
    outputs = [output.name for output in checked.outputs]
    groups = list(checked.groups)
    of_window, normal_form, sent = is_of_window(checked), checked.normal_form, portable(checked)

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ids, printer = MatchIds(normal_form), MatchPrinter(sent)

        def found(row: _Row) -> tuple[bytes, Match]:
            select = {name: row[f"s{number}"] for number, name in enumerate(outputs)}
            return _window(row, groups, select, ids) if of_window else _match(row, variables, names, select, ids)

        for batch in batches:
            yield from lines(map(found, batch.to_pylist()), printer)

    return in_executor


def _match(
    row: _Row, variables: list[str], names: list[str], select: dict[str, Value], ids: MatchIds
) -> tuple[bytes, Match]:
    events: dict[str, Bound] = {}
    places: list[list[Place]] = []
    for number, variable in enumerate(variables):
        bound = row[f"e{number}"]
        listed = bound if isinstance(bound, list) else [] if bound is None else [bound]
        own: list[Place] = [(e["time"], e["stream"], _id(e)) for e in listed]
        refs: list[EventRef] = [(names[stream], event_id) for _, stream, event_id in own]
        events[variable] = refs if isinstance(bound, list) else refs[0] if refs else None
        places.append(own)
    time: int = row["time"]
    return order_of(time, places), Match(ids.of_events(events), time, events, select)


def _id(event: _Row) -> int | str:
    found: int | str = event["name"] if event["number"] is None else event["number"]
    return found


def _window(row: _Row, groups: list[str], select: dict[str, Value], ids: MatchIds) -> tuple[bytes, Match]:
    values: list[Value] = [row[f"g{number}"] for number in range(len(groups))]
    start, end = row["start"], row["end"]
    found = Match(
        ids.of_window(values, start), end, {}, select, Window(start, end), dict(zip(groups, values, strict=True))
    )
    return order_of_group(end, values, start), found
