"""What each strategy would cost, by how many events there are, and which is the cheapest.

The numbers are rough guesses, not calibrated: seconds of one core for a million events. What counts is their
relation: reading is cheap, sorting and matching are not, and a join of many events with many is dear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from cepheid.spark.archive import DAY, Archive

Strategy: TypeAlias = Literal["hybrid", "replay", "rewrite"]

#: Seconds: of a job, and for an event.
_JOB: Final = 0.5
_READ: Final = 0.4e-6
_SORT: Final = 1.2e-6
_MATCH: Final = 0.8e-6
_PAIR: Final = 0.05e-6
_PRINT: Final = 20e-6
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
class Choice:
    """The strategies, cheapest first, and why others are not possible."""

    estimates: tuple[Estimate, ...]
    impossible: Mapping[str, str]

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
    total = sum(events.values())
    cores = past.spark.sparkContext.defaultParallelism
    passing = {r.variable: sum(events[s] for s in r.streams) * _passing(layout, r.variable) for r in _ranges(layout)}
    strict = layout.checked.query.match == "STRICT"
    related = total if strict else min(total, round(sum(passing.values())))
    read = _JOB + total * _READ / cores
    together = 1 if not layout.keys and not is_alone(layout.checked) else cores
    estimates = [
        Estimate("hybrid", total, related, read + related * (_SORT + _MATCH) / together),
        Estimate("replay", total, total, read + total * (_SORT + _MATCH)),
    ]
    impossible = {}
    try:
        rewritten_of(layout)
    except NotExact as fault:
        impossible["rewrite"] = str(fault)
    else:
        pairs = _pairs(layout, passing)
        again = total * _READ * (len(passing) - 1) / cores
        estimates.append(Estimate("rewrite", total, related, read + again + _JOB * len(passing) + pairs * _PAIR))
    return Choice(tuple(sorted(estimates, key=lambda e: e.seconds)), impossible)


def _ranges(layout: Layout) -> tuple[syntax.Range, ...]:
    return layout.checked.query.ranges


def _pairs(layout: Layout, passing: Mapping[str, float]) -> float:
    """How many combinations a join has to look at: all of one key with all of the same."""
    found, keys = 1.0, _KEYS if layout.keys else 1
    for count in passing.values():
        found *= max(count / keys, 1.0)
    return found * keys


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


def count_events(past: Past, asked: Asked, stream: str) -> int:
    """About how many events of a stream lie in the query's days, by statistics and sizes."""
    total = 0 if past.tail is None else past.tail.end - past.tail.start
    for given in past.files:
        if any(own.name == stream for own in given.given.streams):
            total += given.bytes_of(past.spark, past.archive, asked.streams[stream]) // _RECORD
    if past.archive is not None:
        total += _archived(past, past.archive, asked, stream)
    return total


def _archived(past: Past, archive: Archive, asked: Asked, stream: str) -> int:
    if archive.format != "delta":
        return 0
    days = (sf.date_from_unix_date(sf.lit(moment // UNITS["d"])) for moment in (asked.times.low, asked.times.high))
    try:
        files = _files(past, archive.table(stream))
        rows = sf.get_json_object("stats", "$.numRecords").cast("long")
        inside = files.where(sf.col(f"partitionValues.{DAY}").cast("date").between(*days))
        return int(inside.agg(sf.sum(rows)).collect()[0][0] or 0)
    except (PySparkException, Py4JError):
        return 0  # no table yet; one that is damaged is told of when it is read


def _files(past: Past, path: str) -> DataFrame:
    """The files of a Delta table, as its log has them."""
    jvm, session = past.spark.sparkContext._jvm, past.spark._jsparkSession
    assert jvm is not None
    table = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, path)
    none = jvm.scala.Option.empty()
    return DataFrame(table.update(False, none, none).allFiles().toDF(), past.spark)
