"""What the tests of every folder share: one Spark session, started by the first test that asks for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What every JVM of Spark is told that tests start: to spend no time on compiling well what runs twice. With only that
#: compiler it keeps 48 MB of code, which are full after two minutes; from then on nothing would be compiled.
JAVA_FOR_TESTS: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
os.environ["SPARK_SUBMIT_OPTS"] = JAVA_FOR_TESTS
#: Many small jobs, of few tasks each, that hand rows to Python in many batches, as large jobs do.
SPARK_FOR_TESTS: Final = {
    "spark.master": "local[2]",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}

# A script's `make test &` starts it deaf to interrupts, and with it all that it starts, some of which tests interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from cepheid.spark.session import session, with_kafka

    spark = session("cepheid-tests", **SPARK_FOR_TESTS, **with_kafka())
    yield spark
    spark.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever uses the session bears its marks."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
            item.add_marker("session")
