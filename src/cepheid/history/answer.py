"""A query about the past, answered: `for match in query(app, "SELECT ..."): ...`, or `.dataframe()`.

Whatever strategy finds the matches, they come in one order (rule O2): of a long range portion by portion, so that the
first are there soon. They are sorted and kept by Spark, on disk if they are many: this process holds a part of them at
a time.
"""

from __future__ import annotations

import json
import time as clock
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import pyarrow.compute as pc  # type: ignore[import-untyped]
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
from cepheid.history.missing import missing
from cepheid.history.order import order_of
from cepheid.history.parquet import match_schema
from cepheid.history.past import Past, check_past, past_of
from cepheid.history.portions import Portion, portions
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


class PartialAnswer(UserWarning):
    """Events of the range are no longer there, or where they are not asked."""


class TooManyKeys(ValueError):
    """A PATH asks about more different values than can be looked up."""


@dataclass(frozen=True)
class Done:
    """How far an answer is: portions of the range, up to which time, and the matches so far."""

    portion: int
    portions: int
    until: int
    matches: int


@dataclass(frozen=True)
class Answer:
    """The matches of a query. Each use of it asks anew, and warns of what is `missing`."""

    past: Past
    asked: Asked
    wanted: Wanted = "auto"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The matches in order, each as rule O1 has it."""
        return map(json.loads, self.lines())

    def lines(self, on_part: Callable[[Done], object] = lambda done: None) -> Iterator[str]:
        """The matches in order, as lines of JSON. `on_part` is told when those of a portion of the range are found."""
        self._warn()
        with self._explained():
            parts, total = self.portions, 0
            for number, part in enumerate(parts, 1):
                with self._found(part) as found:
                    count = found.count()
                    total += count
                    on_part(Done(number, len(parts), part.times.high, total))
                    yield from _ordered(found, count)

    def dataframe(self) -> DataFrame:
        """The matches in order, as columns: id, time, events, select; for batch and session windows also their own."""
        self._warn()
        with self._explained():
            schema = from_arrow_schema(match_schema(self.asked.checked))
            found = self.run().orderBy("order")
            return found.select(sf.from_json("line", schema).alias("match")).select("match.*")

    def run(self, strategy: Strategy | None = None, part: Portion | None = None) -> DataFrame:
        """The matches in no order, as rows of FOUND; of a portion, if it is not all that is asked."""
        asked = self.asked if part is None else replace(self.asked, times=part.times)
        if asked.times.is_empty:
            return self.past.spark.createDataFrame([], FOUND)
        found = STRATEGIES[strategy or self.strategy](self.past, asked, self.layout)
        if part is not None and part.since is not None:
            found = found.where(sf.col("order") >= sf.lit(order_of(part.since, ())))
        if part is not None and part.until is not None:
            found = found.where(sf.col("order") < sf.lit(order_of(part.until, ())))
        return found

    def _warn(self) -> None:
        if self.missing is not None:
            warnings.warn(self.missing, PartialAnswer, stacklevel=3)

    @contextmanager
    def _found(self, part: Portion) -> Iterator[DataFrame]:
        found = self.run(part=part).persist(StorageLevel.DISK_ONLY)
        try:
            yield found
        finally:
            found.unpersist()

    @cached_property
    def portions(self) -> list[Portion]:
        """The range in portions, which are asked one after the other."""
        if self.asked.times.is_empty:
            return [Portion(self.asked.times)]
        seconds = next(e.seconds for e in self.choice.estimates if e.strategy == self.strategy)
        return portions(self.asked.checked, self.asked.times, self.choice.extents, seconds)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with self.past.explained(self.asked.streams.values()):
            yield

    @cached_property
    def missing(self) -> str | None:
        """What of the range is there no more, or not asked; None if that is nothing."""
        return "; ".join(missing(self.past, self.asked)) or None

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


def _ordered(found: DataFrame, count: int) -> Iterator[str]:
    """The lines of rows of FOUND, in order."""
    if count == 0:
        return
    if count <= _PART:
        rows = found.toArrow()
        yield from rows.column("line").take(pc.sort_indices(rows.column("order"))).to_pylist()
        return
    ordered = found.repartitionByRange(-(-count // _PART), "order").sortWithinPartitions("order")
    for row in ordered.select("line").toLocalIterator(prefetchPartitions=True):
        yield row[0]


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
        from cepheid.spark.application import settings
        from cepheid.spark.session import session

        spark = session("cepheid query", **settings(app))
    return Answer(past_of(spark, app), found, strategy)
