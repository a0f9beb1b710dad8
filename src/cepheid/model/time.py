"""Durations and instants as people write them, held as integer microseconds (UTC)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final

from cepheid.model.names import suggestion
from cepheid.model.wording import quote, shorten

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

#: Microseconds in each unit that the language knows.
UNITS: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The instants that every engine can hold: years 1 to 9999, as in Python, Spark and SQL.
MIN_INSTANT: Final = -62_135_596_800_000_000
MAX_INSTANT: Final = 253_402_300_799_999_999
#: The longest duration: a little over 292,000 years would overflow; ten thousand years is plenty.
MAX_DURATION: Final = MAX_INSTANT - MIN_INSTANT

_EPOCH_WALL_CLOCK: Final = EPOCH.replace(tzinfo=None)
_MICROSECOND: Final = timedelta(microseconds=1)
#: The Gregorian calendar repeats after 400 years.
_CYCLE_YEARS: Final = 400
_CYCLE: Final = 146_097 * UNITS["d"]

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-zµ]+)\s*", re.ASCII)
#: The form that nearly all records have, which the standard library reads fastest.
_COMMON_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{6})?Z", re.ASCII)
_INSTANT = re.compile(
    r"""([+-]?\d{4,9})-(\d{2})-(\d{2})
        (?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,18}))?)?
           \s*(Z|z|[+-]\d{2}(?::?\d{2})?)?)?$""",
    re.VERBOSE | re.ASCII,
)
#: A time by the clocks of a place, as RFC 9557 writes it.
_OF_PLACE = re.compile(r"(.*?)\s*\[([A-Za-z][\w+/-]*)\]$", re.ASCII | re.DOTALL)
_RELATIVE = re.compile(r"now(?:\s*([+-])\s*(.+))?$", re.IGNORECASE | re.DOTALL)


class TimeError(ValueError):
    """Text that is not a duration or an instant, or lies out of range."""


class RangeError(TimeError):
    """A duration or an instant that is too large or too small to hold."""


class ZoneError(TimeError):
    """A name that is no time zone's, with what may have been meant."""

    def __init__(self, name: str) -> None:
        from zoneinfo import available_timezones

        self.message = f"there is no time zone {quote(name)}"
        self.hint = suggestion(name, available_timezones()) or "names are such as America/Los_Angeles"
        super().__init__(f"{self.message}; {self.hint}")


def parse_duration(text: str) -> int:
    """Microseconds of a duration such as `10ms`, `5min`, `1h30min` or `0.5s`."""
    position, total = 0, 0
    stripped = text.strip()
    while position < len(stripped):
        part = _PART.match(stripped, position)
        if part is None:
            break
        number, unit = part.groups()
        if unit not in UNITS:
            raise TimeError(f"unknown unit {quote(unit)} in duration {quote(text)}; units are {', '.join(UNITS)}")
        whole, _, fraction = number.partition(".")
        whole, fraction, scale = whole.lstrip("0"), fraction.rstrip("0"), UNITS[unit]
        if len(whole) > 19:
            raise RangeError(f"duration {quote(text)} is out of range; at most ten thousand years can be held")
        # More digits than 18 are finer than a microsecond in every unit, and too many for int() to read.
        parts, remainder = divmod(int(fraction[:18] or 0) * scale, 10 ** len(fraction[:18]))
        if remainder or len(fraction) > 18:
            raise TimeError(f"duration {quote(text)} is finer than a microsecond")
        total += int(whole or 0) * scale + parts
        position = part.end()
    if position < len(stripped) or not stripped:
        raise TimeError(f"{quote(text)} is not a duration; write a number and a unit, such as 10ms, 5min or 1h30min")
    if total > MAX_DURATION:
        raise RangeError(f"duration {quote(text)} is out of range; at most ten thousand years can be held")
    return total


def format_duration(microseconds: int) -> str:
    """The shortest exact text of a duration: 90_000_000 is `1min30s`, 1_500 is `1500us`."""
    if microseconds == 0:
        return "0s"
    if microseconds < 0:
        return "-" + format_duration(-microseconds)
    for unit in ("d", "h", "min", "s", "ms", "us"):
        if microseconds % UNITS[unit] == 0:
            single = f"{microseconds // UNITS[unit]}{unit}"
            break
    parts, rest = [], microseconds
    for unit in ("d", "h", "min", "s", "ms", "us"):
        count, rest = divmod(rest, UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    compound = "".join(parts)
    return single if len(single) <= len(compound) else compound


def check_instant(microseconds: int) -> int:
    """The instant itself, if it lies in the years 1 to 9999."""
    if not MIN_INSTANT <= microseconds <= MAX_INSTANT:
        raise RangeError(f"time {shorten(microseconds)} us is out of range; the years 1 to 9999 can be held")
    return microseconds


def parse_instant(text: str, now: int | None = None) -> int:
    """Microseconds since 1970 UTC of `2012-05-07T09:00`, `2012-05-07`, or, if `now` is given, `now - 1h`.

    Text without a zone is UTC (rule E1). Digits beyond the microsecond are cut, as Spark and databases do.
    """
    if _COMMON_INSTANT.fullmatch(text):
        try:
            return (datetime.fromisoformat(text) - EPOCH) // _MICROSECOND
        except ValueError:
            pass  # such as a 30th of February; below it is said what is wrong
    stripped = text.strip()
    if now is not None and (relative := _RELATIVE.match(stripped)):
        sign, amount = relative.groups()
        offset = parse_duration(amount) if amount else 0
        return check_instant(now - offset if sign == "-" else now + offset)
    found = _INSTANT.match(stripped)
    if found and not 1 <= int(found[1]) <= 9999:
        raise RangeError(f"time {quote(text)} is out of range; the years 1 to 9999 can be held")
    if found is None or len(found[1]) != 4:
        raise TimeError(f"{quote(text)} is not a time; write ISO 8601, such as 2012-05-07T09:00:00Z")
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    micros = int((fraction or "").ljust(6, "0")[:6])
    try:
        moment = datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros, UTC
        )
    except ValueError as error:
        raise TimeError(f"{quote(text)} is not a time: {error}") from None
    return check_instant((moment - EPOCH) // _MICROSECOND - _zone_offset(zone, text))


def _zone_offset(zone: str | None, text: str) -> int:
    if zone is None or zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 18 or minutes > 59:
        raise TimeError(f"{quote(text)} is not a time: there is no zone {zone}")
    offset = hours * UNITS["h"] + minutes * UNITS["min"]
    return -offset if zone[0] == "-" else offset


def zone_of(name: str) -> ZoneInfo:
    """The clocks of a place: `America/Los_Angeles`."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # few ask for it

    # What lies beside the zones is another place's on each machine, or counts leap seconds.
    if name.partition("/")[0] in ("localtime", "posix", "posixrules", "right"):
        raise ZoneError(name)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ZoneError(name) from None


def parse_local(text: str, now: int | None = None) -> int:
    """As parse_instant; and `2012-05-07T09:00[America/Los_Angeles]`, by the clocks of that place.

    What those clocks skip, or show twice, is refused: there an offset from UTC says which is meant.
    """
    found = _OF_PLACE.match(text.strip())
    if found is None:
        return parse_instant(text, now)
    written, zone = found[1], zone_of(found[2])
    moment = parse_instant(written)
    if (parts := _INSTANT.match(written)) is not None and parts[8] is not None:
        shown = in_zone(moment, zone).utcoffset()
        given = _zone_offset(parts[8], written)
        if shown is not None and shown // _MICROSECOND != given and parts[8] not in "Zz":
            raise TimeError(f"{quote(text)}: at that time the clocks of {found[2]} are {format_offset(shown)}")
        return moment
    wall = in_zone(moment, UTC).replace(tzinfo=None)
    first, second = (check_instant(_by_clocks(wall.replace(fold=fold), zone)) for fold in (0, 1))
    if first != second:
        offsets = " and ".join(str(format_offset(wall.replace(tzinfo=zone, fold=f).utcoffset())) for f in (0, 1))
        if in_zone(first, zone).replace(tzinfo=None) != wall:
            raise TimeError(f"{quote(text)}: the clocks of {found[2]} go forward then, from {offsets}, and skip it")
        raise TimeError(
            f"{quote(text)}: the clocks of {found[2]} go back then and show it twice, with {offsets}; write one of "
            "these behind the time"
        )
    return first


def with_zone(text: str, zone: ZoneInfo) -> str:
    """A time as it is written; one without a zone, as one by these clocks."""
    found = _INSTANT.match(text.strip())
    return text if found is None or found[8] is not None else f"{text.strip()}[{zone.key}]"


def in_zone(moment: int, zone: ZoneInfo | timezone) -> datetime:
    """What the clocks of a zone show at an instant."""
    try:
        return (EPOCH + timedelta(microseconds=moment)).astimezone(zone)
    except OverflowError:
        raise RangeError(f"time {moment} us is out of range; the years 1 to 9999 can be held") from None


def days_before(now: int, days: int, zone: ZoneInfo) -> int:
    """The instant some days earlier at which clocks show the same; what they skip is shifted by what they skip."""
    try:
        return _by_clocks(in_zone(now, zone).replace(tzinfo=None) - timedelta(days=days), zone)
    except OverflowError:
        raise RangeError(f"{days} days before now is out of range; the years 1 to 9999 can be held") from None


def _by_clocks(wall: datetime, zone: ZoneInfo) -> int:
    offset = wall.replace(tzinfo=zone).utcoffset() or timedelta()
    return (wall.replace(fold=0) - _EPOCH_WALL_CLOCK - offset) // _MICROSECOND


def format_offset(offset: timedelta | None) -> str:
    """`-07:00`."""
    minutes = round((offset or timedelta()).total_seconds() / 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def format_instant(microseconds: int) -> str:
    """ISO 8601 with six digits, as in the output of every command: `2012-05-07T09:05:00.000000Z`.

    A deadline or a window's border can lie beyond the years 1 to 9999; then the year has a sign, as ISO 8601 asks.
    """
    if MIN_INSTANT <= microseconds <= MAX_INSTANT:
        return (_EPOCH_WALL_CLOCK + timedelta(0, 0, microseconds)).isoformat(timespec="microseconds") + "Z"
    cycles, rest = divmod(microseconds - MIN_INSTANT, _CYCLE)
    within = format_instant(MIN_INSTANT + rest)
    return f"{int(within[:4]) + cycles * _CYCLE_YEARS:+05d}{within[4:]}"
