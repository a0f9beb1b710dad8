"""Dependencies point one way: cli -> history -> (spark, service) -> app -> plan -> (language, knowledge) -> model."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "cepheid"
#: What each part may import, besides itself and the native core.
ALLOWED = {
    "model": set[str](),
    "language": {"model"},
    "knowledge": {"language", "model"},
    "plan": {"language", "knowledge", "model"},
    "app": {"plan", "language", "knowledge", "model"},
    "campus": {"model"},
    "spark": {"app", "plan", "language", "knowledge", "model"},
    "service": {"app", "plan", "language", "knowledge", "model"},
    "history": {"spark", "service", "app", "plan", "language", "knowledge", "model"},
    "demo": {"campus", "history", "spark", "service", "app", "language", "model"},
    # What users copy: it stands by itself.
    "examples": set[str](),
    "cli": {"demo", "campus", "history", "spark", "service", "app", "plan", "language", "knowledge", "model"},
}
#: Parts that must do without Spark and what comes with it.
WITHOUT_SPARK = ("model", "language", "knowledge", "plan", "app", "service")
SPARK = {"pyspark", "py4j", "pandas"}


def part_of(module: str) -> str | None:
    names = module.split(".")
    return names[1] if names[0] == "cepheid" and len(names) > 1 else None


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute, so that this test sees them"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_direction(file: Path) -> None:
    names = file.relative_to(PACKAGE).parts
    own = names[0] if len(names) > 1 else None
    if own is None:
        return
    assert own in ALLOWED, f"{own} has no place in the order of the parts"
    for module in imports(file):
        part = part_of(module)
        if part not in (None, own, "_native", "__version__"):
            assert part in ALLOWED[own], f"{own} may not import {part} ({module})"
        if own in WITHOUT_SPARK:
            assert module.split(".")[0] not in SPARK, f"{own} does without {module}"


@pytest.mark.parametrize(
    "module",
    [
        *("cepheid", "cepheid.app", "cepheid.cli.main", "cepheid.model.records"),
        *("cepheid.service", "cepheid.service.engine"),
        *("cepheid.service.intake", "cepheid.service.supplier", "cepheid.service.log"),
    ],
)
def test_importing_stays_light(module: str) -> None:
    """What a command needs is loaded, and nothing else: pyspark alone would take a second."""
    code = f"import {module}, sys; print(*(m for m in ('pyspark', 'pyarrow', 'pandas', 'numpy') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
