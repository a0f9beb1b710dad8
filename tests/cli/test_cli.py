"""The commands as a user calls them: what they print, where, and with which exit code."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden_files import GOLDEN

ROOT = Path(__file__).parents[2]
CAMPUS = GOLDEN / "explain" / "campus.yaml"
BAD = GOLDEN / "check" / "levels.yaml"


def cepheid(*arguments: object, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cepheid.cli.main", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **environment},
    )


def test_check_in_order() -> None:
    done = cepheid("check", CAMPUS)
    assert done.returncode == 0
    assert "warning: operator 'lost' has no reader" in done.stdout
    assert done.stdout.endswith("in order: 3 streams, 6 operators, 2 queries, 2 consumers; 1 warning\n")
    assert "\x1b" not in done.stdout, "plain in a pipe"


def test_check_reports_all_errors() -> None:
    done = cepheid("check", BAD.name, cwd=BAD.parent)
    assert done.returncode == 2
    assert done.stdout.count("error:") == 7
    assert "levels.yaml:9:25: error: unknown level 'hihg'\n  9 |   a: {input: s1, level: hihg}\n" in done.stdout
    assert "    |                         ^^^^\n  hint: did you mean 'high'?" in done.stdout
    assert done.stdout.endswith("levels.yaml: 7 errors\n")
    assert "Traceback" not in done.stderr


def test_check_for_editors() -> None:
    done = cepheid("check", BAD, "--format", "json")
    assert done.returncode == 2
    report = json.loads(done.stdout)
    assert report["ok"] is False
    first = report["diagnostics"][0]
    assert first == {
        "severity": "error",
        "code": "duplicate-name",
        "message": "level 'critical' is given twice",
        "hint": "name each once, highest first",
        "file": str(BAD),
        "line": 7,
        "column": 26,
        "end_line": 7,
        "end_column": 34,
    }


def test_check_of_a_missing_file(tmp_path: Path) -> None:
    done = cepheid("check", tmp_path / "no.yaml")
    assert done.returncode == 2
    assert "no such file" in done.stdout


@pytest.mark.parametrize(("form", "suffix"), [("text", ".txt"), ("json", ".json"), ("mermaid", ".mmd")])
def test_explain(form: str, suffix: str) -> None:
    done = cepheid("explain", CAMPUS, "--format", form)
    assert done.returncode == 0
    assert done.stdout == CAMPUS.with_suffix(suffix).read_text()


def test_explain_of_a_shared_operator_shows_the_one_that_stands_for_it() -> None:
    done = cepheid("explain", CAMPUS, "spectrum2")
    assert done.returncode == 0
    assert "spectrum stands for spectrum2" in done.stdout


def test_explain_of_an_unknown_query() -> None:
    done = cepheid("explain", CAMPUS, "risng")
    assert done.returncode == 2
    assert "has no query 'risng'; did you mean 'rising'?" in done.stderr


def test_explain_of_a_bad_application_says_what_check_says() -> None:
    done = cepheid("explain", BAD)
    assert done.returncode == 2
    assert done.stderr.count("error:") == 7


def test_doctor() -> None:
    done = cepheid("doctor", "--format", "json")
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0
    assert findings["Spark"]["fact"] == "pyspark 4.2.0"
    assert {"Java", "Spark jars", "cores", "memory", "real-time levels", "real-time throttling"} <= set(findings)
    assert all(finding["state"] in ("ok", "limited") for finding in findings.values())


def test_doctor_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cepheid.cli import doctor
    from cepheid.spark.java import find_java

    monkeypatch.setattr(doctor, "find_java", lambda: find_java({"PATH": ""}, tmp_path))
    finding = doctor._java()
    assert finding.state == "missing"
    assert finding.fact.startswith("no Java 17 or newer was found")
    assert finding.mend is not None
    assert "apt-get install -y openjdk-17-jre-headless" in finding.mend


@pytest.mark.parametrize(
    ("preemption", "built", "state", "said"),
    [
        ("full", "CONFIG_PREEMPT_NONE=y", "ok", "preemption full"),
        ("voluntary", None, "limited", "preemption voluntary: a real-time level may wait"),
        ("dynamic", "# CONFIG_PREEMPT is not set\nCONFIG_PREEMPT_NONE=y", "limited", "preemption none: a real-time"),
        ("dynamic", "CONFIG_PREEMPT=y", "ok", "preemption full"),
        ("dynamic", None, "ok", "preemption dynamic"),
    ],
)
def test_doctor_says_whether_the_kernel_preempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preemption: str, built: str | None, state: str, said: str
) -> None:
    from cepheid._native import probe
    from cepheid.cli import doctor

    config = tmp_path / "config.gz"
    if built is not None:
        config.write_bytes(gzip.compress(built.encode()))
    monkeypatch.setattr(doctor, "_KERNEL_CONFIG", config)
    machine = probe()
    machine["preemption"], machine["can_sched_rr"] = preemption, True
    finding = doctor._kernel(machine)
    assert (finding.state, said in finding.fact) == (state, True)
    assert (finding.mend is not None) == (state == "limited")


def test_an_unknown_command() -> None:
    done = cepheid("chekc")
    assert done.returncode == 2
    assert "no such command 'chekc'; did you mean 'check'?" in done.stderr


@pytest.mark.parametrize("arguments", [["zzzzzzzz"], ["bench", "zzzzzzzz"]])
def test_a_name_that_is_near_to_none_says_where_they_are_listed(arguments: list[str]) -> None:
    done = cepheid(*arguments)
    assert done.returncode == 2
    assert "zzzzzzzz" in done.stderr
    assert "lists them" in done.stderr


def test_an_unknown_option_is_a_mistake_not_a_crash() -> None:
    done = cepheid("check", CAMPUS, "--formt", "json")
    assert done.returncode == 2
    assert "No such option" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_lists_every_command() -> None:
    from cepheid.cli.main import COMMANDS

    done = cepheid("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)
    for command in COMMANDS:
        done = cepheid(command, "--help", COLUMNS="80")
        assert done.returncode == 0
        assert "Example" in done.stdout or "Commands:" in done.stdout, command
        assert max(map(len, done.stdout.splitlines())) <= 80, command
        assert "..." not in done.stdout.partition("Commands:")[2], f"{command}: a line of help that is cut"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("match plant.yaml --events none.jsonl", "this looks like an application, and a query is wanted"),
        ("match monday.jsonl --events rising.chi", "takes this one as --events"),
        ("fmt plant.yaml", "this looks like an application, and a query is wanted"),
    ],
)
def test_a_file_of_another_kind_in_the_place_of_a_query_is_one_error(arguments: str, said: str, tmp_path: Path) -> None:
    for name in ("plant.yaml", "monday.jsonl"):
        (tmp_path / name).write_text("name: plant\nstreams: {air: {attributes: {flow: float}}}\n")
    done = cepheid(*arguments.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("error:") == 1
    assert said in done.stderr


def test_a_query_behind_an_option_that_takes_many_names_is_told_where_to_stand() -> None:
    done = cepheid("match", "--events", "monday.jsonl", "rising.chi")
    assert done.returncode == 2
    assert "no QUERY: an option takes all names behind it, so give QUERY first" in done.stderr


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m cepheid.cli.main explain {CAMPUS} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "Logical plan: as written\n"
    assert "Traceback" not in done.stderr


def test_bench_lists_its_experiments_and_names_the_nearest() -> None:
    assert "planner" in cepheid("bench").stdout
    done = cepheid("bench", "planner", "--peer", "nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert "this experiment has no peers" in done.stderr
    done = cepheid("bench", "planer")
    assert done.returncode == 2
    assert "did you mean 'planner'?" in done.stderr


def test_a_mistake_that_a_library_finds_is_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from cepheid.cli import main
    from cepheid.spark.java import JavaMissing

    def fail(**_: object) -> None:
        raise JavaMissing("no Java 17 or newer was found\nInstall one: apt-get install -y openjdk-17-jre-headless")

    monkeypatch.setattr(main.cli, "main", fail)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: no Java 17 or newer was found\nInstall one: apt-get")


def test_a_bug_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    from cepheid.cli import main

    def fail(**_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(main.cli, "main", fail)
    with pytest.raises(KeyError):
        main.main()


def test_the_demo_leaves_a_folder_that_is_not_its_own_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("irreplaceable")
    done = cepheid("demo", "--folder", tmp_path)
    assert done.returncode == 2
    assert "is not an earlier demo's; choose another with --folder" in done.stderr
    assert (tmp_path / "thesis.txt").exists()
