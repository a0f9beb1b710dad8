"""What raw values show about the type of their attribute, and which type a number of them agree on.

The rules are in `cepheid.model.inference`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from cepheid.model.records import is_plain_int
from cepheid.model.types import Misfit, Raw, Type, check_int64
from cepheid.model.wording import describe

#: What one value shows. Of CSV cells, "digits" are a number or, beside a "padded" one such as 007, text; "not-finite"
#: may be a bad reading or a name such as Nan.
Shown: TypeAlias = Type | Literal["null", "digits", "padded", "not-finite"]
#: The position of a file among the files, and a line in it.
Place: TypeAlias = tuple[int, int]

_MEANING: Final[dict[Shown, Type]] = {"digits": Type.INT, "padded": Type.STRING}
_PADDED: Final = re.compile(r"[+-]?0[0-9]")
#: Types that go together, and what they are then.
_JOINED: Final = {
    frozenset({Type.INT, Type.FLOAT}): Type.FLOAT,
    frozenset({Type.UINT8_ARRAY, Type.FLOAT_ARRAY}): Type.FLOAT_ARRAY,
}


class Disagreement(Exception):
    """Two places show types that don't go together; the earlier one first."""

    def __init__(self, earlier: tuple[Place, Type], later: tuple[Place, Type]) -> None:
        super().__init__(earlier, later)
        self.earlier, self.later = earlier, later


@dataclass(slots=True)
class Evidence:
    """What the values of one attribute have shown: the first place of each kind, and a type if they show none."""

    first: dict[Shown, Place] = field(default_factory=dict)
    fallback: Type | None = None

    def add(self, other: Evidence) -> None:
        for shown, place in other.first.items():
            self.first[shown] = min(place, self.first.get(shown, place))
        self.fallback = self.fallback or other.fallback

    def agreed(self) -> Type | None:
        """The type that all values go together in; None if there are only nulls; Disagreement."""
        places: dict[Type, Place] = {}
        for shown, place in self.first.items():
            if shown in ("null", "not-finite"):
                continue
            meaning = shown if isinstance(shown, Type) else _MEANING[shown]
            if shown == "digits" and "padded" in self.first:
                meaning = Type.STRING
            places[meaning] = min(place, places.get(meaning, place))
        if len(places) > 1:
            return _join(places)
        if places:
            return next(iter(places))
        return Type.FLOAT if "not-finite" in self.first else self.fallback


def _join(places: dict[Type, Place]) -> Type:
    joined = _JOINED.get(frozenset(places))
    if joined is not None:
        return joined
    by_place = sorted((place, kind) for kind, place in places.items())
    earlier = by_place[0]
    later = next(other for other in by_place[1:] if frozenset({earlier[1], other[1]}) not in _JOINED)
    raise Disagreement(earlier, later)


def shown_by_json(raw: Raw) -> Shown:
    """What a JSON value shows; Misfit if no attribute could have it."""
    match raw:
        case None:
            return "null"
        case bool():
            return Type.BOOL
        case int():
            return Type.INT
        case float():
            kind = Type.FLOAT
        case str():
            kind = Type.STRING
        case list() if all(type(item) is int and 0 <= item <= 255 for item in raw):
            return Type.UINT8_ARRAY
        case list():
            kind = Type.FLOAT_ARRAY
        case _:
            raise Misfit("wrong-type", f"no attribute can be {describe(raw)}")
    kind.from_json(raw)
    return kind


def shown_by_cell(cell: str) -> Shown:
    """What a CSV cell shows by its text."""
    text = cell.strip()
    if cell == "":
        return "null"
    if text.lower() in ("true", "false"):
        return Type.BOOL
    if is_plain_int(text):
        return "digits"
    try:
        Type.FLOAT.from_text(text)
    except Misfit as misfit:
        return "not-finite" if misfit.code == "not-finite" else Type.STRING
    return "padded" if _PADDED.match(text) else Type.FLOAT


def shown_by_column(kind: Type | None, raw: Raw) -> Shown:
    """What a value of a Parquet column shows: the column's type; Misfit if it is not a sound value of it."""
    if kind is None or raw is None:
        return "null"
    kind.from_json(raw)
    return kind


def shown_by_id(raw: Raw, is_text: bool) -> Shown:
    """What an id shows: int, string, or that there is none; Misfit if it can be neither."""
    if raw is None or (is_text and raw == ""):
        return "null"
    if isinstance(raw, str):
        Type.STRING.from_json(raw)
        shown = shown_by_cell(raw) if is_text else Type.STRING
        return shown if shown in ("digits", "padded") else Type.STRING
    if isinstance(raw, int) and not isinstance(raw, bool):
        check_int64(raw)
        return Type.INT
    raise Misfit("wrong-type", f"'id': expected int or string, found {describe(raw)}")
