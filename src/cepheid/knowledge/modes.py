"""The semantic filter at run time, where an index can't say all: naive, buffering, caching, and both (the paper's 4.2).

- naive: each event is asked for by itself
- buffer: the events of an interval are asked for together, each as a root of its own, in one execution
- cache: events with the same query root properties share an answer; the least recently used is let go of
- buffer+cache: those of a buffer that the cache does not know are asked for together, each key once
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from cepheid.knowledge.index import PartLookup
from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.tables import Key, Row
from cepheid.model.events import Event

#: How semantic conditions are evaluated; `index` and `auto` are the planner's to decide.
Evaluation: TypeAlias = Literal["naive", "buffer", "cache", "buffer+cache"]
#: What is kept unless someone says otherwise: answers of so many keys, for each lookup.
ENTRIES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Judged:
    """Events whose rows are known: for each lookup, what the core has to learn before them and forget after them."""

    events: Sequence[Event]
    learn: tuple[dict[Key, tuple[Row, ...]], ...]
    forget: tuple[tuple[Key, ...], ...]


@dataclass
class Cache:
    """Answers by key, the least recently used first. `hits` and `misses` count what was asked for."""

    entries: int
    rows: OrderedDict[Key, tuple[Row, ...]] = field(default_factory=OrderedDict)
    hits: int = 0
    misses: int = 0

    def get(self, key: Key) -> tuple[Row, ...] | None:
        found = self.rows.get(key)
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
            self.rows.move_to_end(key)
        return found

    def put(self, key: Key, rows: tuple[Row, ...]) -> None:
        self.rows[key] = rows

    def shrink(self) -> list[Key]:
        """Lets go of what is too much."""
        return [self.rows.popitem(last=False)[0] for _ in range(max(0, len(self.rows) - self.entries))]


class SemanticFilter:
    """Finds the rows of events for lookups whose tables are not complete.

    A version of the knowledge judges all events of a call; what an earlier one said is forgotten.
    """

    def __init__(
        self,
        lookups: Sequence[PartLookup],
        knowledge: Knowledge,
        mode: Evaluation = "buffer+cache",
        entries: int = ENTRIES,
    ) -> None:
        self.lookups = tuple(lookups)
        self.caches = tuple(Cache(entries) for _ in lookups)
        self._knowledge = knowledge
        self.mode = mode
        self._version = knowledge.version
        knowledge.prepare()  # a store that was opened on disk can only be read, and events' triples are put beside it

    def judge(self, events: Sequence[Event]) -> Iterator[Judged]:
        """The events, in portions that the core can take one after the other."""
        yield from self.judge_annotated(events, self.annotate(events))

    def annotate(self, events: Sequence[Event]) -> list[list[Key | None]]:
        """For each lookup the key of each event: its query root properties; None for another stream's."""
        return [[key_of(look, e) if e.stream == look.stream else None for e in events] for look in self.lookups]

    def judge_annotated(self, events: Sequence[Event], keys: Sequence[Sequence[Key | None]]) -> Iterator[Judged]:
        """As `judge`, of events whose keys are known."""
        size = 1 if self.mode in ("naive", "cache") else max(1, len(events))
        for start in range(0, len(events), size):
            with self._knowledge.reading() as version:
                stale = self._renew(version)
                portion = [[k for k in own[start : start + size] if k is not None] for own in keys]
                judged = self._portion(events[start : start + size], portion)
            over = zip(stale, judged.learn, judged.forget, strict=True)
            forget = tuple((*(key for key in old if key not in new), *gone) for old, new, gone in over)
            yield Judged(judged.events, judged.learn, forget)

    def _renew(self, version: int) -> list[list[Key]]:
        """Forgets what another version said, if this is a new one."""
        if version == self._version:
            return [[] for _ in self.caches]
        self._version = version
        stale = [list(cache.rows) for cache in self.caches]
        for cache in self.caches:
            cache.rows.clear()
        return stale

    def _portion(self, events: Sequence[Event], keys: Sequence[Sequence[Key]]) -> Judged:
        learn, forget = [], []
        for lookup, cache, own in zip(self.lookups, self.caches, keys, strict=True):
            known = self._cached(lookup, cache, own) if "cache" in self.mode else self._asked(lookup, own)
            learn.append(known)
            forget.append(tuple(cache.shrink()) if "cache" in self.mode else tuple(known))
        return Judged(events, tuple(learn), tuple(forget))

    def _asked(self, lookup: PartLookup, keys: Sequence[Key]) -> dict[Key, tuple[Row, ...]]:
        return dict(zip(keys, lookup.rows_of(keys, self._knowledge), strict=True)) if keys else {}

    def _cached(self, lookup: PartLookup, cache: Cache, keys: Sequence[Key]) -> dict[Key, tuple[Row, ...]]:
        missing = [key for key in dict.fromkeys(keys) if cache.get(key) is None]
        found = self._asked(lookup, missing)
        for key, rows in found.items():
            cache.put(key, rows)
        return found


def key_of(lookup: PartLookup, event: Event) -> Key:
    """The query root properties of an event: the values that the part can see."""
    return tuple(event.attributes.get(name) for name in lookup.key)
