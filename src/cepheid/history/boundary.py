"""The boundary between past and live: which events a live matcher has to know to go on where the past ends.

**Seeded**: the matcher is primed with what a match from the boundary on can still have of the past, as far as it may
matter at all (FILTERs and semantic filters are judged by Spark):

    KEEP, sliding, batch       the last window
    length n                   the last n events of each group
    session g                  each group's open session
    CONSUME, SKIP              of each partition, what came since it was last silent for longer than any match spans:
                               before that no state is alive

**Lazy**, as the paper has it (section 6.1): the live matcher begins empty, and what spans the boundary is asked of the
archive later, once that has the boundary window of both sides. That needs queries of whose matches none disappears when
earlier events are left out.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal, TypeAlias

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from cepheid.history.answer import Answer
from cepheid.history.frames import Layout, filtered, in_times, selected
from cepheid.history.times import Times
from cepheid.language import syntax
from cepheid.model.events import Event
from cepheid.model.time import MIN_INSTANT

Boundary: TypeAlias = Literal["seeded", "lazy"]


class NotLazy(ValueError):
    """A query whose live part, alone, is not what is live of the whole."""


def reach(query: syntax.Query) -> int:
    """How long before its time a match can have events, where its windows say so."""
    sizes = (w.size if isinstance(w, syntax.EventWindow) else w.width for w in query.windows)
    return 2 * sum(sizes) + 1


def check_lazy(query: syntax.Query) -> None:
    """Raises NotLazy if the boundary can't be asked later."""
    moving = next((w for w in query.windows if isinstance(w, syntax.EventWindow)), None)
    what = None
    if moving is not None:
        what = f"a {moving.kind} window"
    elif query.after != "KEEP":
        what = f"AFTER MATCH {query.after}"
    elif query.seq and isinstance(query.seq[0], syntax.Absent | syntax.Many | syntax.Maybe):
        what = "a first step that looks back"
    if what is not None:
        raise NotLazy(
            f"--boundary lazy begins the live part with nothing, and {what} would be another there; use seeded"
        )


def seeds(answer: Answer, boundary: int) -> list[Event]:
    """The events of the past that a matcher has to know to find what is to be found from the boundary on, in order."""
    query, times = answer.asked.checked.query, answer.asked.times
    moving = next((w for w in query.windows if isinstance(w, syntax.EventWindow)), None)
    if moving is not None and moving.kind == "length":
        return _collected(answer, _last(_events(answer, times), answer.layout, boundary, moving.size))
    if moving is not None and moving.kind == "session":
        return _collected(answer, _open(_events(answer, times), answer.layout, boundary, moving.size))
    if query.after != "KEEP":
        return _collected(answer, _open(_events(answer, times), answer.layout, boundary, reach(query)))
    return since(answer, boundary if boundary == MIN_INSTANT else boundary - reach(query))


def since(answer: Answer, moment: int) -> list[Event]:
    """The events of the past from a moment on that may matter, in order."""
    times = Times(max(moment, answer.asked.times.low), answer.asked.times.high)
    return [] if times.is_empty else _collected(answer, _events(answer, times))


def _events(answer: Answer, times: Times) -> DataFrame:
    asked, layout = answer.asked, answer.layout
    parts = []
    for name in layout.names:
        events = selected(in_times(answer.past.events(layout.streams[name]), times), layout, name)
        parts.append(filtered(events, asked, layout, name))
    return reduce(DataFrame.unionByName, parts)


def _together(layout: Layout) -> list[Column]:
    return [sf.col(f"k{number}") for number in range(len(layout.keys))]


def _order(events: DataFrame) -> list[str]:
    """The columns of rule E2's order; the streams' places are in the order of their names."""
    return [name for name in ("time", "stream", "number", "name") if name in events.columns]


def _last(events: DataFrame, layout: Layout, boundary: int, count: int) -> DataFrame:
    """The last so many events of each group before the boundary, and what comes after it."""
    if layout.checked.query.group_by and not layout.keys:
        return events  # groups that no column tells apart
    newest = Window.partitionBy(*_together(layout)).orderBy(*(sf.col(name).desc() for name in _order(events)))
    before = events.where(sf.col("time") < boundary).withColumn("rank", sf.row_number().over(newest))
    return before.where(sf.col("rank") <= count).drop("rank").unionByName(events.where(sf.col("time") >= boundary))


def _open(events: DataFrame, layout: Layout, boundary: int, gap: int) -> DataFrame:
    """Of each group, the events since it was last silent for `gap` before the boundary.

    Where no column tells the groups apart, since all of them were: that is earlier.
    """
    ordered = Window.partitionBy(*_together(layout)).orderBy("time")
    silence = sf.col("time") - sf.lag("time").over(ordered)
    begins = sf.when((silence >= gap) & (sf.col("time") < boundary), sf.col("time"))
    whole = Window.partitionBy(*_together(layout))
    found = events.withColumn("begins", begins).withColumn("since", sf.max("begins").over(whole))
    return found.where("since IS NULL OR time >= since").drop("begins", "since")


def _collected(answer: Answer, rows: DataFrame) -> list[Event]:
    layout = answer.layout
    with answer.past.explained(answer.asked.streams.values()):
        found = [_event(layout, row.asDict()) for row in rows.toLocalIterator()]
    return sorted(found, key=lambda event: event.order)


def _event(layout: Layout, row: dict[str, Any]) -> Event:
    stream = layout.names[row["stream"]]
    event_id = row["name"] if layout.checked.id_kinds[stream] == "string" else row["number"]
    values = {name: _value(row[layout.column(stream, name)]) for name in layout.attributes[stream]}
    return Event(stream, event_id, row["time"], values)


def _value(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else tuple(value) if isinstance(value, list) else value
