"""Every error says what to do: none of those that golden files show is without a hint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.golden_files import GOLDEN

#: Errors that have no hint, and why none would help.
EXCEPTIONS: dict[str, str] = {}
_BEGINS = re.compile(r"^(?:\S+:\d+:\d+: )?(error|warning): ", re.MULTILINE)


def errors(file: Path) -> Iterator[str]:
    """What a golden file says of each error, with the lines that follow."""
    text = file.read_text(encoding="utf-8")
    places = [(found.start(), found[1]) for found in _BEGINS.finditer(text)]
    for (start, severity), (end, _) in pairwise([*places, (len(text), "")]):
        if severity == "error":
            yield text[start:end]


def test_every_error_has_a_hint() -> None:
    found = [(file, said) for file in sorted(GOLDEN.rglob("*.txt")) for said in errors(file)]
    assert len(found) > 150, "where are the golden files?"
    bare = [f"{file.name}: {said.splitlines()[0]}" for file, said in found if "\n  hint: " not in said]
    assert [line for line in bare if not any(known in line for known in EXCEPTIONS)] == []


def test_every_error_of_a_rule_has_a_hint() -> None:
    """Those are one line each, with the hint in parentheses at its end."""
    lines = [line for file in (GOLDEN / "rules").rglob("*.txt") for line in file.read_text("utf-8").splitlines()]
    found = [line for line in lines if re.match(r"error [\w-]+ at ", line)]
    assert found, "where are the golden files?"
    assert [line for line in found if not re.search(r"  \(.+\)$", line)] == []


def test_every_error_has_its_line_and_a_caret() -> None:
    for file in sorted((GOLDEN / "check").rglob("*.txt")):
        for said in errors(file):
            lines = said.splitlines()
            assert re.match(r"  +\d+ \|", lines[1]), said
            assert re.match(r"  +\| *\^", lines[2]), said
