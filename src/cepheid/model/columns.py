"""The columns that a file of events may have, for the formats that name them once, in front (CSV, Parquet)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from cepheid.model.files import UnreadableFile
from cepheid.model.names import suggestion
from cepheid.model.streams import IMPLIED, Stream
from cepheid.model.types import Type
from cepheid.model.wording import quote

#: What people call the column of times, where "time" is asked for.
_TIME_LIKE: Final = ("time", "timestamp", "ts", "datetime", "date")


class Columns:
    """The columns that some streams know; None for streams means that any name is taken as an attribute.

    A column that no stream knows would make a dead letter of each row that has a value in it. It is refused at once
    instead: a misspelt header is one mistake, not a million.
    """

    def __init__(self, streams: Iterable[Stream] | None) -> None:
        declared = None if streams is None else list(streams)
        self._takes_any = declared is None or any(stream.extras for stream in declared)
        self._needs_stream = declared is not None and len(declared) > 1
        self._types: defaultdict[str, set[Type]] = defaultdict(set)
        for stream in declared or ():
            for name, kind in stream.attributes.items():
                for spelling in (name, *stream.spellings.get(name, ())):
                    self._types[spelling].add(kind)
        self._is_declared = declared is not None

    def check(self, names: Sequence[str], where: str) -> None:
        """Raise UnreadableFile, starting with `where`, unless a file with these columns can be read."""
        for position, name in enumerate(names, 1):
            if not name:
                raise UnreadableFile(f"{where}: column {position} has no name; the first row names the columns")
            if not self._takes_any and name not in IMPLIED and name not in self._types:
                hint = suggestion(name, [*IMPLIED, *self._types])
                raise UnreadableFile(
                    f"{where}: no stream has an attribute {quote(name)}" + (f"; {hint}" if hint else "")
                )
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise UnreadableFile(f"{where}: two columns are named {quote(repeated[0])}")
        if "time" not in names:
            close = next((name for name in names if name.casefold() in _TIME_LIKE), None)
            hint = f"rename {quote(close)}" if close else f"there are {', '.join(map(quote, names[:12]))}"
            raise UnreadableFile(f"{where}: no column 'time'; {hint}")
        if self._needs_stream and "stream" not in names:
            raise UnreadableFile(f"{where}: no column 'stream', and several streams are declared")

    def is_used(self, name: str) -> bool:
        """Whether the values of a column can become part of an event; others need not be read."""
        return not self._is_declared or name in IMPLIED or name in self._types

    def types(self, name: str) -> frozenset[Type]:
        """The types that declared streams give to a column; empty if none declares it."""
        return frozenset(self._types.get(name, ()))
