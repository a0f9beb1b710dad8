"""A stream: the schema of its events and how they behave in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from cepheid.model.types import Type

#: What every event has besides its attributes; no attribute can bear these names.
IMPLIED: Final = ("stream", "id", "time")
#: The end of its validity, which a record may have where the stream has no attribute of that name.
VALID_UNTIL: Final = "valid_until"


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of events. Durations are microseconds.

    `id_kind` None means: whichever of the two the stream's first event shows. `nulls` are attributes that nothing is
    known of but nulls: their type stands for any.
    """

    name: str
    attributes: Mapping[str, Type]
    spellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    id_kind: Literal["int", "string"] | None = None
    extras: bool = False
    period: int | None = None
    valid_for: int | None = None
    lateness: int = 0
    idle: int | None = None
    nulls: frozenset[str] = frozenset()
