"""Rule: an attribute is one thing, however it is called: by its name, another spelling, or a property (rule P5).

    streams: {air: {semantics: {flowrate: hvc:airflow}}}      and in the knowledge: hvc:flow owl:sameAs hvc:airflow
    ?e.flowrate, ?e.airvolume, ?e.hvc:airflow, ?e.hvc:flow    ?e.flowrate

Spellings are the checker's; here are properties that are the same by owl:sameAs or owl:equivalentProperty.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyoxigraph import NamedNode

from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.terms import OWL

_SAME = tuple(NamedNode(OWL + name) for name in ("sameAs", "equivalentProperty"))


def normalise(properties: Mapping[str, Mapping[str, str]], knowledge: Knowledge) -> dict[str, dict[str, str]]:
    """For each stream the attribute of each property, and of those that are the same. What is said directly counts."""
    found: dict[str, dict[str, str]] = {}
    for stream, attributes in properties.items():
        known = dict(attributes)
        for iri, attribute in attributes.items():
            for other in _same_as(iri, knowledge):
                known.setdefault(other, attribute)
        found[stream] = known
    return found


def _same_as(iri: str, knowledge: Knowledge) -> list[str]:
    seen = {iri}
    unexplored = [iri]
    while unexplored:
        node = NamedNode(unexplored.pop())
        for relation in _SAME:
            forth = (q.object for q in knowledge.store.quads_for_pattern(node, relation, None, None))
            back = (q.subject for q in knowledge.store.quads_for_pattern(None, relation, node, None))
            for term in (*forth, *back):
                if isinstance(term, NamedNode) and term.value not in seen:
                    seen.add(term.value)
                    unexplored.append(term.value)
    return sorted(seen - {iri})
