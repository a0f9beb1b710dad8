"""Functions of time by the clocks of a zone: worked out by hand, on the native matcher and on the reference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid import _native
from cepheid.cli.engines import find_matches
from cepheid.language.checker import Checked, check
from cepheid.language.functions import FUNCTIONS
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.model.zones import clocks_of
from cepheid.plan.compile import compile_query
from cepheid.plan.matcher import Matcher, compiled
from tests.model.test_zones import CENTURIES, ZONES, database, write


def checked(expressions: list[str]) -> Checked:
    selected = ", ".join(f"{expression} AS v{number}" for number, expression in enumerate(expressions))
    stream = Stream("e", {"at": Type.TIMESTAMP})
    found, problems = check(parse(f"SELECT {selected} FROM (?e, e)"), Catalogue({"e": stream}))
    assert found is not None, problems
    return found


def values(engine: str, expressions: list[str], time: int = 0) -> list[object]:
    (match,) = find_matches(engine, checked(expressions), [Event("e", 1, time, {"at": None})], 0)
    return list(match.select.values())


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize(
    ("zone", "time", "expected"),
    [
        # The hour that is skipped, and the one that is shown twice.
        ("America/Los_Angeles", "2012-03-11T09:59:59", "2012-3-11 1:59:59 7"),
        ("America/Los_Angeles", "2012-03-11T10:00", "2012-3-11 3:0:0 7"),
        ("America/Los_Angeles", "2012-11-04T08:59:59.999999", "2012-11-4 1:59:59 7"),
        ("America/Los_Angeles", "2012-11-04T09:00", "2012-11-4 1:0:0 7"),
        ("America/Los_Angeles", "2012-11-04T06:59:59", "2012-11-3 23:59:59 6"),
        # Summer in the south, and the next year before UTC has it.
        ("Australia/Sydney", "2012-03-31T15:59:59", "2012-4-1 2:59:59 7"),
        ("Australia/Sydney", "2012-03-31T16:00", "2012-4-1 2:0:0 7"),
        ("Australia/Sydney", "2012-10-06T16:00", "2012-10-7 3:0:0 7"),
        ("Pacific/Auckland", "2012-12-31T11:00", "2013-1-1 0:0:0 2"),
        # Quarters of an hour, half an hour of summer, and a day that never was.
        ("Asia/Kathmandu", "2012-05-07T18:14:59", "2012-5-7 23:59:59 1"),
        ("Asia/Kathmandu", "2012-05-07T18:15", "2012-5-8 0:0:0 2"),
        ("Pacific/Chatham", "2012-07-01T11:15", "2012-7-2 0:0:0 1"),
        ("Australia/Lord_Howe", "2012-03-31T14:59:59", "2012-4-1 1:59:59 7"),
        ("Australia/Lord_Howe", "2012-03-31T15:00", "2012-4-1 1:30:0 7"),
        ("Pacific/Apia", "2011-12-30T09:59:59", "2011-12-29 23:59:59 4"),
        ("Pacific/Apia", "2011-12-30T10:00", "2011-12-31 0:0:0 6"),
        # Before 1970, and before there were zones: by the sun.
        ("Europe/Berlin", "1945-07-01T12:00", "1945-7-1 15:0:0 7"),
        ("America/Los_Angeles", "1883-11-18T19:59:59", "1883-11-18 12:7:1 7"),
        ("America/Los_Angeles", "1883-11-18T20:00", "1883-11-18 12:0:0 7"),
        ("America/Los_Angeles", "0001-01-01T00:00", "0-12-31 16:7:2 7"),
        # As far as the rules go that hold today.
        ("Europe/Berlin", "2050-03-27T00:59:59", "2050-3-27 1:59:59 7"),
        ("Europe/Berlin", "2050-03-27T01:00", "2050-3-27 3:0:0 7"),
        ("America/Los_Angeles", "2050-11-06T09:00", "2050-11-6 1:0:0 7"),
        ("Australia/Sydney", "9999-12-31T23:59:59", "10000-1-1 10:59:59 6"),
        ("UTC", "2012-05-07T09:08:07", "2012-5-7 9:8:7 1"),
    ],
)
def test_e1_what_clocks_show(engine: str, zone: str, time: str, expected: str) -> None:
    names = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "DAY_OF_WEEK")
    found = values(engine, [f"{name}({time}, '{zone}')" for name in names])
    assert "{}-{}-{} {}:{}:{} {}".format(*found) == expected


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_without_a_number_there_is_none(engine: str) -> None:
    beyond = "?e.time + 3000000d * 35"  # 64 bits end in the year 294247
    asked = ["HOUR(?e.at, 'Asia/Tokyo')", f"YEAR({beyond}, 'Asia/Tokyo')"]
    assert values(engine, asked) == [None, 289450]
    nearly = 2**63 - 1 - 3_000_000 * 86_400_000_000 * 35
    assert values(engine, [f"YEAR({beyond})", asked[1]], nearly) == [294247, None]


@given(st.sampled_from(ZONES), CENTURIES, st.sampled_from([name for name, f in FUNCTIONS.items() if f.zoned]))
def test_native_is_reference(zone: str, second: int, function: str) -> None:
    asked = [f"{function}(?e.time, '{zone}')"]
    assert values("native", asked, second * 1_000_000) == values("reference", asked, second * 1_000_000)


def test_a_state_outlives_an_edition_of_the_tz_database(tmp_path: Path) -> None:
    """And equal conditions of queries that stand together are not one where their tables differ."""
    query = """SELECT HOUR(?b.time, 'Made') AS hour FROM (?a, e), (?b, e) FILTER (HOUR(?b.time, 'Made') = 4)
        SEQ (?a, ?b) WINDOW (?a, ?b, 1h)"""
    with database([str(tmp_path)]):
        write(tmp_path / "Made", "AAA0")
        found, problems = check(parse(query), Catalogue({"e": Stream("e", {})}))
        assert found is not None, problems
        before = Matcher(found)
        before.push([Event("e", 1, 0, {})])
        state = before.save({})
        plans = [compiled(found, 0)]
        write(tmp_path / "Made", "AAA-4")
        clocks_of.cache_clear()
        after = Matcher(found)
        after.restore(state.head, state.chunks({}))
        plans.append(compiled(found, 0))
    after.push([Event("e", 2, 1, {})])
    assert [dict(match.select) for match in after.advance(None)] == [{"hour": 4}]
    standing = _native.Standing(plans, None, "fail")
    standing.push([Event("e", 1, 0, {}), Event("e", 2, 1, {})])
    assert [query for query, _ in standing.advance(None)] == [1]


def test_a_plan_has_the_tables_of_its_zones_once_each_and_is_known_without_them() -> None:
    asked = ["HOUR(?e.time, 'Asia/Tokyo')", "DAY(?e.time, 'Asia/Tokyo')", "HOUR(?e.time, 'Asia/Kathmandu')"]
    text = compile_query(checked(asked), 0)
    assert list(json.loads(text)["zones"]) == ["Asia/Tokyo", "Asia/Kathmandu"]
    assert text.index(',"zones":') > text.index(',"tables":[')  # native/src/plan.rs
    assert "zones" not in json.loads(compile_query(checked(["HOUR(?e.time)"]), 0))
