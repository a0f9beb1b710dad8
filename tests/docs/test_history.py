"""The commands that docs/history.md shows are run, and print what it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cepheid.cli.main import cli

PAGE = Path(__file__).parents[2] / "docs" / "history.md"


def commands() -> Iterator[tuple[str, str]]:
    """Each command after a `$`, and what the page shows below it."""
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
        yield from zip(parts[1::2], parts[2::2], strict=True)


def pattern(shown: str) -> re.Pattern[str]:
    """What is shown, where a line of dots stands for any lines, and seconds are those of one run."""
    text = re.sub(r"^\.\.\.\n", "\0", shown, flags=re.MULTILINE)
    text = re.escape(text).replace(re.escape("\0"), r"(?:.*\n)*?")
    return re.compile(re.sub(r"\d+\\\.\d\\ s\b", r"\\d+\\.\\d\\ s", text))


@pytest.mark.usefixtures("spark")
def test_the_commands_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = 0
    for command, shown in commands():
        name, *arguments = shlex.split(command)
        if name == "cat":
            file = tmp_path / arguments[0]
            file.parent.mkdir(exist_ok=True)
            file.write_text(shown, encoding="utf-8")
            continue
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, (command, done.output)
        assert pattern(shown).fullmatch(done.output), f"{command}\n{done.output}"
        ran += 1
    assert ran == 6
