"""What a rule for PATHs makes of a part: what is left of it, what became of the rest, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cepheid.language.parts import Part
from cepheid.language.path import Element
from cepheid.language.syntax import Attribute, Expression


@dataclass(frozen=True)
class Rewriting:
    """`part` has no groups where nothing is left of it; `never` says why it is never true, if it is not.

    `filters` are what the rest became; `columns` what became of variables that are used outside; `asked` are the
    elements whose answers are in it.
    """

    part: Part
    filters: tuple[Expression, ...] = ()
    reasons: tuple[str, ...] = ()
    columns: Mapping[str, Attribute] = field(default_factory=dict)
    asked: tuple[Element, ...] = ()
    never: str | None = None
