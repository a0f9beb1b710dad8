"""What a change of a running service changed, by kind and name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Changed:
    """Names of one kind. `changed` ones mean something else now: they were removed, and others added in their place."""

    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    changed: Sequence[str] = ()
    kept: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that a change did."""

    streams: Changed = field(default_factory=Changed)
    operators: Changed = field(default_factory=Changed)
    consumers: Changed = field(default_factory=Changed)
    queries: Changed = field(default_factory=Changed)
    levels: Changed = field(default_factory=Changed)

    def to_json(self) -> dict[str, Any]:
        """For the wire."""
        return asdict(self)

    @classmethod
    def of(cls, content: Mapping[str, Mapping[str, Sequence[str]]]) -> Changes:
        """As `to_json` gives it."""
        return cls(**{kind: Changed(**names) for kind, names in content.items()})

    @classmethod
    def named(cls, content: Mapping[str, tuple[Sequence[str], Sequence[str], Sequence[str], Sequence[str]]]) -> Changes:
        """As an engine gives it: of each kind, those added, removed, changed and kept."""
        return cls(**{kind: Changed(*names) for kind, names in content.items()})

    def lines(self) -> list[str]:
        """For a person: a line a kind, and what goes on in the last."""
        found = []
        kept = []
        for kind in ("levels", "streams", "operators", "queries", "consumers"):
            names: Changed = getattr(self, kind)
            parts = [
                f"{word} {', '.join(sorted(those))}"
                for word, those in (("added", names.added), ("removed", names.removed), ("changed", names.changed))
                if those
            ]
            if parts:
                found.append(f"{kind}: {'; '.join(parts)}")
            if names.kept:
                kept.append(f"{len(names.kept)} {kind}")
        found = found or ["nothing has changed"]
        return [*found, f"kept: {', '.join(kept)}"] if kept else found
