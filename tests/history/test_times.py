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
from cepheid.model.time import MAX_INSTANT, MIN_INSTANT, TimeError, parse_instant
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
