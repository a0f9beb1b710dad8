"""What a change of the knowledge makes of queries that stand: rows of their tables, or another plan.

Only the keys that a change can concern are asked for again. Where a constant in a FILTER follows from what changed, the
query is lowered anew; what is kept of its events stays the same, so that it goes on from its state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cepheid.app.known import Known
from cepheid.knowledge.index import PartLookup, fill
from cepheid.knowledge.refresh import concerned, speaks_of, stale_keys
from cepheid.knowledge.store import Change
from cepheid.knowledge.tables import Key, Lookup, Row, Table
from cepheid.plan.semantic import Semantic


@dataclass(frozen=True)
class Renewal:
    """How a query is judged from now on. `rows` are those of tables that are others, None for keys that are not there
    any more; if it `is_lowered`, more than that differs, and all is in `semantic`."""

    semantic: Semantic
    rows: tuple[tuple[Lookup, Mapping[Key, tuple[Row, ...] | None]], ...] = ()
    is_lowered: bool = False

    @property
    def is_another(self) -> bool:
        """Whether anything differs."""
        return self.is_lowered or any(rows for _, rows in self.rows)


@dataclass
class Renewals:
    """Changes as queries take them up, which may share tables: each is asked for once. Within `knowledge.reading()`."""

    known: Known
    changes: Iterable[Change]
    _asked: dict[int, Mapping[Key, tuple[Row, ...] | None] | None] = field(default_factory=dict)
    _tables: dict[str, Table] = field(default_factory=dict)

    def of(self, semantic: Semantic) -> Renewal:
        """What they make of a query as it is judged so far."""
        version = self.known.knowledge.version
        if semantic.version == version:
            return Renewal(semantic)
        if any(speaks_of(change, semantic.constants) for change in self.changes):
            return Renewal(self.known.lower(semantic.original, self._tables, semantic), is_lowered=True)
        found = []
        whole = True
        for lookup in semantic.lookups:
            if lookup.table.complete:
                rows = self._refreshed(lookup)
                whole &= rows is not None
                found.append((lookup, rows or {}))
        if not (semantic.is_single if not whole else all(semantic.fits(look, rows.values()) for look, rows in found)):
            return Renewal(self.known.lower(semantic.original, self._tables, semantic), is_lowered=True)
        return Renewal(semantic.at(version), tuple(found) if whole else (), is_lowered=not whole)

    def _refreshed(self, lookup: PartLookup) -> Mapping[Key, tuple[Row, ...] | None] | None:
        """The rows of a table that are others; None if so is what holds for keys that are not in it."""
        place = id(lookup.table)
        if place not in self._asked:
            self._asked[place] = self._refresh(lookup)
        return self._asked[place]

    def _refresh(self, lookup: PartLookup) -> Mapping[Key, tuple[Row, ...] | None] | None:
        knowledge, table = self.known.knowledge, lookup.table
        keys: list[Key] | None = []
        for change in self.changes:
            if concerned(lookup, change):
                stale = stale_keys(lookup, change, knowledge)
                keys = None if keys is None or stale is None else [*keys, *stale]
        if keys:
            asked = list(dict.fromkeys(keys))
            fresh = dict(zip(asked, lookup.rows_of(asked, knowledge), strict=True))
            table.rows.update(fresh)
            return fresh
        if keys is None:
            before, otherwise = table.rows, table.otherwise
            fill(lookup, knowledge)
            gone = dict.fromkeys(before.keys() - table.rows.keys())
            differing = {key: rows for key, rows in table.rows.items() if before.get(key) != rows}
            return None if table.otherwise != otherwise else {**gone, **differing}
        return {}
