"""The semantic filter at run time, where an index can't say all: naive, buffering, caching, and both (the paper's 4.2).

- naive: each event is asked for by itself
- buffer: the events of an interval are asked for together, each as a root of its own, in one execution
- cache: events with the same query root properties share an answer; the least recently used is let go of
- buffer+cache: those of a buffer that the cache does not know are asked for together, each key once
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from cepheid.knowledge.index import PartLookup, keys_in
from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.tables import Key, Row
from cepheid.model.events import Event

#: How semantic conditions are evaluated; `index` and `auto` are the planner's to decide.
Evaluation: TypeAlias = Literal["naive", "buffer", "cache", "buffer+cache"]
#: What is kept unless someone says otherwise: answers of so many keys, for each lookup.
ENTRIES: Final = 65_536
#: Without a buffer, so many events are asked for by themselves before the core gets them, and a change gets its turn.
_ONE_BY_ONE: Final = 256


@dataclass(frozen=True, slots=True)
class Percent:
    """The size of a cache, by how many keys the knowledge has entities for; readings do not count."""

    value: float

    def entries(self, lookup: PartLookup, knowledge: Knowledge) -> int:
        """How many that is: at least one."""
        known = [len(keys_in(lookup.annotations[name], knowledge)) for name in lookup.key]
        return max(1, round(max(known, default=0) * self.value / 100))


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

    def missing(self, keys: Iterable[Key]) -> tuple[list[Key], list[Key]]:
        """Which of these keys have to be asked for, one after the other, and which are let go of meanwhile."""
        asked, gone = [], []
        for key in keys:
            if key in self.rows:
                self.hits += 1
                self.rows.move_to_end(key)
                continue
            self.misses += 1
            asked.append(key)
            self.rows[key] = ()  # until it is known
            if len(self.rows) > self.entries:
                gone.append(self.rows.popitem(last=False)[0])
        return asked, gone

    def forget(self, keys: Iterable[Key]) -> None:
        """What was asked for and got no answer."""
        for key in keys:
            self.rows.pop(key, None)

    def know(self, found: Mapping[Key, tuple[Row, ...]]) -> None:
        """What was asked for, as far as there is still room for it."""
        self.rows.update((key, rows) for key, rows in found.items() if key in self.rows)


class SemanticFilter:
    """Finds the rows of events for lookups whose tables are not complete.

    A version of the knowledge judges all events of a call; what an earlier one said is forgotten.
    """

    def __init__(
        self,
        lookups: Sequence[PartLookup],
        knowledge: Knowledge,
        mode: Evaluation = "buffer+cache",
        size: int | Percent = ENTRIES,
    ) -> None:
        """`size` is that of each lookup's cache, in entries or percent."""
        self.lookups = tuple(lookups)
        self.caches = tuple(
            Cache(size.entries(look, knowledge) if isinstance(size, Percent) else size) for look in lookups
        )
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
        size = _ONE_BY_ONE if self.mode in ("naive", "cache") else max(1, len(events))
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
            if "cache" not in self.mode:
                known = self._asked(lookup, own)
                learn.append(known)
                forget.append(tuple(known))
                continue
            # In a buffer each key is looked for once; else as events come.
            asked, gone = cache.missing(dict.fromkeys(own) if "buffer" in self.mode else own)
            try:
                known = self._asked(lookup, asked)
            except BaseException:
                cache.forget(asked)
                raise
            cache.know(known)
            learn.append(known)
            forget.append(tuple(key for key in dict.fromkeys(gone) if key not in cache.rows))
        return Judged(events, tuple(learn), tuple(forget))

    def _asked(self, lookup: PartLookup, keys: Sequence[Key]) -> dict[Key, tuple[Row, ...]]:
        rows = lookup.rows_of(keys, self._knowledge, each="buffer" not in self.mode) if keys else []
        return dict(zip(keys, rows, strict=True))


def key_of(lookup: PartLookup, event: Event) -> Key:
    """The query root properties of an event: the values that the part can see."""
    return tuple(event.attributes.get(name) for name in lookup.key)
