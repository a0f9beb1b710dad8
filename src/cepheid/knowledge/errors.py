"""What can be wrong with knowledge and questions to it; broken files are `Rejected`, with their places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from cepheid.language.errors import Diagnostic, Rejected

#: Where an application names a file, as keys and positions: ("knowledge", "sources", 1).
Where: TypeAlias = tuple[str | int, ...]


class KnowledgeError(ValueError):
    """Something about knowledge that its user can mend; the text says what and how. `hint` is the second apart."""

    def __init__(self, fact: str, hint: str | None = None) -> None:
        super().__init__(fact if hint is None else f"{fact}; {hint}")
        self.fact, self.hint = fact, hint


class TooMuch(KnowledgeError):
    """A question took longer, or found more, than it may."""


class Inconsistent(KnowledgeError):
    """The ontologies and facts contradict each other; the text says which."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a file that an application names at `where`; without a place in the file, it is there."""

    where: Where
    said: Diagnostic


class Unreadable(Rejected):
    """Files that can't be used, with every fault of each."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(dict.fromkeys(faults))
        super().__init__(dict.fromkeys(fault.said for fault in self.faults))


@contextmanager
def gathering(faults: list[Fault], where: Where) -> Iterator[None]:
    """Goes on after a file that can't be used; its faults are told with those of the others."""
    try:
        yield
    except Unreadable as fault:
        faults += fault.faults
    except Rejected as rejected:
        faults += [Fault(where, said) for said in rejected.diagnostics]
    except KnowledgeError as error:
        faults.append(Fault(where, Diagnostic("error", "knowledge", error.fact, None, error.hint)))
