"""What a consumer receives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cepheid import _native
from cepheid.model.events import EventId
from cepheid.model.types import Value


@dataclass(frozen=True, slots=True)
class Received:
    """An event that a consumer received: valid from `time` to `end` (None: forever), with labels if it was not then.

    `marks` are `stale` and `relative`, where the policy is to mark (rule G3).
    """

    consumer: str
    id: EventId
    time: int
    attributes: Mapping[str, Value]
    end: int | None
    marks: frozenset[str]

    @classmethod
    def of(cls, delivered: _native.Delivered) -> Received:
        """As the native core gives it."""
        consumer, number, time, attributes, end, marks = delivered
        return cls(consumer, number, time, attributes, end, frozenset(marks))
