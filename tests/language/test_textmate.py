"""The TextMate grammar knows the words that the lexer knows, and its patterns are sound."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cepheid.language.functions import AGGREGATES
from cepheid.language.lexer import CLAUSES, WORDS

GRAMMAR = json.loads((Path(__file__).parents[2] / "editors" / "chi.tmLanguage.json").read_text())


def patterns(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key in ("match", "begin", "end"))
        for value in node.values():
            yield from patterns(value)
    elif isinstance(node, list):
        for value in node:
            yield from patterns(value)


def test_every_word_is_coloured() -> None:
    expression = [re.compile(p) for p in patterns(GRAMMAR["repository"]["expression"])]
    for word in (*CLAUSES, *WORDS, *AGGREGATES):
        for spelling in (word, word.lower()):
            assert any(p.fullmatch(spelling) for p in expression), spelling


def test_patterns_are_sound() -> None:
    found = list(patterns(GRAMMAR))
    assert len(found) > 20
    for pattern in found:
        re.compile(pattern)


def test_includes_exist() -> None:
    included = set(re.findall(r'"include": "#(\w+)"', json.dumps(GRAMMAR)))
    assert included <= set(GRAMMAR["repository"])
