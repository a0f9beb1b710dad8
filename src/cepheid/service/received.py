"""What a consumer receives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cepheid import _native
from cepheid.model.events import EventId
from cepheid.model.types import Value


@dataclass(frozen=True, slots=True)
class Received:
    """An event that a consumer received: valid from `time` to `end` (None: forever), with labels if it was not then.

    `marks` are `stale` and `relative`, where the policy is to mark (rule G3); and `recovered`, of a match that was
    found late because the engine was not there when its events came: `delay` microseconds after that. bytes and
    array<uint8> are bytes, array<float> is a tuple: the same in the engine's process and elsewhere. Elsewhere there is
    `pushed`, when the service wrote it to this consumer's socket, in microseconds; and of a match `found`: `events`,
    and for a window `window` and `group`. What is made again after a crash has the id that it had (docs/service.md).
    """

    consumer: str
    id: EventId
    time: int
    attributes: Mapping[str, Value]
    end: int | None
    marks: frozenset[str]
    pushed: int | None = field(default=None, compare=False)
    found: Mapping[str, Any] | None = None
    delay: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, delivered: _native.Delivered) -> Received:
        """As the native core gives it."""
        consumer, number, time, attributes, end, marks = delivered
        return cls(consumer, number, time, attributes, end, frozenset(marks))
