"""Proposals for the semantics of streams: how the values of a sample could lead to entities, and which lead nowhere."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyoxigraph import Literal as RdfLiteral
from pyoxigraph import NamedNode

from cepheid.knowledge.annotation import Annotation, Annotations, plain
from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.terms import OWL, RDF, RDFS, local_name, short
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type, Value

#: Of each attribute so many different values are looked at, and so many of those without an entity are shown.
VALUES: Final = 1_000
SHOWN: Final = 5
#: A way that leads to entities for a smaller share of the values is not worth proposing.
_LEAST: Final = 0.2
#: Types whose values may name things.
_NAMING: Final = (Type.STRING, Type.INT)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A way from an attribute to what it means, as the application file says it, and for how many values it works."""

    text: str
    known: int
    values: int


@dataclass(slots=True)
class Finding:
    """What was found out about one attribute of a stream."""

    stream: str
    attribute: str
    values: int
    current: Annotation | None
    #: Values of the sample that the current annotation leads nowhere, or to what no triple speaks of.
    unknown: list[str] = field(default_factory=list)
    #: What may be wrong with the current annotation.
    hint: str | None = None
    proposals: list[Proposal] = field(default_factory=list)


def propose(
    events: Iterable[Event],
    streams: Mapping[str, Stream],
    annotations: Annotations,
    knowledge: Knowledge,
    prefixes: Mapping[str, str],
) -> list[Finding]:
    """For each attribute of the streams in a sample: what it leads to now, and what else it could."""
    names = _Names(knowledge, prefixes)
    found = []
    for (stream, attribute), values in sorted(_sample(events).items()):
        kind = streams[stream].attributes[attribute]
        current = annotations.properties(stream).get(attribute)
        finding = Finding(stream, attribute, len(values), current)
        texts = [text for value in values if (text := plain(value, kind)) is not None]
        if current is not None and current.kind != "literal":
            finding.unknown = [
                text
                for text, value in zip(texts, values, strict=True)
                if not any(_is_known(entity, knowledge) for entity in current.entities(value, knowledge))
            ]
        if current is not None and current.kind == "lookup" and not knowledge.having(current.lookup):
            near = knowledge.nearest(current.lookup, prefixes)
            finding.hint = f"nothing has a {short(current.lookup, prefixes)}" + (
                f"; did you mean {near}?" if near else ""
            )
        if kind in _NAMING and (current is None or current.kind == "literal" or finding.unknown):
            property_ = short(current.property, prefixes) if current is not None else names.source_property(annotations)
            finding.proposals = [p for p in names.entities(texts, property_) if _is_better(p, finding)]
        if current is None and not finding.proposals:
            finding.proposals = list(names.properties(attribute, streams[stream].spellings.get(attribute, ())))
        found.append(finding)
    return found


def _is_better(proposal: Proposal, finding: Finding) -> bool:
    now = finding.values - len(finding.unknown) if finding.current is not None else 0
    return proposal.known > now


def _is_known(entity: object, knowledge: Knowledge) -> bool:
    return not isinstance(entity, NamedNode) or knowledge.knows(entity.value)


def _sample(events: Iterable[Event]) -> dict[tuple[str, str], list[Value]]:
    found: dict[tuple[str, str], dict[Value, None]] = defaultdict(dict)
    for event in events:
        for attribute, value in event.attributes.items():
            values = found[event.stream, attribute]
            if isinstance(value, bool | int | float | str) and len(values) < VALUES:
                values[value] = None
    return {key: list(values) for key, values in found.items()}


class _Names:
    """What the knowledge calls things: IRIs by their local names, literals by the properties they are values of."""

    def __init__(self, knowledge: Knowledge, prefixes: Mapping[str, str]) -> None:
        self._knowledge = knowledge
        self._prefixes = prefixes
        told = knowledge.select("SELECT DISTINCT ?s { ?s ?p ?o FILTER (isIRI(?s)) }", {})
        self._iris = [row["s"].value for row in told]

    def source_property(self, annotations: Annotations) -> str:
        """The property by which the other streams lead to their entities, or else one that most would take."""
        used = Counter(a.property for a in annotations.all() if a.kind != "literal")
        if used:
            return short(used.most_common(1)[0][0], self._prefixes)
        return "evt:hasSource" if "evt" in self._prefixes else "<http://www.w3.org/ns/sosa/madeBySensor>"

    def entities(self, values: Sequence[str], property_: str) -> Iterator[Proposal]:
        """Ways from values to entities, best first."""
        found = [*self._templates(values, property_), *self._lookups(values, property_)]
        yield from sorted(found, key=lambda proposal: -proposal.known)[:3]

    def _templates(self, values: Sequence[str], property_: str) -> Iterator[Proposal]:
        wanted = set(values)
        hits: dict[tuple[str, str], set[str]] = defaultdict(set)
        pattern = re.compile("|".join(re.escape(value) for value in sorted(wanted, key=len, reverse=True) if value))
        for iri in self._iris:
            namespace, local = iri[: len(iri) - len(local_name(iri))], local_name(iri)
            found = pattern.search(local) if wanted else None
            if found and len(found[0]) >= 2:
                hits[namespace + local[: found.start()], local[found.end() :]].add(found[0])
        for (before, after), known in hits.items():
            if len(known) >= max(1, _LEAST * len(wanted)):
                template = f"{short(before, self._prefixes).strip('<>')}{{value}}{after}"
                text = f'{{property: {property_}, entity: "{template}"}}'
                yield Proposal(text, len(known), len(wanted))

    def _lookups(self, values: Sequence[str], property_: str) -> Iterator[Proposal]:
        wanted = " ".join(str(RdfLiteral(value)) for value in values)
        question = f"SELECT DISTINCT ?p ?v {{ VALUES ?v {{ {wanted} }} ?s ?p ?v }}"
        hits: dict[str, set[str]] = defaultdict(set)
        for row in self._knowledge.select(question, {}):
            hits[row["p"].value].add(row["v"].value)
        for iri, known in hits.items():
            if len(known) >= max(1, _LEAST * len(values)):
                text = f"{{property: {property_}, lookup: {short(iri, self._prefixes)}}}"
                yield Proposal(text, len(known), len(values))

    def properties(self, attribute: str, spellings: Sequence[str]) -> Iterator[Proposal]:
        """Properties that are called like the attribute, or labelled so."""
        wanted = {_folded(name) for name in (attribute, *spellings)}
        question = (
            "SELECT DISTINCT ?p ?label { ?p a ?kind OPTIONAL { ?p rdfs:label ?label } "
            "FILTER (isIRI(?p) && ?kind IN (owl:DatatypeProperty, rdf:Property)) }"
        )
        found: dict[str, None] = {}
        for row in self._knowledge.select(question, {"owl": OWL, "rdf": RDF, "rdfs": RDFS}):
            called = {_folded(local_name(row["p"].value))}
            if "label" in row:
                called.add(_folded(row["label"].value))
            if wanted & called:
                found[row["p"].value] = None
        for iri in sorted(found):
            yield Proposal(short(iri, self._prefixes), 0, 0)


def _folded(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()
