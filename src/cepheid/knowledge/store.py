"""Knowledge: base and inferred triples in one store, in versions; what other parts ask and change."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from pyoxigraph import BlankNode, NamedNode, Quad, QuerySolutions, Store, Triple
from pyoxigraph import Literal as RdfLiteral

from cepheid.knowledge import clashes, journal, sources
from cepheid.knowledge.cache import Cache, Closure
from cepheid.knowledge.errors import Fault, Inconsistent, KnowledgeError, TooMuch, Unreadable, gathering
from cepheid.knowledge.reasoning import Conclusions, Reasoning, change_store, code_version, lines_of, loaded, quads
from cepheid.knowledge.rules import Rules, read_rules
from cepheid.knowledge.sources import Sources
from cepheid.knowledge.terms import OWL, Node, Term, local_name, short
from cepheid.knowledge.versions import Versions
from cepheid.language.errors import Rejected
from cepheid.model.names import nearest

#: A question may take so long and find so many solutions, unless its asker says otherwise.
SECONDS: Final = 10.0
SOLUTIONS: Final = 5_000_000
#: A change of more facts than these is made in a new store, which then takes the old one's place.
_IN_PLACE: Final = 5_000


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


Listener: TypeAlias = Callable[[Change], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked to be loaded."""

    names: tuple[str, ...]
    folder: Path
    rules: tuple[Path, ...] = ()
    reasoning: Reasoning = "owl-rl"
    prefixes: Mapping[str, str] = field(default_factory=dict)


class Knowledge:
    """A store of triples, the version it is at, and questions to it. Safe to use from several threads.

    A reader that needs several answers of one version asks for them within `reading()`; each answer by itself is of one
    version in any case.
    """

    def __init__(self, request: Request, found: Sources, rules: Rules, cache: Cache | None) -> None:
        self._request = request
        self._cache = cache
        self._sources = found
        self._rules = rules
        self._conclusions: Conclusions | None = None
        self._kept: Closure | None = None
        self._store = Store()
        self._version = 1
        self._versions: Versions | None = None
        #: What was changed besides the files.
        self._beside = journal.Entries()
        self._digest = self._digest_now()
        self._journal = journal.journal_of(request.folder)
        self._journal_offset = 0
        self._having: dict[str, dict[str, tuple[Node, ...]]] = {}
        self._listeners: list[Listener] = []
        #: Held for moments: whoever has it sees one version.
        self._lock = threading.RLock()
        #: Held by whoever makes a change, from its first thought to its end.
        self._changing = threading.RLock()

    @classmethod
    def load(
        cls,
        sources: Sequence[str | Path],
        *,
        folder: Path,
        rules: Sequence[Path] = (),
        reasoning: Reasoning = "owl-rl",
        cache: Path | None = None,
        prefixes: Mapping[str, str] | None = None,
    ) -> Knowledge:
        """Read sources and all that they import, draw the consequences, and make the changes of the folder's journal.

        With a `cache`, what is unchanged since an earlier call is taken from there. `prefixes` are for messages.
        Raises Unreadable for broken files, KnowledgeError, and Inconsistent.
        """
        request = Request(tuple(map(str, sources)), folder, tuple(rules), reasoning, prefixes or {})
        kept = Cache(cache) if cache is not None else None
        made = cls(request, *read_files(request, kept), kept)
        made._begin()
        entries = journal.read(made._journal)
        made._journal_offset = entries.offset
        if entries:
            made._change_beside(entries.added, entries.removed)
            made._version = 1
        return made

    def keep_versions(self) -> None:
        """Numbers versions as they are written down beside the journal: one number means the same for all who do."""
        with self._changing, self._lock:
            self._versions = self._kept_versions
            self._version = self._versions.first(self._digest)

    @property
    def known_as(self) -> int | None:
        """The version that what runs has numbered these contents with; None if they were never in force."""
        return self._kept_versions.known(self._digest)

    @property
    def _kept_versions(self) -> Versions:
        return Versions(self._journal.with_name("versions.jsonl"))

    def _digest_now(self) -> str:
        hashes = [file.hash for file, _ in self._sources.files]
        beside = [*sorted(self._beside.added), "-", *sorted(self._beside.removed)] if self._beside else []
        return _digest(hashes, self._rules.hash, self._request.reasoning, *beside)

    def _begin(self) -> None:
        """Fill the store: from the cache, or by concluding everything."""
        parts = self._sources.parts
        key = _digest([part.text_hash for part in parts], self._rules.hash, self._request.reasoning, code_version())
        self._kept = self._cache.closure(key) if self._cache is not None else None
        if self._kept is not None:
            self._store = self._kept.open()
            return
        self._conclusions = Conclusions(self._request.reasoning, self._rules)
        self._conclusions.load("".join(part.text for part in parts))
        facts = self._conclusions.facts()
        self._store = loaded(facts)
        self._refuse_clashes(self._store, None)
        if self._cache is not None:
            self._cache.keep_closure(key, facts, self._conclusions.ruled)

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

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its user may want to look at."""
        return self._sources.warnings

    @property
    def files(self) -> tuple[tuple[str, Path], ...]:
        """The files that were read: their names and paths, imports included."""
        return tuple((file.name, file.path) for file, _ in self._sources.files)

    def __len__(self) -> int:
        return len(self._store)

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Holds off changes while the caller reads; gives the version that is read."""
        with self._lock:
            yield self._version

    def listen(self, listener: Listener) -> None:
        """Call `listener` with each change, when it is in force and before anyone else sees its version."""
        with self._lock:
            self._listeners.append(listener)

    def select(
        self, sparql: str, prefixes: Mapping[str, str], *, seconds: float = SECONDS, limit: int = SOLUTIONS
    ) -> list[dict[str, Term]]:
        """The solutions of a SELECT, unbound variables left out. Raises TooMuch past the bounds.

        All solutions are of one version: the store gives a question the state it found.
        """
        outcome: list[list[dict[str, Term]] | BaseException] = []
        begun = threading.Event()

        def ask(store: Store) -> None:
            try:
                solutions = store.query(sparql, prefixes=dict(prefixes))
                begun.set()
                outcome.append(_collected(solutions, seconds, limit))
            except BaseException as error:
                # Its frames hold the solutions, which no other thread may touch.
                outcome.append(error.with_traceback(None))
            finally:
                begun.set()

        # Oxigraph can't be interrupted between two solutions: past its time, the thread is left to its end.
        with self._lock:
            worker = threading.Thread(target=ask, args=(self._store,), daemon=True)
            worker.start()
            begun.wait(seconds)
        worker.join(seconds + 0.05)
        if not outcome:
            raise TooMuch(f"no answer in {seconds:g} s")
        found = outcome[0]
        if isinstance(found, SyntaxError):
            raise Rejected([sources.broken("SPARQL", sparql.encode(), found)])
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
        """The known name closest to an unknown one in the same namespace: `bd:Office`."""
        namespace = iri[: len(iri) - len(local_name(iri))]
        everything = "{ ?t ?p ?o } UNION { ?s ?t ?o } UNION { ?s ?p ?t }"
        begins = f"FILTER (isIRI(?t) && STRSTARTS(STR(?t), {RdfLiteral(namespace)}))"
        found = self.select(f"SELECT DISTINCT ?t {{ {everything} {begins} }}", {})
        known = {local_name(row["t"].value): row["t"].value for row in found}
        close = nearest(local_name(iri), known)
        return short(known[close], prefixes) if close else None

    def having(self, property_: str) -> Mapping[str, tuple[Node, ...]]:
        """The subjects of a property by its value as a plain string, whatever the literal's type. Kept up to date."""
        with self._lock:
            found = self._having.get(property_)
            if found is None:
                found = self._having[property_] = {}
                for quad in self._store.quads_for_pattern(None, NamedNode(property_), None, None):
                    _add_subject(found, quad)
            return found

    def apply(self, added: Iterable[Triple], removed: Iterable[Triple]) -> Change:
        """Add and remove base triples; their consequences follow. Readers see all of it or nothing.

        Raises Inconsistent, and changes nothing, if the outcome contradicts itself. A triple that was not in the base
        can't be removed: one that follows from others goes with them.
        """
        minus = [*removed]
        if any(isinstance(term, BlankNode) for triple in minus for term in (triple.subject, triple.object)):
            raise KnowledgeError("a triple with a blank node can't be removed by name; change its file instead")
        return self._change_beside(lines_of(added).splitlines(), lines_of(minus).splitlines())

    def _change_beside(self, added: Iterable[str], removed: Iterable[str]) -> Change:
        """A change that no file has."""
        with self._changing:
            before, self._beside = self._beside, self._beside.followed_by(added, removed)
            try:
                return self._change("\n".join(added), "\n".join(removed))
            except BaseException:
                self._beside = before
                raise

    def reload(self) -> Change | None:
        """Read the files again. What differs is put in force as one change; None if nothing does."""
        with self._changing:
            found = _read(self._request, self._cache)
            before = {part.key: part for part in self._sources.parts}
            after = {part.key: part for part in found.parts}
            if before.keys() == after.keys():
                return None
            added = {line for key in after.keys() - before.keys() for line in after[key].text.splitlines()}
            removed = {line for key in before.keys() - after.keys() for line in before[key].text.splitlines()}
            elsewhere = (before[key] for key in before.keys() & after.keys())
            still = {line for part in elsewhere for line in part.text.splitlines() if line in removed}
            self.prepare()
            earlier, self._sources = self._sources, found
            try:
                return self._change("\n".join(added - removed), "\n".join(removed - added - still))
            except BaseException:
                self._sources = earlier
                raise

    def read_journal(self) -> Change | None:
        """Make the changes that others have written to the journal since it was last read."""
        with self._changing:
            entries = journal.read(self._journal, self._journal_offset)
            self._journal_offset = entries.offset
            return self._change_beside(entries.added, entries.removed) if entries else None

    @property
    def journal(self) -> Path:
        """The file that `cepheid knowledge apply` writes to."""
        return self._journal

    def prepare(self) -> None:
        """Get ready for changes: the first one need not wait then. A store on disk gives way to one in memory."""
        if self._conclusions is not None:
            return  # whoever holds off changes while it reads may ask for this too
        with self._changing:
            if self._conclusions is None:
                assert self._kept is not None
                in_memory = self._kept.in_memory()
                with self._lock:
                    self._store = in_memory
                self._conclusions = Conclusions(self._request.reasoning, self._rules)
                base = "".join(part.text for part in self._sources.parts)
                facts = self._kept.facts.read_text(encoding="utf-8")
                self._conclusions.restore(base, facts, self._kept.ruled.read_text(encoding="utf-8"))

    def _change(self, added: str, removed: str) -> Change:
        with self._changing:
            self.prepare()
            assert self._conclusions is not None
            added, removed = self._conclusions.effective(added, removed)
            try:
                delta = self._conclusions.apply(added, removed)
            except KnowledgeError:  # it has no end, and was left in the middle of it
                self._conclusions = self._conclusions.anew(removed, added)
                raise
            if delta is None:
                return self._swap(self._conclusions.anew(added, removed))
            plus, minus = quads(delta[0]), quads(delta[1])
            try:
                if len(plus) + len(minus) > _IN_PLACE:
                    new = loaded(self._conclusions.facts())
                    self._refuse_clashes(new, plus)
                    return self._put(new, plus, minus)
                with self._lock:
                    change_store(self._store, plus, minus)
                    try:
                        self._refuse_clashes(self._store, plus)
                    except Inconsistent:
                        change_store(self._store, minus, plus)
                        raise
                    return self._put(self._store, plus, minus)
            except Inconsistent:
                self._conclusions.apply(removed, added)
                raise

    def _swap(self, fresh: Conclusions) -> Change:
        """A changed ontology: everything was concluded anew, while readers went on with what they had."""
        new = loaded(fresh.facts())
        self._refuse_clashes(new, None)
        before, after = set(self._store), set(new)
        self._conclusions = fresh
        return self._put(new, after - before, before - after)

    def _put(self, store: Store, plus: Iterable[Quad], minus: Iterable[Quad]) -> Change:
        with self._lock:
            self._store = store
            self._digest = self._digest_now()
            self._version = (
                self._version + 1 if self._versions is None else self._versions.after(self._version, self._digest)
            )
            change = Change(self._version, self._digest, _triples(plus), _triples(minus))
            self._update_subjects(change)
            for listener in self._listeners:
                listener(change)
            return change

    def _update_subjects(self, change: Change) -> None:
        for triple in change.removed:
            table = self._having.get(triple.predicate.value)
            if table is not None and isinstance(triple.object, RdfLiteral):
                left = tuple(s for s in table.get(triple.object.value, ()) if s != triple.subject)
                table[triple.object.value] = left
                if not left:
                    del table[triple.object.value]
        for triple in change.added:
            table = self._having.get(triple.predicate.value)
            if table is not None:
                _add_subject(table, triple)

    def _refuse_clashes(self, store: Store, new: Iterable[Quad] | None) -> None:
        about = None
        if new is not None and not any(_is_axiom(quad) for quad in new):
            about = {quad.subject for quad in new if isinstance(quad.subject, NamedNode | BlankNode)}
        found = clashes.find(store, self._request.prefixes, about)
        if found:
            raise Inconsistent("the knowledge contradicts itself:\n" + "\n".join(f"  {told}" for told in found))


def read_files(request: Request, cache: Cache | None) -> tuple[Sources, Rules]:
    """What the sources and rules say, before anything is concluded. Raises Unreadable with every fault of both."""
    faults: list[Fault] = []
    found, rules = Sources(()), Rules()
    with gathering(faults, ("knowledge", "sources")):
        found = _read(request, cache)
    with gathering(faults, ("knowledge", "rules")):
        rules = read_rules(request.rules, request.folder)
    if faults:
        raise Unreadable(faults)
    return found, rules


def _read(request: Request, cache: Cache | None) -> Sources:
    return sources.read(request.names, request.folder, cache)


def _digest(hashes: Sequence[str], *more: str) -> str:
    return hashlib.sha256("\n".join([*hashes, *more]).encode()).hexdigest()


def _is_axiom(quad: Quad) -> bool:
    """Whether a triple says something about classes or properties, of which whoever clashes is not its subject."""
    terms = (quad.predicate, quad.object)
    return any(isinstance(t, NamedNode) and t.value.startswith(OWL) and t.value != OWL + "sameAs" for t in terms)


def _triples(quads: Iterable[Quad]) -> tuple[Triple, ...]:
    return tuple(Triple(quad.subject, quad.predicate, quad.object) for quad in quads)


def _add_subject(table: dict[str, tuple[Node, ...]], triple: Quad | Triple) -> None:
    if isinstance(triple.object, RdfLiteral) and isinstance(triple.subject, NamedNode | BlankNode):
        known = table.get(triple.object.value, ())
        if triple.subject not in known:
            table[triple.object.value] = (*known, triple.subject)


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
