"""Set-up: what the scripts find, install and say, and what the Makefile does again. Tools are stand-ins in a copy."""

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
EVERYDAY = (
    *("awk", "bash", "cat", "cut", "dirname", "env", "expand", "find", "flock", "grep", "id", "make"),
    *("mkdir", "mktemp", "rm", "sed", "sort", "stat", "tail", "touch"),
)


class Machine:
    """A copy of the set-up files, with a PATH and a home of its own. It starts with Python and everyday tools only."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.bin = folder / "bin"
        self.home = folder / "home"
        self.calls = folder / "calls"
        for path in (self.tree / "native/src", self.bin, self.home):
            path.mkdir(parents=True)
        self.calls.touch()
        shutil.copytree(ROOT / "scripts", self.tree / "scripts")
        shutil.copy(ROOT / "Makefile", self.tree)
        (self.tree / "src/cepheid/spark").mkdir(parents=True)
        for name in ("java.py", "jars.py"):
            shutil.copy(ROOT / "src/cepheid/spark" / name, self.tree / "src/cepheid/spark")
        for name in ("constraints.txt", "pyproject.toml", "native/Cargo.toml", "native/build.rs", "native/src/lib.rs"):
            (self.tree / name).touch()
        for name in EVERYDAY:
            tool = shutil.which(name)
            assert tool, name
            (self.bin / name).symlink_to(tool)
        # Java may be in /usr/lib/jvm of the real machine, so the search for it is answered here: once `java` is there.
        self.put(
            "python",
            f"""case "$*" in
            *"java.py home") [ -e "{self.bin}/java" ] && echo /opt/java || exit 1 ;;
            *) exec "{sys.executable}" "$@" ;;
            esac""",
        )

    def put(self, name: str, script: str = "") -> None:
        """Adds a tool, or replaces it. It notes each call."""
        tool = self.bin / name
        tool.unlink(missing_ok=True)
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.calls}"\n{script}\n')
        tool.chmod(0o755)

    def put_rust(self, version: str = "1.90.0") -> None:
        self.put("cargo")
        self.put("rustc", f'echo "rustc {version} (abc 2026-01-01)"')

    def put_debian_12(self, user: int, install: str = "") -> None:
        """apt as Debian 12 has it; `install` is what `apt-get install` does."""
        self.put("id", f"echo {user}")
        self.put("apt-get", f'case "$1" in install) {install or ":"} ;; esac')
        self.put(
            "apt-cache",
            """case "$*" in
            "show openjdk-17-jre-headless") ;;
            show*) exit 100 ;;
            "policy rustc") echo "  Candidate: 1.63.0+dfsg1-2" ;;
            "policy rustc-web") echo "  Candidate: 1.96.0+dfsg1-1" ;;
            esac""",
        )

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environ = {"PATH": str(self.bin), "HOME": str(self.home)}
        return subprocess.run(
            command, cwd=self.tree, env=environ, capture_output=True, text=True, timeout=60, check=False
        )

    def toolchain(self) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.tree / "scripts/toolchain"), "python")

    def called(self, tool: str) -> list[str]:
        return [line for line in self.calls.read_text().splitlines() if line.split()[0] == tool]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_root_it_stops_with_the_exact_command(machine: Machine) -> None:
    machine.put_debian_12(user=1000)
    answer = machine.toolchain()
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert answer.stderr == (
        "setup: missing: Java 17 or newer, Rust 1.88 or newer with cargo, rustfmt and clippy, a C linker\n"
        "setup: not root, so nothing was installed; run this, then call make again:\n"
        "setup:   sudo apt-get update && sudo apt-get install -y --no-install-recommends "
        "openjdk-17-jre-headless rustc-web cargo-web rustfmt-web rust-web-clippy gcc libc6-dev\n"
    )
    assert machine.called("apt-get") == []


def test_only_java_is_missing(machine: Machine) -> None:
    machine.put_debian_12(user=1000)
    machine.put_rust()
    machine.put("cc")
    answer = machine.toolchain()
    assert answer.returncode == 1
    assert "missing: Java 17 or newer\n" in answer.stderr
    assert answer.stderr.endswith("install -y --no-install-recommends openjdk-17-jre-headless\n")


def test_nothing_is_missing(machine: Machine) -> None:
    machine.put_debian_12(user=1000)
    machine.put("java")
    machine.put_rust()
    machine.put("cc")
    answer = machine.toolchain()
    assert (answer.returncode, answer.stdout) == (0, "export JAVA_HOME=/opt/java\n")
    assert answer.stderr == f"setup: using Java in /opt/java, Rust in {machine.bin}\n"


def test_a_rust_off_path_is_found(machine: Machine) -> None:
    machine.put("java")
    machine.put("cc")
    machine.put_rust()
    folder = machine.home / ".cargo/bin"
    folder.mkdir(parents=True)
    for name in ("cargo", "rustc"):
        (machine.bin / name).rename(folder / name)
    answer = machine.toolchain()
    assert (answer.returncode, answer.stdout) == (0, f'export JAVA_HOME=/opt/java\nexport PATH={folder}:"$PATH"\n')


@pytest.mark.parametrize("version", ["1.63.0", "1.84.1", "0.9"])
def test_a_rust_that_is_too_old_does_not_count(machine: Machine, version: str) -> None:
    machine.put_debian_12(user=1000)
    machine.put("java")
    machine.put("cc")
    machine.put_rust(version)
    answer = machine.toolchain()
    assert answer.returncode == 1
    assert "missing: Rust 1.88 or newer" in answer.stderr


def test_a_rust_without_clippy_does_not_count(machine: Machine) -> None:
    machine.put_debian_12(user=1000)
    machine.put("java")
    machine.put("cc")
    machine.put_rust()
    machine.put("cargo", '[ "$1" != clippy ]')
    assert "rust-web-clippy" in machine.toolchain().stderr


def test_who_has_rustup_is_sent_to_it(machine: Machine) -> None:
    machine.put_debian_12(user=0)
    machine.put("java")
    machine.put("cc")
    machine.put("rustup")
    answer = machine.toolchain()
    assert answer.returncode == 1
    assert "rustup toolchain install stable --component rustfmt,clippy" in answer.stderr
    assert machine.called("apt-get") == []


def test_ubuntu_has_rust_under_its_number(machine: Machine) -> None:
    machine.put_debian_12(user=1000)
    machine.put("java")
    machine.put("cc")
    machine.put(
        "apt-cache",
        """case "$*" in
        "policy rustc") echo "  Candidate: 1.75.0+dfsg0ubuntu1" ;;
        "policy rustc-web") ;;
        "policy rustc-1.89") echo "  Candidate: 1.89.0+dfsg0ubuntu1" ;;
        "pkgnames rustc-1.") printf '%s\\n' rustc-1.76 rustc-1.89 rustc-1.80 ;;
        esac""",
    )
    assert machine.toolchain().stderr.endswith(" rustc-1.89 cargo-1.89 rustfmt-1.89 rust-1.89-clippy\n")


def test_root_installs_what_is_missing(machine: Machine) -> None:
    parts = machine.home / "parts"
    machine.put_rust()
    machine.put("java")
    machine.put("cc")
    parts.mkdir()
    for name in ("cargo", "rustc", "java", "cc"):
        (machine.bin / name).rename(parts / name)
    machine.put_debian_12(user=0, install=f'/bin/cp "{parts}"/* "{machine.bin}"')
    machine.put("mkdir", f'case "$*" in *man1) ;; *) exec {shutil.which("mkdir")} "$@" ;; esac')  # leave /usr alone
    answer = machine.toolchain()
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "export JAVA_HOME=/opt/java\n"
    packages = "openjdk-17-jre-headless rustc-web cargo-web rustfmt-web rust-web-clippy gcc libc6-dev"
    assert machine.called("apt-get") == [
        "apt-get update",
        f"apt-get install -y --no-install-recommends {packages}",
    ]
    assert [line for line in answer.stderr.splitlines() if "updating" in line or "installing" in line] == [
        "setup: updating the package lists",
        f"setup: installing {packages}",
    ]


def test_what_an_installation_did_not_bring_is_said(machine: Machine) -> None:
    machine.put_debian_12(user=0)
    machine.put("mkdir", f'case "$*" in *man1) ;; *) exec {shutil.which("mkdir")} "$@" ;; esac')
    machine.put("java")
    machine.put_rust()
    answer = machine.toolchain()
    assert answer.returncode == 1
    assert "setup: still missing after that: a C linker\n" in answer.stderr


def test_a_failed_installation_shows_the_end_of_its_log(machine: Machine) -> None:
    machine.put_debian_12(user=0)
    machine.put("apt-get", "seq 1000 >&2 2>/dev/null || :; echo 'E: no route to the mirror' >&2; exit 100")
    answer = machine.toolchain()
    assert answer.returncode == 1
    assert "E: no route to the mirror\nsetup: failed: apt-get update\n" in answer.stderr
    assert "the end of .venv/setup.log" in answer.stderr
    assert "no route" in (machine.tree / ".venv/setup.log").read_text()


def test_without_apt_it_says_what_is_needed(machine: Machine) -> None:
    answer = machine.toolchain()
    assert answer.returncode == 1
    assert answer.stderr == (
        "setup: missing: Java 17 or newer, Rust 1.88 or newer with cargo, rustfmt and clippy, a C linker\n"
        "setup: there is no apt-get here; install what is missing with this system's own tools, then call make again\n"
    )


def test_without_python_set_up_says_so(machine: Machine) -> None:
    answer = machine.run("make", "setup")
    assert answer.returncode == 2
    assert "setup: no Python 3.11 or newer was found" in answer.stderr
    assert not (machine.tree / ".venv").exists()


@pytest.fixture
def steps(machine: Machine) -> Callable[[], list[str]]:
    """Runs `make setup` with steps that only note themselves, and gives those. One fails if BROKEN-step exists."""
    script = machine.tree / "scripts/setup"
    script.write_text(
        f'#!/bin/sh\necho "$1" >>"{machine.calls}"\nmkdir -p .venv\n'
        '[ ! -e "BROKEN-$1" ] || exit 1\ntouch ".venv/.stamp-$1"\n'
    )

    def run() -> list[str]:
        machine.calls.write_text("")
        machine.run("make", "setup")
        return machine.calls.read_text().split()

    return run


def test_set_up_is_done_once(steps: Callable[[], list[str]]) -> None:
    assert steps() == ["venv", "dependencies", "native", "jars"]
    assert steps() == []


@pytest.mark.parametrize(
    ("edited", "again"),
    [
        ("scripts/toolchain", ["venv", "dependencies", "native", "jars"]),
        ("constraints.txt", ["dependencies", "native", "jars"]),
        ("pyproject.toml", ["native", "jars"]),
        ("native/Cargo.toml", ["native", "jars"]),
        ("native/src/lib.rs", ["native", "jars"]),
        ("src/cepheid/spark/jars.py", ["jars"]),
        ("src/cepheid/spark/java.py", []),
    ],
)
def test_only_what_is_stale_is_done_again(
    machine: Machine, steps: Callable[[], list[str]], edited: str, again: list[str]
) -> None:
    steps()
    # Stamps of one age, all else older, what is edited newer.
    now = time.time()
    for path in machine.tree.rglob("*"):
        age = 100 if ".venv" in path.parts else 200
        os.utime(path, (now - age, now - age))
    (machine.tree / edited).touch()
    assert steps() == again
    assert steps() == []


def test_a_step_that_failed_is_tried_again(machine: Machine, steps: Callable[[], list[str]]) -> None:
    broken = machine.tree / "BROKEN-native"
    broken.touch()
    assert steps() == ["venv", "dependencies", "native"]
    assert not (machine.tree / ".venv/.stamp-native").exists()
    broken.unlink()
    assert steps() == ["native", "jars"]


def test_help_is_the_default_and_sets_nothing_up(machine: Machine) -> None:
    answer = machine.run("make")
    for target in ("setup", "test", "check", "format", "demo", "bench", "docs", "constraints", "clean"):
        assert f"make {target} " in answer.stdout
    assert not (machine.tree / ".venv").exists()


def test_ci_runs_make_test(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\necho "$PWD: make $*" >"{tmp_path}/called"\nexit 7\n')
    make.chmod(0o755)
    environ = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}")
    answer = subprocess.run([ROOT / ".ci/run"], cwd=tmp_path, env=environ, timeout=60, check=False)
    assert (tmp_path / "called").read_text() == f"{ROOT}: make test\n"
    assert answer.returncode == 7, "what make says is what CI says"


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def test_every_dependency_is_pinned_within_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pins = _pins()
    for text in project["project"]["dependencies"] + project["dependency-groups"]["dev"]:
        requirement = Requirement(text)
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{text} has no pin; run: make constraints"
        assert requirement.specifier.contains(version), f"{text}, but the pin is {version}; run: make constraints"


def test_the_crate_and_the_package_have_one_version() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert tomllib.loads((ROOT / "native/Cargo.toml").read_text())["package"]["version"] == package


def test_rust_dependencies_are_exact() -> None:
    for name, wanted in tomllib.loads((ROOT / "native/Cargo.toml").read_text())["dependencies"].items():
        version = wanted if isinstance(wanted, str) else wanted["version"]
        assert version.startswith("="), f"{name}: no Cargo.lock is tracked, so the version has to be exact"


def _files() -> list[Path]:
    """What git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for line in answer.stdout.splitlines() if (path := ROOT / line).is_file()]


def test_no_lock_file_is_tracked() -> None:
    assert [path for path in _files() if path.suffix == ".lock" or path.name.endswith("-lock.json")] == []


def test_no_file_names_a_registry_or_this_machine() -> None:
    # In two halves, so that this file does not name them either.
    forbidden = [
        "repo1." + "maven",
        "files." + "pythonhosted",
        "pypi.org/" + "simple",
        "index." + "crates",
        "artifact" + "ory",
    ]
    if len(ROOT.parts) > 2:
        forbidden.append(f"{ROOT}/")
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in _files()
        for word in forbidden
        if word.encode() in path.read_bytes()
    ]
    assert found == []
