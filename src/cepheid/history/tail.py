"""What the log has and the archive has not: the gap between them, known exactly by offsets.

The archive says how far it has come when a batch is through. From there on the log is read instead, also what the
archive may have already: so each event is there once, whether the two overlap or the archive lags behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cepheid.app.application import Application
from cepheid.history import log_source
from cepheid.history.archiving import CONSUMER
from cepheid.history.log_place import LogPlace
from cepheid.history.log_source import log_schema
from cepheid.model.streams import Stream
from cepheid.service.log import extent, log_committed
from cepheid.spark.archive import LOG_OFFSET
from cepheid.spark.validate import declared_for_spark


class Hole(RuntimeError):
    """Events that are neither in the archive nor in the log any more."""


@dataclass(frozen=True)
class Tail:
    """The offsets of a log that the archive may not have, the last not included."""

    log: LogPlace
    start: int
    end: int
    #: Whether the archive has said how far it has come.
    committed: bool = True

    def archived(self, events: DataFrame) -> DataFrame:
        """The rows of an archived table, with its columns of the log, that are not read from the log."""
        return events.where(f"coalesce({LOG_OFFSET} < {self.start}, true)")

    def read(self, spark: SparkSession, stream: Stream) -> DataFrame:
        """The events of a stream: id, time and the attributes."""
        declared = declared_for_spark(stream)
        options = {**self.log.options, "stream": stream.name, "from": str(self.start), "to": str(self.end)}
        if declared.id_kind == "string":
            options["ids"] = "string"
        log_source.register(spark)
        events = spark.read.format(log_source.NAME).options(**options).schema(log_schema([declared])).load()
        columns = (f"`{name}`" for name in ("id", "time", *declared.attributes))
        return events.where("NOT late AND NOT duplicate").select(*columns)


def tail_of(app: Application) -> Tail | None:
    """What is in the application's log beyond what its archive has; None if it has no log yet."""
    service = app.sections.service
    if service is None or service.log is None:
        return None
    log = app.folder / service.log.path
    if not log.is_dir() or not any(log.iterdir()):
        return None
    found = extent(log)
    committed = log_committed(log, CONSUMER) if app.sections.archive is not None else None
    start = found.first if committed is None else committed
    if start < found.first:
        raise Hole(
            f"the events of offsets {start} to {found.first - 1} are neither archived nor in the log {log} any more; "
            "what they would have matched can't be known"
        )
    return Tail(LogPlace(log), start, max(start, found.end), committed is not None)


def check_same_log(archived: DataFrame, tail: Tail, stream: str) -> None:
    """Raises Hole if the archive has offsets that the log never gave: it was filled from another log."""
    last = archived.agg(sf.max(LOG_OFFSET)).collect()[0][0]
    if last is not None and last >= tail.end:
        raise Hole(
            f"the archive of '{stream}' has events up to offset {last}, and the log {tail.log.folder} ends at "
            f"{tail.end}: it is not the log that was archived. Bring that log back, or remove this one"
        )
