"""Finding Java: the places, their order, versions that are too old, and what is said when there is none."""

from pathlib import Path

import pytest

from cepheid.spark import java
from cepheid.spark.java import Java, JavaMissing, find_java


def fake(home: Path, version: str, says: str = "") -> Path:
    """A program that answers like `java -XshowSettings:properties -version`; `says` replaces the answer."""
    path = home / "bin/java"
    path.parent.mkdir(parents=True)
    answer = says or f"Property settings:\n    java.home = {home}\n    java.version = {version}"
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{answer}\nEND\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """An empty /usr/lib/jvm."""
    folder = tmp_path / "jvm"
    folder.mkdir()
    return folder


def test_java_home_comes_first(tmp_path: Path, system: Path) -> None:
    home = fake(tmp_path / "mine", "21.0.1").parents[1]
    on_path = fake(tmp_path / "other", "17.0.2").parent
    found = find_java({"JAVA_HOME": str(home), "PATH": f"{on_path}:/nowhere"}, system)
    assert found == Java(home / "bin/java", home, "21.0.1")
    assert found.major == 21


def test_then_path_then_the_system(tmp_path: Path, system: Path) -> None:
    installed = fake(system / "java-17", "17.0.15")
    assert find_java({"PATH": "/nowhere"}, system).path == installed
    on_path = fake(tmp_path / "other", "17.0.2")
    assert find_java({"PATH": f"{on_path.parent}:/nowhere"}, system).path == on_path


def test_one_that_is_too_old_is_passed_over(tmp_path: Path, system: Path) -> None:
    old = fake(tmp_path / "old", "1.8.0_402").parents[1]
    fake(system / "java-11", "11.0.22")
    good = fake(system / "java-17", "17.0.15")
    assert find_java({"JAVA_HOME": str(old), "PATH": "/nowhere"}, system).path == good


def test_home_is_what_java_says_not_where_it_lies(tmp_path: Path, system: Path) -> None:
    shim = fake(tmp_path / "shims", "17.0.1", f"    java.home = {tmp_path}/real\n    java.version = 17.0.1")
    assert find_java({"PATH": f"{shim.parent}:/nowhere"}, system).home == tmp_path / "real"


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("17", 17), ("25-ea", 25), ("1.8.0_402", 8), ("11.0.22", 11)]
)
def test_versions(version: str, major: int) -> None:
    assert Java(Path("java"), Path("home"), version).major == major


def test_none_at_all(tmp_path: Path, system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no apt-get either
    with pytest.raises(JavaMissing) as caught:
        find_java({"PATH": str(tmp_path)}, system)
    assert str(caught.value) == (
        "no Java 17 or newer was found, and Spark needs one. Looked at:\n"
        "  JAVA_HOME (not set): no java there\n"
        "  PATH: no java there\n"
        f"  {system}: no java there\n"
        "Install a Java runtime, version 17 or newer, and set JAVA_HOME to its folder."
    )


def test_every_reason_is_said(tmp_path: Path, system: Path) -> None:
    old = fake(tmp_path / "old", "11.0.22").parents[1]
    fake(tmp_path / "odd", "", "no version here")
    fake(system / "older", "1.8.0_402")
    environ = {"JAVA_HOME": str(old), "PATH": f"{tmp_path}/odd/bin:/nowhere"}
    with pytest.raises(JavaMissing) as caught:
        find_java(environ, system)
    text = str(caught.value)
    assert f"JAVA_HOME={old}: {old}/bin/java is version 11.0.22, too old" in text
    assert f"PATH: {tmp_path}/odd/bin/java does not answer when asked for its version" in text
    assert f"{system}/older/bin/java is version 1.8.0_402, too old" in text


@pytest.mark.parametrize(("user", "sudo"), [(0, ""), (1000, "sudo ")])
def test_the_command_to_install_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, sudo: str) -> None:
    for name, script in {"apt-get": "", "apt-cache": '[ "$2" = openjdk-21-jre-headless ]'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: user)
    command = f"{sudo}apt-get update && {sudo}apt-get install -y openjdk-21-jre-headless"
    assert java.how_to_install() == f"Install one: {command}"
