"""Random streams and events: few whole seconds, keys and values, so that ties, borders and matches are common.

There are gaps too, nulls, many keys at times, ids that two streams share, and numbers at the ends of their ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from hypothesis import strategies as st

from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import INT64_MAX, INT64_MIN, Type, Value

SECOND: Final = 1_000_000
#: The greatest number of events in a case; the reference tries every combination.
MOST_EVENTS: Final = 10
#: A property that stands for an attribute of each stream, not always the same, and its prefix.
PREFIX: Final = ("p", "http://example.org/p#")
PROPERTY: Final = "p:load"
#: Another spelling of an attribute.
SPELLINGS: Final = {"f": ("flow",)}

ATTRIBUTES: Final[dict[str, Type]] = {
    "k": Type.STRING,
    "n": Type.INT,
    "v": Type.INT,
    "f": Type.FLOAT,
    "s": Type.STRING,
    "ok": Type.BOOL,
    "at": Type.TIMESTAMP,
    "raw": Type.BYTES,
    "wave": Type.FLOAT_ARRAY,
}


@dataclass(frozen=True)
class Shape:
    """What the events of a case are like."""

    keys: tuple[str | None, ...]
    latest: int
    numbers: tuple[int | None, ...]


_FEW_KEYS: Final = ("x", "x", "x", "x", "x", "x", "y", "y", None)
_MANY_KEYS: Final = ("x", "y", "z", "u", "ü", "", None)
_SMALL: Final = (0, 1, 2, 3, 3, -2, None)
_VALUES: Final[dict[str, st.SearchStrategy[Value]]] = {
    "n": st.sampled_from([1, 1, 1, 1, 2, None]),
    "f": st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.5, -3.25, 0.1, 1e300, None]),
    "s": st.sampled_from(["", "a", "ab", "Bä", " b ", "ß", None]),
    "ok": st.sampled_from([True, False, None]),
    # The last second of summer in Los Angeles, and a day of the year 2050.
    "at": st.sampled_from([0, 3 * SECOND, -5 * SECOND, 1352019599 * SECOND, 2540000000 * SECOND, None]),
    "raw": st.sampled_from([b"", b"\x00", b"\xff", None]),
    "wave": st.sampled_from([(), (0.5,), (0.5, -1.0), None]),
}


@st.composite
def catalogues(draw: st.DrawFn) -> Catalogue:
    streams, properties = {}, {}
    for name in draw(st.sampled_from([["a"], ["a"], ["a"], ["a", "b"], ["b", "a_c"], ["c", "a", "b"]])):
        kinds = dict(ATTRIBUTES)
        if draw(st.integers(0, 3)) == 0:
            kinds["v"] = Type.FLOAT
        if draw(st.integers(0, 5)) == 0:
            del kinds["s"]
        if draw(st.integers(0, 8)) == 0:
            del kinds["n"]
        id_kind: Literal["int", "string"] = draw(st.sampled_from(["int", "int", "string"]))
        streams[name] = Stream(name, kinds, spellings=SPELLINGS, id_kind=id_kind)
        properties[name] = {PREFIX[1] + "load": draw(st.sampled_from(["v", "f"]))}
    default = next(iter(streams)) if len(streams) == 1 else None
    return Catalogue(streams, default, properties=properties)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    return Shape(
        draw(st.sampled_from([_FEW_KEYS, _FEW_KEYS, _FEW_KEYS, _MANY_KEYS])),
        draw(st.sampled_from([8, 8, 8, 40])),
        draw(st.sampled_from([_SMALL, _SMALL, (*_SMALL, INT64_MAX, INT64_MAX - 1, INT64_MIN)])),
    )


@st.composite
def event_lists(draw: st.DrawFn, catalogue: Catalogue) -> tuple[Event, ...]:
    names = list(catalogue.streams)
    shape = draw(shapes())
    values = {**_VALUES, "k": st.sampled_from(shape.keys), "v": st.sampled_from(shape.numbers)}
    count = draw(st.integers(0 if draw(st.integers(0, 7)) == 0 else 6, MOST_EVENTS))
    start = draw(st.sampled_from([0, 0, -4, 100]))
    step = draw(st.sampled_from([1, -1]))
    given = dict.fromkeys(names, 0)
    events = []
    for _ in range(count):
        stream = catalogue.streams[draw(st.sampled_from(names))]
        given[stream.name] += step
        attributes = {}
        for name, kind in stream.attributes.items():
            value = draw(values[name])
            if kind is Type.FLOAT and isinstance(value, int):
                value = float(value)
            if value is not None or draw(st.booleans()):
                attributes[name] = value
        time = (start + draw(st.integers(0, shape.latest))) * SECOND
        number = given[stream.name]
        events.append(Event(stream.name, number if stream.id_kind == "int" else f"e{number}", time, attributes))
    return tuple(draw(st.permutations(events)))
