"""The pipeline looks after its archive by itself, while events come, matches are read as a stream, and others ask."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cepheid.history import upkeep
from cepheid.history.pipeline import Pipeline
from cepheid.service.log import LogReader
from cepheid.spark import compaction
from cepheid.spark.application import archive_of
from cepheid.spark.archive import DEAD_LETTERS, Archive, matches_of, read
from cepheid.spark.care import stats
from tests.history.test_pipeline import RISING, STEEP, air, application, found, intake, pool_of, push, wanted

__all__ = ["intake"]  # a fixture
#: Events in each batch.
EACH = 20


def files(spark: SparkSession, archive: Archive, table: str) -> int:
    return len(spark.read.format("delta").load(archive.table(table)).inputFiles())


def pools_of(spark: SparkSession, group: str) -> set[str]:
    """The scheduler pools that the jobs of a group ran in."""
    tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()
    jobs = [job for job in map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)) if job is not None]
    return {pool for job in jobs for stage in job.stageIds if (pool := pool_of(store, stage)) is not None}


@pytest.mark.usefixtures("intake")
def test_small_files_are_made_large_while_all_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (compaction, upkeep):
        monkeypatch.setattr(module, "MANY", 2)
    app, said = application(tmp_path, RISING), list[str]()
    archive, stream = archive_of(app), app.graph.streams["air"]
    held, wrong, ended = threading.Event(), list[list[int]](), threading.Event()
    compact = compaction.compact_where_many

    def when_let(*arguments: Any) -> compaction.Done:
        held.wait()
        return compact(*arguments)

    def ask() -> None:
        """Events go into the archive in order: whenever one asks, there are the first so many, each once."""
        while not ended.wait(0.1):
            ids = sorted(row["id"] for row in read(spark, archive, stream).select("id").collect())
            if ids != list(range(len(ids))):
                wrong.append(ids)

    def go_on(pipeline: Pipeline, batch: int) -> None:
        push(tmp_path, [air(i, i * 10, float(i * i % 11)) for i in range(batch * EACH, (batch + 1) * EACH)])
        pipeline.process_all()  # up to the matches in the log
        pipeline.process_all()  # and what reads them

    with Pipeline(spark, app, say=said.append) as pipeline:
        push(tmp_path, [air(i, i * 10, float(i * i % 11)) for i in range(EACH)])
        pipeline.process_all()
        app = application(tmp_path, RISING, STEEP)
        pipeline.apply(app)
        go_on(pipeline, 1)
        asking = threading.Thread(target=ask)
        asking.start()
        # While it is at it, the pipeline is looked after, and parts that fail are started again.
        monkeypatch.setattr(upkeep, "compact_where_many", when_let)
        pipeline._upkeep._round_at = 0.0
        pipeline.tend()
        part = pipeline._parts["archive"]
        assert part.query is not None
        part.query.stop()
        pipeline.tend()
        assert pipeline.down == ["archive"]
        part.again_at = 0.0
        pipeline.tend()
        assert not pipeline.down
        held.set()
        pipeline.tidy()
        assert files(spark, archive, "air") == files(spark, archive, matches_of("rising")) == 1
        go_on(pipeline, 2)
        assert pools_of(spark, pipeline._upkeep._group) == {"background"}
        ended.set()
        asking.join()
        assert [line.split(",")[0] for line in said if line[0] != "{"] == ["archive has failed"]
        # A table that can't be compacted is told of once.
        monkeypatch.setattr(upkeep, "compact_where_many", lambda *_: spark.sql("SELECT * FROM damaged"))
        said.clear()
        pipeline.tidy()
        pipeline._upkeep._failed.clear()
        pipeline.tidy()
        told = Counter(line.partition(" [")[0] for line in said)
        assert told[f"the small files of {matches_of('rising')} in the archive can't be made large yet:"] == 1
        assert set(told.values()) == {1}
        # It ends with the pipeline, in whatever it is.
        monkeypatch.setattr(upkeep, "compact_where_many", compact)
        pipeline._upkeep._failed.clear()
        pipeline._upkeep._round_at = 0.0
        pipeline.tend()
    thread = pipeline._upkeep._thread
    assert thread is not None
    assert not thread.is_alive()
    kept = {table.table: (table.rows, table.files) for table in stats(spark, archive, [stream], ["rising", "none"])}
    assert not wrong
    assert sorted(row["id"] for row in read(spark, archive, stream).collect()) == list(range(3 * EACH))
    ids = wanted(tmp_path, app, "rising")
    assert len(ids) > 5
    assert found(spark, app, "rising") == ids
    assert kept.keys() == {"air", DEAD_LETTERS, matches_of("rising")}
    assert kept["air"][0] == 3 * EACH
    assert kept[matches_of("rising")][0] == len(ids)
    # The stream over the matches has read none of them again.
    logged = [each for each in LogReader(tmp_path / "log") if each.event.stream == "rising"]
    assert sorted(each.event.id for each in logged) == ids
    assert not any(each.duplicate for each in logged)
