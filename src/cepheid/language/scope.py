"""What the names in a query mean: the streams of its variables, and the attributes these have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cepheid.language.functions import ValueType
from cepheid.language.syntax import Query
from cepheid.model.streams import Stream


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What a query can refer to.

    `default_stream` is that of variables without FROM. `prefixes` are the application's. `properties` has, for each
    stream, the attribute that stands for a property, by its IRI (static semantics). `empty` streams have no events, so
    any attribute of theirs is null (rule E3).
    """

    streams: Mapping[str, Stream]
    default_stream: str | None = None
    prefixes: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    empty: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Resolved:
    """An attribute of a variable: its name in each stream that has it, and its type over all."""

    names: Mapping[str, str]
    type: ValueType


class MixedAttribute(ValueError):
    """An attribute whose types in two streams can't be one."""


def resolve_attribute(catalogue: Catalogue, query: Query, streams: tuple[str, ...], name: str) -> Resolved | None:
    """What `name` is in these streams; None if none of them has it. Raises MixedAttribute."""
    names: dict[str, str] = {}
    kind: ValueType | None = None
    for stream_name in streams:
        stream = catalogue.streams[stream_name]
        found, found_type = _in_stream(catalogue, query, stream, name)
        if found is None or found_type is None:
            continue
        names[stream_name] = found
        joint = found_type if kind is None else unify(kind, found_type)
        if joint is None:
            first = next(iter(names))
            raise MixedAttribute(
                f"'{name}' is {kind.value if kind else '?'} in '{first}', but {found_type.value} in '{stream_name}'"
            )
        kind = joint
    return None if kind is None else Resolved(names, kind)


def _in_stream(catalogue: Catalogue, query: Query, stream: Stream, name: str) -> tuple[str | None, ValueType | None]:
    if name == "time":
        return name, ValueType.TIMESTAMP
    if name == "id":
        return name, ValueType.STRING if stream.id_kind == "string" else ValueType.INT
    if stream.name in catalogue.empty:
        return name, ValueType.NULL
    if ":" in name:
        iri = expand(name, {**catalogue.prefixes, **dict(query.prefixes)})
        attribute = catalogue.properties.get(stream.name, {}).get(iri or "")
        if attribute is None or attribute not in stream.attributes:
            return None, None
        return attribute, _type_of(stream, attribute)
    for attribute in stream.attributes:
        if name == attribute or name in stream.spellings.get(attribute, ()):
            return attribute, _type_of(stream, attribute)
    return None, None


def _type_of(stream: Stream, attribute: str) -> ValueType:
    return ValueType.NULL if attribute in stream.nulls else ValueType.of(stream.attributes[attribute])


def expand(name: str, prefixes: Mapping[str, str]) -> str | None:
    """The IRI of `prefix:name`; None if the prefix is unknown."""
    prefix, _, local = name.partition(":")
    return prefixes[prefix] + local if prefix in prefixes else None


def unify(one: ValueType, other: ValueType) -> ValueType | None:
    """The type that holds values of both: int and float are float; None if there is none.

    What a PATH binds goes with any: it is compared as what it turns out to be.
    """
    if one is other or other.is_loose or other is ValueType.NODE:
        return one
    if one.is_loose or one is ValueType.NODE:
        return other
    return ValueType.FLOAT if one.is_number and other.is_number else None
