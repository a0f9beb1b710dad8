"""--master and --conf: what is no setting is told, and what is one reaches the pipeline of `cepheid run`."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cepheid.cli import run
from cepheid.cli.main import cli

APP = "name: plant\nstreams: {air: {attributes: {flow: float}}}\narchive: {path: archive}\n"


@pytest.mark.parametrize("given", ["driver.memory=4g", "spark.driver.memory", "spark"])
@pytest.mark.parametrize("command", ["run app.yaml", "pipeline app.yaml", "archive stats app.yaml"])
def test_what_is_no_setting_of_spark(command: str, given: str) -> None:
    done = CliRunner().invoke(cli, [*command.split(), "--conf", given])
    assert done.exit_code == 2
    assert f"Invalid value for --conf: '{given}' is no setting of Spark; write spark.key=value" in done.stderr


def test_the_pipeline_of_a_run_gets_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def start(arguments: list[str]) -> subprocess.Popen[bytes]:
        started.append(arguments)
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(2)"])

    ours, theirs = socket.socketpair()
    monkeypatch.setattr(run, "_start", start)
    monkeypatch.setattr(run, "heard", lambda: ours)  # the test's own signals stay as they are
    app = tmp_path / "app.yaml"
    app.write_text(APP)
    words = [str(app), "--master", "spark://host:7077", "--conf", "spark.executor.memory=2g", "--conf", "spark.a=b=c"]
    with ours, theirs:
        done = CliRunner().invoke(run.command, words)
    assert "the pipeline can't run" in done.output
    settings = [
        "--conf",
        "spark.executor.memory=2g",
        "--conf",
        "spark.a=b=c",
        "--conf",
        "spark.master=spark://host:7077",
    ]
    assert started == [["pipeline", str(app), *settings]]
