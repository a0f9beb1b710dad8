"""What is said of the times of a query before it is answered."""

from __future__ import annotations

import pytest

from cepheid.history.rehearsal import since_of
from cepheid.history.times import Times, judge_times, times_of
from cepheid.language.checker import Checked, check
from cepheid.language.errors import Rejected
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.streams import Stream
from cepheid.model.time import MAX_INSTANT, MIN_INSTANT, TimeError, parse_instant, zone_of
from cepheid.model.types import Type

NOW = parse_instant("2012-05-07T12:00")
DAY = 86_400_000_000


def checked(within: str) -> Checked:
    catalogue = Catalogue({"air": Stream("air", {"flow": Type.FLOAT})}, "air")
    found, problems = check(parse(f"SELECT ?e.flow {within}"), catalogue)
    assert found is not None, problems
    return found


def codes(within: str, retain: int | None = None, *, follows: bool = False) -> list[str]:
    return [d.code for d in judge_times(checked(within), NOW, retain, follows=follows)]


def test_times_include_both_ends() -> None:
    assert times_of(checked(""), NOW) == Times(MIN_INSTANT, MAX_INSTANT)
    assert times_of(checked("WITHIN [now - 1s, now)"), NOW) == Times(NOW - 1_000_000, NOW - 1)
    assert times_of(checked("WITHIN (1970-01-01, )"), NOW) == Times(1, MAX_INSTANT)


@pytest.mark.parametrize(
    ("within", "said"),
    [
        ("", []),
        ("WITHIN [2012-05-07, now]", []),
        ("WITHIN [2012-05-07, 2012-05-07)", ["empty-range"]),
        ("WITHIN (2012-05-07, 2012-05-07]", ["empty-range"]),
        ("WITHIN [2012-05-07, 2012-05-07]", []),
        ("WITHIN [2012-05-07, now + 1s)", ["unfinished-range"]),
        ("WITHIN [now + 1s, )", ["future-range"]),
        ("WITHIN [2012-05-07, )", []),
    ],
)
def test_what_is_said(within: str, said: list[str]) -> None:
    assert codes(within) == said


def test_reversed_is_refused() -> None:
    with pytest.raises(Rejected, match="WITHIN ends before it begins"):
        codes("WITHIN [now, now - 1us)")


def test_following_waits_for_the_future() -> None:
    assert codes("WITHIN [now + 1s, )", follows=True) == []
    assert codes("WITHIN [2012-05-07, now + 1s)", follows=True) == []


def test_retention() -> None:
    assert codes("WITHIN [2012-05-01, now)", retain=DAY) == ["before-retention"]
    assert codes("WITHIN [2012-05-07, now)", retain=DAY) == []
    assert codes("", retain=DAY) == []  # all that is kept


def test_since() -> None:
    assert since_of("-7d", NOW) == NOW - 7 * DAY
    assert since_of("now - 7d", NOW) == NOW - 7 * DAY
    assert since_of("2012-05-01", NOW) == parse_instant("2012-05-01")
    for wrong in ("7", "-7", "2012-06-01", "-"):
        with pytest.raises(TimeError):
            since_of(wrong, NOW)


def test_since_by_clocks() -> None:
    """Seven days back over a change of the clocks is the same time of day; hours are hours."""
    zone = zone_of("America/Los_Angeles")
    now = parse_instant("2012-03-14T10:00-07:00")
    assert since_of("-7d", now, zone) == parse_instant("2012-03-07T10:00-08:00")
    assert since_of("now - 7d", now, zone) == since_of("-7d", now, zone)
    assert since_of("-168h", now) == since_of("-7d", now) == parse_instant("2012-03-07T09:00-08:00")
    assert since_of("-36h", now, zone) == now - 36 * DAY // 24
    assert since_of("2012-03-07", now, zone) == parse_instant("2012-03-07T00:00-08:00")
    assert since_of("2012-03-07T00:00Z", now, zone) == parse_instant("2012-03-07")
    with pytest.raises(TimeError, match="skip it"):
        since_of("2012-03-11T02:30", now, zone)


def test_a_range_by_clocks() -> None:
    """The day on which clocks go forward has 23 hours."""
    within = "WITHIN [2012-03-11[America/Los_Angeles], 2012-03-12[America/Los_Angeles])"
    times = times_of(checked(within), NOW)
    assert times.high + 1 - times.low == 23 * DAY // 24
    with pytest.raises(Rejected, match="skip it"):
        parse("SELECT ?e.flow WITHIN [2012-03-11T02:30[America/Los_Angeles], )")
