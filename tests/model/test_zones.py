"""The clocks of zones, as the native core reads their tables, beside Python's zoneinfo."""

from __future__ import annotations

import struct
import zoneinfo
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.language.checker import check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.time import EPOCH, TimeError, zone_of
from cepheid.model.zones import clocks_of
from cepheid.plan.matcher import Matcher

ZONES = sorted(name for name in zoneinfo.available_timezones() if name != "localtime")
PARTS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
#: The years 1900 to 2100, and 1 to 9999 but for their first and last days, in seconds since 1970.
CENTURIES = st.integers(-2_208_988_800, 4_133_980_799)
ALL_YEARS = st.integers(-62_135_500_000, 253_402_200_000)


def by_table(zone: str, moments: Sequence[datetime]) -> list[tuple[object, ...]]:
    """What the native core says that clocks show."""
    selected = ", ".join(f"{part}(?e.time, '{zone}') AS {part.lower()}" for part in PARTS)
    checked, problems = check(parse(f"SELECT {selected} FROM (?e, e)"), Catalogue({"e": Stream("e", {})}))
    assert checked is not None, problems
    times = {(moment - EPOCH) // timedelta(microseconds=1) for moment in moments}
    found = Matcher(checked).matches([Event("e", number, time, {}) for number, time in enumerate(sorted(times))])
    return [tuple(match.select.values()) for match in found]


def by_zoneinfo(zone: str, moments: Sequence[datetime]) -> list[tuple[object, ...]]:
    return [tuple(moment.astimezone(ZoneInfo(zone)).timetuple())[:6] for moment in sorted(set(moments))]


def around_changes(zone: str) -> Iterator[datetime]:
    """The seconds around all changes that a zone's table has, and some years of what goes on for ever."""
    clocks = clocks_of(zone)
    for time in clocks.times:
        yield from (EPOCH + timedelta(seconds=time + beside) for beside in (-1, 0) if abs(time) < 6e10)
    for year in (2037, 2040, 2050):
        first = datetime(year, 1, 1, tzinfo=UTC)
        yield from (first - timedelta(seconds=1), first)
        yield from (
            first + timedelta(seconds=into - 1 + s) for changes in clocks.years for into, _ in changes for s in (0, 1)
        )


@contextmanager
def database(folders: Sequence[str] | None) -> Iterator[None]:
    """Files of the tz database from these folders, or else from the package tzdata; None: as it is."""
    before = zoneinfo.TZPATH
    try:
        zoneinfo.reset_tzpath(before if folders is None else folders)
        ZoneInfo.clear_cache()
        clocks_of.cache_clear()
        yield
    finally:
        zoneinfo.reset_tzpath(before)
        ZoneInfo.clear_cache()
        clocks_of.cache_clear()


@pytest.mark.parametrize("folders", [None, []], ids=["the system's files", "the package tzdata"])
def test_every_zone_at_each_change_of_its_clocks(folders: list[str] | None) -> None:
    with database(folders):
        for zone in ZONES if folders is None else ZONES[::5]:
            moments = list(around_changes(zone))
            assert by_table(zone, moments) == by_zoneinfo(zone, moments), zone


@given(st.sampled_from(ZONES), st.lists(CENTURIES | ALL_YEARS, min_size=1))
def test_any_zone_at_any_time(zone: str, seconds: list[int]) -> None:
    moments = [EPOCH + timedelta(seconds=second) for second in seconds]
    assert by_table(zone, moments) == by_zoneinfo(zone, moments)


def write(path: Path, last_line: str, *, version: bytes = b"2") -> None:
    """A file without any change of the clocks, so that all is by its last line. Version 1 has none."""
    counts = (0, 0, 0, 0, 1, 4)
    header = b"TZif" + version + bytes(15) + struct.pack(">6I", *counts)
    body = struct.pack(">iBB", -4 * 3600, 0, 0) + b"AAA\0"
    if version == b"\0":
        path.write_bytes(header + body)
    else:
        path.write_bytes(header + body + header + body + f"\n{last_line}\n".encode())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "AAA4",
        "<-04>4<-03>,M1.5.0/-2:30,M12.1.6/24:00:01",  # northern winter, before and behind midnight
        "AAA4BBB3:15:10,J60/2,J300",  # never a 29 February
        "AAA-12BBB-13,M11.5.6,M2.5.6/167",
    ],
)
def test_every_form_of_the_last_line(tmp_path: Path, line: str) -> None:
    write(tmp_path / "Made", line)
    with database([str(tmp_path)]):
        years = (1896, 1900, 1970, 2000, 2001, 2023, 2024, 2399, 2400, 9998)
        moments = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(hours=6 * n) for year in years for n in range(4 * 366)]
        assert by_table("Made", moments) == by_zoneinfo("Made", moments)


def test_days_that_are_counted_from_0(tmp_path: Path) -> None:
    """As POSIX has it: 59 is the 29 February, where there is one. No zone has this form; zoneinfo counts from 1."""
    write(tmp_path / "Made", "AAA4BBB,59/2,300/3")
    with database([str(tmp_path)]):
        moments = [datetime(year, 2, 28, 5, 59, 59, tzinfo=UTC) + timedelta(days=1) for year in (2023, 2024)]
        moments += [moment + timedelta(seconds=1) for moment in moments]
        assert [shown[1:4] for shown in by_table("Made", moments)] == [(3, 1, 1), (3, 1, 3), (2, 29, 1), (2, 29, 3)]


def test_a_file_of_the_first_version(tmp_path: Path) -> None:
    write(tmp_path / "Made", "", version=b"\0")
    with database([str(tmp_path)]):
        moment = datetime(2012, 5, 7, 9, tzinfo=UTC)
        assert by_table("Made", [moment]) == [(2012, 5, 7, 5, 0, 0)]


def test_a_last_line_that_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path / "Made", "AAA4BBB")
    with database([str(tmp_path)]), pytest.raises(ValueError, match="can't be read: AAA4BBB"):
        clocks_of("Made")


@pytest.mark.parametrize("name", ["localtime", "posixrules", "right/America/Los_Angeles", "posix/Europe/Berlin", ""])
def test_no_zone_is_what_is_another_elsewhere(name: str) -> None:
    with pytest.raises(TimeError, match="there is no time zone"):
        zone_of(name)
