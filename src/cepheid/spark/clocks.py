"""What is known of the time of a DataFrame's streams: how late events may come, and what happens when none do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from cepheid.model.time import parse_duration

#: The key under which a time column of the log's events says the lateness and idle time of its streams.
METADATA: Final = "cepheid.clocks"
#: The columns that events of the log have besides their own.
LOG_COLUMNS: Final = ("offset", "late", "duplicate")
_SPARK_DELAY: Final = "spark.watermarkDelayMs"


@dataclass(frozen=True, slots=True)
class Live:
    """How a query runs on a streaming DataFrame.

    `buckets` is how many parts the keys are divided into; a checkpoint goes on with the number that it was begun with.
    `arrival` names a column that grows as events come, such as Kafka's `timestamp`; events of one arrival came side by
    side, and without it those of different partitions of a batch. After `idle` ("5s") without an event a stream's
    watermark follows the clock at that distance (rule E5); events of the log can have their streams' own. With `late`
    the result has a further column of that name: a row where it is not null is no match, but an event that came too
    late for one. `real_time` plans operators of the JVM only, for `trigger(realTime=...)`: a query about single events
    waits for nothing, so it needs no watermark, and nothing is late. `missed`, of events of the log with the time of
    their arrival, is the offset where the log ended at the start: matches bear the marks of recovered.py.
    """

    buckets: int = 16
    arrival: str | None = None
    idle: str | None = None
    late: bool = False
    real_time: bool = False
    missed: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.buckets <= 4096:
            raise ValueError(f"buckets: expected 1 to 4096, found {self.buckets}")
        if self.idle is not None and parse_duration(self.idle) <= 0:
            raise ValueError(f"idle: expected more than no time, found {self.idle}")


@dataclass(frozen=True, slots=True)
class Clocks:
    """The lateness and idle time of streams, in microseconds, by name; "" stands for every stream.

    `flagged`: they come from the log, which has decided what is late and what a duplicate.
    """

    lateness: Mapping[str, int]
    idle: Mapping[str, int]
    flagged: bool

    @staticmethod
    def of(frame: DataFrame, time: str) -> Clocks | None:
        """What the time column says of itself; None if nothing."""
        said: dict[str, Any] = next((f.metadata or {} for f in frame.schema.fields if f.name == time), {})
        everywhere = {"": said[_SPARK_DELAY] * 1000} if _SPARK_DELAY in said else {}
        if METADATA in said:
            own, flagged = said[METADATA], set(LOG_COLUMNS) <= set(frame.columns)
            return Clocks({**everywhere, **own.get("lateness", {})}, own.get("idle", {}), flagged)
        return Clocks(everywhere, {}, flagged=False) if everywhere else None
