"""Bad input: each case gives its own messages, with place, caret and hint, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from cepheid.app.meaning import examine_all
from tests.golden_files import GOLDEN, assert_golden

FOLDER = GOLDEN / "check"
CASES = sorted(path for path in FOLDER.rglob("*.yaml") if path.stem != "b")


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.relative_to(FOLDER).with_suffix("")))
def test_check(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    _, diagnostics = examine_all(case.relative_to(FOLDER), variables={})
    assert any(d.severity == "error" for d in diagnostics)
    assert_golden(case.with_suffix(".txt"), "\n\n".join(d.render() for d in diagnostics))
