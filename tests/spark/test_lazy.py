"""The library brings no rows of the caller's DataFrames to the driver: who collects is listed, with the reason."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Final

import cepheid.spark

COLLECTING: Final = ("collect", "toPandas", "toLocalIterator", "toArrow")
EXCEPTIONS: Final = {
    "archive.py": (8, "counts and greatest times of a batch or table, and what Delta says of its commits"),
    "care.py": (4, "totals of a table, and what Delta's own commands answer"),
    "knowledge.py": (1, "values of a batch that a PATH asks about one by one: the store that answers is the driver's"),
    "local.py": (1, "`cepheid match --engine spark`, which prints the matches"),
}


def test_who_collects() -> None:
    found = Counter(
        file.name
        for file in Path(cepheid.spark.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in COLLECTING
    )
    assert found == {name: count for name, (count, _) in EXCEPTIONS.items()}
