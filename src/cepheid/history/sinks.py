"""Where the matches of a live query go: a Delta table, files, a topic of Kafka, the console; and into the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType, TimestampType

from cepheid.app.schema import DeltaSink, FilesSink, KafkaSink, SinkSection
from cepheid.model.events import Event
from cepheid.service.supplier import Supplier
from cepheid.spark.recovered import MARKS
from cepheid.spark.sources import check_brokers, client_options

Say: TypeAlias = Callable[[str], object]

#: Rule O1; the session's time zone is UTC.
_JSON: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "ignoreNullFields": "false"}


_MARKS: Final = tuple(field.name for field in MARKS)


class OtherTable(ValueError):
    """A table that can't take the matches of a query."""


def writer_to(sink: SinkSection, matches: DataFrame, say: Say) -> DataStreamWriter:
    """What writes a stream of matches to a sink; `say` prints what the console gets."""
    if isinstance(sink, DeltaSink):
        # A query that is changed may select something else, and goes on in its table.
        _check_table(matches, sink.path)
        return matches.writeStream.format("delta").option("path", sink.path).option("mergeSchema", "true")
    if isinstance(sink, FilesSink) and sink.format == "parquet":
        return matches.writeStream.format("parquet").option("path", sink.path)
    line = as_line(matches)
    if isinstance(sink, FilesSink):
        return matches.select(line.alias("value")).writeStream.format("text").option("path", sink.path)
    if isinstance(sink, KafkaSink):
        check_brokers(sink.brokers)
        records = matches.select(sf.col("id").alias("key"), line.alias("value"))
        return records.writeStream.format("kafka").options(
            **client_options(sink.options.items()), **{"kafka.bootstrap.servers": sink.brokers, "topic": sink.topic}
        )
    return matches.select("time", "id", line.alias("line")).writeStream.foreachBatch(_printing(say))


def _check_table(matches: DataFrame, path: str) -> None:
    """Raises OtherTable where a Delta table has a column of another type: Delta would cast silently what it can."""
    try:
        table = matches.sparkSession.read.format("delta").load(path).schema
    except AnalysisException:  # there is none yet, or it is told of when it is written
        return
    if clash := _clash(table, matches.schema):
        raise OtherTable(
            f"the matches don't fit into the table {path}, which a query has written that was another: {clash}. Name "
            "what is selected otherwise (AS), or give the query another table (`sink: {kind: delta, path: ...}`)"
        )


def _clash(there: StructType, here: StructType, inside: str = "") -> str | None:
    """The first column that both have, with another type."""
    for column in here.fields:
        if column.name not in there.names:
            continue
        old, new = there[column.name].dataType, column.dataType
        if isinstance(old, StructType) and isinstance(new, StructType):
            if found := _clash(old, new, inside=f"{inside}{column.name}."):
                return found
        elif old.simpleString() != new.simpleString():
            return f"'{inside}{column.name}' is {old.simpleString()} there and {new.simpleString()} here"
    return None


def as_line(matches: DataFrame) -> Column:
    """A match as a line of JSON, as `cepheid match` prints it; one that is recovered says so."""
    columns = [matches[name] for name in matches.columns if name not in _MARKS]
    if "events" not in matches.columns:  # of windows
        columns.insert(2, sf.from_json(sf.lit("{}"), "map<string,string>").alias("events"))
    line = sf.to_json(sf.struct(*columns), _JSON)
    if "recovered" not in matches.columns:
        return line
    marked = sf.to_json(sf.struct(*columns, *(matches[name] for name in _MARKS)), _JSON)
    return sf.when(matches["recovered"], marked).otherwise(line)


def _printing(say: Say) -> Callable[[DataFrame, int], None]:
    def show(lines: DataFrame, _: int) -> None:
        for row in lines.orderBy("time", "id").toLocalIterator():
            say(row["line"])

    return show


def to_log(matches: DataFrame, name: str, intake: str, token: str | None) -> DataStreamWriter:
    """What brings a query's matches into the log, as events of a stream of its name, for those who read it.

    The match's id is the event's: one that comes again after a failure is a duplicate to the intake (rule E4).
    """
    select = matches.select("id", sf.unix_micros("time").alias("time"), "select.*")
    select = select.withColumns(
        {f.name: sf.unix_micros(f.name) for f in select.schema.fields if isinstance(f.dataType, TimestampType)}
    )

    def push(rows: DataFrame, _: int) -> None:
        with Supplier(intake, token=token) as supplier:
            for row in rows.orderBy("time", "id").toLocalIterator():
                values = row.asDict()
                supplier.push(Event(name, values.pop("id"), values.pop("time"), values))
            supplier.flush()

    return select.writeStream.foreachBatch(push)
