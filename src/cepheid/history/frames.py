"""The events that a query reads, from each stream's tables to one DataFrame for the native matcher.

Columns: `stream`, its place among the query's streams in the order of their names (rule E2); `time` in microseconds;
`number` or `name`, the id, by the stream's kind; `a0`, `a1`, ... the attributes, one for each name and type, so that
streams may differ in both; `k0`, ... the key of the events that can be in one match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from cepheid.history.asked import Asked
from cepheid.history.times import Times
from cepheid.knowledge.tables import Lookup
from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.functions import ValueType
from cepheid.model.streams import Stream
from cepheid.model.time import MAX_INSTANT, MIN_INSTANT, UNITS
from cepheid.model.types import Type
from cepheid.plan.division import always_bound, is_alone, reach
from cepheid.spark.archive import DAY
from cepheid.spark.columns import SPARK_TYPES
from cepheid.spark.filters import qualifies
from cepheid.spark.knowledge import Flags, with_known
from cepheid.spark.slices import sliced


@dataclass(frozen=True)
class Layout:
    """Where the columns of a query's events are: what it reads of each stream, and what keeps events together."""

    checked: Checked
    streams: Mapping[str, Stream]

    @cached_property
    def names(self) -> list[str]:
        """The streams, in the order of their names."""
        return sorted(self.checked.streams)

    @cached_property
    def attributes(self) -> dict[str, list[str]]:
        """By stream, the attributes that are read."""
        found: dict[str, dict[str, None]] = {name: {} for name in self.names}
        ranges = {r.variable: r.streams for r in self.checked.query.ranges}
        for (variable, _), resolved in self.checked.attributes.items():
            for stream, name in resolved.names.items():
                if stream in ranges[variable] and name not in ("id", "time") and not name.startswith("?"):
                    found[stream][name] = None
        for lookup in self.checked.lookups:
            if isinstance(lookup, Lookup):
                found[lookup.stream].update(dict.fromkeys(lookup.key))
        return {stream: list(names) for stream, names in found.items()}

    @cached_property
    def columns(self) -> dict[tuple[str, Type], str]:
        """The column of each attribute, by name and type."""
        found = [(name, self.streams[s].attributes[name]) for s in self.names for name in self.attributes[s]]
        return {key: f"a{number}" for number, key in enumerate(dict.fromkeys(found))}

    def column(self, stream: str, attribute: str) -> str:
        return self.columns[attribute, self.streams[stream].attributes[attribute]]

    @cached_property
    def keys(self) -> list[dict[str, str]]:
        """What the events of a match have in common: for each part of the key, the attribute by stream.

        A part whose attributes have several types is none: equal values of different types don't look equal.
        """
        query = self.checked.query
        if self.is_moving:
            parts = [{stream: n} for a in query.group_by for stream, n in self._names(a.variable, a.name).items()]
            several = len(self.names) > 1 or len(parts) != len(query.group_by)
            return [] if several or not all(map(self._fits, parts)) else parts
        variables = {r.variable for r in query.ranges}
        # A NOT variable that is not joined sees the events of every key.
        parts = [p for k in self.checked.partition.classes if set(k) == variables and (p := self._part(k)) is not None]
        return [part for part in parts if self._fits(part)]

    @cached_property
    def reach(self) -> int | str:
        """Where no key divides events, slices of time do: how far before its time lies what a match depends on, in
        microseconds; or why there is no bound to it."""
        return reach(self.checked)

    @cached_property
    def is_moving(self) -> bool:
        """Whether the query has a window that moves over one variable."""
        return any(isinstance(w, syntax.EventWindow) for w in self.checked.query.windows)

    def _part(self, members: Mapping[str, tuple[str, ...]]) -> dict[str, str] | None:
        part: dict[str, str] = {}
        for variable, names in members.items():
            for name in names:
                for stream, attribute in self._names(variable, name).items():
                    if part.setdefault(stream, attribute) != attribute:
                        return None
        return part

    def _names(self, variable: str, name: str) -> Mapping[str, str]:
        return self.checked.attributes[variable, name].names

    def _fits(self, part: Mapping[str, str]) -> bool:
        own = {s: self.streams[s].attributes.get(name) for s, name in part.items()}
        return set(own) == set(self.names) and None not in own.values() and len(set(own.values())) == 1


def selected(frame: DataFrame, layout: Layout, stream: str) -> DataFrame:
    """The events of a stream, whose table has id, time and attributes, in the columns of the layout."""
    own, place = layout.streams[stream], layout.names.index(stream)
    is_text = layout.checked.id_kinds[stream] == "string"
    event_id, nothing = sf.col("id"), sf.lit(None)
    kinds = {layout.checked.id_kinds[name] for name in layout.names}
    columns = [sf.lit(place).alias("stream"), sf.unix_micros(sf.col("time")).alias("time")]
    if "int" in kinds:
        columns.append((nothing if is_text else event_id).cast("long").alias("number"))
    if "string" in kinds:
        columns.append((event_id if is_text else nothing).cast("string").alias("name"))
    for (attribute, kind), column in layout.columns.items():
        is_own = attribute in layout.attributes[stream] and own.attributes[attribute] is kind
        columns.append((_raw(attribute, kind) if is_own else sf.lit(None).cast(_plain_type(kind))).alias(column))
    for number, part in enumerate(layout.keys):
        columns.append(_raw(part[stream], own.attributes[part[stream]]).alias(f"k{number}"))
    return frame.select(*columns)


def _raw(name: str, kind: Type) -> Column:
    column = sf.col("`" + name.replace("`", "``") + "`")
    return sf.unix_micros(column) if kind is Type.TIMESTAMP else column


def _plain_type(kind: Type) -> st.DataType:
    return st.LongType() if kind is Type.TIMESTAMP else SPARK_TYPES[ValueType.of(kind)]


def in_times(frame: DataFrame, times: Times) -> DataFrame:
    """The rows of a table whose time lies there; by day too, so that other days' files are not even looked at."""
    by_day = DAY in frame.columns
    if times.low > MIN_INSTANT:
        frame = frame.where(sf.col(DAY) >= _day(times.low)) if by_day else frame
        frame = frame.where(sf.col("time") >= sf.timestamp_micros(sf.lit(times.low)))
    if times.high < MAX_INSTANT:
        frame = frame.where(sf.col(DAY) <= _day(times.high)) if by_day else frame
        frame = frame.where(sf.col("time") <= sf.timestamp_micros(sf.lit(times.high)))
    return frame


def _day(moment: int) -> Column:
    return sf.date_from_unix_date(sf.lit(moment // UNITS["d"]))


def filtered(events: DataFrame, asked: Asked, layout: Layout, stream: str) -> DataFrame:
    """The events of one stream that some variable may be bound to: semantic filters and FILTERs, for Catalyst.

    Under STRICT every event counts as a neighbour, so nothing is left out (rule S10).
    """
    if layout.checked.query.match == "STRICT":
        return events
    own = _of_stream(layout, stream)
    places = {name: layout.column(stream, name) for name in layout.attributes[stream]}
    known, flags = with_known(events, own, places)
    return known.where(_condition(layout, stream, places, flags)).select(*events.columns)


def _of_stream(layout: Layout, stream: str) -> Checked:
    """The query with only what is looked up for one stream."""
    return replace(layout.checked, lookups=tuple(look for look in layout.checked.lookups if look.stream == stream))


def _condition(layout: Layout, stream: str, places: Mapping[str, str], flags: Flags) -> Column:
    checked = _of_stream(layout, stream)

    def column_of(attribute: syntax.Attribute) -> Column:
        if attribute.name == "time":
            return sf.col("time")
        if attribute.name == "id":
            return sf.col("name" if checked.id_kinds[stream] == "string" else "number")
        resolved = checked.attributes[attribute.variable, attribute.name]
        name = resolved.names.get(stream)
        return sf.lit(None).cast(SPARK_TYPES[resolved.type]) if name is None else sf.col(places[name])

    return qualifies(checked, sf.lit(stream), column_of, lambda variable: flags.get(variable, ()))


def gathered(events: DataFrame, layout: Layout) -> DataFrame:
    """Brings together what can be in one match, in order of time; by slices if it has `since` and `until`."""
    if is_alone(layout.checked):
        return events
    keys = [sf.col(f"k{number}") for number in range(len(layout.keys))]
    if not keys:
        if isinstance(layout.reach, int):
            return sliced(events, layout.reach)
        return events.repartition(1).sortWithinPartitions("time")
    if not layout.is_moving and len(always_bound(layout.checked.query)) > 1:
        # Two events that must be there must be joined by the key, and a null joins nothing. One alone may match with
        # a null, if only a NOT is joined to it; and in GROUP BY nulls are a group.
        for key in keys:
            events = events.where(key.isNotNull())
    together = events.repartition(*keys).sortWithinPartitions("time")
    return together.drop(*(f"k{number}" for number in range(len(keys))))  # the matcher has them as attributes
