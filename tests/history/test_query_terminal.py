"""`cepheid query` at a terminal: how far it is, and about how long it will take, on a line that goes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cepheid.cli import query as module
from cepheid.cli.query import command
from tests.history.test_query import RISING, application, matched, records, write

pytestmark = pytest.mark.spark

ERASE = "\r\x1b[K"


def test_progress_and_an_estimate_are_shown_and_go(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    application(tmp_path)
    write(tmp_path, "a.jsonl", records(0, 60))
    wanted = matched(tmp_path, RISING)
    monkeypatch.setattr(module, "_LOOK", 0.01)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 200, 0, 0))
    drawn = bytearray()

    def look() -> None:
        while True:
            try:
                drawn.extend(os.read(ours, 1 << 16))
            except OSError:  # nobody writes to it any more
                return

    looking = threading.Thread(target=look)
    looking.start()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        command.main([str(tmp_path / "app.yaml"), "rising"], standalone_mode=False)
    looking.join(30)
    os.close(ours)
    assert capsys.readouterr().out.splitlines() == wanted
    *steps, rest = drawn.decode().split(ERASE)[1:]
    assert rest == "", "nothing of it stays"
    assert steps[:2] == ["starting Spark", "looking at what there is"]
    asking = r"asking the past \(hybrid\): about \d+ events(, \d+ of \d+ tasks)?, \d+ of about \d+ s"
    assert any(re.fullmatch(asking, step) for step in steps), steps
