"""A long range is asked in portions: together they are the range, and what each gives is what the whole gives."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cepheid.history.answer import STRATEGIES, Answer, Done
from cepheid.history.cost import Extent
from cepheid.history.portions import Portion, portions
from cepheid.history.times import Times
from cepheid.language.checker import Checked, check
from cepheid.language.output import MatchPrinter
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.matcher import Matcher
from tests.history.held import Held, asked_of

STREAMS = {"air": Stream("air", {"sensor": Type.STRING, "flow": Type.FLOAT}, id_kind="int")}
SECOND = 1_000_000
HOUR = 3600 * SECOND


def checked(text: str) -> Checked:
    found, problems = check(parse(text), Catalogue(STREAMS, "air"))
    assert found is not None, problems
    return found


PAIR = "SELECT ?a.flow SEQ (?a, ?b) JOIN (?a.sensor = ?b.sensor AND ?a.flow < ?b.flow) WINDOW (?a, ?b, 5s)"


@given(st.integers(0, HOUR), st.integers(1, 100 * HOUR), st.floats(0, 10_000))
def test_portions_are_the_range(first: int, length: int, seconds: float) -> None:
    extent = Extent(1000, 1000, first, first + length)
    times = Times(first - 5, first + length + 5)
    found = portions(checked(PAIR), times, [extent], seconds)
    assert found[0].since is None
    assert found[-1].until is None
    assert found[0].times.low == times.low
    assert found[-1].times.high == times.high
    for one, other in pairwise(found):
        assert one.until is not None
        assert one.until == other.since
        assert one.times.high == one.until - 1
        assert other.times.low == max(times.low, one.until - 5 * SECOND)
    if len(found) > 1:  # the first one is worth waiting for
        assert found[0].until is not None
        assert (found[0].until - first) / length < 0.5


def test_what_is_asked_at_once() -> None:
    times, extent = Times(0, HOUR), Extent(1000, 1000, 0, HOUR)
    assert len(portions(checked(PAIR), times, [extent], 60.0)) > 1
    assert portions(checked(PAIR), times, [extent], 1.0) == [Portion(times)]  # too little
    assert portions(checked(PAIR), times, [Extent(1000, 100, 0, HOUR)], 60.0) == [Portion(times)]  # hardly archived
    assert portions(checked(PAIR + " AFTER MATCH CONSUME"), times, [extent], 60.0) == [Portion(times)]
    assert portions(checked("SELECT SUM(?e.flow) AS s WINDOW (?e, session, 1s)"), times, [extent], 60.0) == [
        Portion(times)
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    "text",
    [
        PAIR,
        "SELECT ?a.flow SEQ (?a, NOT ?b) JOIN (?a.sensor = ?b.sensor AND ?a.flow < ?b.flow) WINDOW (?a, ?b, 3s)",
        "SELECT SUM(?e.flow) AS s WINDOW (?e, batch, 4s) GROUP BY ?e.sensor",
    ],
)
def test_together_they_are_the_whole(spark: SparkSession, text: str) -> None:
    """First matches come while later ones are not found yet; all are there, in order, by every strategy."""
    query = checked(text)
    events = [Event("air", i, i * SECOND, {"sensor": f"s{i % 2}", "flow": float(i * 7 % 5)}) for i in range(40)]
    printer = MatchPrinter(query)
    wanted = [json.dumps(printer.as_json(m), ensure_ascii=False) for m in Matcher(query).matches(events)]
    for strategy in STRATEGIES:
        answer = Answer(Held(spark, events), asked_of(query, STREAMS, 0), strategy)
        cuts = [None, 9 * SECOND, 23 * SECOND, None]
        reach = 5 * SECOND
        low = [answer.asked.times.low, *(cut - 4 * reach for cut in cuts[1:-1] if cut is not None)]
        high = [*(cut - 1 for cut in cuts[1:-1] if cut is not None), answer.asked.times.high]
        parts = [
            Portion(Times(*ends), since, until)
            for ends, (since, until) in zip(zip(low, high, strict=True), pairwise(cuts), strict=True)
        ]
        answer.__dict__["portions"] = parts
        done: list[Done] = []
        lines = answer.lines(done.append)
        first = next(lines)
        assert len(done) == 1
        assert [first, *lines] == wanted
        assert [part.portion for part in done] == [1, 2, 3]
        assert done[-1].matches == len(wanted)
