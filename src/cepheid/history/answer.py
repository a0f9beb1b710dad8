"""A query about the past, answered: `for match in query(app, "SELECT ..."): ...`, or `.dataframe()`.

Whatever strategy finds the matches, they come in one order (rule O2) and are sorted and kept by Spark, on disk if they
are many: this process holds a part of them at a time.
"""

from __future__ import annotations

import json
import time as clock
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from cepheid.app.application import Application
from cepheid.history.asked import Asked, asked
from cepheid.history.frames import Layout, in_times
from cepheid.history.hybrid import hybrid
from cepheid.history.past import Past, check_past, past_of
from cepheid.history.replay import replay
from cepheid.language import syntax

Strategy: TypeAlias = Literal["hybrid", "replay"]
STRATEGIES: Final[tuple[str, ...]] = get_args(Strategy)
_RUN: Final[Mapping[str, Callable[[Past, Asked, Layout], DataFrame]]] = {"hybrid": hybrid, "replay": replay}
#: So many matches are sorted as one part, and brought here at once.
_PART: Final = 100_000
#: Different values that a PATH asks about, where they are not known beforehand.
_MOST_KEYS: Final = 1_000_000


class TooManyKeys(ValueError):
    """A PATH asks about more different values than can be looked up."""


@dataclass(frozen=True)
class Answer:
    """The matches of a query. Each use of it asks anew."""

    past: Past
    asked: Asked
    strategy: Strategy

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The matches in order, each as rule O1 has it."""
        return map(json.loads, self.lines())

    def lines(self, on_found: Callable[[int], object] = lambda total: None) -> Iterator[str]:
        """The matches in order, as lines of JSON. Once all are found, `on_found` is told how many there are."""
        with self._found() as found:
            total = found.count()
            on_found(total)
            if total == 0:
                return
            ordered = found.repartitionByRange(-(-total // _PART), "order").sortWithinPartitions("order")
            for row in ordered.select("line").toLocalIterator(prefetchPartitions=True):
                yield row[0]

    @contextmanager
    def _found(self) -> Iterator[DataFrame]:
        if self.asked.times.is_empty:
            from cepheid.history.found import FOUND

            yield self.past.spark.createDataFrame([], FOUND)
            return
        with self.past.explained(self.asked.streams.values()):
            layout = self.layout()
            found = _RUN[self.strategy](self.past, self.asked, layout).persist(StorageLevel.DISK_ONLY)
            try:
                yield found
            finally:
                found.unpersist()

    def layout(self) -> Layout:
        """Where the query's columns are; with all that its PATHs can be asked about the archived events."""
        question = self.asked.question
        if question.known is not None and question.semantic is not None:
            for lookup in question.semantic.lookups:
                if not lookup.table.complete:
                    events = in_times(self.past.events(self.asked.streams[lookup.stream]), self.asked.times)
                    rows = events.select(*(f"`{name}`" for name in lookup.key)).distinct().limit(_MOST_KEYS + 1)
                    keys = [tuple(row) for row in rows.collect()]
                    if len(keys) > _MOST_KEYS:
                        raise TooManyKeys(
                            f"PATH {{{lookup.part.text}}}: more than {_MOST_KEYS:,} different {', '.join(lookup.key)}"
                        )
                    known = lookup.rows_of(keys, question.known.knowledge) if keys else []
                    lookup.table.rows = dict(zip(keys, known, strict=True))
                    lookup.table.complete = True
        return Layout(self.asked.checked, self.asked.streams)


def query(
    app: Application,
    text: str | syntax.Query,
    *,
    spark: SparkSession | None = None,
    strategy: Strategy = "hybrid",
    now: int | None = None,
) -> Answer:
    """The answer to a query about the application's past. `now` is what the query means by it, in microseconds.

    Raises Rejected if the query is wrong, and what `past` raises of the archive.
    """
    moment = clock.time_ns() // 1000 if now is None else now
    found = asked(app, text, moment)
    check_past(app)
    if spark is None:
        from cepheid.spark.session import session

        spark = session("cepheid query")
    return Answer(past_of(spark, app), found, strategy)
