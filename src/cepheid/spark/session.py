"""Spark sessions: the caller's own is respected; otherwise one is built that has what Cepheid needs."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from cepheid.spark.jars import delta_jars, kafka_jars
from cepheid.spark.java import find_java
from cepheid.spark.trouble import explained, is_of_newer_delta

_DELTA_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
#: What the functions of this package count on, whoever builds the session.
_NEEDED: Final = {
    "spark.sql.catalog.spark_catalog": _DELTA_CATALOG,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # That is no bound: 10,000 rows of events, which are narrow, are one already. With 64 MB, as is the default, Spark
    # measures all that it has gathered anew for each row: a fifth of the time of Query 3, up to a third of a stream's.
    _BYTES: "2147483647b",
    # Instants as the 64-bit microseconds they are, not as the deprecated INT96.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # 50 by default: fifty tasks to read a log of a few entries, at every commit.
    "spark.databricks.delta.snapshotPartitions": "2",
    # Else each commit leaves beside it, of a table with few files, all of them once more: ten times its own size.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A query that was killed before its first batch leaves half a file there, and could never be started again.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
}
#: Instead, for a session that reads records of files and topics, which can have any length.
OF_ANY_LENGTH: Final = {_BYTES: "64m"}
#: Java 17 gives up for want of memory when it was kept twice from collecting garbage, as by native code that holds an
#: array to compress it; sorting in a small heap is kept from it more often (JDK-8192647). Newer ones need no such
#: setting, and have none.
_PATIENT_JAVA: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:GCLockerRetryAllocationCount=100"
)
#: What a session of our own has besides.
_OURS: Final = {
    "spark.master": "local[*]",
    "spark.driver.extraJavaOptions": _PATIENT_JAVA,
    "spark.executor.extraJavaOptions": _PATIENT_JAVA,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # 10,000 by default: thousands of tasks to list the folders of a small table, as VACUUM does.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}


class DeltaMissing(RuntimeError):
    """A session that someone else built has no Delta, and the archive needs it."""


class DeltaTooOld(RuntimeError):
    """A table was written by a newer Delta, in a way that this one does not know."""


class SparkNotStarted(RuntimeError):
    """Spark's own process ended before there was a session. The message has the last that it said."""


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Adds what Cepheid needs to a builder of one's own: `spark = configure(SparkSession.builder).getOrCreate()`.

    What the builder already has stays. Raises JavaMissing and JarsUnavailable.
    """
    own = builder._options
    jars = [str(jar) for jar in delta_jars()]
    builder.config("spark.jars", _joined(own.get("spark.jars"), jars))
    builder.config("spark.sql.extensions", _joined(own.get("spark.sql.extensions"), [_DELTA_EXTENSION]))
    return _with_defaults(builder, _NEEDED)


def _with_defaults(builder: SparkSession.Builder, defaults: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in defaults.items():
        if key not in builder._options:
            builder.config(key, value)
    return builder


def _joined(present: str | None, added: list[str]) -> str:
    return ",".join(dict.fromkeys([*(present or "").split(","), *added])).strip(",")


def with_kafka(jars: str | None = None) -> dict[str, str]:
    """Settings for a session that reads and writes topics of Kafka: `session(**with_kafka())`; with further jars."""
    return {"spark.jars": _joined(jars, [str(jar) for jar in kafka_jars()])}


def session(name: str = "cepheid", **conf: str) -> SparkSession:
    """The caller's active session as it is, or else a new local one, quiet and reachable from this machine only.

    `conf` has further settings for a new one: `session(**{"spark.driver.memory": "4g"})`. Raises JavaMissing and
    JarsUnavailable, before pyspark could fail in its own words.
    """
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        pass  # there is none
    os.environ["JAVA_HOME"] = str(find_java().home)
    builder = _with_defaults(SparkSession.Builder(), conf | {"spark.app.name": name})
    parts = {"spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2))}
    _with_defaults(configure(builder), _OURS | parts)
    if builder._options["spark.master"].startswith("local"):
        _with_defaults(builder, {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"})
        # Not whatever `python3` is on PATH, or in a profile: the workers must be able to import cepheid.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if SparkContext._gateway is None:
        _launch_quietly(builder)
        return _begun(builder)
    # The JVM of an earlier session, stopped since, serves again; it has only the jars that it was started with.
    spark = _begun(builder)
    try:
        require_delta(spark)
    except DeltaMissing:
        spark.stop()
        raise
    return spark


def _begun(builder: SparkSession.Builder) -> SparkSession:
    try:
        return builder.getOrCreate()
    except Py4JJavaError as error:
        master, reason = builder._options["spark.master"], str(error.java_exception.getMessage()).splitlines()[0]
        if "stopped SparkContext" in reason:  # how it puts it that nobody answered
            reason = "it does not answer"
        raise SparkNotStarted(f"there is no session of Spark at {master}: {reason}") from error


def _launch_quietly(builder: SparkSession.Builder) -> None:
    """Starts the JVM with its standard error in a file.

    The JVM greets with warnings that no log level turns off, and Spark prints whole stack traces of failures that reach
    Python as exceptions anyway. The file lives as long as this process.
    """
    with tempfile.NamedTemporaryFile(prefix="cepheid-spark-", suffix=".log", delete=False) as log:
        path = Path(log.name)
        atexit.register(path.unlink, missing_ok=True)
        conf = SparkConf(loadDefaults=False)
        for key, value in builder._options.items():
            conf.set(key, str(value))
        try:
            gateway = launch_gateway(conf, {"stderr": log})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            last = "\n".join(f"  {line}" for line in path.read_text(errors="replace").splitlines()[-12:])
            raise SparkNotStarted(f"Spark did not start. Its last words:\n{last}") from error
    SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def explaining_delta(spark: SparkSession) -> Iterator[None]:
    """Whatever fails inside because the session has no Delta is a DeltaMissing, or a DeltaTooOld for its table."""
    try:
        yield
    except Exception as error:
        require_delta(spark)
        if is_of_newer_delta(str(error)):
            raise DeltaTooOld(explained(str(error))) from error
        raise


def require_delta(spark: SparkSession) -> None:
    """Raises DeltaMissing unless the session can read and write Delta tables."""
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    catalog = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
    if _DELTA_EXTENSION in extensions and _DELTA_CATALOG in catalog and _knows_delta(spark):
        return
    raise DeltaMissing(
        "this Spark session has no Delta, which the archive is kept in. Build the session with it:\n"
        "  from cepheid.spark.session import configure\n"
        "  spark = configure(SparkSession.builder).getOrCreate()\n"
        "(in a new process: a running Spark can't be given jars), or set `format: parquet` for the archive."
    )


def _knows_delta(spark: SparkSession) -> bool:
    """Whether the classes are really there: the settings alone only promise it."""
    try:
        spark.read.format("delta").load("/nonexistent/cepheid").schema  # noqa: B018
    except AnalysisException as error:
        return error.getCondition() == "PATH_NOT_FOUND"
    except Py4JJavaError:
        return False  # the catalog's class is not found
    return True
