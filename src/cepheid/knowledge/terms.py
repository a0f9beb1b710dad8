"""Names of things: IRIs from prefixed names, and short names of IRIs in messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias
from urllib.parse import quote

from pyoxigraph import BlankNode, Literal, NamedNode, Triple

from cepheid.knowledge.errors import KnowledgeError
from cepheid.model.names import suggestion

Node: TypeAlias = NamedNode | BlankNode
Term: TypeAlias = NamedNode | BlankNode | Literal

RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS: Final = "http://www.w3.org/2000/01/rdf-schema#"
OWL: Final = "http://www.w3.org/2002/07/owl#"
XSD: Final = "http://www.w3.org/2001/XMLSchema#"

#: An IRI can hold everything but these (RFC 3987), and %, which would begin an escape.
_KEPT_IN_IRIS: Final = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) not in '<>"{}|\\^`%')
_IRI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|\\^`]*")


def iri_of(name: str, prefixes: Mapping[str, str]) -> str:
    """The IRI that `prefix:name` or an IRI says; raises KnowledgeError for an unknown prefix."""
    text = name.strip()
    if text.startswith("<") and text.endswith(">"):
        text = text[1:-1]
    else:
        prefix, colon, local = text.partition(":")
        if colon and prefix in prefixes and not local.startswith("//"):
            text = prefixes[prefix] + local
        elif not colon or not (local.startswith("//") or prefix in ("urn", "http", "https", "file", "tag")):
            hint = suggestion(prefix, prefixes)
            raise KnowledgeError(f"unknown prefix in '{name}'" + (f"; {hint}" if hint else ""))
    if not _IRI.fullmatch(text):
        raise KnowledgeError(f"'{name}' is not an IRI")
    return text


def escaped(value: str) -> str:
    """A value as it can stand in an IRI: what an IRI can't hold is percent-encoded, as in `ee:room%20105`."""
    if value.isascii():
        return quote(value, safe=_KEPT_IN_IRIS)
    return "".join(c if ord(c) >= 0xA0 else quote(c, safe=_KEPT_IN_IRIS) for c in value)


def short(term: Term | Triple | str, prefixes: Mapping[str, str]) -> str:
    """A term as a user would write it: `ee:D105VOLUME`, or the IRI in full where no prefix fits."""
    if isinstance(term, str):
        term = NamedNode(term)
    if not isinstance(term, NamedNode):
        return str(term)
    value = term.value
    best = max(
        ((p, n) for p, n in prefixes.items() if n and value.startswith(n)), key=lambda x: len(x[1]), default=None
    )
    return f"{best[0]}:{value[len(best[1]) :]}" if best else f"<{value}>"


def local_name(iri: str) -> str:
    """What comes after the last `#`, `/` or `:`."""
    return re.split(r"[#/:]", iri)[-1]
