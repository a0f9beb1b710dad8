"""What follows from triples: OWL RL by `reasonable`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rdflib import Literal
from rdflib.plugins.serializers.nt import _nt_row
from reasonable import PyReasoner  # type: ignore[import-untyped]


def closure(triples: bytes) -> bytes:
    """N-Triples with everything that follows from them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "base.n3"
        file.write_bytes(triples)
        reasoner = PyReasoner()
        reasoner.load_file(str(file))
        return "".join(_nt_row(t) for t in reasoner.reason() if not isinstance(t[0], Literal)).encode()
