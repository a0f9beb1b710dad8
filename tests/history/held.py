"""A past that tests hold in their hands: events as tables, without an archive on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from cepheid.app.application import Application
from cepheid.app.question import Question
from cepheid.app.schema import ApplicationSection
from cepheid.history.asked import Asked
from cepheid.history.past import Past
from cepheid.history.times import times_of
from cepheid.language.checker import Checked
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.plan.graph import Graph
from cepheid.spark.archive import Archive
from cepheid.spark.validate import declared_for_spark, event_schema


class Held(Past):
    """Events at hand, as an archive has them."""

    def __init__(self, spark: SparkSession, events: Iterable[Event]) -> None:
        super().__init__(spark, Archive("/nowhere"))
        object.__setattr__(self, "_events", list(events))

    def events(self, stream: Stream) -> DataFrame:
        schema = event_schema(declared_for_spark(stream))
        own: list[Event] = [e for e in self._events if e.stream == stream.name]  # type: ignore[attr-defined]
        rows = [
            {"id": e.id, "time": e.time, **{name: _cell(e.attributes.get(name)) for name in stream.attributes}}
            for e in own
        ]
        table = pa.Table.from_pylist(rows, schema=to_arrow_schema(schema, timezone="UTC"))
        return self.spark.createDataFrame(table, schema)


def _cell(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def asked_of(checked: Checked, streams: Mapping[str, Stream], now: int) -> Asked:
    """A query that was checked, asked of an application with nothing but its streams."""
    app = Application(ApplicationSection(name="held"), Graph(levels=("normal",), streams=streams), Path())
    own = {name: streams[name] for name in checked.streams}
    return Asked(app, Question(checked, checked), own, now, times_of(checked, now), ())
