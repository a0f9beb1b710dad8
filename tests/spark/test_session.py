"""Sessions: the caller's is respected, ours has what it needs, and what is missing is said clearly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cepheid.app import load
from cepheid.spark.application import settings
from cepheid.spark.session import configure, require_delta, session


def test_an_active_session_is_returned_as_it_is(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert session(**{"spark.sql.shuffle.partitions": "77"}) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_ours_has_delta_and_utc_and_is_not_reachable_from_outside(spark: SparkSession) -> None:
    require_delta(spark)
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.host") == spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_ours_does_not_take_a_collection_that_waits_for_the_end_of_memory(spark: SparkSession) -> None:
    assert spark._jvm is not None
    beans = spark._jvm.java.lang.management.ManagementFactory
    assert "-XX:GCLockerRetryAllocationCount=100" in list(beans.getRuntimeMXBean().getInputArguments())


def test_only_records_that_nobody_judged_are_handed_over_by_their_size(spark: SparkSession, tmp_path: Path) -> None:
    """Where batches are bounded in bytes, Spark measures all that it has gathered anew for each row."""
    limit = "spark.sql.execution.arrow.maxBytesPerBatch"
    assert spark.conf.get(limit) == "2147483647b"  # which is none
    for source, wanted in [("", {}), ("source: {kind: files, path: in}, ", {limit: "64m"})]:
        (tmp_path / "app.yaml").write_text(f"name: plant\nstreams:\n  flow: {{{source}attributes: {{x: float}}}}\n")
        assert settings(load(tmp_path / "app.yaml")) == wanted


@pytest.mark.spark
def test_a_builder_keeps_its_own_jars_and_extensions() -> None:
    builder = SparkSession.Builder().config("spark.jars", "mine.jar").config("spark.sql.extensions", "my.Extension")
    options = configure(configure(builder))._options
    assert options["spark.jars"].split(",")[0] == "mine.jar"
    assert sum("delta-spark" in jar for jar in options["spark.jars"].split(",")) == 1
    assert options["spark.sql.extensions"] == "my.Extension,io.delta.sql.DeltaSparkSessionExtension"


def run(program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environ,
        check=False,
    )


@pytest.mark.spark
def test_a_session_without_delta() -> None:
    """One process, for it must have no session but this: a foreign one, then a new one in the JVM that it leaves."""
    done = run("""
from pyspark.sql import SparkSession
from cepheid.spark.archive import Archive, read
from cepheid.spark.session import DeltaMissing, require_delta, session
from tests.spark.samples import AIR

foreign = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert session() is foreign
for step in (lambda: require_delta(foreign), lambda: read(foreign, Archive("/nowhere"), AIR)):
    try:
        step()
    except DeltaMissing as missing:
        print(missing)
assert read(foreign, Archive("/nowhere", "parquet"), AIR).count() == 0
foreign.stop()
try:
    session()
except DeltaMissing as missing:
    print(missing)
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("configure(SparkSession.builder)") == 3


def test_no_java(tmp_path: Path) -> None:
    """Said before pyspark is asked, which would only say that the gateway exited."""
    done = run(
        f"""
from functools import partial
from pathlib import Path
import cepheid.spark.session as ours
from cepheid.spark.java import JavaMissing, find_java

ours.find_java = partial(find_java, jvm_folder=Path({str(tmp_path)!r}))
try:
    ours.session()
except JavaMissing as missing:
    print(missing)
""",
        PATH=str(tmp_path),
        JAVA_HOME="",
    )
    assert done.returncode == 0, done.stderr
    assert "no Java 17 or newer was found" in done.stdout


@pytest.mark.spark
def test_a_jvm_that_does_not_start() -> None:
    done = run("""
from cepheid.spark.session import SparkNotStarted, session
try:
    session(**{"spark.driver.memory": "nonsense"})
except SparkNotStarted as error:
    print(error)
try:
    session(**{"spark.master": "spark:nowhere"})
except SparkNotStarted as error:
    print(error)
""")
    assert done.returncode == 0, done.stderr
    assert "nonsense" in done.stdout
    assert "there is no session of Spark at spark:nowhere: " in done.stdout
