"""What the tests of every folder share: one Spark session, started by the first test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Many small jobs in a young JVM: few tasks each, and no time spent on compiling well what runs twice.
SPARK_FOR_TESTS: Final = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from cepheid.spark.session import session, with_kafka

    spark = session("cepheid-tests", **SPARK_FOR_TESTS, **with_kafka())
    yield spark
    spark.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever uses the session bears the mark."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
