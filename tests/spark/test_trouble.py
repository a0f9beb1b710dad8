"""What goes wrong on Spark is said in a way that helps: damaged checkpoints, newer tables, brokers that are away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import cepheid.spark
from cepheid.spark.archive import Archive, Batch, append_batch, read
from cepheid.spark.pipeline import PipelineFailed, archive_files, input_checkpoint
from cepheid.spark.session import DeltaTooOld
from cepheid.spark.sources import BrokerAway, check_brokers, read_files
from cepheid.spark.trouble import essence, explained
from cepheid.spark.validate import validate
from tests.service.brokers import free_port
from tests.spark.samples import AIR, mixed_lines
from tests.spark.test_matching import QUERIES
from tests.spark.test_streaming import NOW, arrivals, write
from tests.spark.test_streaming import read as read_json


def test_the_essence_of_a_failure() -> None:
    java = "An error occurred while calling o9.save.\n: java.io.IOException: No space left on device\n\tat a.b(c:1)"
    assert essence(java) == "java.io.IOException: No space left on device"
    worker = (
        "\n  An exception was thrown from the Python worker.\nTraceback (most recent call last):\n"
        "  File \"x.py\", line 1, in f\nModuleNotFoundError: No module named 'cepheid'\n\n\tat a.b(c:1)\n"
    )
    assert essence(worker) == "ModuleNotFoundError: No module named 'cepheid'"
    assert (
        essence("[PATH_NOT_FOUND] Path does not exist\nJVM stacktrace:\n...") == "[PATH_NOT_FOUND] Path does not exist"
    )
    assert essence("") == "no reason was given"


@pytest.mark.parametrize("what", ["offsets/0", "commits/0", "metadata"])
def test_a_damaged_checkpoint_is_named(spark: SparkSession, tmp_path: Path, what: str) -> None:
    archive = Archive(str(tmp_path / "archive"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_bytes(b"\n".join(mixed_lines(5)))
    archive_files(spark, [AIR], tmp_path / "in", "jsonl", archive)
    checkpoint = Path(input_checkpoint(archive, tmp_path / "in", "jsonl"))
    (checkpoint / what).write_bytes(b"rubbish")
    (checkpoint / what).with_name(f".{(checkpoint / what).name}.crc").unlink(missing_ok=True)
    (tmp_path / "in" / "2.jsonl").write_bytes(b"\n".join(mixed_lines(5, start=50)))
    with pytest.raises(PipelineFailed) as caught:
        archive_files(spark, [AIR], tmp_path / "in", "jsonl", archive)
    assert f"its checkpoint {checkpoint} is damaged" in str(caught.value)
    assert "Put back a copy of that folder" in str(caught.value)


def failure(writer: DataStreamWriter, folder: Path) -> str:
    """What is said of a stream that fails, with its checkpoint in a folder."""
    with pytest.raises(StreamingQueryException) as caught:
        writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start().awaitTermination()
    return explained(str(caught.value), str(folder))


def test_a_state_that_can_not_be_read(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", arrivals(), [0, 100])
    stream = read_json(spark, tmp_path / "in").withWatermark("time", "2 seconds")
    found = stream.transform(cepheid.spark.match(QUERIES["pair"], stream="stream", now=NOW))
    writer, checkpoint = found.writeStream.format("noop"), tmp_path / "checkpoint"
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()  # type: ignore[union-attr]
    for file in (checkpoint / "state").glob("0/[0-9]*/*[0-9]*.*"):
        file.write_bytes(b"rubbish")
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    write(tmp_path / "in", arrivals(), [100, 200])
    said = failure(writer, checkpoint)
    assert f"its checkpoint {checkpoint} is damaged" in said


def test_a_session_without_rocksdb(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own words name the store, and not the setting."""
    setting = "spark.sql.streaming.stateStore.providerClass"
    before = str(spark.conf.get(setting))
    write(tmp_path / "in", arrivals(), [0, 10])
    stream = read_json(spark, tmp_path / "in").withWatermark("time", "2 seconds")
    found = stream.transform(cepheid.spark.match(QUERIES["pair"], stream="stream", now=NOW))
    spark.conf.set(setting, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    try:
        said = failure(found.writeStream.format("noop"), tmp_path / "checkpoint")
    finally:
        spark.conf.set(setting, before)
    assert f'Write spark.conf.set("{setting}", "{before}")' in said


def test_a_table_that_changed_under_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    table, checkpoint = str(tmp_path / "table"), tmp_path / "checkpoint"
    spark.range(3).write.format("delta").save(table)
    begun = spark.readStream.format("delta").load(table).writeStream.format("noop")
    begun.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    spark.range(3).selectExpr("string(id) AS name").write.format("delta").mode("overwrite").option(
        "overwriteSchema", "true"
    ).save(table)
    again = spark.readStream.format("delta").load(table).writeStream.format("noop")
    assert "what it reads has another schema than when it began" in failure(again, checkpoint)


def test_a_broker_that_goes_away(spark: SparkSession, tmp_path: Path) -> None:
    """Later than `check_brokers` could tell."""
    topic = spark.readStream.format("kafka").option("subscribe", "readings")
    topic = topic.option("kafka.bootstrap.servers", f"127.0.0.1:{free_port()}")
    topic = topic.option("kafka.default.api.timeout.ms", 3000).option("kafka.request.timeout.ms", 2000)
    said = failure(topic.load().writeStream.format("noop"), tmp_path / "checkpoint")
    assert "the broker of Kafka does not answer" in said
    assert "it goes on where it was" in said


def test_a_table_of_a_newer_delta(spark: SparkSession, tmp_path: Path) -> None:
    archive = Archive(str(tmp_path / "archive"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_bytes(b"\n".join(mixed_lines(5)))
    records = read_files(spark, tmp_path / "in").transform(validate([AIR]))
    append_batch(records, [AIR], archive, Batch("test", 0))
    log = Path(archive.table(AIR.name)) / "_delta_log"
    last = max(int(entry.stem) for entry in log.glob("*.json"))
    features = ["timeTravelBothWays"]
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    newer = {"protocol": {**versions, "readerFeatures": features, "writerFeatures": features}}
    (log / f"{last + 1:020}.json").write_text(json.dumps(newer))
    with pytest.raises(
        DeltaTooOld, match=r"written by a newer Delta than this one: .*timeTravelBothWays.*another path"
    ):
        read(spark, archive, AIR).count()
    with pytest.raises(DeltaTooOld, match="written by a newer Delta"):
        append_batch(records, [AIR], archive, Batch("test", 1))


def test_a_broker_that_is_away_is_tried_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("cepheid.spark.sources.time.sleep", waited.append)
    port = free_port()
    with pytest.raises(
        BrokerAway,
        match=rf"no broker of Kafka answers, tried 3 times \(127.0.0.1:{port}: .*refused; nowhere: .*\). Start it",
    ):
        check_brokers(f"127.0.0.1:{port}, nowhere")
    assert waited == [0.5, 2.0]
