"""Flink as the service under test: graph A in bench/cpep/flink, with the engine's own operators through JNI.

Local, one JVM, parallelism = cores, no checkpoints, buffer timeout 0, Unix sockets in and out with the same frames: so
suppliers and consumers are the same programs, and measure the same way.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from cpep.graphs import LEVELS
from cpep.harness import CORES, Case, end

from cepheid.spark.java import find_java

SOURCE: Final = Path(__file__).parent / "flink"
NATIVE: Final = Path(__file__).parents[2] / "native"
#: What is built here stays with the virtual environment.
BUILT: Final = Path(sys.prefix) / "flink"
_OPENED: Final = [
    f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang", "time", "util.concurrent")
]


class NoPeer(Exception):
    """Flink can't be built here, and why."""


def _call(command: list[str], **how: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    if done.returncode:
        raise NoPeer(f"{' '.join(command[:2])} failed: {(done.stderr or done.stdout).strip()[-2000:]}")


def build() -> None:
    """Fetches Flink from Maven Central and builds the graph and the operators, unless that was done."""
    for tool in ("mvn", "cc", "cargo"):
        if shutil.which(tool) is None:
            raise NoPeer(f"building Flink's side needs {tool}")
    BUILT.mkdir(parents=True, exist_ok=True)
    classpath = BUILT / "classpath"
    if not classpath.exists():
        written = classpath.with_suffix(".new")
        _call(
            [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(SOURCE / "pom.xml"),
                "dependency:build-classpath",
                f"-Dmdep.outputFile={written}",
            ]
        )
        written.replace(classpath)
    # cargo knows by itself whether there is something to do.
    target = BUILT / "target"
    _call(
        ["cargo", "build", "--release", "--lib", "--features", "exported", "--target-dir", str(target),
         "--manifest-path", str(NATIVE / "Cargo.toml")]
    )  # fmt: skip
    java = find_java().home / "include"
    shutil.copy2(target / "release" / "lib_native.so", BUILT / "lib_native.so")
    _call(
        ["cc", "-O2", "-shared", "-fPIC", f"-I{java}", f"-I{java / 'linux'}", "-o", str(BUILT / "liboperators.so"),
         str(SOURCE / "operators.c"), f"-L{BUILT}", "-l:lib_native.so", "-Wl,-rpath,$ORIGIN"]
    )  # fmt: skip
    sources = sorted(str(path) for path in SOURCE.glob("*.java"))
    compiler = str(find_java().home / "bin" / "javac")
    _call(
        [
            compiler,
            "-nowarn",
            "-proc:none",
            "-d",
            str(BUILT / "classes"),
            "-cp",
            classpath.read_text().strip(),
            *sources,
        ]
    )


class FlinkService:
    """Graph A on Flink, in a JVM of its own, with one source or one a level; behind a gateway there is but one."""

    def __init__(self, case: Case, folder: Path, *, sources: Literal["one", "level"] = "one") -> None:
        self.suppliers = f"unix:{folder / 'supply.sock'}"
        self.consumers = f"unix:{folder / 'deliver.sock'}"
        command = [
            str(find_java().path),
            *_OPENED,
            "-Xms1g",
            "-Xmx4g",
            f"-Dcepheid.operators={BUILT / 'liboperators.so'}",
            "-cp",
            f"{BUILT / 'classes'}:{(BUILT / 'classpath').read_text().strip()}",
            "GraphA",
            str(folder / "supply.sock"),
            str(folder / "deliver.sock"),
            *(str(case.work.count(level)) for level in LEVELS),
            str(CORES),
            "gateway" if case.gateway else sources,
        ]
        with (folder / "flink.log").open("w") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ)
            )
        assert self._process.stdout is not None
        if not any(line.strip() == "ready" for line in self._process.stdout):
            raise NoPeer(f"Flink did not start: {(folder / 'flink.log').read_text()[-2000:]}")
        self.pids: Mapping[str, int] = {"flink": self._process.pid}

    def books(self) -> dict[str, Any]:
        return {}

    def stop(self) -> None:
        end(self._process)
