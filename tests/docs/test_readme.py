"""The README's first use by hand, done by hand: every command is run, and prints what the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(section: str) -> list[str]:
    text = README.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(script: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": path},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.spark
def test_first_use(tmp_path: Path) -> None:
    match, matches, application, faults, archive, archived = blocks("A first use by hand")
    assert run(match, tmp_path).strip() == matches.strip()
    assert run(application, tmp_path).strip() == faults.strip()
    assert "`sed -i s/flaot/float/ plant.yaml`" in README
    run("sed -i s/flaot/float/ plant.yaml", tmp_path)
    assert "plant.yaml: in order: 1 stream" in run("cepheid check plant.yaml", tmp_path)
    assert run(archive, tmp_path).strip() == archived.strip()


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_two_commands_are_make_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"make {command}" in README
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)


def test_the_plan_in_the_planning_page_is_what_explain_prints() -> None:
    page = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
    shown = page.split("$ cepheid explain examples/campus/app.yaml\n", 1)[1].split("```", 1)[0]
    assert shown == run("cepheid explain examples/campus/app.yaml", ROOT)
