"""An event, and the one total order of events (rules E1 and E2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from cepheid.model.types import Value

#: An int64, compared as a number, or text, compared bytewise; one kind a stream.
EventId: TypeAlias = int | str
OrderKey: TypeAlias = tuple[int, str, EventId]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a supplier reported: when it was created (microseconds UTC) and what was read."""

    stream: str
    id: EventId
    time: int
    attributes: Mapping[str, Value] = field(default_factory=dict, hash=False)

    @property
    def order(self) -> OrderKey:
        """The key of rule E2: time, then stream name, then id.

        Python compares text by code point, which is the bytewise order of its UTF-8.
        """
        return (self.time, self.stream, self.id)
