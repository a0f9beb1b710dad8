"""What is matched in slices of time is what is matched in one piece, wherever the slices end; without a Spark.

test_matching.py and test_matching_random.py run the same in Spark.
"""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from cepheid.language.checker import Checked, check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.plan.division import reach
from cepheid.plan.matcher import Matcher
from cepheid.spark.columns import UnsuitableColumns
from cepheid.spark.matching import _schema, matching
from cepheid.spark.slices import sliced
from tests.plan.query_strategies import NOW, SECOND, Case, cases
from tests.spark.test_buckets import Stream
from tests.spark.test_matching import STREAMS
from tests.spark.test_matching_random import is_beyond_a_frame

EXAMPLES = int(os.environ.get("CEPHEID_SLICE_EXAMPLES", "80"))


def rows_in(case: Case, cuts: list[int], back: int) -> list[pa.RecordBatch]:
    """The events of each slice, one slice after another; a slice gives matches from one cut to the next."""
    stream = Stream(case.checked)
    found = []
    for since, until in zip([None, *cuts], [*cuts, None], strict=True):
        read = [e for e in case.events if since is None or e.time >= since - back]
        read = sorted((e for e in read if until is None or e.time < until), key=lambda e: e.time)
        for batch in stream.columns(read):
            ends = [pa.array([end] * batch.num_rows, type=pa.int64()) for end in (since, until)]
            batch = batch.drop_columns(["bucket"])
            found.append(batch.append_column("since", ends[0]).append_column("until", ends[1]))
    return found


# Many random queries can't be matched in slices, and to draw another costs little.
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(case=cases(), cuts=st.sets(st.integers(0, 20), max_size=4))
def test_slices_give_what_the_whole_gives(case: Case, cuts: set[int]) -> None:
    back = reach(case.checked)
    assume(isinstance(back, int) and not is_beyond_a_frame(case))
    assert isinstance(back, int)
    assume(len(set(case.checked.id_kinds.values())) == 1)
    text = "string" in case.checked.id_kinds.values()
    schema = _schema(case.checked, spark_types.StringType() if text else spark_types.LongType())
    try:
        rows = rows_in(case, [cut * SECOND // 2 for cut in sorted(cuts)], back)
    except UnsuitableColumns:
        assume(False)
    task = matching(case.checked, NOW, schema, by_slices=True)
    found: list[dict[str, Any]] = [row for batch in task(iter(rows)) for row in batch.to_pylist()]
    wanted = Matcher(case.checked, NOW).matches(case.events)
    assert sorted(row["id"] for row in found) == sorted(match.id for match in wanted)


def checked(text: str) -> Checked:
    found, problems = check(parse(text), Catalogue(STREAMS, "a"))
    assert found is not None, problems
    return found


PAIR = "SELECT ?p.id FROM (?p, a), (?q, b)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{PAIR} SEQ (?p, ?q) WINDOW (?p, ?q, 5s)", 5 * SECOND),
        (f"{PAIR} SEQ (?p, NOT ?q) WINDOW (?p, ?q, 5s)", 20 * SECOND),
        (
            "SELECT ?p.id FROM (?p, a), (?q, b), (?r, a) SEQ (?p, ?q, ?r) WINDOW (?p, ?q, 5s) WINDOW (?q, ?r, 1s)",
            6 * SECOND,
        ),
        ("SELECT AVG(?p.x) AS m FROM (?p, a) WINDOW (?p, sliding, 3s)", 3 * SECOND),
        ("SELECT COUNT(?p) AS m FROM (?p, a) WINDOW (?p, batch, 4s)", 4 * SECOND),
        ("SELECT COUNT(?p) AS m FROM (?p, a) WINDOW (?p, session, 4s)", "WINDOW session depends on all events before"),
        ("SELECT MAX(?p.x) AS m FROM (?p, a) WINDOW (?p, length, 4)", "WINDOW length depends on all events before"),
        (f"{PAIR} SEQ (?p, ?q) WINDOW (?p, ?q, 5s) MATCH NEXT", "MATCH NEXT depends on all events before"),
        (f"{PAIR} SEQ (?p, ?q)", "not all of its variables are tied together by WINDOWs"),
        (
            f"{PAIR} SEQ (?p, ?q) WINDOW (?p, ?q, 5s) JOIN (?p.room = ?q.room) AFTER MATCH SKIP PAST LAST",
            "AFTER MATCH SKIP PAST LAST depends on all matches before",
        ),
    ],
)
def test_how_far_back_a_match_reaches(text: str, expected: int | str) -> None:
    assert reach(checked(text)) == expected


def test_events_are_in_the_slices_that_read_them(spark: SparkSession) -> None:
    """Of a hundred seconds Spark makes four slices here, each with what the one before had in its last 3 s."""
    events = spark.range(101).selectExpr("id", "id * 1000000 AS time")
    rows = sliced(events, 3 * SECOND).collect()
    read: dict[tuple[int | None, int | None], list[int]] = {}
    for row in rows:
        read.setdefault((row["since"], row["until"]), []).append(row["id"])
    slices = [(None, 25), (25, 50), (50, 75), (75, 100), (100, None)]
    wanted = {
        tuple(end and end * SECOND for end in ends): [*range(max(0, (ends[0] or 3) - 3), ends[1] or 101)]
        for ends in slices
    }
    assert read == wanted
