"""A dozen trials of the whole, of fixed seeds: see trials.py. `make soak` runs two hundred."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.history.campaigns import application, run
from tests.history.trials import campaign_of

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(("seed", "with_spark"), [(1, False), (2, False), (3, True)])
def test_the_merged_result_is_the_reference(spark: SparkSession, tmp_path: Path, seed: int, with_spark: bool) -> None:
    campaign = campaign_of(seed, application(tmp_path / "drawn"), with_spark=with_spark)
    outcomes = run(spark, tmp_path / "world", campaign)
    assert [one.fault for one in outcomes] == [None] * len(outcomes), campaign.deeds
    assert all(one.counted.counts for one in outcomes)
