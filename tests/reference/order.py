"""The order of the output (rule O2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.reference.events import Bound, Event, Value


def bound_key(bound: Bound) -> tuple[Any, ...]:
    """Unbound before bound; events under E2; lists element by element, so a list comes before a longer one."""
    if bound is None:
        return (0,)
    if isinstance(bound, Event):
        return (1, bound.order)
    return (1, tuple(event.order for event in bound))


def match_key(time: int, binding: Mapping[str, Bound], variables: Iterable[str]) -> tuple[Any, ...]:
    """By time, then by the bound events, variable by variable."""
    return (time, *(bound_key(binding[v]) for v in variables if v in binding))


def group_key(time: int, values: Sequence[Value]) -> tuple[Any, ...]:
    """Batch and session rows: by time, then by group values, null first."""
    return (time, *((0,) if value is None else (1, value) for value in values))
