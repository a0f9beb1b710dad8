"""Finding the Java that Spark runs on.

Needs nothing but the standard library: scripts/toolchain runs this file before there is a .venv.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17
"""The oldest major version that Spark 4 runs on."""

JVM_FOLDER = Path("/usr/lib/jvm")
"""Where distributions install Java, on or off PATH."""

PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "openjdk-25-jre-headless", "default-jre-headless")
"""Distribution packages, the one tested most first; which of them exists depends on the release."""


class JavaMissing(RuntimeError):
    """There is no Java that Spark can run on. The message says what was looked at and how to install one."""


@dataclass(frozen=True)
class Java:
    """A Java runtime that Spark can use."""

    path: Path
    """The `java` program."""

    home: Path
    """What JAVA_HOME has to be for Spark to use this one."""

    version: str
    """As it calls itself: `17.0.15`."""

    @property
    def major(self) -> int:
        """17 for `17.0.15` and `17-ea`, 8 for the old spelling `1.8.0_402`."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def find_java(environ: Mapping[str, str] = os.environ, jvm_folder: Path = JVM_FOLDER) -> Java:
    """The first Java of version 17 or newer in JAVA_HOME, on PATH, in /usr/lib/jvm; raises JavaMissing."""
    looked: list[str] = []
    seen: set[Path] = set()
    for place, path in _candidates(environ, jvm_folder):
        if path is None or not path.is_file():
            looked.append(f"{place}: no java there")
            continue
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        java = _ask(path)
        if java is None:
            looked.append(f"{place}: {path} does not answer when asked for its version")
        elif java.major < OLDEST:
            looked.append(f"{place}: {path} is version {java.version}, too old")
        else:
            return java
    lines = [f"no Java {OLDEST} or newer was found, and Spark needs one. Looked at:"]
    lines += [f"  {line}" for line in looked]
    lines += [how_to_install()]
    raise JavaMissing("\n".join(lines))


def how_to_install() -> str:
    """The exact command for this machine, or what is needed where there is no apt-get."""
    if shutil.which("apt-get") is None:
        return f"Install a Java runtime, version {OLDEST} or newer, and set JAVA_HOME to its folder."
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"Install one: {sudo}apt-get update && {sudo}apt-get install -y {package()}"


def _candidates(environ: Mapping[str, str], jvm_folder: Path) -> Iterator[tuple[str, Path | None]]:
    home = environ.get("JAVA_HOME")
    if home:
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    else:
        yield "JAVA_HOME (not set)", None
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    yield "PATH", Path(on_path) if on_path else None
    installed = sorted(jvm_folder.glob("*/bin/java"))
    if not installed:
        yield str(jvm_folder), None
    for path in installed:
        yield str(jvm_folder), path


def _ask(path: Path) -> Java | None:
    """Its version and home; None if it does not say them. On PATH may be a script, whose folder says nothing."""
    command = [str(path), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    settings = dict(re.findall(r"^\s*(java\.home|java\.version) = (.+?)\s*$", answer.stderr, re.MULTILINE))
    if not re.match(r"\d", settings.get("java.version", "")) or "java.home" not in settings:
        return None
    return Java(path, Path(settings["java.home"]), settings["java.version"])


def package() -> str:
    """The first package that this release has; the first of all while apt has no lists yet."""
    for name in PACKAGES:
        try:
            subprocess.run(["apt-cache", "show", name], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return name
    return PACKAGES[0]


def main(question: str) -> None:
    """For scripts/toolchain: `home` prints the folder of the Java found, `package` what to install if there is none."""
    if question == "package":
        print(package())
        return
    try:
        print(find_java().home)
    except JavaMissing as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main(sys.argv[1])
