"""The paper's campus with a past: 600 events a second in archives of some minutes, in few files or in many."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import scepter_world as world
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from cepheid.app import Application, load
from cepheid.model.time import format_instant, parse_instant
from cepheid.spark.archive import DAY, LOG_LATE, LOG_OFFSET, day_of

RATE: Final = 600
#: Each reports once a second.
SENSORS: Final = 600
#: When the engine came back, and the archive ends.
NOW: Final = parse_instant("2012-05-07T12:00:00Z")
_SECOND: Final = 1_000_000
MINUTE: Final = 60 * _SECOND
#: Every 20 minutes the offices of the department are cooled too much, for six.
_CYCLE, _EPISODE = 20 * 60, 6 * 60
#: Seconds of events in a file of the archive: of one that is compacted, and as batches leave it.
COMPACTED, AS_LEFT = 300, 2


def readings(minutes: int, seed: int = 5) -> pa.Table:
    """What came in the last minutes before NOW."""
    draw = np.random.default_rng(seed)
    seconds = minutes * 60
    count = seconds * RATE
    sensor = np.concatenate([draw.permutation(SENSORS) for _ in range(seconds)])
    time = NOW - seconds * _SECOND + np.arange(count, dtype=np.int64) * (_SECOND // RATE)
    room = sensor // 2
    flow = draw.normal(400.0, 35.0, count)
    office = (room % len(world.KINDS) == 0) & (room % len(world.DEPARTMENTS) == 0)
    hot = (time // _SECOND) % _CYCLE < _EPISODE
    flow[office & hot] += 160.0
    meeting = room % len(world.KINDS) == 1
    flow[meeting] += 20.0
    first = (NOW // _SECOND) * RATE - count
    names = pa.array([f"S{number}" for number in range(SENSORS)])
    return pa.table(
        {
            "id": pa.array(np.arange(first, first + count, dtype=np.int64)),
            "time": pa.array(time, pa.timestamp("us", tz="UTC")),
            "sensorID": names.take(pa.array(sensor)),
            "flowrate": pa.array(np.round(flow, 1)),
        }
    )


def described(place: Path, **others: object) -> Application:
    """The application in a folder, with these sections besides its stream and its knowledge."""
    place.mkdir(parents=True)
    (place / "campus.ttl").write_text(world.turtle(SENSORS), encoding="utf-8")
    sections = {
        "name": "campus",
        "prefixes": world.PREFIXES,
        "default_stream": world.STREAM.name,
        "streams": {
            world.STREAM.name: {
                "attributes": {"sensorID": "string", "flowrate": "float"},
                "key": "sensorID",
                "semantics": {
                    "flowrate": "hvc:airflow",
                    "sensorID": {"property": "evt:hasSource", "entity": "ee:{value}"},
                },
            }
        },
        "knowledge": {"sources": ["campus.ttl"], "reasoning": "none"},
        **others,
    }
    (place / "app.yaml").write_text(yaml.safe_dump(sections, sort_keys=False), encoding="utf-8")
    return load(place / "app.yaml")


def application(spark: SparkSession, folder: Path, minutes: int, file_seconds: int = COMPACTED) -> Application:
    """An application whose archive has the last minutes before NOW."""
    place = folder / f"{minutes}min-{file_seconds}s"
    app = described(place, archive={"path": "archive"})
    raw = place / "raw.parquet"
    pq.write_table(readings(minutes), raw)
    events = spark.read.parquet(str(raw)).withColumns(
        {LOG_OFFSET: sf.col("id"), LOG_LATE: sf.lit(False), DAY: day_of(sf.col("time"))}
    )
    files = events.repartitionByRange(-(-minutes * 60 // file_seconds), "time")
    files.write.format("delta").partitionBy(DAY).save(str(place / "archive" / world.STREAM.name))
    raw.unlink()
    return app


def asked(number: int, minutes: float) -> str:
    """One of the paper's queries, about the last minutes."""
    since = format_instant(NOW - round(minutes * MINUTE))
    return f"{world.QUERIES[number]}\nWITHIN [{since}, {format_instant(NOW)})"


def cpu_seconds() -> float:
    """What this process and all that it started have used."""
    ticks, own = os.sysconf("SC_CLK_TCK"), os.getpid()
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = sum(map(int, fields[11:15])) / ticks

    def is_ours(pid: int) -> bool:
        while pid > 1 and pid != own:
            pid = parents.get(pid, 0)
        return pid == own

    return sum(seconds for pid, seconds in used.items() if is_ours(pid))
