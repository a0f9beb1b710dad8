"""The cache of the Delta jars: filled once, whole or not at all, and clear words when it cannot be."""

import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cepheid.spark import jars
from cepheid.spark.jars import Jar, JarsUnavailable, delta_jars, jars_folder

CONTENT = b"a jar"


class Ivy:
    """In place of Ivy: puts a file for each jar, or whatever it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.content = CONTENT

    def __call__(self, work: Path, wanted: tuple[Jar, ...]) -> None:
        self.calls += 1
        (work / "jars").mkdir()
        for jar in wanted:
            (work / "jars" / jar.file_name).write_bytes(self.content)


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ivy:
    pinned = hashlib.sha256(CONTENT).hexdigest()
    ivy = Ivy()
    monkeypatch.setenv("CEPHEID_HOME", str(tmp_path / "home"))
    both = (Jar("org", "one", "1.0", pinned), Jar("org", "two", "2.0", pinned))
    monkeypatch.setattr(jars, "_DELTA", replace(jars._DELTA, jars=both))
    monkeypatch.setattr(jars, "_run_ivy", ivy)
    return ivy


def test_fetched_once_with_one_line(ivy: Ivy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = delta_jars()
    assert [file.name for file in files] == ["one-1.0.jar", "two-2.0.jar"]
    assert all(file.read_bytes() == CONTENT for file in files)
    assert jars_folder().is_relative_to(tmp_path / "home" / "jars")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"cepheid: fetching the Delta {jars.DELTA_VERSION} jars into {jars_folder()}\n"
    assert delta_jars() == files
    assert ivy.calls == 1
    assert capsys.readouterr().err == ""


def test_of_many_at_once_one_fetches(ivy: Ivy) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: delta_jars(), range(8)))
    assert ivy.calls == 1
    assert all(answer == answers[0] for answer in answers)


def test_a_lost_file_is_fetched_again(ivy: Ivy) -> None:
    delta_jars()[1].unlink()
    assert all(file.is_file() for file in delta_jars())
    assert ivy.calls == 2


def test_a_changed_jar_does_not_reach_the_cache(ivy: Ivy) -> None:
    ivy.content = b"something else"
    with pytest.raises(JarsUnavailable, match=r"one-1\.0\.jar has SHA-256 \w+, but \w+ is pinned"):
        delta_jars()
    assert list(jars_folder().glob("*.jar")) == []
    ivy.content = CONTENT
    assert delta_jars()


def test_the_leavings_of_a_killed_process_are_removed(ivy: Ivy) -> None:
    leavings = jars_folder() / ".fetch-killed"
    leavings.mkdir(parents=True)
    delta_jars()
    assert sorted(path.name for path in jars_folder().iterdir()) == [".lock", "one-1.0.jar", "two-2.0.jar"]


def test_a_lock_that_is_never_given_back(ivy: Ivy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "TIMEOUT_SECONDS", 0.2)
    jars_folder().mkdir(parents=True)
    with jars._lock(jars._DELTA), pytest.raises(JarsUnavailable, match="another process has held"):
        delta_jars()


def test_a_cache_that_cannot_be_written(ivy: Ivy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CEPHEID_HOME", str(tmp_path / "file"))
    with pytest.raises(JarsUnavailable, match=r"the cache cannot be written: .*Not a directory"):
        delta_jars()


def test_a_download_that_takes_too_long(ivy: Ivy, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(work: Path, wanted: tuple[Jar, ...]) -> None:
        raise subprocess.TimeoutExpired("java", 300)

    monkeypatch.setattr(jars, "_run_ivy", slow)
    with pytest.raises(JarsUnavailable, match="the download took more than 300 s"):
        delta_jars()


@pytest.mark.spark
def test_offline_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPHEID_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")  # nobody listens there
    with pytest.raises(JarsUnavailable) as caught:
        delta_jars()
    text = str(caught.value)
    assert f"are not in {jars_folder()}, and the download failed:" in text
    assert "Connection refused" in text
    assert "copy that folder from a machine that has it" in text
    for jar in jars.DELTA:
        assert f"{jar.organisation}:{jar.name}:{jar.version}" in text
    assert [path.name for path in jars_folder().iterdir()] == [".lock"]


def test_without_pyspark(ivy: Ivy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(JarsUnavailable, match="pyspark is not installed here"):
        jars._ivy()


def test_looking_for_java_and_jars_does_not_start_pyspark() -> None:
    code = "import sys, cepheid.spark.jars, cepheid.spark.java; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
