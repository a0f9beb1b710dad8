"""What a change of the knowledge concerns: which lookups, and which of their keys.

A lookup is concerned if the change speaks of a property that its part mentions. If the part only follows triples from
subject to object, an event that it concerns reaches the subject of a changed triple along those properties: so the keys
are found by going back from there. Otherwise, or if that leads to too many, all keys are asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyoxigraph import NamedNode, Triple

from cepheid.knowledge.index import PartLookup, values_of
from cepheid.knowledge.store import Change, Knowledge
from cepheid.knowledge.tables import Key
from cepheid.language.path import A, Element

#: Going back stops at so many nodes.
_MOST_NODES: Final = 20_000


def properties_of(elements: Iterable[Element], prefixes: Mapping[str, str]) -> frozenset[str] | None:
    """The IRIs that elements mention, properties among them; None if they follow properties that they don't name."""
    found: set[str] = set()
    for element in elements:
        path = element.ends[1] if element.ends is not None else element.tokens
        if any(t.text == "!" for t in path) or (element.ends is not None and path[0].kind == "variable"):
            return None
        if element.ends is None and not _names_its_properties(element):
            return None
        found |= {iri for _, iri in element.names(prefixes) if iri is not None}
        found |= {A} if any(t.text == "a" for t in element.tokens) else set()
    return frozenset(found)


def _names_its_properties(element: Element) -> bool:
    """Whether no variable stands between two terms, where a property does."""
    terms = ("variable", "iri", "name", "blanknode")
    tokens = element.tokens
    return not any(
        tokens[i].kind == "variable" and tokens[i - 1].kind in terms and tokens[i + 1].kind in (*terms, "string")
        for i in range(1, len(tokens) - 1)
    )


def speaks_of(change: Change, properties: frozenset[str] | None) -> bool:
    """Whether a change speaks of one of these properties."""
    if properties is None:
        return not change.is_empty
    return any(triple.predicate.value in properties for triple in (*change.added, *change.removed))


def concerned(lookup: PartLookup, change: Change) -> bool:
    """Whether a change can make a difference to what a lookup finds."""
    own = properties_of(lookup.part.elements, lookup.prefixes)
    ways = {lookup.annotations[name].lookup for name in lookup.key} - {""}
    return speaks_of(change, None if own is None else own | ways)


def stale_keys(lookup: PartLookup, change: Change, knowledge: Knowledge) -> list[Key] | None:
    """The keys whose rows may be others after a change; None: any. The knowledge is as it is after it."""
    own = properties_of(lookup.part.elements, lookup.prefixes)
    if own is None or len(lookup.key) != 1 or not _goes_forward(lookup):
        return None
    annotation = lookup.annotations[lookup.key[0]]
    triples = [*change.added, *change.removed]
    nodes = _behind([t for t in triples if t.predicate.value in own], own, knowledge)
    if nodes is None:
        return None
    values = {value for node in nodes for value in values_of(annotation, node, knowledge)}
    if annotation.kind == "lookup":
        changed = (t for t in triples if t.predicate.value == annotation.lookup)
        values |= {t.object.value for t in changed if not isinstance(t.object, Triple)}
    return [(value,) for value in sorted(values, key=str)]


def _goes_forward(lookup: PartLookup) -> bool:
    """Whether the part is triples that lead away from the event, each from something that was reached before."""
    reached = {lookup.part.variable}
    for element in lookup.part.elements:
        if element.ends is None or any(t.text in ("^", "!", "(") or t.kind == "blanknode" for t in element.tokens):
            return False
        subject, _, target = element.ends
        if [t.text[1:] for t in subject if t.kind == "variable"][:1] not in [[name] for name in reached]:
            return False
        reached |= {t.text[1:] for t in target if t.kind == "variable"}
    return True


def _behind(triples: Iterable[Triple], own: frozenset[str], knowledge: Knowledge) -> set[str] | None:
    """The nodes from which the subjects of these triples can be reached along some properties; None if too many."""
    seen = {t.subject.value for t in triples if isinstance(t.subject, NamedNode)}
    unexplored = list(seen)
    while unexplored:
        node = NamedNode(unexplored.pop())
        for name in own:
            for quad in knowledge.store.quads_for_pattern(None, NamedNode(name), node, None):
                if isinstance(quad.subject, NamedNode) and quad.subject.value not in seen:
                    seen.add(quad.subject.value)
                    unexplored.append(quad.subject.value)
        if len(seen) > _MOST_NODES:
            return None
    return seen
