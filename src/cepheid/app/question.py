"""A query that was found right, with the knowledge that its PATHs are judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.errors import Diagnostic, Rejected
from cepheid.model.events import Event

if TYPE_CHECKING:
    from cepheid.app.known import Known
    from cepheid.knowledge.modes import SemanticFilter
    from cepheid.plan.semantic import Semantic


@dataclass(frozen=True)
class Question:
    """`checked` is the query as it runs, `original` as it was written."""

    checked: Checked
    original: Checked
    known: Known | None = None
    semantic: Semantic | None = None

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        return self.semantic.warnings if self.semantic is not None else ()

    def filter(self) -> SemanticFilter | None:
        """What judges the PATHs that are not indexed."""
        return None if self.known is None or self.semantic is None else self.known.filter(self.semantic)

    def known_for(self, events: Sequence[Event]) -> Question:
        """The question with all that there is to know of these events in its tables, for who can't ask for more."""
        if self.known is None or self.semantic is None:
            return self
        from cepheid.knowledge.modes import key_of

        for lookup in self.semantic.lookups:
            if not lookup.table.complete:
                keys = list(dict.fromkeys(key_of(lookup, e) for e in events if e.stream == lookup.stream))
                rows = lookup.rows_of(keys, self.known.knowledge) if keys else []
                lookup.table.rows = dict(zip(keys, rows, strict=True))
                lookup.table.complete = True
        return self


#: What to do about a PATH that asks for too much, or for what no index can hold.
FEWER: Final = "name more in the PATH, so that fewer things fit: a class, a property of the entity"
OTHERWISE: Final = "set `knowledge: {semantics: auto}`, which asks at run time what no index holds"


def needs_knowledge(tree: syntax.Query) -> bool:
    """Whether a query can only be understood with knowledge: PATHs, and attributes named by a property."""
    return tree.path is not None or any(":" in attribute.name for attribute in syntax.attributes(tree))


def ask(checked: Checked, known: Known | None) -> Question:
    """A checked query as one that can be run. Raises Rejected where a PATH has no knowledge, or asks for too much."""
    if checked.query.path is None:
        return Question(checked, checked, known)
    span = checked.query.spans.get("path")
    if known is None:
        problem = Diagnostic(
            "error",
            "no-knowledge",
            "PATH needs knowledge, and there is none",
            span,
            "give --knowledge FILE, or `knowledge: {sources: [...]}` in the application",
        )
        raise Rejected([problem])
    from cepheid.knowledge.errors import TooMuch
    from cepheid.plan.semantic import NotIndexed

    try:
        semantic = known.lower(checked)
    except TooMuch as fault:
        raise Rejected([Diagnostic("error", "too-much", fault.fact, span, fault.hint or FEWER)]) from None
    except NotIndexed as fault:
        raise Rejected([Diagnostic("error", "not-indexed", str(fault), span, OTHERWISE)]) from None
    return Question(semantic.checked, replace(checked), known, semantic)
