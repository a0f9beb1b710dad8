"""`cepheid match` at a terminal: progress on standard error, and an end that is quiet when it is cut short."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

COMMAND = [sys.executable, "-m", "cepheid.cli.main", "match"]
PAIRS = "SELECT ?b.x - ?a.x AS rise SEQ (?a, ?b) WINDOW (?a, ?b, 1s)\n"
APPLICATION = "name: plant\nstreams:\n  flow: {attributes: {x: float}}\narchive: {path: data}\n"
#: What erases a line.
ERASE = "\r\x1b[K"


def line(id: int) -> str:
    return json.dumps({"stream": "flow", "id": id, "time": id * 1_000_000, "x": float(id)}) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "q.chi").write_text(PAIRS)
    (tmp_path / "app.yaml").write_text(APPLICATION)
    (tmp_path / "events.jsonl").write_text("".join(map(line, range(1, 1001))))
    return tmp_path


class Terminal:
    """A terminal of its own, which standard error is connected to, and standard output too unless it is given."""

    def __init__(self, folder: Path, *arguments: str, stdout: IO[Any] | int | None = None, typed: str = "") -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            text=True,
            cwd=folder,
        )
        os.close(theirs)
        assert self.process.stdin is not None
        self.process.stdin.write(typed)
        self.process.stdin.close()

    def printed(self) -> list[str]:
        """The lines of standard output, which is a pipe."""
        assert self.process.stdout is not None
        with self.process.stdout as output:
            return list(output)

    def received(self) -> str:
        """All that was written to the terminal, once the process has ended."""
        received = read_all(self._ours)
        self.process.wait(60)
        return received


def read_all(terminal: int) -> str:
    received = b""
    try:
        while chunk := os.read(terminal, 65536):
            received += chunk
    except OSError:
        pass  # how Linux says that the other side is closed
    os.close(terminal)
    return received.decode().replace("\r\n", "\n")


def screen(received: str) -> str:
    """What stays on the screen: a line that is erased is not there."""
    return "\n".join(text.rpartition(ERASE)[2] for text in received.split("\n"))


def test_progress_is_on_standard_error_and_gone_at_the_end(folder: Path) -> None:
    terminal = Terminal(folder, "q.chi", "--events", "events.jsonl", stdout=subprocess.PIPE)
    printed = terminal.printed()
    received = terminal.received()
    assert terminal.process.returncode == 0
    assert len(printed) == 999
    assert all(json.loads(text)["select"] == {"rise": 1.0} for text in printed)
    assert f"{ERASE}1,000 events read" in received
    assert f"{ERASE}1,000 events matched, 999 matches" in received
    assert screen(received) == ""


def test_progress_does_not_mix_with_the_matches(folder: Path) -> None:
    received = Terminal(folder, "q.chi", "--events", "events.jsonl").received()
    assert "1,000 events read" in received
    shown = screen(received).splitlines()
    assert len(shown) == 999
    assert all(json.loads(text)["select"] == {"rise": 1.0} for text in shown)


def test_no_progress_without_a_terminal(folder: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "q.chi", "--events", "events.jsonl"], capture_output=True, text=True, check=True, cwd=folder
    )
    assert done.stderr == ""


def test_what_is_said_stays(folder: Path) -> None:
    (folder / "q.chi").write_text("SELECT ?a.x SEQ (?a, ?b)")
    (folder / "events.jsonl").write_text(line(1) + "rubbish\n")
    shown = screen(Terminal(folder, "q.chi", "--events", "events.jsonl").received())
    assert "no WINDOW bounds ?b" in shown
    assert "events.jsonl:2: dead letter: not JSON" in shown
    assert "events read" not in shown


def test_following_shows_progress_around_the_matches(folder: Path) -> None:
    typed = line(1) + line(2) + "rubbish\n" + line(3)
    terminal = Terminal(folder, "q.chi", "--events", "-", "--app", "app.yaml", "--follow", typed=typed)
    received = terminal.received()
    assert f"{ERASE}1 events read, 0 matches" in received
    first, letter, second, rest = screen(received).split("\n")
    assert [json.loads(text)["events"] for text in (first, second)] == [{"a": 1, "b": 2}, {"a": 2, "b": 3}]
    assert letter.startswith("-:3: dead letter: not JSON")
    assert rest == ""


def test_following_into_a_pipe_shows_no_progress(folder: Path) -> None:
    """Whoever reads it may write to the same terminal."""
    arguments = ("q.chi", "--events", "-", "--app", "app.yaml", "--follow")
    terminal = Terminal(folder, *arguments, stdout=subprocess.PIPE, typed=line(1) + line(2))
    assert len(terminal.printed()) == 1
    assert terminal.received() == ""


def test_a_narrow_terminal_is_not_overrun() -> None:
    import fcntl
    import struct
    import termios

    from cepheid.cli.progress import Progress

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 20, 0, 0))
    with os.fdopen(theirs, "w") as output, Progress(output) as progress:
        progress.show("1,000,000 events read, 300,000/s", now=True)
    assert read_all(ours) == f"{ERASE}1,000,000 events re{ERASE}"


@pytest.mark.parametrize("form", ["jsonl", "table"])
def test_a_reader_that_has_seen_enough_is_no_error(folder: Path, form: str) -> None:
    command = " ".join([*COMMAND, "q.chi", "--events", "events.jsonl", "--format", form])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -n 1"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_a_reader_that_is_gone_ends_following(folder: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "q.chi", "--events", "-", "--app", "app.yaml", "--follow"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(line(1) + line(2))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["events"] == {"a": 1, "b": 2}
        process.stdout.close()
        process.stdin.write(line(3))
        process.stdin.flush()
        assert process.wait(60) == 0, "it ends although its input stays open"
        assert process.stderr.read() == ""
        process.stdin.close()
        process.stderr.close()


def test_an_interrupt_ends_quietly(folder: Path) -> None:
    os.mkfifo(folder / "slow.jsonl")
    with subprocess.Popen(
        [*COMMAND, "q.chi", "--events", "slow.jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as process:
        with (folder / "slow.jsonl").open("w") as file:  # waits until the command reads
            file.write(line(1))
            file.flush()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err.strip()) == (130, "", "interrupted")


def test_an_interrupt_of_following_ends_quietly(folder: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "q.chi", "--events", "events.jsonl", "--app", "app.yaml", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout as output, process.stderr as errors:
            printed = [output.readline()]
            process.send_signal(signal.SIGINT)
            printed += output
            assert errors.read().strip() == "interrupted"
        assert process.wait(60) == 130
        assert all(json.loads(text) for text in printed), "no half of a line"
