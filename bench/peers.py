"""The peers of the matcher: programs of their own, each with its best text for the same question.

CEPHEID_PEERS names a folder with one folder a peer, which has a pom.xml and a Java program that takes a mode and a
number of events and prints a line of JSON with `events_per_s`, `matches` and `oracle`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_OPENED: Final = tuple(
    f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang", "time", "util.concurrent")
)


@dataclass(frozen=True)
class Peer:
    """A peer: its program, and by our mode its own and how many events it gets."""

    name: str
    program: str
    modes: dict[str, tuple[str, ...]]
    options: tuple[str, ...] = ()
    folder: Path = field(default=Path())

    def run(self, mode: str) -> float:
        """Events a second, measured by the peer after warming up."""
        classpath = (self.folder / "cp.txt").read_text(encoding="utf-8").strip()
        java = ["java", "-Xms512m", "-Xmx4g", *self.options, "-cp", f"out:{classpath}", self.program, *self.modes[mode]]
        done = subprocess.run(java, cwd=self.folder, capture_output=True, text=True, check=True)
        result = json.loads(done.stdout.splitlines()[-1])
        wanted = result["oracle"]
        if result["matches"] not in (wanted if isinstance(wanted, list) else [wanted]):
            sys.exit(f"{self.name}, {mode}: {result['matches']} matches, and there are {wanted}")
        return float(result["events_per_s"])


PEERS: Final = (
    Peer("jena", "JenaBench", {"path": ("union_prepared", "6")}),
    Peer(
        "esper",
        "EsperBench",
        {mode: (mode, "1000000") for mode in ("filter", "pattern", "join")},
    ),
    Peer(
        "siddhi",
        "SiddhiBench",
        {"filter": ("filter", "1000000"), "pattern": ("pattern_partitioned", "200000"), "join": ("join", "50000")},
    ),
    Peer(
        "flink",
        "FlinkBench",
        {"filter": ("filter", "20000000", "1"), "pattern": ("cep_ab", "1000000", "1")},
        _OPENED,
    ),
)


def prepared(name: str, temporary: Path) -> Peer:
    """A peer, built in a copy of its folder, because its own may be read-only."""
    found = next(peer for peer in PEERS if peer.name == name)
    folder = os.environ.get("CEPHEID_PEERS")
    if folder is None or not (Path(folder) / name / "pom.xml").exists():
        sys.exit(f"set CEPHEID_PEERS to the folder of the peers; it has to hold {name}/pom.xml")
    temporary.mkdir(parents=True, exist_ok=True)
    if not (temporary / "common").exists():
        shutil.copytree(Path(folder) / "common", temporary / "common")
    copy = temporary / name
    shutil.copytree(Path(folder) / name, copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755)
    (copy / "out").mkdir(exist_ok=True)
    print(f"building {name}", flush=True)
    _call(["mvn", "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile=cp.txt"], copy)
    classpath = (copy / "cp.txt").read_text(encoding="utf-8").strip()
    sources = [*(str(p) for p in (temporary / "common").glob("*.java")), f"{found.program}.java"]
    _call(["javac", "-nowarn", "-proc:none", "-d", "out", "-cp", classpath, *sources], copy)
    return Peer(found.name, found.program, found.modes, found.options, copy)


def _call(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} in {folder.name}: {done.stdout}{done.stderr}")
