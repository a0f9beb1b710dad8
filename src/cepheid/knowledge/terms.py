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

#: What may stand in an IRI as it is (RFC 3987); % would begin an escape, # and [] have their own meaning.
_KEPT_IN_IRIS: Final = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) not in '<>"{}|\\^`%[]#')


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
            raise KnowledgeError(
                f"unknown prefix in '{name}'", hint or "declare it in `prefixes`, or write the whole IRI"
            )
    try:
        NamedNode(text)
    except ValueError:
        hint = 'it has no spaces, none of <>"{}[]|^`\\ and # once; write %20 for a space'
        raise KnowledgeError(f"'{name}' is not an IRI", hint) from None
    return text


def escaped(value: str) -> str:
    """A value as it can stand in an IRI: what an IRI can't hold is percent-encoded, as in `ee:room%20105`."""
    if value.isascii():
        return quote(value, safe=_KEPT_IN_IRIS)
    return "".join(c if _is_kept(ord(c)) else quote(c, safe=_KEPT_IN_IRIS, errors="surrogatepass") for c in value)


def _is_kept(code: int) -> bool:
    """Whether a character outside ASCII may stand in an IRI: `ucschar` of RFC 3987."""
    if code >= 0x10000:
        return code & 0xFFFF <= 0xFFFD and (code < 0xE0000 or 0xE1000 <= code < 0xF0000)
    return 0xA0 <= code <= 0xD7FF or 0xF900 <= code <= 0xFDCF or 0xFDF0 <= code <= 0xFFEF


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
