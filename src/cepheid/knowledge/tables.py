"""What is known of events as the native core looks it up: rows by key. Nothing here knows RDF."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cepheid.model.types import Value

Key: TypeAlias = tuple[Value, ...]
Row: TypeAlias = tuple[Value, ...]

#: The first letter of a column: a value; a term, which variables that two events share are joined on; whether a part
#: holds.
VALUE: Final = "?"
TERM: Final = "="
FLAG: Final = "!"
#: Of several variables, `~x y`: the terms that they have together, all in one text (native/src/relation.rs); of one
#: with a VALUE before its name, `~x ?y`, its value in JSON. RELATED goes with the values in the row's other columns,
#: RELATED_AT_ALL with any.
RELATED: Final = "~"
RELATED_AT_ALL: Final = "*"
#: What stands between solutions, and between the terms of one; no term has it, as it is escaped there.
BETWEEN_SOLUTIONS: Final = "\x1e"
BETWEEN_TERMS: Final = "\x1f"


@dataclass
class Table:
    """Rows by key. A complete one knows all keys: those that are not in it have the rows `otherwise`."""

    rows: dict[Key, tuple[Row, ...]] = field(default_factory=dict)
    otherwise: tuple[Row, ...] = ()
    complete: bool = False
    #: The version of the knowledge that it was filled from.
    version: int = 0


@dataclass(frozen=True)
class Lookup:
    """How the events of a variable in one stream are looked up: the attributes of the key, and the columns found."""

    variable: str
    stream: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    table: Table = field(compare=False, repr=False)

    @property
    def label(self) -> str:
        """The lookup for people."""
        return f"{self.stream}: by {', '.join(self.key) or 'nothing'}"

    @property
    def meaning(self) -> str:
        """Equal for lookups that always find the same, of whatever query."""
        return f"{self.stream} {self.key} {self.columns} {id(self.table)}"
