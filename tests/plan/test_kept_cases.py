"""What was wrong once is right on every engine: the cases of tests/golden/matches (see kept_cases.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cepheid.cli.engines import find_matches
from cepheid.language.errors import Rejected
from cepheid.spark.columns import UnsuitableColumns
from cepheid.spark.local import match_on_spark
from tests.cli.test_cli import cepheid
from tests.plan.kept_cases import KEPT, leave_failed, left_if_failing, printed, read_case, write_case, write_matches
from tests.plan.query_strategies import NOW
from tests.plan.running import run_in_batches

CASES = sorted(folder for folder in KEPT.iterdir() if folder.is_dir())
each_case = pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)


@each_case
@pytest.mark.parametrize("engine", ["reference", "native"])
def test_kept_case(folder: Path, engine: str) -> None:
    case = read_case(folder)
    if os.environ.get("GOLDEN") == "update":
        write_matches(folder, case)
    found = find_matches(engine, case.checked, case.events, NOW)
    assert printed(case, found) == (folder / "matches.jsonl").read_text(encoding="utf-8")
    assert (folder / "query.chi").read_text(encoding="utf-8").startswith("# "), "it says what was wrong"


@each_case
def test_kept_case_in_pieces(folder: Path) -> None:
    case = read_case(folder)
    wanted = (folder / "matches.jsonl").read_text(encoding="utf-8")
    in_time = sorted(case.events, key=lambda e: e.time)
    for arrival in (case.events, case.events[::-1], in_time):
        assert printed(case, run_in_batches(case, arrival, [1], restoring=True)) == wanted


#: What Spark refuses, because a DataFrame has one type a column, and no properties.
REFUSED_BY_SPARK: dict[str, type[Exception]] = {
    "ints_beside_floats_are_compared_as_floats": UnsuitableColumns,
    "group_by_a_property_has_its_local_name": Rejected,
}


@pytest.mark.spark
@each_case
def test_kept_case_on_spark(spark: SparkSession, folder: Path) -> None:
    case = read_case(folder)
    if folder.name in REFUSED_BY_SPARK:
        with pytest.raises(REFUSED_BY_SPARK[folder.name]):
            match_on_spark(spark, case.checked, case.events, NOW)
        return
    found = match_on_spark(spark, case.checked, case.events, NOW)
    assert printed(case, found) == (folder / "matches.jsonl").read_text(encoding="utf-8")


def test_a_failing_case_is_left_ready_to_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.plan.kept_cases.FAILED", tmp_path / "failed")
    case = read_case(CASES[0])
    with pytest.raises(AssertionError), left_if_failing(case):
        raise AssertionError("the engines differ")
    leave_failed()
    left = read_case(tmp_path / "failed")
    assert (left.events, left.checked) == (case.events, case.checked)
    wanted = (CASES[0] / "matches.jsonl").read_text(encoding="utf-8")
    assert (tmp_path / "failed" / "matches.jsonl").read_text(encoding="utf-8") == wanted
    arguments = ("match", "query.chi", "--events", "events.jsonl", "--app", "app.yaml", "--now", "1970-01-01T00:00:02Z")
    assert cepheid(*arguments, cwd=tmp_path / "failed").stdout == wanted
    write_case(tmp_path / "again", left, "why")
    assert read_case(tmp_path / "again").events == case.events
