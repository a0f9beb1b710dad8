"""Conclusions: base triples and rules to a fixpoint, in the native core; rules that only SPARQL can judge beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from pyoxigraph import DefaultGraph, Quad, RdfFormat, Store, Triple, parse

import cepheid
from cepheid._native import Reasoner
from cepheid.knowledge.errors import KnowledgeError
from cepheid.knowledge.rules import Rules, conclusions

Reasoning: TypeAlias = Literal["owl-rl", "none"]
#: More facts than these are a mistake: a transitive property over everything, a rule without end.
FACTS: Final = 10_000_000
#: Rules in SPARQL that conclude anew after so many rounds have no end.
ROUNDS: Final = 100


class Conclusions:
    """Base triples, and everything that follows from them; texts are lines of N-Triples."""

    def __init__(self, reasoning: Reasoning, rules: Rules) -> None:
        self._reasoning = reasoning
        self._rules = rules
        self._reasoner = self._new()
        #: What rules in SPARQL added; a base of its own, which is made anew with each change.
        self._ruled: set[str] = set()
        self._shadow: Store | None = None

    def _new(self) -> Reasoner:
        return Reasoner(self._reasoning == "owl-rl", self._rules.native, FACTS)

    def load(self, base: str) -> None:
        """Conclude all that follows from a base."""
        try:
            self._reasoner.load(base)
            if self._rules.sparql:
                self._shadow = loaded(self._reasoner.facts())
                self._rule()
        except ValueError as error:
            raise _too_much(error) from None

    def restore(self, base: str, facts: str, ruled: str) -> None:
        """Take up conclusions that were drawn before."""
        self._ruled = set(ruled.splitlines())
        self._reasoner.restore(f"{base}\n{ruled}", facts)
        if self._rules.sparql:
            self._shadow = loaded(facts)

    def apply(self, added: str, removed: str) -> tuple[str, str] | None:
        """Add and remove base triples: what became true and what ceased to be. None: all has to be concluded anew."""
        try:
            # What a rule in SPARQL had concluded may have lost its reason, or be wrong now.
            both = "\n".join([removed, *(self._ruled - set(added.splitlines()))])
            delta = self._reasoner.apply(added, both)
            if delta is None or not self._rules.sparql:
                return delta
            change = _Net()
            change.note(*delta)
            self._follow(*delta)
            self._ruled = set()
            for step in self._rule():
                change.note(*step)
            return change.added, change.removed
        except ValueError as error:
            raise _too_much(error) from None

    def effective(self, added: str, removed: str) -> tuple[str, str]:
        """What a change does to the base: the lines that are not there yet, and those that are and don't stay."""
        plus, minus = (set(as_stored(lines).splitlines()) for lines in (added, removed))
        there = set(self._reasoner.in_base("\n".join(plus | minus)).splitlines()) - self._ruled
        return "\n".join(sorted(plus - there)), "\n".join(sorted((minus - plus) & there))

    def anew(self, added: str, removed: str) -> Conclusions:
        """The conclusions of a changed base, from the start."""
        gone = {*removed.splitlines(), *self._ruled}
        base = [line for line in self._reasoner.base().splitlines() if line not in gone]
        fresh = Conclusions(self._reasoning, self._rules)
        fresh.load("\n".join([*base, added]))
        return fresh

    def facts(self) -> str:
        """All that is true, the base included."""
        return self._reasoner.facts()

    @property
    def ruled(self) -> str:
        """What rules in SPARQL added."""
        return "\n".join(sorted(self._ruled))

    def _rule(self) -> list[tuple[str, str]]:
        """Run the rules in SPARQL until they say nothing new; what each round changed."""
        assert self._shadow is not None
        steps = []
        for _ in range(ROUNDS):
            said = {line for rule in self._rules.sparql for line in conclusions(rule, self._shadow)}
            new = set(as_stored("\n".join(said)).splitlines()) - self._ruled
            delta = self._reasoner.apply("\n".join(new), "") if new else ("", "")
            if delta is None:
                raise KnowledgeError("a rule in SPARQL adds to a list of an axiom", "write that into the ontology")
            self._ruled |= new
            self._follow(*delta)
            steps.append(delta)
            if not any(delta):
                return steps
        names = ", ".join(rule.name for rule in self._rules.sparql)
        hint = "a rule that makes new values of those it made has no end: bound it by a FILTER"
        raise KnowledgeError(f"{names}: something new follows even after {ROUNDS} rounds", hint)

    def _follow(self, added: str, removed: str) -> None:
        assert self._shadow is not None
        change_store(self._shadow, quads(added), quads(removed))


class _Net:
    """What several changes come to."""

    def __init__(self) -> None:
        self._added: set[str] = set()
        self._removed: set[str] = set()

    def note(self, added: str, removed: str) -> None:
        for line in removed.splitlines():
            (self._added.discard if line in self._added else self._removed.add)(line)
        for line in added.splitlines():
            (self._removed.discard if line in self._removed else self._added.add)(line)

    @property
    def added(self) -> str:
        return "\n".join(self._added)

    @property
    def removed(self) -> str:
        return "\n".join(self._removed)


def _too_much(error: ValueError) -> KnowledgeError:
    if isinstance(error, KnowledgeError):
        return error
    fact = f"{error}: the ontology or a rule has no end (more than {FACTS:,} facts are not kept)"
    return KnowledgeError(fact, "leave out the source or rule that was added last, or set `reasoning: none`")


def code_version() -> str:
    """Names what conclusions depend on besides their base."""
    return hashlib.sha256(f"1 {cepheid.__version__} {Reasoner.owl_rl()}".encode()).hexdigest()


def loaded(facts: str) -> Store:
    """A store of facts."""
    store = Store()
    # Its own loader would give blank nodes other names than the conclusions have.
    store.bulk_extend(parse(facts.encode(), RdfFormat.N_TRIPLES, lenient=True))
    return store


def quads(lines: str) -> list[Quad]:
    """Lines of N-Triples as pyoxigraph has them; blank nodes keep their names."""
    return [Quad(q.subject, q.predicate, q.object, DefaultGraph()) for q in parse(lines, RdfFormat.N_TRIPLES)]


def as_stored(lines: str) -> str:
    """Lines as a store writes them, which has one form for each number: `"01"` is `"1"`."""
    store = Store()
    store.extend(quads(lines))
    return (store.dump(format=RdfFormat.N_TRIPLES, from_graph=DefaultGraph()) or b"").decode()


def change_store(store: Store, added: Sequence[Quad], removed: Sequence[Quad]) -> None:
    """Change a store's default graph, in one step unless blank nodes are among the triples."""
    gone, come = lines_of(removed), lines_of(added)
    if "_:" not in gone and "_:" not in come:
        store.update(f"DELETE DATA {{ {gone} }} ; INSERT DATA {{ {come} }}")
        return
    # SPARQL Update takes a blank node for a new one.
    for quad in removed:
        store.remove(quad)
    store.extend(added)


def lines_of(triples: Iterable[Quad | Triple]) -> str:
    """Triples as lines of N-Triples, each once."""
    return "\n".join(dict.fromkeys(f"{t.subject} {t.predicate} {t.object} ." for t in triples))
