"""A dozen trials of the whole, of fixed seeds: see trials.py. `make soak` runs two hundred."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from tests.history.campaigns import application, run
from tests.history.soak import CAMPAIGNS, FIRST, is_with_spark
from tests.history.trials import QUERIES, Campaign, Deed, Lag, campaign_of, deeds_of, lag_at_question

#: Seeds, whether Spark is killed too, how archive and log lie at the question, and what happens among others.
#: Three campaigns are a dozen trials; two of these are live on Spark.
DOZEN: Final[list[tuple[int, bool, set[Lag], set[Deed]]]] = [
    (944, False, {"negative"}, {"move", "archive unsaid", "kill both", "kill again"}),
    (25, False, {"zero"}, {"kill again", "kill engine"}),
    (3, True, {"zero", "positive"}, {"kill all"}),
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "with_spark", "lags", "deeds"), DOZEN, ids=[str(seed) for seed, *_ in DOZEN])
def test_the_merged_result_is_the_reference(
    spark: SparkSession, tmp_path: Path, seed: int, with_spark: bool, lags: set[Lag], deeds: set[Deed]
) -> None:
    campaign = campaign_of(seed, application(tmp_path / "drawn"), with_spark=with_spark)
    assert deeds <= {deed for _, deed in campaign.deeds}
    assert sum(trial.engine == "spark" for trial in campaign.trials) == (2 if with_spark else 0)
    outcomes = run(spark, tmp_path / "world", campaign)
    assert [one.fault for one in outcomes] == [None] * QUERIES, campaign.deeds
    assert all(one.counted.counts for one in outcomes), outcomes
    assert dict(outcomes[0].lags)["ask"] in lags
    assert with_spark or outcomes[0].lags == campaign.lags


def test_every_lag_is_drawn_in_the_soak() -> None:
    """Whatever is drawn beside it: by the seed alone."""
    seeds = [seed for seed in range(FIRST, FIRST + CAMPAIGNS) if not is_with_spark(seed)]
    wanted = {lag_at_question(seed) for seed in seeds}
    assert wanted == {"negative", "zero", "positive", None}
    for seed in seeds:
        lag = lag_at_question(seed)
        drawn = (deeds_of(random.Random(f"{seed}.{n}"), 150, lag, with_spark=False) for n in range(20))
        assert any(Campaign(seed, (), deeds, ()).lies(lag) for deeds in drawn)
