"""What the clocks of a place are ahead of UTC at any instant: a table, made of the tz database's file on this machine.

Every engine reads these tables, so that none can have another edition of the database than the others. They are exact
for all times: what the file lists, and beyond that the rule of its last line, which depends on a year's kind alone.
"""

from __future__ import annotations

import re
import struct
import zoneinfo
from calendar import isleap, monthrange
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Final

_DAY: Final = 86_400
#: A year of each kind: by whether it has a 29 February, and the day of the week that it begins with, Monday first.
_KINDS: Final = tuple(
    next(year for year in range(2000, 2100) if (isleap(year), date(year, 1, 1).weekday()) == (leap, day))
    for leap in (False, True)
    for day in range(7)
)


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds ahead of UTC: `offsets[0]` before the first of `times` (seconds since 1970), `offsets[1]` from it on, ...

    From the last of `times` on, if there are `years`: the changes of each kind of year, as seconds since its beginning
    in UTC and the offset from then on. What holds at a year's beginning is what holds at its end.
    """

    times: tuple[int, ...]
    offsets: tuple[int, ...]
    years: tuple[tuple[tuple[int, int], ...], ...] = ()


@lru_cache(maxsize=64)
def clocks_of(name: str) -> Clocks:
    """The clocks of a zone that model/time.py's `zone_of` knows."""
    times, offsets, rule = _read(_file(name))
    # What is no change of the offset but one of the name, or of what is called summer, is left out.
    kept = [i for i in range(len(times)) if offsets[i + 1] != offsets[i]]
    if rule is not None and times and (not kept or kept[-1] != len(times) - 1):
        kept.append(len(times) - 1)  # where the rule begins
    return Clocks(
        tuple(times[i] for i in kept),
        (offsets[0], *(offsets[i + 1] for i in kept)),
        () if rule is None else tuple(_changes(rule, year) for year in _KINDS),
    )


def _file(name: str) -> bytes:
    """The file that zoneinfo reads: the system's, or else that of the package tzdata."""
    for folder in zoneinfo.TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return path.read_bytes()
    return resources.files("tzdata.zoneinfo").joinpath(*name.split("/")).read_bytes()


def _read(data: bytes) -> tuple[list[int], list[int], _Rule | None]:
    """The times of a file in the form TZif (RFC 9636), the offsets between them, and the rule that holds after them."""
    start, size = 0, 4
    counts = _counts(data, 0)
    if data[4:5] >= b"2":  # a second part, with times of 64 bits
        start, size = 44 + _length(counts, 4), 8
        counts = _counts(data, start)
    _, _, _, time_count, type_count, _ = counts
    place = start + 44
    times = list(struct.unpack_from(f">{time_count}{'q' if size == 8 else 'i'}", data, place))
    place += time_count * size
    numbers = data[place : place + time_count]
    place += time_count
    types = [struct.unpack_from(">iBB", data, place + 6 * i) for i in range(type_count)]
    last = data[start + 44 + _length(counts, size) :].strip(b"\n").decode() if size == 8 else ""
    fixed, rule = _last_line(last)
    if times or fixed is None:
        first = next((offset for offset, is_summer, _ in types if not is_summer), types[0][0])
    else:
        first = fixed
    return times, [first, *(types[number][0] for number in numbers)], rule


def _counts(data: bytes, start: int) -> tuple[int, ...]:
    if data[start : start + 4] != b"TZif":
        raise ValueError("a file of the tz database does not begin as one")
    return struct.unpack_from(">6I", data, start + 20)


def _length(counts: tuple[int, ...], size: int) -> int:
    utc, standard, leaps, times, types, characters = counts
    return times * size + times + types * 6 + characters + leaps * (size + 4) + standard + utc


# the last line: CET-1CEST,M3.5.0,M10.5.0/3


@dataclass(frozen=True, slots=True)
class _Rule:
    """Two offsets, and the days on which the one begins and ends in every year, as they are written."""

    standard: int
    summer: int
    begins: str
    ends: str


_NAME: Final = r"(?:[A-Za-z]+|<[^>]+>)"
_OFFSET: Final = r"[+-]?\d+(?::\d+){0,2}"
_LINE: Final = re.compile(rf"{_NAME}({_OFFSET})(?:{_NAME}({_OFFSET})?,([^,]+),([^,]+))?")


def _last_line(text: str) -> tuple[int | None, _Rule | None]:
    """The offset that always holds, or the rule by which summer begins and ends; POSIX writes what UTC is ahead."""
    if not text:
        return None, None
    found = _LINE.fullmatch(text)
    if found is None:
        raise ValueError(f"the last line of a file of the tz database can't be read: {text}")
    standard = -_seconds(found[1])
    if found[3] is None:
        return standard, None
    summer = standard + 3600 if found[2] is None else -_seconds(found[2])
    return None, _Rule(standard, summer, found[3], found[4])


def _seconds(text: str) -> int:
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    total = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
    return -total if text.startswith("-") else total


def _changes(rule: _Rule, year: int) -> tuple[tuple[int, int], ...]:
    begins = _since_its_beginning(rule.begins, year) - rule.standard, rule.summer
    ends = _since_its_beginning(rule.ends, year) - rule.summer, rule.standard
    return tuple(sorted((begins, ends)))


def _since_its_beginning(written: str, year: int) -> int:
    """The second of a year, by its clocks, of `M3.5.0/2` (month, week, day from Sunday), `J60/2` or `59`."""
    day, _, time = written.partition("/")
    first = date(year, 1, 1)
    if day[0] == "M":
        month, week, weekday = map(int, day[1:].split("."))
        last = monthrange(year, month)[1]
        of_month = (weekday - date(year, month, 1).isoweekday()) % 7 + 7 * week - 6
        days = (date(year, month, of_month if of_month <= last else of_month - 7) - first).days
    elif day[0] == "J":  # counted from 1, and never a 29 February
        days = int(day[1:]) - (0 if isleap(year) and int(day[1:]) >= 60 else 1)
    else:
        days = int(day)
    return days * _DAY + _seconds(time or "2")
