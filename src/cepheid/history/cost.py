"""What each strategy would cost, by how many events there are, and which is the cheapest.

The constants are seconds of one core. They are rounded from two runs on a busy machine that differ by up to a factor of
two or three; those of a join and of a pair are guesses. `cepheid bench scepter-9` measures them again and shows both
(bench/scepter/calibrate.py). What counts is their relation: reading is cheap, bringing events together and matching
are not, and a join of many events with many, or a long window added up anew for each event, is dear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cepheid.history.asked import Asked
from cepheid.history.frames import Layout
from cepheid.history.past import Past
from cepheid.history.rewrite import rewritten_of
from cepheid.history.sql import NotExact
from cepheid.knowledge.tables import Lookup
from cepheid.language import syntax
from cepheid.language.syntax import Expression, conjuncts
from cepheid.model.time import UNITS
from cepheid.plan.division import is_alone
from cepheid.spark.archive import DAY, Archive, snapshot
from cepheid.spark.slices import LENGTH

Strategy: TypeAlias = Literal["hybrid", "replay", "rewrite"]

#: Seconds: of a job, of planning SQL that is a whole query, of each further join; of one core for an event that is
#: read, matched, replayed in one task, put through SQL; for a pair that a join looks at, and an event that a moving
#: window adds up.
_JOB: Final = 0.8
_PLAN: Final = 0.2
_JOIN: Final = 0.3
_READ: Final = 0.8e-6
_MATCH: Final = 2.5e-6
_REPLAY: Final = 2.0e-6
_SQL: Final = 1.2e-6
_PAIR: Final = 0.02e-6
_ADD: Final = 0.11e-6
#: How many of a variable's events pass a condition, where nothing more is known.
_PASS: Final = {"=": 0.1, "!=": 0.9}
_PASS_OTHERS: Final = 0.4
#: Bytes of a record in a file, about.
_RECORD: Final = 100
#: Different keys, where nothing is known of them.
_KEYS: Final = 100


@dataclass(frozen=True)
class Estimate:
    """What a strategy would cost: events that it reads, those that are left to be related, and seconds."""

    strategy: Strategy
    events: int
    related: int
    seconds: float


@dataclass(frozen=True)
class Extent:
    """About how many events there are, and those of them that are archived: their number, first and last time."""

    rows: int = 0
    archived: int = 0
    first: int | None = None
    last: int | None = None

    @property
    def span(self) -> int:
        return 0 if self.first is None or self.last is None else self.last - self.first


@dataclass(frozen=True)
class Choice:
    """The strategies, cheapest first, and why others are not possible."""

    estimates: tuple[Estimate, ...]
    impossible: Mapping[str, str]
    #: What there is of each stream, about.
    extents: tuple[Extent, ...] = ()

    @property
    def best(self) -> Strategy:
        return self.estimates[0].strategy

    @property
    def reason(self) -> str:
        """Why the best is chosen."""
        first, *others = self.estimates
        found = [f"{first.strategy}: about {first.seconds:.1f} s"]
        found += [f"{other.strategy} {other.seconds:.1f} s" for other in others]
        found += [f"{name} can't give {why}" for name, why in self.impossible.items()]
        return "; ".join(found)


def choose(past: Past, asked: Asked, layout: Layout) -> Choice:
    """The cost of each strategy for a query."""
    events = {name: count_events(past, asked, name) for name in layout.names}
    total = sum(found.rows for found in events.values())
    cores = past.spark.sparkContext.defaultParallelism
    passing = {
        r.variable: sum(events[s].rows for s in r.streams) * _passing(layout, r.variable) for r in _ranges(layout)
    }
    related = min(total, round(sum(passing.values())))
    if layout.checked.query.match == "STRICT":
        related = total
    read = _JOB + total * _READ / cores
    span = max((found.span for found in events.values()), default=0)
    estimates = [
        Estimate("hybrid", total, related, read + _matched(layout, total, related, span, cores)),
        Estimate("replay", total, total, read + total * _REPLAY),
    ]
    impossible = {}
    try:
        rewritten_of(layout)
    except NotExact as fault:
        impossible["rewrite"] = str(fault)
    else:
        looked_at = _in_windows(layout, related, span) if layout.is_moving else _pairs(layout, passing) * _PAIR
        again = _PLAN + _JOIN * (len(passing) - 1) + total * _READ * (len(passing) - 1) / cores
        seconds = read + again + related * _SQL / cores + looked_at / (cores if layout.keys else 1)
        estimates.append(Estimate("rewrite", total, related, seconds))
    return Choice(tuple(sorted(estimates, key=lambda e: e.seconds)), impossible, tuple(events.values()))


def _matched(layout: Layout, total: int, related: int, span: int, cores: int) -> float:
    """Seconds until the matchers of hybrid have what is related, beside those for reading it."""
    if layout.keys or is_alone(layout.checked):
        return related * _MATCH / cores
    if isinstance(layout.reach, str):
        return related * _MATCH
    # What is to be divided into slices is read once more, for its first and last time; each reads into the one before.
    slices = cores if span == 0 else min(cores, max(1, span // max(1, LENGTH * layout.reach)))
    return _JOB + total * _READ / cores + related * _MATCH * (1 + 1 / LENGTH) / slices


def _ranges(layout: Layout) -> tuple[syntax.Range, ...]:
    return layout.checked.query.ranges


def _keys(layout: Layout) -> int:
    """How many different keys there are, by what is known of them."""
    if not layout.keys:
        return 1
    known = [
        sum(map(bool, lookup.table.rows.values()))
        for lookup in layout.checked.lookups
        if isinstance(lookup, Lookup)
        and lookup.table.rows
        and any(lookup.key == (*set(k.values()),) for k in layout.keys)
    ]
    return max(1, min(known, default=_KEYS))


def _pairs(layout: Layout, passing: Mapping[str, float]) -> float:
    """How many combinations a join has to look at: all of one key with all of the same."""
    found, keys = 1.0, _keys(layout)
    if len(passing) == 1:
        return 0.0
    for count in passing.values():
        found *= max(count / keys, 1.0)
    return found * keys


def _in_windows(layout: Layout, related: int, span: int) -> float:
    """Seconds for what SQL adds up anew for each event: all that is in its window."""
    (window,) = (w for w in layout.checked.query.windows if isinstance(w, syntax.EventWindow))
    if window.kind == "length":
        return related * window.size * _ADD
    if window.kind == "sliding":
        share = min(1.0, window.size / span) if span else 1.0
        return related * related * share / _keys(layout) * _ADD
    return related * _ADD


def _passing(layout: Layout, variable: str) -> float:
    """The part of a variable's events that its conditions let pass."""
    share = 1.0
    query = layout.checked.query
    for condition in (*query.filters, *query.joins):
        for part in conjuncts(condition):
            if syntax.variables(part) == (variable,):
                share *= _share(part)
    for lookup in layout.checked.lookups:
        if lookup.variable == variable and isinstance(lookup, Lookup) and lookup.table.rows:
            share *= sum(map(bool, lookup.table.rows.values())) / len(lookup.table.rows)
    return share


def _share(condition: Expression) -> float:
    return _PASS.get(condition.sign, _PASS_OTHERS) if isinstance(condition, syntax.Compare) else _PASS_OTHERS


def count_events(past: Past, asked: Asked, stream: str) -> Extent:
    """About how many events of a stream lie in the times of a query, by statistics and sizes."""
    total = 0 if past.tail is None else past.tail.end - past.tail.start
    for given in past.files:
        if any(own.name == stream for own in given.given.streams):
            total += given.bytes_of(past.spark, past.archive, asked.streams[stream]) // _RECORD
    if past.archive is None:
        return Extent(total)
    found = _archived(past, past.archive, asked, stream)
    return replace(found, rows=total + found.archived)


def _archived(past: Past, archive: Archive, asked: Asked, stream: str) -> Extent:
    """What the statistics of a table's files say: rows, and the first and last time."""
    found = snapshot(past.spark, archive, stream)
    if found is None:
        return Extent()
    low, high = asked.times.low, asked.times.high
    days = (sf.date_from_unix_date(sf.lit(moment // UNITS["d"])) for moment in (low, high))
    try:
        files = DataFrame(found.allFiles().toDF(), past.spark)
        inside = files.where(sf.col(f"partitionValues.{DAY}").cast("date").between(*days)).select(
            sf.get_json_object("stats", "$.numRecords").cast("long").alias("rows"),
            sf.unix_micros(sf.get_json_object("stats", "$.minValues.time").cast("timestamp")).alias("first"),
            sf.unix_micros(sf.get_json_object("stats", "$.maxValues.time").cast("timestamp")).alias("last"),
        )
        # Of a file that reaches beyond the times, the part that lies in them, as if it were evenly filled.
        ends = sf.greatest("first", sf.lit(low)), sf.least("last", sf.lit(high))
        part = (ends[1] - ends[0] + 1) / (sf.col("last") - sf.col("first") + 1)
        rows = sf.col("rows") * sf.when(part.isNull(), 1.0).otherwise(sf.greatest(part, sf.lit(0.0)))
        own = inside.where(f"coalesce(last >= {low}, true) AND coalesce(first <= {high}, true)")
        total, first, last = own.agg(sf.sum(rows), sf.min(ends[0]), sf.max(ends[1])).collect()[0]
        return Extent(0, round(total or 0), first, last)
    except (PySparkException, Py4JError):
        return Extent()  # no table yet; one that is damaged is told of when it is read
