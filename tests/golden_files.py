"""Golden files: pairs of an input and the exact text it gives. `GOLDEN=update pytest` rewrites them, to be reviewed."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def assert_golden(expected: Path, actual: str) -> None:
    """The text in `expected` is `actual`; with GOLDEN=update it is made so."""
    actual = actual.rstrip("\n") + "\n"
    if os.environ.get("GOLDEN") == "update":
        expected.write_text(actual, encoding="utf-8")
    assert expected.exists(), f"no golden file {expected}; GOLDEN=update writes it"
    assert actual == expected.read_text(encoding="utf-8"), f"{expected} differs; GOLDEN=update rewrites it"
