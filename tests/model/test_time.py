"""Durations and instants."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.model.time import (
    MAX_DURATION,
    MAX_INSTANT,
    MIN_INSTANT,
    RangeError,
    TimeError,
    days_before,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
    parse_local,
    zone_of,
)
from tests.model.strategies import instants

NINE = 1_336_381_200_000_000  # 2012-05-07T09:00:00Z


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("10ms", 10_000),
        ("1us", 1),
        ("1.5 s", 1_500_000),
        ("1h30min", 5_400_000_000),
        ("1 h 30 min", 5_400_000_000),
        ("2d", 172_800_000_000),
        ("0s", 0),
        ("0.0000000003125d", 27),
        ("0." + "0" * 5000 + "s", 0),
        ("0" * 5000 + "1s", 1_000_000),
    ],
)
def test_durations(text: str, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a duration; write a number and a unit, such as 10ms, 5min or 1h30min"),
        ("5", "'5' is not a duration; write a number and a unit, such as 10ms, 5min or 1h30min"),
        ("-5s", "'-5s' is not a duration; write a number and a unit, such as 10ms, 5min or 1h30min"),
        ("5sec", "unknown unit 'sec' in duration '5sec'; units are us, ms, s, min, h, d"),
        ("1.5us", "duration '1.5us' is finer than a microsecond"),
        ("0." + "1" * 5000 + "s", f"duration '0.{'1' * 35}...' is finer than a microsecond"),
        ("4000000d", "duration '4000000d' is out of range; at most ten thousand years can be held"),
        ("9" * 5000 + "s", f"duration '{'9' * 37}...' is out of range; at most ten thousand years can be held"),
    ],
)
def test_what_is_no_duration(text: str, message: str) -> None:
    with pytest.raises(TimeError) as caught:
        parse_duration(text)
    assert str(caught.value) == message


@given(st.integers(0, MAX_DURATION))
def test_durations_survive(microseconds: int) -> None:
    assert parse_duration(format_duration(microseconds)) == microseconds


@given(st.text())
def test_any_text_is_a_duration_or_a_time_error(text: str) -> None:
    for parse in (parse_duration, parse_instant):
        outcome: int | str
        try:
            outcome = parse(text)
        except TimeError as error:
            outcome = str(error)
        assert isinstance(outcome, int) or outcome.encode(), "a time, or a message that can be printed"


def test_durations_are_written_shortly() -> None:
    assert format_duration(90_000_000) == "90s"
    assert format_duration(5_400_000_000) == "90min"
    assert format_duration(86_400_000_001) == "1d1us"
    assert format_duration(-1_500) == "-1500us"


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("2012-05-07T09:00:00Z", NINE),
        ("2012-05-07T09:00:00.000001Z", NINE + 1),
        ("2012-05-07T09:00:00.0000019Z", NINE + 1),
        ("2012-05-07T09:00:00,5", NINE + 500_000),
        ("2012-05-07T09:00", NINE),
        ("2012-05-07 09:00:00", NINE),
        (" 2012-05-07T11:00:00+02:00 ", NINE),
        ("2012-05-07T11:00:00 +02", NINE),
        ("2012-05-07T03:30:00-0530", NINE),
        ("2012-05-07", NINE - 9 * 3_600_000_000),
        ("1969-12-31T23:59:59.9999999Z", -1),
        ("0001-01-01", MIN_INSTANT),
        ("9999-12-31T23:59:59.999999Z", MAX_INSTANT),
    ],
)
def test_instants(text: str, microseconds: int) -> None:
    assert parse_instant(text) == microseconds


def test_instants_relative_to_now() -> None:
    assert parse_instant("now", now=NINE) == NINE
    assert parse_instant("NOW - 1h", now=NINE) == NINE - 3_600_000_000
    assert parse_instant("now+1us", now=NINE) == NINE + 1
    with pytest.raises(TimeError, match="'now' is not a time"):
        parse_instant("now")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yesterday", "'yesterday' is not a time; write ISO 8601, such as 2012-05-07T09:00:00Z"),
        ("out of range", "'out of range' is not a time; write ISO 8601, such as 2012-05-07T09:00:00Z"),
        ("02012-05-07", "'02012-05-07' is not a time; write ISO 8601, such as 2012-05-07T09:00:00Z"),
        ("2012-W19-1T09:00:00Z", "'2012-W19-1T09:00:00Z' is not a time; write ISO 8601, such as 2012-05-07T09:00:00Z"),
        ("2012-02-30", "'2012-02-30' is not a time: day is out of range for month"),
        ("2012-02-30T00:00:00Z", "'2012-02-30T00:00:00Z' is not a time: day is out of range for month"),
        ("2012-13-01", "'2012-13-01' is not a time: month must be in 1..12"),
        ("2012-05-07T09:00:60Z", "'2012-05-07T09:00:60Z' is not a time: second must be in 0..59"),
        ("2012-05-07T09:00+19:00", "'2012-05-07T09:00+19:00' is not a time: there is no zone +19:00"),
    ],
)
def test_what_is_no_instant(text: str, message: str) -> None:
    with pytest.raises(TimeError) as caught:
        parse_instant(text)
    assert str(caught.value) == message
    assert not isinstance(caught.value, RangeError)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("0000-01-01", "'0000-01-01'"),
        ("10000-01-01", "'10000-01-01'"),
        ("-0001-01-01", "'-0001-01-01'"),
        ("+10000-01-01T00:00:00Z", "'+10000-01-01T00:00:00Z'"),
        ("0001-01-01T00:00+01:00", "-62135600400000000 us"),
        ("9999-12-31T23:59:59-01:00", "253402304399000000 us"),
    ],
)
def test_instants_out_of_range(text: str, named: str) -> None:
    with pytest.raises(RangeError) as caught:
        parse_instant(text)
    assert str(caught.value) == f"time {named} is out of range; the years 1 to 9999 can be held"


@given(instants)
def test_instants_survive(microseconds: int) -> None:
    text = format_instant(microseconds)
    assert len(text) == 27
    assert parse_instant(text) == microseconds


@given(instants, instants)
def test_the_text_of_instants_sorts_like_them(one: int, other: int) -> None:
    assert (format_instant(one) < format_instant(other)) == (one < other)


@given(st.datetimes(), st.integers(-18 * 60, 18 * 60))
def test_zones_agree_with_the_standard_library(wall: datetime, minutes: int) -> None:
    sign = "-" if minutes < 0 else "+"
    zone = f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    expected = (wall.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    expected -= minutes * 60_000_000
    if MIN_INSTANT <= expected <= MAX_INSTANT:
        assert parse_instant(wall.isoformat() + zone) == expected


def test_borders_beyond_the_range_are_written_with_a_sign() -> None:
    assert format_instant(MAX_INSTANT + 1) == "+10000-01-01T00:00:00.000000Z"
    assert format_instant(MIN_INSTANT - 1) == "+0000-12-31T23:59:59.999999Z"
    assert format_instant(MIN_INSTANT - 366 * 86_400_000_000 - 1) == "-0001-12-31T23:59:59.999999Z"


LOS_ANGELES = zone_of("America/Los_Angeles")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2012-05-07T09:00[America/Los_Angeles]", "2012-05-07T16:00Z"),
        ("2012-12-07T09:00[America/Los_Angeles]", "2012-12-07T17:00Z"),
        ("2012-05-07[America/Los_Angeles]", "2012-05-07T07:00Z"),
        ("2012-05-07T09:00-07:00[America/Los_Angeles]", "2012-05-07T16:00Z"),
        ("2012-05-07T09:00Z[America/Los_Angeles]", "2012-05-07T09:00Z"),
        ("2012-11-04T01:30-07:00[America/Los_Angeles]", "2012-11-04T08:30Z"),
        ("2012-11-04T01:30-08:00[America/Los_Angeles]", "2012-11-04T09:30Z"),
        ("2012-05-07T09:00", "2012-05-07T09:00Z"),
    ],
)
def test_times_by_the_clocks_of_a_place(text: str, meant: str) -> None:
    assert parse_local(text) == parse_instant(meant)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2012-03-11T02:30[America/Los_Angeles]", "go forward then, from -08:00 and -07:00, and skip it"),
        ("2012-11-04T01:30[America/Los_Angeles]", "show it twice, with -07:00 and -08:00; write one of these"),
        ("2012-05-07T09:00-08:00[America/Los_Angeles]", "the clocks of America/Los_Angeles are -07:00"),
        ("2012-05-07T09:00[America/LosAngeles]", "did you mean 'America/Los_Angeles'"),
        ("2012-05-07T09:00[X]", "there is no time zone 'X'"),
        ("0001-01-01T00:00[Asia/Tokyo]", "out of range"),
    ],
)
def test_what_clocks_do_not_show_once(text: str, said: str) -> None:
    with pytest.raises(TimeError, match=re.escape(said)):
        parse_local(text)


def test_days_before_by_clocks() -> None:
    """A day is from 10 to 10, also where it has 23 or 25 hours."""
    in_march, in_november = parse_instant("2012-03-12T10:00-07:00"), parse_instant("2012-11-05T10:00-08:00")
    assert days_before(in_march, 2, LOS_ANGELES) == parse_instant("2012-03-10T10:00-08:00")
    assert days_before(in_november, 7, LOS_ANGELES) == parse_instant("2012-10-29T10:00-07:00")
    skipped = parse_instant("2012-03-12T02:30-07:00")
    assert days_before(skipped, 1, LOS_ANGELES) == parse_instant("2012-03-11T03:30-07:00")
    with pytest.raises(RangeError):
        days_before(in_march, 10**9, LOS_ANGELES)
