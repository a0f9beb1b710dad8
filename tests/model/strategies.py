"""Random values, streams and events for the property tests."""

from __future__ import annotations

import string
from typing import Any, Literal

from hypothesis import strategies as st

from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.time import MAX_INSTANT, MIN_INSTANT
from cepheid.model.types import INT64_MAX, INT64_MIN, Type, Value

instants = st.integers(MIN_INSTANT, MAX_INSTANT)
int64s = st.integers(INT64_MIN, INT64_MAX)
floats = st.floats(allow_nan=False, allow_infinity=False)
#: All text that UTF-8 can hold, control characters and line ends included.
texts = st.text(st.characters(codec="utf-8"), max_size=20)

#: Whatever json.loads can return, lone surrogates, NaN and big numbers included.
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(10**300, 10**320) | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(st.characters()), inner, max_size=5),
    max_leaves=10,
)

_VALUES: dict[Type, st.SearchStrategy[Value]] = {
    Type.BOOL: st.booleans(),
    Type.INT: int64s,
    Type.FLOAT: floats,
    Type.STRING: texts,
    Type.TIMESTAMP: instants,
    Type.BYTES: st.binary(max_size=20),
    Type.UINT8_ARRAY: st.binary(max_size=20),
    Type.FLOAT_ARRAY: st.lists(floats, max_size=5).map(tuple),
}


def values(kind: Type) -> st.SearchStrategy[Value]:
    """Values of a type, and null."""
    return st.none() | _VALUES[kind]


@st.composite
def streams_and_events(draw: st.DrawFn, has_empty_text: bool = True) -> tuple[Stream, list[Event]]:
    """A stream and some of its events; without `has_empty_text` there are no empty strings or bytes."""
    names = st.text(string.ascii_letters + "äλ雪_", min_size=1, max_size=8).filter(
        lambda name: name not in ("stream", "id", "time")
    )
    attributes = draw(st.dictionaries(names, st.sampled_from(Type), max_size=8))
    id_kind: Literal["int", "string"] = "int" if draw(st.booleans()) else "string"
    ids: st.SearchStrategy[int | str] = int64s if id_kind == "int" else texts.filter(bool)
    stream = Stream('s, "1"', attributes, id_kind=id_kind)
    events = []
    for event_id in draw(st.lists(ids, max_size=5)):
        record = {name: draw(values(kind)) for name, kind in attributes.items()}
        if not has_empty_text:
            record = {
                name: None if value in ("", b"") and attributes[name] is not Type.UINT8_ARRAY else value
                for name, value in record.items()
            }
        events.append(Event(stream.name, event_id, draw(instants), record))
    return stream, events
