"""The matcher of one query: events in, in any order; matches out, in theirs, as the watermark passes.

Around the native core, which knows places and numbers; here are names, and the types of the model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from cepheid import _native
from cepheid.knowledge.tables import Key, Lookup, Row
from cepheid.language.checker import Checked
from cepheid.model.events import Event
from cepheid.model.matches import Match, Window
from cepheid.plan.compile import compile_query, learned, tables

if TYPE_CHECKING:
    from cepheid.knowledge.modes import Judged, SemanticFilter

#: How many events of complete input are held at once, beyond what the query itself holds.
_CHUNK: Final = 65536


@dataclass(frozen=True, slots=True)
class Budget:
    """The most events that a query may hold, and what happens to the one that would be too many.

    `refuse-newest` leaves it out, `shed-oldest` lets go of the oldest that is held, `fail` raises BudgetExhausted.
    """

    events: int
    overflow: Literal["refuse-newest", "shed-oldest", "fail"] = "fail"


@dataclass(frozen=True, slots=True)
class State:
    """What a matcher needs to go on: the head, written anew each time, and chunks, which never change.

    `names` are all chunks that belong to it; `changed` has the bytes of those that `save` was not told of.
    """

    head: bytes
    names: tuple[str, ...]
    changed: Mapping[str, bytes]

    def chunks(self, before: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
        """All chunks, those that did not change from the save before; the ones that are over are not among them."""
        return {name: self.changed[name] if name in self.changed else (before or {})[name] for name in self.names}


class Matcher:
    """Finds the matches of a query.

    `push` takes events and `advance` the query's watermark (rule E5). An event is final once the watermark is beyond
    its time; a match comes out once all that could change it, or come before it, is final. So what comes out is the
    same, and in the same order, however the input was divided or shuffled.

    An `eager` matcher does not wait for other events of the same time, where that can change no match (MATCH ANY,
    AFTER MATCH KEEP, no moving window): a match comes out once the watermark reaches its time, and matches of one time
    come in the order in which they are found. For those who want an answer to the newest event.
    """

    def __init__(
        self,
        checked: Checked,
        now: int = 0,
        budget: Budget | None = None,
        *,
        eager: bool = False,
        semantic: SemanticFilter | None = None,
    ) -> None:
        """`semantic` judges the PATHs whose answers are not all known beforehand; see plan/semantic.py."""
        self.checked = checked
        self._native = _native.Matcher(*compiled(checked, now, semantic=semantic), *limits(budget), eager)
        self._semantic = semantic
        self._tables = {id(table): place for place, table in enumerate(tables(checked))}

    def push(self, events: Iterable[Event]) -> None:
        """Takes events, none of them late or a duplicate; those of streams that the query does not read don't matter.

        Raises BudgetExhausted if the query holds too many and is to fail then.
        """
        if self._semantic is None:
            self._native.push(events)
            return
        for judged in self._semantic.judge(list(events)):
            self.push_judged(judged)

    def push_judged(self, judged: Judged) -> None:
        """Takes events that the SemanticFilter has judged."""
        assert self._semantic is not None
        for lookup, rows in zip(self._semantic.lookups, judged.learn, strict=True):
            self._learn(lookup, rows)
        self._native.push(judged.events)
        for lookup, keys in zip(self._semantic.lookups, judged.forget, strict=True):
            self._learn(lookup, dict.fromkeys(keys))

    def _learn(self, lookup: Lookup, rows: Mapping[Key, tuple[Row, ...] | None]) -> None:
        if rows:
            self._native.learn(self._tables[id(lookup.table)], learned(rows))

    def refresh(self, lookup: Lookup, rows: Mapping[Key, tuple[Row, ...] | None]) -> None:
        """From now on these rows are what is known; what was judged before stays as it was."""
        self._learn(lookup, rows)

    def advance(self, watermark: int | None) -> list[Match]:
        """The matches that are complete when no event before the watermark can come any more, in order (rule O2).

        None: no event can come at all. A watermark that goes back changes nothing.
        """
        return [match_of(*row) for row in self._native.advance(watermark)]

    def advance_ordered(self, watermark: int | None) -> list[tuple[bytes, Match]]:
        """As `advance`, each match with bytes by which those of several matchers of one query are sorted (rule O2)."""
        return [(order, match_of(*row)) for order, row in self._native.advance_ordered(watermark)]

    def push_batch(self, batch: _native.ArrowBatch, stream: str | None = None) -> None:
        """Takes a batch of columns: anything that speaks Arrow, such as a pyarrow.RecordBatch. Nothing is copied.

        It has columns `id`, `time` (a timestamp, or microseconds), and those of the attributes that the query reads;
        one that is not there is null. All rows are of `stream`, or of what the column `stream` says; either can be
        left out where the query reads one stream. Raises ValueError for what is no event: a row without an id or a
        time, NaN, infinity; the rows before it are taken then.
        """
        self._native.push_batch(batch, stream)

    def advance_batches(self, watermark: int | None) -> list[_native.MatchBatch]:
        """As `advance`, the matches as batches of columns: `pyarrow.record_batch(batch)`.

        Columns: id (text), time, events (a struct by variable), select (a struct by name); for batch and session
        windows, window and group instead of events.
        """
        return self._native.advance_batches(watermark)

    def matches(self, events: Iterable[Event]) -> list[Match]:
        """The matches of complete input (rule E4: it is sorted, and nothing in it is late), in order."""
        ordered = iter(sorted(events, key=lambda event: event.time))
        found: list[Match] = []
        while chunk := list(islice(ordered, _CHUNK)):
            self.push(chunk)
            found += self.advance(chunk[-1].time)
        return found + self.advance(None)

    def save(self, known: Collection[str] = ()) -> State:
        """The state: what `restore` needs to go on from here.

        `known` are the names of the save before, on this matcher or the one that it was restored from; their bytes are
        not made again. So a save costs what has changed.
        """
        return State(*self._native.save(set(known)))

    def restore(self, head: bytes, chunks: Mapping[str, bytes]) -> None:
        """Goes on from where `save` was called, on a matcher of the same query and the same `now`.

        Raises ValueError, and leaves the matcher as it is, if the state is another query's, damaged or incomplete.
        """
        self._native.restore(head, dict(chunks))

    @property
    def counters(self) -> _native.Counters:
        """What happened to the events so far, and what is held now."""
        return self._native.counters()


def compiled(
    checked: Checked, now: int, *, live: bool = False, semantic: SemanticFilter | None = None
) -> tuple[str, list[str], list[str]]:
    """A query as the native core takes it: its plan, and the names of its outputs and group values.

    Raises ValueError for a PATH that nobody judges: one that is not indexed, without a SemanticFilter.
    """
    if semantic is None and not all(table.complete for table in tables(checked)):
        raise ValueError("a PATH of the query is not indexed, so it needs a SemanticFilter (knowledge/modes.py)")
    names = [output.name for output in checked.outputs]
    return compile_query(checked, now, live=live), names, list(checked.groups)


def limits(budget: Budget | None) -> tuple[int | None, str]:
    """A budget as the native core takes it."""
    return (None, "fail") if budget is None else (budget.events, budget.overflow)


def match_of(
    id: str,
    time: int,
    events: dict[str, _native.Bound],
    select: dict[str, _native.Value],
    window: tuple[int, int] | None,
    group: dict[str, _native.Value] | None,
) -> Match:
    """A match from what the native core gives of it."""
    return Match(id, time, events, select, None if window is None else Window(*window), group)
