"""A query over events that are at hand, run on Spark: for `match --engine spark`, and to compare engines."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import types as st

from cepheid.knowledge.index import PartLookup
from cepheid.language.checker import Checked
from cepheid.language.functions import ValueType
from cepheid.model.events import Event, EventId, OrderKey
from cepheid.model.matches import Bound, EventRef, Match, MatchIds, Window
from cepheid.model.time import EPOCH
from cepheid.model.types import Value
from cepheid.spark.columns import SPARK_TYPES, UnsuitableColumns
from cepheid.spark.matching import match, match_checked


def match_on_spark(spark: SparkSession, checked: Checked, events: Sequence[Event], now: int) -> list[Match]:
    """The matches of a query among events, found by Spark, in the order of rule O2."""
    types = _column_types(checked)
    events = [event for event in events if event.stream in checked.streams]
    # A column has one type: where streams have ids of both kinds, all are text, in the same order (rule E2), and told
    # apart again by their event.
    has_text = "string" in checked.id_kinds.values()
    known = {(e.stream, _text(e.id) if has_text else e.id): e for e in events}
    schema = st.StructType([st.StructField("stream", st.StringType())])
    schema.add("id", st.StringType() if has_text else st.LongType()).add("time", st.LongType())
    for name, kind in types.items():
        schema.add(name, SPARK_TYPES[kind])
    readers = {name: {s for (_, n), r in checked.attributes.items() if n == name for s in r.names} for name in types}
    if checked.origin is not None:
        readers = {}
    rows = [(stream, event_id, e.time, *_cells(e, types, readers)) for (stream, event_id), e in known.items()]
    frame = spark.createDataFrame(rows, schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what they say is said where the query is checked
        asked = match(checked.query, stream="stream", now=now)
        if checked.origin is not None:
            asked = match_checked(checked, stream="stream", now=now)
        found = frame.transform(asked).collect()
    by_name = {f"{stream}/{event_id}": e for (stream, event_id), e in known.items()}
    matches = [_match(row, checked, by_name) for row in found]
    if has_text:
        ids = MatchIds(checked.normal_form)
        if checked.used:
            raise UnsuitableColumns("a PATH variable is used, and the streams' ids are text: use another engine")
        matches = [m if m.window is not None else replace(m, id=ids.of_events(m.events)) for m in matches]
    order = {(e.stream, e.id): e.order for e in events}
    return sorted(matches, key=lambda m: _order(m, checked, order))


def _text(event_id: EventId) -> str:
    """An id as text that is ordered as it is."""
    return event_id if isinstance(event_id, str) else f"{event_id + 2**63:020d}"


def _column_types(checked: Checked) -> dict[str, ValueType]:
    types: dict[str, ValueType] = {}
    if checked.origin is not None:
        return _own_types(checked)
    for (_, name), resolved in checked.attributes.items():
        if name not in ("id", "time") and types.setdefault(name, resolved.type) is not resolved.type:
            raise UnsuitableColumns(f"attribute '{name}' has two types in this query, and a DataFrame has one")
    return types


def _own_types(checked: Checked) -> dict[str, ValueType]:
    """The attributes by the names that streams declare, which is how lookups know them."""
    found = [(n, r.type) for r in checked.attributes.values() for n in r.names.values() if not n.startswith("?")]
    for lookup in checked.lookups:
        if isinstance(lookup, PartLookup):
            found += [(name, ValueType.of(lookup.annotations[name].type)) for name in lookup.key]
    types: dict[str, ValueType] = {}
    for name, kind in found:
        if name not in ("id", "time") and types.setdefault(name, kind) is not kind:
            raise UnsuitableColumns(f"attribute '{name}' has two types in this query, and a DataFrame has one")
    return types


def _cells(event: Event, types: Mapping[str, ValueType], readers: Mapping[str, set[str]]) -> list[Any]:
    cells: list[Any] = []
    for name, kind in types.items():
        # An attribute that is read of other streams only may have another type here.
        value: Any = event.attributes.get(name) if event.stream in readers.get(name, {event.stream}) else None
        if kind is ValueType.TIMESTAMP and value is not None:
            value = EPOCH + timedelta(microseconds=value)
        elif kind is ValueType.FLOAT and value is not None:
            value = float(value)
        cells.append(list(value) if isinstance(value, tuple) else value)
    return cells


def _match(row: Row, checked: Checked, by_name: Mapping[str, Event]) -> Match:
    streams = {r.variable: r.streams for r in checked.query.ranges}
    events = row["events"].asDict() if "events" in row else {}
    window = Window(_micros(row["window"]["start"]), _micros(row["window"]["end"])) if "window" in row else None
    group = {k: _plain(v) for k, v in row["group"].asDict().items()} if "group" in row else None

    def reference(variable: str, ref: Any) -> EventRef:
        event = by_name[f"{streams[variable][0]}/{ref}" if len(streams[variable]) == 1 else ref]
        return event.stream, event.id

    def bound(variable: str, refs: Any) -> Bound:
        if refs is None:
            return None
        return [reference(variable, r) for r in refs] if isinstance(refs, list) else reference(variable, refs)

    return Match(
        row["id"],
        _micros(row["time"]),
        {variable: bound(variable, refs) for variable, refs in events.items()},
        {name: _plain(value) for name, value in row["select"].asDict().items()},
        window,
        {} if window is not None and group is None else group,
    )


def _plain(value: Any) -> Value:
    if isinstance(value, datetime):
        return _micros(value)
    if isinstance(value, bytearray):
        return bytes(value)
    result: Value = tuple(value) if isinstance(value, list) else value
    return result


def _micros(moment: datetime) -> int:
    # collect() gives times in this machine's zone, without saying so.
    return (moment.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def _order(found: Match, checked: Checked, order: Mapping[EventRef, OrderKey]) -> tuple[Any, ...]:
    """Rule O2: by time, then by the bound events in the order of FROM; windows by their group, null first."""
    if found.window is not None:
        return found.time, tuple((v is not None, v) for v in (found.group or {}).values())
    places = tuple(_place(found.events.get(r.variable), order) for r in checked.query.ranges)
    return found.time, places, _values(found)


def _values(found: Match) -> list[tuple[str, str]]:
    """What tells matches of the same events apart: the PATH variables that are selected."""
    return [("" if v is None else type(v).__name__, str(v)) for v in found.select.values()]


def _place(bound: Bound, order: Mapping[EventRef, OrderKey]) -> tuple[OrderKey, ...]:
    if bound is None:
        return ()
    return tuple(order[ref] for ref in (bound if isinstance(bound, list) else [bound]))
