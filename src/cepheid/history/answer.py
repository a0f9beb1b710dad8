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
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from cepheid.app.application import Application
from cepheid.history.asked import Asked, asked
from cepheid.history.cost import Choice, Strategy, choose
from cepheid.history.found import FOUND
from cepheid.history.frames import Layout, in_times
from cepheid.history.hybrid import hybrid
from cepheid.history.parquet import match_schema
from cepheid.history.past import Past, check_past, past_of
from cepheid.history.replay import replay
from cepheid.history.rewrite import rewrite, rewritten_of
from cepheid.history.sql import NotExact
from cepheid.language import syntax

Wanted: TypeAlias = Literal["auto"] | Strategy
STRATEGIES: Final[Mapping[Strategy, Callable[[Past, Asked, Layout], DataFrame]]] = {
    "hybrid": hybrid,
    "replay": replay,
    "rewrite": rewrite,
}
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
    wanted: Wanted = "auto"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The matches in order, each as rule O1 has it."""
        return map(json.loads, self.lines())

    def lines(self, on_found: Callable[[int], object] = lambda total: None) -> Iterator[str]:
        """The matches in order, as lines of JSON. Once all are found, `on_found` is told how many there are."""
        with self._explained(), self._found() as found:
            total = found.count()
            on_found(total)
            if total == 0:
                return
            ordered = found.repartitionByRange(-(-total // _PART), "order").sortWithinPartitions("order")
            for row in ordered.select("line").toLocalIterator(prefetchPartitions=True):
                yield row[0]

    def dataframe(self) -> DataFrame:
        """The matches in order, as columns: id, time, events, select; for batch and session windows also their own."""
        with self._explained():
            schema = from_arrow_schema(match_schema(self.asked.checked))
            found = self.run().orderBy("order")
            return found.select(sf.from_json("line", schema).alias("match")).select("match.*")

    def run(self, strategy: Strategy | None = None) -> DataFrame:
        """The matches in no order, as rows of FOUND."""
        if self.asked.times.is_empty:
            return self.past.spark.createDataFrame([], FOUND)
        return STRATEGIES[strategy or self.strategy](self.past, self.asked, self.layout)

    @contextmanager
    def _found(self) -> Iterator[DataFrame]:
        found = self.run().persist(StorageLevel.DISK_ONLY)
        try:
            yield found
        finally:
            found.unpersist()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with self.past.explained(self.asked.streams.values()):
            yield

    @cached_property
    def choice(self) -> Choice:
        """What each strategy would cost."""
        with self._explained():
            return choose(self.past, self.asked, self.layout)

    @cached_property
    def refused(self) -> str | None:
        """Why the strategy that is wanted can't give this query's matches exactly; None if it can."""
        if self.wanted == "rewrite":
            try:
                rewritten_of(self.layout)
            except NotExact as fault:
                return str(fault)
        return None

    @property
    def strategy(self) -> Strategy:
        """The strategy that is used."""
        if self.wanted == "auto":
            return self.choice.best
        return "hybrid" if self.refused is not None else self.wanted

    @cached_property
    def layout(self) -> Layout:
        """Where the query's columns are; with all that its PATHs can be asked about these events."""
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
    strategy: Wanted = "auto",
    now: int | None = None,
) -> Answer:
    """The answer to a query about all that has come to the application. `now` is what the query means by it, in
    microseconds.

    Raises Rejected if the query is wrong, and what past.py raises of the archive.
    """
    moment = clock.time_ns() // 1000 if now is None else now
    found = asked(app, text, moment)
    check_past(app)
    if spark is None:
        from cepheid.spark.session import session

        spark = session("cepheid query")
    return Answer(past_of(spark, app), found, strategy)
