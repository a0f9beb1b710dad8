"""The log as a data source of Spark: every offset once, in several tasks, from disk and over TCP, at any cut."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import cepheid.spark
from cepheid.history.log_source import NAME, apart_schema, log_schema, register
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.service.intake import IntakeProcess
from cepheid.service.log import LogReader, log_committed
from cepheid.service.supplier import Supplier
from tests.service.intakes import AIR, VIBRATION, Start, air, starting
from tests.service.test_intake import own_address

pytestmark = pytest.mark.spark

TOKEN: Final = "of the test"
COUNT: Final = 500


def events() -> list[Event]:
    """Events of two streams, some late, some twice."""
    r = random.Random(3)
    found: list[Event] = []
    for number in range(COUNT):
        if found and r.random() < 0.05:
            found.append(r.choice(found))
        elif r.random() < 0.3:
            values = {"samples": bytes([number % 256] * 3), "axis": None if number % 7 else number}
            found.append(Event("vibration", number, number * 10, values))
        else:
            found.append(
                air(number, number * 10 - r.choice([0, 0, 0, 10, 40]), r.choice(["D1", "D2", None]), r.uniform(0, 9))
            )
    return found


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Start, Path]]:
    folder = tmp_path_factory.mktemp("source")
    with starting(folder) as begun:
        yield begun, folder


@pytest.fixture(scope="module")
def intake(begin: tuple[Start, Path], spark: SparkSession) -> IntakeProcess:
    register(spark)
    process = begin[0](listen=[f"tcp:{own_address()}:0"], token=TOKEN)
    push(process, events())
    return process


def push(intake: IntakeProcess, given: list[Event]) -> None:
    with Supplier(intake.address, token=TOKEN) as supplier:
        for event in given:
            supplier.push(event)
        supplier.flush()


@pytest.fixture(scope="module")
def log(intake: IntakeProcess, begin: tuple[Start, Path]) -> Path:
    return begin[1] / "log"


def rows_in(log: Path, *streams: str) -> list[tuple[Any, ...]]:
    return [
        (each.offset, each.event.stream, each.event.id, each.event.time, each.late, each.duplicate)
        for each in LogReader(log)
        if each.event.stream in streams
    ]


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    columns = ["offset", "stream", "id", "unix_micros(time) AS time", "late", "duplicate"]
    return [tuple(row) for row in frame.selectExpr(*columns).orderBy("offset").collect()]


@pytest.mark.parametrize("over", ["disk", "tcp"])
def test_a_batch_has_every_offset_once(spark: SparkSession, intake: IntakeProcess, log: Path, over: str) -> None:
    place = ("path", str(log)) if over == "disk" else ("address", intake.address)
    reader = spark.read.format("cepheid").option(*place).option("token", TOKEN).option("eventsPerTask", 90)
    frame = reader.option("stream", "air, vibration").load()
    wanted = rows_in(log, "air", "vibration")
    assert frame.rdd.getNumPartitions() == -(-len(wanted) // 90) > 3
    assert rows_of(frame) == wanted
    assert any(late for *_, late, _ in wanted)
    assert any(duplicate for *_, duplicate in wanted)
    vibration = {each.event.id: each.event.attributes for each in LogReader(log) if each.event.stream == "vibration"}
    found = {row["id"]: row.asDict() for row in frame.where("stream = 'vibration'").collect()}
    assert all(
        bytes(found[i]["samples"]) == a["samples"] and found[i]["axis"] == a["axis"] for i, a in vibration.items()
    )


def test_a_stream_has_every_offset_once_and_goes_on(
    spark: SparkSession, intake: IntakeProcess, log: Path, tmp_path: Path
) -> None:
    frame = (
        spark.readStream.format("cepheid")
        .options(path=str(log), stream="air", eventsPerBatch=200, eventsPerTask=90, consumer="spark")
        .load()
    )

    def run() -> list[tuple[Any, ...]]:
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.format("parquet").start(str(tmp_path / "out")).awaitTermination()
        return rows_of(spark.read.parquet(str(tmp_path / "out")))

    assert run() == rows_in(log, "air")
    push(intake, [air(10_000 + i, COUNT * 10 + i) for i in range(20)])
    assert run() == rows_in(log, "air")
    # Spark says that a batch is through when it plans the next one.
    assert log_committed(log, "spark") == COUNT


def test_what_the_log_flagged_takes_part_in_nothing(spark: SparkSession, intake: IntakeProcess, log: Path) -> None:
    frame = spark.read.format("cepheid").options(path=str(log), stream="air").load()
    matches = frame.transform(cepheid.spark.match("SELECT ?e.id, ?e.flow FROM (?e, air)"))
    sound = [(i, t) for _, _, i, t, late, duplicate in rows_in(log, "air") if not late and not duplicate]
    assert sorted(row["events"]["e"] for row in matches.collect()) == sorted(i for i, _ in sound)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r'say which log: option\("path", "data/log"\)'),
        ({"path": "LOG"}, r'say which streams of the log: option\("stream", "air"\)'),
        ({"path": "LOG", "stream": "vibrations"}, "has no stream 'vibrations'; it has air, vibration; .*'vibration'"),
        ({"path": "LOG", "stream": "air", "lateness": "soon"}, "lateness: .*'soon'"),
        (
            {"path": "LOG", "stream": "air", "eventPerTask": "1"},
            "'eventpertask' is no option of the log; .*'eventsPerTask'",
        ),
        ({"path": "LOG", "stream": "air", "from": "now"}, "from: expected first, last or an offset, found 'now'"),
        ({"path": "LOG/nowhere", "stream": "air"}, "has no events yet, and so no schema|nowhere"),
    ],
)
def test_options_that_say_too_little(
    spark: SparkSession, log: Path, intake: IntakeProcess, options: dict[str, str], message: str
) -> None:
    given = {key: value.replace("LOG", str(log)) for key, value in options.items()}
    with pytest.raises((AnalysisException, PySparkException), match=message):
        spark.read.format("cepheid").options(**given).load().count()


def test_a_wrong_token_an_id_of_another_kind_and_an_offset_that_never_was(
    spark: SparkSession, intake: IntakeProcess, log: Path, tmp_path: Path
) -> None:
    reader = spark.read.format("cepheid")
    with pytest.raises(PySparkException, match="token"):
        reader.options(address=intake.address, stream="air", token="another").load()
    with pytest.raises(PySparkException, match=r'is a number; write option\("ids", "int"\)'):
        spark.read.format("cepheid").options(path=str(log), stream="air", ids="string").load().count()
    stream = spark.readStream.format("cepheid").options(**{"path": str(log), "stream": "air", "from": "99999"}).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(StreamingQueryException, match="is not the log that the checkpoint was begun with"):
        writer.start().awaitTermination()


def test_a_schema_is_given_to_a_log_without_events() -> None:
    schema = log_schema([AIR, VIBRATION])
    assert schema.fieldNames() == [
        *("stream", "id", "time", "sensor", "flow", "samples", "axis"),
        *("offset", "late", "duplicate"),
    ]
    assert schema["time"].metadata["cepheid.clocks"]["lateness"] == {"air": 10, "vibration": 0}


def test_streams_add_to_the_environment_they_share_at_the_same_time(spark: SparkSession) -> None:
    session: Any = spark
    before = session.sparkContext.environment
    with ThreadPoolExecutor(4) as several:
        for registered in [several.submit(register, spark) for _ in range(20)]:
            registered.result()
    assert session.sparkContext.environment is before
    source = session._jsparkSession.sessionState().dataSourceManager().lookupDataSource(NAME)
    shared = source.dataSourceCls().envVars()
    for name, value in before.items():
        assert shared[name] == value
    shared["FIRST"] = "stream"
    # A HashMap would notice that, and fail; were it two threads, it might not, and count an entry that it has lost.
    entries = iter(shared.keySet())
    shared["SECOND"] = "stream"
    assert {*entries} >= {*before, "FIRST"}


def test_a_schema_that_changes_under_a_running_stream(spark: SparkSession, tmp_path: Path) -> None:
    """A stream that gains an attribute goes on without it; one whose attribute has another type says so."""
    register(spark)
    log = tmp_path / "log"

    def supply(stream: Stream, number: int, values: dict[str, Any]) -> None:
        with starting(tmp_path) as begin:
            push(begin(streams=[stream], token=None), [Event(stream.name, number, number, values)])

    supply(Stream("air", {"flow": Type.FLOAT}), 1, {"flow": 1.5})
    frame = spark.readStream.format("cepheid").options(path=str(log), stream="air", ids="int").load()
    query = frame.writeStream.format("memory").queryName("changing").start()
    try:
        query.processAllAvailable()
        supply(Stream("air", {"flow": Type.FLOAT, "room": Type.STRING}), 2, {"flow": 2.5, "room": "r"})
        query.processAllAvailable()
        assert [tuple(r) for r in spark.sql("SELECT id, flow FROM changing ORDER BY id").collect()] == [
            (1, 1.5),
            (2, 2.5),
        ]
        supply(Stream("air", {"flow": Type.STRING, "room": Type.STRING}), 3, {"flow": "much", "room": "r"})
        with pytest.raises(
            StreamingQueryException, match="another type in the log than in the DataFrame, between offsets 2"
        ):
            query.processAllAvailable()
        assert "Start the query again, with the log's schema of today" in str(query.exception())
        # As the archive reads it, each stream by itself.
        apart = spark.read.format("cepheid").options(path=str(log), stream="air")
        with pytest.raises(PySparkException, match="another type in the log than in the DataFrame, between offsets 0"):
            apart.schema(apart_schema([Stream("air", {"flow": Type.FLOAT}, id_kind="int")])).load().collect()
    finally:
        query.stop()
