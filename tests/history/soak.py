"""`make soak`: two hundred trials of the whole (trials.py), four a campaign, and a report. It ends by itself.

python -m tests.history.soak [--trials 200] [--first 1000] [--minutes 120] [--report docs/soak.md]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cepheid.spark.session import session
from tests.conftest import SPARK_FOR_TESTS
from tests.history.campaigns import Outcome, application, run
from tests.history.trials import LAGS, QUERIES, Campaign, campaign_of

TRIALS: Final = 200
CAMPAIGNS: Final = TRIALS // QUERIES
#: The first seed; each campaign has the next.
FIRST: Final = 1000
#: One campaign in so many has Spark's pipeline in a process of its own, which is killed too.
_SPARK_EVERY: Final = 5


def is_with_spark(seed: int) -> bool:
    """Whether Spark's pipeline runs in the campaign of a seed."""
    return seed % _SPARK_EVERY == 0


@dataclass
class Books:
    """What came of the trials so far."""

    outcomes: list[tuple[int, Outcome]] = field(default_factory=list)
    deeds: Counter[str] = field(default_factory=Counter)
    #: How archive and log lay when the queries were asked, by campaign; and whether that changed until the last kill.
    lags: Counter[str] = field(default_factory=Counter)
    campaigns: int = 0
    broken: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, campaign: Campaign, outcomes: Sequence[Outcome]) -> None:
        self.campaigns += 1
        self.deeds.update(deed for _, deed in campaign.deeds)
        lags = [lag for _, lag in outcomes[0].lags]
        at_question = next(place for place, (deed, _) in enumerate(outcomes[0].lags) if deed == "ask")
        self.lags.update([lags[at_question], *(["changing"] if len({*lags[at_question:]}) > 1 else [])])
        self.outcomes += [(campaign.seed, one) for one in outcomes]

    @property
    def counted(self) -> int:
        return sum(one.counted.counts for _, one in self.outcomes)

    @property
    def wrong(self) -> list[tuple[int, Outcome]]:
        return [(seed, one) for seed, one in self.outcomes if one.fault is not None]

    @property
    def has_every_lag(self) -> bool:
        return all(self.lags[lag] for lag in (*LAGS, "changing"))

    def report(self, first: int) -> str:
        """The page of docs/."""
        found = [one for _, one in self.outcomes]
        lines = [
            "# Soak",
            "",
            "Written by `make soak`: random streams and queries on the real intake, engine, Spark and archive,",
            "with lags and kills. After each trial, what `--follow` said and what consumers or sinks got is",
            "compared with the reference on the whole stream. `tests/history/trials.py` says what a trial is, and",
            "when it counts.",
            "",
            f"A trial is a query. {QUERIES} of them live through one campaign, with one stream and the same lags and",
            f"kills: so {len(found)} trials are {self.campaigns} campaigns.",
            "",
            f"{len(found)} trials from seed {first} on, in {self.seconds / 60:.0f} minutes: {self.counted} counted,"
            f" {len(self.wrong)} wrong, {len(self.broken)} campaigns broken off.",
            "",
            "| | |",
            "|---|---|",
            f"| matches compared | {sum(one.wanted for one in found):,} |",
            f"| of those all from the archive, all live, on both sides | {sum(o.counted.archive for o in found):,}, "
            f"{sum(o.counted.live for o in found):,}, {sum(o.counted.boundary for o in found):,} |",
            f"| open at a kill of their engine | {sum(one.counted.opened for one in found):,} |",
            f"| delivered with the mark `recovered` | {sum(one.recovered for one in found):,} |",
            f"| live in the service, on Spark | {sum(o.trial.engine == 'service' for o in found)}, "
            f"{sum(o.trial.engine == 'spark' for o in found)} |",
            f"| acknowledged by who reads them | {sum(o.trial.acks for o in found)} |",
            f"| boundary seeded, lazy | {sum(o.trial.boundary == 'seeded' for o in found)}, "
            f"{sum(o.trial.boundary == 'lazy' for o in found)} |",
            "| campaigns | |",
            f"| archive behind the log when asked, level, beyond what it said, changing until the last kill | "
            f"{', '.join(str(self.lags[lag]) for lag in ('positive', 'zero', 'negative', 'changing'))} |",
            *(f"| {deed} | {count} |" for deed, count in sorted(self.deeds.items())),
        ]
        if self.wrong or self.broken:
            lines += ["", "Wrong:", ""]
            lines += [f"- seed {seed}, {one.trial.name}: {one.fault}: `{one.trial.text}`" for seed, one in self.wrong]
            lines += [f"- seed {seed}: {why}" for seed, why in self.broken]
        return "\n".join(lines) + "\n"


def main() -> int:
    """Runs the trials; 0 if all were right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"{QUERIES} a campaign")
    parser.add_argument("--first", type=int, default=FIRST, help="the first seed")
    parser.add_argument("--minutes", type=float, default=120.0, help="it ends then, whatever is done")
    parser.add_argument("--report", type=Path, default=None)
    given = parser.parse_args()
    books, began = Books(), time.monotonic()
    spark = session("cepheid soak", **SPARK_FOR_TESTS)
    seed = given.first
    try:
        while len(books.outcomes) < given.trials and time.monotonic() - began < 60 * given.minutes:
            with tempfile.TemporaryDirectory(prefix="soak-") as folder:
                _campaign(books, seed, Path(folder), spark)
            books.seconds = time.monotonic() - began
            print(
                f"{len(books.outcomes)} of {given.trials} trials, {books.counted} counted, {len(books.wrong)} wrong, "
                f"{len(books.broken)} broken off; seed {seed}, {books.seconds:.0f} s",
                flush=True,
            )
            seed += 1
    finally:
        spark.stop()
    report = books.report(given.first)
    print(report)
    if given.report is not None:
        given.report.write_text(report)
    is_right = not books.wrong and not books.broken and books.counted >= given.trials
    return 0 if is_right and (given.trials < TRIALS or books.has_every_lag) else 1


def _campaign(books: Books, seed: int, folder: Path, spark: object) -> None:
    try:
        campaign = campaign_of(seed, application(folder / "drawn"), with_spark=is_with_spark(seed))
        outcomes = run(spark, folder / "world", campaign)  # type: ignore[arg-type]
    except Exception as error:
        books.broken.append((seed, f"{type(error).__name__}: {error}"))
        print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        return
    assert len(outcomes) == QUERIES
    books.add(campaign, outcomes)
    for one in outcomes:
        if one.fault is not None:
            print(f"seed {seed}, {one.trial.name}: {one.fault}\n  {one.trial.text}\n  {campaign.deeds}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
