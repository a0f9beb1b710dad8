"""Knowledge: base and inferred triples in one store, in versions; what other parts ask."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pyoxigraph import BlankNode, NamedNode, QuerySolutions, RdfFormat, Store, Triple
from pyoxigraph import Literal as RdfLiteral

from cepheid.knowledge import sources
from cepheid.knowledge.errors import KnowledgeError, TooMuch
from cepheid.knowledge.reasoning import closure
from cepheid.knowledge.terms import Node, Term, local_name, short
from cepheid.model.names import nearest

Reasoning: TypeAlias = Literal["owl-rl", "none"]
#: A question may take so long and find so many solutions, unless its asker says otherwise.
SECONDS: Final = 10.0
SOLUTIONS: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class Change:
    """What became true and what ceased to be with a version; inferred triples included."""

    version: int
    digest: str
    added: tuple[Triple, ...]
    removed: tuple[Triple, ...]

    @property
    def is_empty(self) -> bool:
        return not self.added and not self.removed


class Knowledge:
    """A store of triples, the version it is at, and questions to it. Safe to use from several threads."""

    def __init__(self, store: Store, digest: str, base: bytes, reasoning: Reasoning) -> None:
        self._store = store
        self._version = 1
        self._digest = digest
        self._base = base
        self._reasoning = reasoning
        self._lock = threading.RLock()
        self._having: dict[str, dict[str, tuple[Node, ...]]] = {}

    @classmethod
    def load(
        cls,
        names: Sequence[str | Path],
        *,
        folder: Path,
        rules: Sequence[Path] = (),
        reasoning: Reasoning = "owl-rl",
        cache: Path | None = None,
    ) -> Knowledge:
        """Read sources and all that they import, and draw the consequences."""
        found = sources.read(names, folder)
        base = found.triples()
        store = Store()
        store.bulk_load(base if reasoning == "none" else closure(base), RdfFormat.N_TRIPLES, lenient=True)
        digest = hashlib.sha256("".join(file.hash for file, _ in found.files).encode()).hexdigest()
        return cls(store, digest, base, reasoning)

    @property
    def store(self) -> Store:
        """The triples, base and inferred, in the default graph."""
        return self._store

    @property
    def version(self) -> int:
        """1 when loaded, one more with each change."""
        return self._version

    @property
    def digest(self) -> str:
        """Names the contents: equal sources and changes, equal digest."""
        return self._digest

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Holds off changes while the caller reads; gives the version that is read."""
        with self._lock:
            yield self._version

    def select(
        self, sparql: str, prefixes: Mapping[str, str], *, seconds: float = SECONDS, limit: int = SOLUTIONS
    ) -> list[dict[str, Term]]:
        """The solutions of a SELECT, unbound variables left out. Raises TooMuch past the bounds.

        All solutions are of one version: the store gives a question the state it found.
        """
        outcome: list[list[dict[str, Term]] | BaseException] = []

        def ask() -> None:
            try:
                with self._lock:
                    solutions = self._store.query(sparql, prefixes=dict(prefixes))
                outcome.append(_collected(solutions, seconds, limit))
            except BaseException as error:
                outcome.append(error)

        # Oxigraph can't be interrupted between two solutions: past its time, the thread is left to its end.
        worker = threading.Thread(target=ask, daemon=True)
        worker.start()
        worker.join(seconds + 0.05)
        if not outcome:
            raise TooMuch(f"no answer in {seconds:g} s")
        found = outcome[0]
        if isinstance(found, SyntaxError):
            raise KnowledgeError(f"SPARQL: {found.msg}")
        if isinstance(found, BaseException):
            raise found
        return found

    def knows(self, iri: str) -> bool:
        """Whether any triple speaks of this IRI."""
        node, store = NamedNode(iri), self._store
        found = (
            store.quads_for_pattern(node, None, None),
            store.quads_for_pattern(None, None, node),
            store.quads_for_pattern(None, node, None),
        )
        return any(next(quads, None) is not None for quads in found)

    def nearest(self, iri: str, prefixes: Mapping[str, str]) -> str | None:
        """The known name closest to an unknown one, in the same namespace if there is one: `bd:Office`."""
        namespace = iri[: len(iri) - len(local_name(iri))]
        known: dict[str, str] = {}
        for quad in self._store:
            for term in (quad.subject, quad.predicate, quad.object):
                if isinstance(term, NamedNode) and term.value.startswith(namespace):
                    known[local_name(term.value)] = term.value
        close = nearest(local_name(iri), known)
        return short(known[close], prefixes) if close else None

    def having(self, property_: str) -> Mapping[str, tuple[Node, ...]]:
        """The subjects of a property by its value as a plain string, whatever the literal's type."""
        with self._lock:
            found = self._having.get(property_)
            if found is None:
                subjects: dict[str, tuple[Node, ...]] = {}
                for quad in self._store.quads_for_pattern(None, NamedNode(property_), None, None):
                    if isinstance(quad.object, RdfLiteral) and isinstance(quad.subject, NamedNode | BlankNode):
                        known = subjects.get(quad.object.value, ())
                        if quad.subject not in known:
                            subjects[quad.object.value] = (*known, quad.subject)
                found = self._having[property_] = subjects
            return found

    def apply(self, added: Iterable[Triple], removed: Iterable[Triple]) -> Change:
        """Add and remove base triples; their consequences follow. Readers see all of it or nothing."""
        plus, minus = set(added), set(removed)
        with self._lock:
            base = [line for line in self._base.splitlines(keepends=True) if line.strip()]
            gone = {f"{triple} .\n".encode() for triple in minus}
            self._base = b"".join(line for line in base if line not in gone) + sources.as_ntriples(plus)
            new = Store()
            text = self._base if self._reasoning == "none" else closure(self._base)
            new.bulk_load(text, RdfFormat.N_TRIPLES, lenient=True)
            before, after = {q.triple for q in self._store}, {q.triple for q in new}
            self._store = new
            self._having.clear()
            self._version += 1
            self._digest = hashlib.sha256(
                self._digest.encode() + sources.as_ntriples(sorted(plus, key=str))
            ).hexdigest()
            return Change(self._version, self._digest, tuple(after - before), tuple(before - after))

    def __len__(self) -> int:
        return len(self._store)


def _collected(solutions: object, seconds: float, limit: int) -> list[dict[str, Term]]:
    if not isinstance(solutions, QuerySolutions):
        raise KnowledgeError("expected a SELECT")
    deadline = time.monotonic() + seconds
    names = [variable.value for variable in solutions.variables]
    rows: list[dict[str, Term]] = []
    for solution in solutions:
        found = zip(names, solution, strict=True)
        rows.append({name: value for name, value in found if value is not None and not isinstance(value, Triple)})
        if len(rows) > limit:
            raise TooMuch(f"more than {limit:,} solutions")
        if time.monotonic() > deadline:
            raise TooMuch(f"no answer in {seconds:g} s")
    return rows
