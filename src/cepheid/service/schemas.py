"""Streams as the intake, its log and the wire describe them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from cepheid._native import RecordCodec
from cepheid.model.streams import Stream
from cepheid.model.types import Type


def describe(stream: Stream) -> dict[str, object]:
    """A stream's name, and its attributes by name and type, in their order."""
    return {"name": stream.name, "attributes": [[name, kind.value] for name, kind in stream.attributes.items()]}


def stream_of(description: Mapping[str, Any]) -> Stream:
    """The stream that a description means."""
    attributes = {name: Type.parse(kind) for name, kind in description["attributes"]}
    return Stream(description["name"], attributes, id_kind=description.get("id"))


def codec(streams: Iterable[Stream]) -> RecordCodec:
    """What makes records of events; each stream has its place as number."""
    return RecordCodec(json.dumps([describe(stream) for stream in streams]))


def fingerprint(stream: Stream) -> str:
    """What tells whether two sides mean the same by a stream."""
    return codec([stream]).fingerprints()[0]
