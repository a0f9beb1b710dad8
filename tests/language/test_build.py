"""Queries in Python give the tree that the text gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cepheid.language.build import Q, all_, any_, call, event, not_
from cepheid.language.parser import parse

a, b, c, d = event("a", "airflow"), event("b", "airflow"), event("c", "door"), event("d", "meter", "meter2")
e = event("e")


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (
            Q.select(a.sensorID, (b.flowrate - a.flowrate).as_("rise"))
            .from_(a, b, c)
            .filter(a.flowrate > 500)
            .join(a.sensorID == b.sensorID)
            .seq(a, not_(c), b)
            .window(a, b, "5min"),
            """SELECT ?a.sensorID, ?b.flowrate - ?a.flowrate AS rise FROM (?a, airflow), (?b, airflow), (?c, door)
            FILTER (?a.flowrate > 500) JOIN (?a.sensorID = ?b.sensorID) SEQ (?a, NOT ?c, ?b) WINDOW (?a, ?b, 5min)""",
        ),
        (
            Q.select((call("AVG", e.flowrate) > 500).as_("avgrate"), call("count", e).as_("n"))
            .window(e, "sliding", "5min")
            .group_by(e.sensorID)
            .having(call("COUNT", e) >= 3),
            """SELECT AVG(?e.flowrate) > 500 AS avgrate, COUNT(?e) AS n WINDOW (?e, sliding, 5min)
            GROUP BY ?e.sensorID HAVING (COUNT(?e) >= 3)""",
        ),
        (
            Q.select(a.id)
            .from_(a, b, c, d)
            .seq(a.times(2, 5), b.maybe(), c, d.plus(), all_(a, b), any_(c, d))
            .window(e, "length", 9),
            """SELECT ?a.id FROM (?a, airflow), (?b, airflow), (?c, door), (?d, meter | meter2)
            SEQ (?a{2,5}, ?b?, ?c, ?d+, ALL(?a, ?b), ANY(?c, ?d)) WINDOW (?e, length, 9)""",
        ),
        (
            Q.select(e.id).filter(
                ((e.x > 1) | e.y.is_in(1, 2.5, "x") | ~e.z.is_null())
                & e.w.between(-1, None)
                & (e["hvc:airflow"] != True)  # noqa: E712
            ),
            """SELECT ?e.id FILTER ((?e.x > 1 OR ?e.y IN (1, 2.5, "x") OR NOT ?e.z IS NULL)
            AND ?e.w BETWEEN -1 AND NULL AND ?e.hvc:airflow != TRUE)""",
        ),
        (
            Q.select(e.id).filter(
                e.time - timedelta(minutes=5) > datetime(2012, 5, 7, 9, tzinfo=UTC),
                2 * -e.x % 3 + 1 < 10 - e.y / 2,
                e.plus_.is_not_null(),
                call("hour", e.time, "America/Los_Angeles") == 10,
            ),
            """SELECT ?e.id FILTER (?e.time - 5min > 2012-05-07T09:00) FILTER (2 * - ?e.x % 3 + 1 < 10 - ?e.y / 2)
            FILTER (?e.plus_ IS NOT NULL) FILTER (HOUR(?e.time, 'America/Los_Angeles') = 10)""",
        ),
        (
            Q.select(a.id)
            .path("?a evt:hasSource ?s")
            .path("?s a ee:Sensor")
            .within("now - 1h", "2012-05-07T09:00", include="(]")
            .match("NEXT")
            .after_match("SKIP PAST LAST")
            .priority("high")
            .valid("10ms")
            .align(a, b, "5ms")
            .stale("SHED"),
            """SELECT ?a.id PATH {?a evt:hasSource ?s} AND PATH {?s a ee:Sensor} WITHIN (now - 1h, 2012-05-07T09:00]
            MATCH NEXT AFTER MATCH SKIP PAST LAST PRIORITY high VALID 10ms ALIGN (?a, ?b, 5ms) STALE SHED""",
        ),
    ],
)
def test_one_tree(built: Q, text: str) -> None:
    assert built.tree == parse(text)


def test_a_condition_has_no_truth_in_python() -> None:
    with pytest.raises(TypeError, match="join conditions with & "):
        bool((a.x > 1) and (a.y > 2))


def test_mistakes() -> None:
    with pytest.raises(TypeError, match="unknown function ABSS; did you mean 'ABS'"):
        call("abss", a.x)
    with pytest.raises(TypeError, match="needs a zone"):
        _ = a.time > datetime(2012, 5, 7)  # noqa: DTZ001
    with pytest.raises(TypeError, match="a list can't be in a query"):
        _ = a.x == [1]
