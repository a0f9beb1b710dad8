"""Raw records from files, as batches and as streams, for `validate`.

JSON Lines come as a row for each record: `raw`, its bytes, and `source`, the file. CSV and Parquet come as a row for
each file: `source` alone. Streams, and `read_these`, tell in PLACE, too, in which order the records came.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from cepheid.model.files import Format
from cepheid.spark.places import exists, is_pattern, is_plain, literal, local, normal
from cepheid.spark.validate import PLACE

Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)

FILES_PER_BATCH: Final = 64
#: Seconds between tries to reach a broker, and how long each may take.
_PAUSES: Final = (0.5, 2.0)
_PATIENCE: Final = 5.0
#: What Python strips from bytes: a line of nothing else is no record.
_BLANK: Final = " \t\r\x0b\f"

_FILE: Final = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_SOURCE: Final = "_metadata.file_path AS source"
#: Files came when they were last changed, one after the other; large ones are read in blocks.
_CAME: Final = (
    "named_struct('came', _metadata.file_modification_time, 'part', _metadata.file_path, 'number', "
    f"_metadata.file_block_start) AS {PLACE}"
)


class InputMissing(FileNotFoundError):
    """There is no such input."""


class BrokerAway(OSError):
    """No broker of Kafka answers."""


class InputUnsupported(ValueError):
    """Input of a kind, or in a place, that can't be read."""


def read_files(spark: SparkSession, path: str | Path, file_format: Format = "jsonl") -> DataFrame:
    """The records of a file, a folder (with what lies in its folders) or a pattern, now and once."""
    return _records(spark.read, path, file_format, _SOURCE)


def read_these(spark: SparkSession, files: Sequence[str], file_format: Format) -> DataFrame:
    """The records of some files, which are there."""
    patterns = [literal(file) for file in files]
    if file_format == "jsonl":
        return _records_of(spark.read.option("lineSep", "\n").text(patterns), _SOURCE, _CAME)
    return spark.read.format("binaryFile").schema(_FILE).load(patterns).selectExpr(_SOURCE, _CAME)


def read_file_stream(
    spark: SparkSession,
    path: str | Path,
    file_format: Format = "jsonl",
    *,
    files_per_batch: int = FILES_PER_BATCH,
    bytes_per_batch: int | None = None,
) -> DataFrame:
    """The records of the files that are there and of those that come, each file once.

    A file must come complete, as by renaming, and never change: what is added to one that was read is not seen. A batch
    is of so many files, or else of so many bytes, and at least one file.
    """
    if bytes_per_batch is None:
        reader = spark.readStream.option("maxFilesPerTrigger", files_per_batch)
    else:
        reader = spark.readStream.option("maxBytesPerTrigger", bytes_per_batch)
    return _records(reader, path, file_format, _SOURCE, _CAME)


def read_topic(spark: SparkSession, brokers: str, topic: str, client: Iterable[tuple[str, str]] = ()) -> DataFrame:
    """The records of a topic of Kafka from its beginning, each once; the session needs the settings `with_kafka`.

    `client` has further settings of Kafka's client.

    Raises BrokerAway where none answers. One that goes away later is asked for a minute; then the query fails.
    """
    check_brokers(brokers)
    options = client_options(client) | {
        "kafka.bootstrap.servers": brokers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
    }
    options.setdefault("kafka.default.api.timeout.ms", "60000")
    messages = spark.readStream.format("kafka").options(**options).load()
    source = f"concat('kafka://{topic.replace(chr(39), '')}/', partition, '/', offset) AS source"
    came = "named_struct('came', timestamp, 'part', lpad(partition, 10, '0'), 'number', offset)"
    return messages.selectExpr("coalesce(value, X'') AS raw", source, f"{came} AS {PLACE}")


def client_options(client: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Settings of Kafka's client as Spark takes them."""
    return {f"kafka.{name}": value for name, value in client}


def check_brokers(brokers: str) -> None:
    """Raises BrokerAway if nobody listens at any of the addresses, after a few tries.

    Kafka's own clients would ask for minutes, and then say that a call has timed out.
    """
    reasons: list[str] = []
    for pause in (*_PAUSES, None):
        reasons.clear()
        for address in brokers.split(","):
            host, _, port = address.strip().rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
                return
            except (OSError, ValueError) as error:
                reasons.append(f"{address.strip()}: {error}")
        if pause is not None:
            time.sleep(pause)
    raise BrokerAway(
        f"no broker of Kafka answers, tried {len(_PAUSES) + 1} times ({'; '.join(reasons)}). Start it, or mend "
        "`brokers` (host:port, several by comma)"
    )


def check_input(path: str | Path, file_format: Format) -> None:
    """Raises InputMissing or InputUnsupported for what can be known to fail without asking Spark."""
    place = normal(path)
    found = local(place)
    if found is None and file_format != "jsonl":
        raise InputUnsupported(
            f"'{place}': {file_format} is read from paths that this machine and the executors have in common; mount or "
            "copy the files there, or give JSON Lines, which Spark can read anywhere"
        )
    if found is not None and not is_pattern(place) and not exists(found):
        raise _missing(place)


def _missing(place: str) -> InputMissing:
    return InputMissing(f"there is no file or folder '{place}', or none that may be seen; check the path of the input")


def _records(reader: Reader, path: str | Path, file_format: Format, *told: str) -> DataFrame:
    check_input(path, file_format)
    place = normal(path)
    # Of a batch that is given a pattern Spark warns with a page of stack trace.
    plain = is_plain(place) and not isinstance(reader, DataStreamReader)
    pattern = place if plain or is_pattern(place) else literal(place)
    reader = reader.option("recursiveFileLookup", "true")
    try:
        return _json_lines(reader, pattern, *told) if file_format == "jsonl" else _files(reader, pattern, *told)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise _missing(place) from error
        raise


def _json_lines(reader: Reader, pattern: str, *told: str) -> DataFrame:
    # A carriage return alone ends no line, here as in cepheid.model.lines.
    return _records_of(reader.option("lineSep", "\n").text(pattern), *told)


def _records_of(lines: DataFrame, *told: str) -> DataFrame:
    records = lines.where(f"trim(LEADING '{_BLANK}' FROM value) <> ''")
    # The cast keeps the bytes as they are, UTF-8 or not.
    return records.selectExpr("CAST(value AS BINARY) AS raw", *told)


def _files(reader: Reader, pattern: str, *told: str) -> DataFrame:
    """A row for each file, which has to be read as a whole: a quoted cell of CSV can hold line ends.

    Spark's own readers of CSV and Parquet would settle by themselves what does not fit: they fill up short rows, drop
    columns, and fail for all files if one has another type.
    """
    return reader.format("binaryFile").schema(_FILE).load(pattern).selectExpr(*told)
