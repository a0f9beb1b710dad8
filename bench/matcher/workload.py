"""The workload: one event a millisecond, a thousand rooms, ten types; event i is a function of i alone.

It is that of the peers, bit for bit, so that all count the same matches.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from cepheid.language.checker import Checked, check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type

ROOMS: Final = 1000
TYPES: Final = "ABCDEFGHIJ"
WITHIN: Final = 10_000
#: The peers exclude the border of their windows, so ours is a millisecond shorter.
PAIR: Final = (
    "SELECT ?a.room, ?a.temp AS t0, ?b.temp AS t1 FROM (?a, s), (?b, s) FILTER (?a.type = 'A') FILTER (?b.type = 'B')"
    " JOIN (?a.room = ?b.room) JOIN (?b.temp > ?a.temp) WINDOW (?a, ?b, 9999ms)"
)
QUERIES: Final = {
    "filter": "SELECT ?b.room, ?b.temp FROM (?b, s) FILTER (?b.type = 'B' AND ?b.temp > 30)",
    "pattern": f"{PAIR} SEQ (?a, ?b) MATCH NEXT",
    "join": PAIR,
}


def third(number: int) -> str:
    """The pair, and after it an event that is another query's own."""
    own = f"?c.type = '{'CDEFGHIJ'[number % 8]}' AND ?c.temp > {20 + number // 8}"
    ranges = PAIR.replace("(?b, s)", "(?b, s), (?c, s)")
    return f"{ranges} FILTER ({own}) JOIN (?b.room = ?c.room) WINDOW (?b, ?c, 9999ms) SEQ (?a, ?b, ?c)"


#: Twenty queries each, by what they have in common.
SHARED: Final = {
    "one pattern": [
        f"SELECT ?b.temp - ?a.temp - {i} AS rise {PAIR[PAIR.index('FROM') :]} SEQ (?a, ?b) MATCH NEXT"
        for i in range(20)
    ],
    "one beginning, of two steps, MATCH NEXT": [f"{third(i)} MATCH NEXT" for i in range(20)],
    "one beginning, of two steps, MATCH ANY": [third(i) for i in range(20)],
    "one condition": [
        "SELECT ?b.temp FROM (?b, s) FILTER (?b.temp * 2 - ?b.temp / 3 > 55)"
        f" FILTER (?b.type != '{TYPES[i % 10]}') FILTER (?b.temp < {34.5 + i / 40})"
        for i in range(20)
    ],
}
STREAM: Final = Stream("s", {"room": Type.STRING, "type": Type.STRING, "temp": Type.FLOAT}, id_kind="int")


def mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def table(count: int, rooms: int = ROOMS) -> pa.Table:
    """Events 0 to count - 1 as columns."""
    i = np.arange(count, dtype=np.uint64)
    room = (mix(i) >> np.uint64(1)) % np.uint64(rooms)
    kind = (mix(i * np.uint64(3) + np.uint64(1)) >> np.uint64(1)) % np.uint64(len(TYPES))
    temp = 15.0 + 20.0 * ((mix(i * np.uint64(7) + np.uint64(5)) >> np.uint64(11)).astype(np.float64) * 2.0**-53)
    names = pa.array([f"room{k}" for k in range(rooms)])
    return pa.table(
        {
            "id": i.astype(np.int64),
            "time": i.astype(np.int64) * 1000,
            "room": names.take(pa.array(room.astype(np.int64))),
            "type": pa.array(list(TYPES)).take(pa.array(kind.astype(np.int64))),
            "temp": temp,
        }
    )


def batches(count: int, rooms: int = ROOMS, size: int = 8192) -> list[pa.RecordBatch]:
    """The events in batches of their own, as a source would give them."""
    whole = table(count, rooms)
    return [whole.slice(start, size).combine_chunks().to_batches()[0] for start in range(0, count, size)]


def events(count: int) -> list[Event]:
    """The events as Python objects."""
    columns = table(count).to_pydict()
    rows = zip(columns["id"], columns["time"], columns["room"], columns["type"], columns["temp"], strict=True)
    return [Event("s", i, t, {"room": room, "type": kind, "temp": temp}) for i, t, room, kind, temp in rows]


def oracle(given: list[Event]) -> dict[str, int]:
    """How many matches there are, counted by a plain loop."""
    counts = dict.fromkeys(QUERIES, 0)
    open_as: dict[object, deque[tuple[int, float]]] = {}
    seen: dict[tuple[object, object], deque[tuple[int, float]]] = {}
    for i, event in enumerate(given):
        kind, room, temp = (event.attributes[name] for name in ("type", "room", "temp"))
        assert isinstance(temp, float)
        counts["filter"] += kind == "B" and temp > 30
        if kind not in ("A", "B"):
            continue
        other = seen.setdefault((room, "B" if kind == "A" else "A"), deque())
        while other and i - other[0][0] >= WITHIN:
            other.popleft()
        counts["join"] += sum(t > temp if kind == "A" else temp > t for _, t in other)
        seen.setdefault((room, kind), deque()).append((i, temp))
        waiting = open_as.setdefault(room, deque())
        while waiting and i - waiting[0][0] >= WITHIN:
            waiting.popleft()
        if kind == "A":
            waiting.append((i, temp))
        else:
            left = deque(a for a in waiting if a[1] >= temp)
            counts["pattern"] += len(waiting) - len(left)
            open_as[room] = left
    return counts


def checked(text: str) -> Checked:
    found, problems = check(parse(text), Catalogue({"s": STREAM}))
    assert found is not None, problems
    return found
