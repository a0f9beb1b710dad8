"""The jars of Delta, of Kafka for Spark, and of a broker (kafka.py): pinned, fetched once through the Ivy that pyspark
ships, and cached.

For Spark only jars that pyspark does not ship itself are listed.
`python -m cepheid.spark.jars` fetches those of Delta and prints their folder; those of Kafka come when they are needed.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cepheid.spark.java import find_java

TIMEOUT_SECONDS = 300.0
"""For the whole download, and for waiting until another process has finished its own."""


@dataclass(frozen=True)
class Jar:
    """One artifact of Maven Central."""

    organisation: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"


DELTA_VERSION = "4.4.0"
UNITY_VERSION = "0.6.0"

DELTA = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        DELTA_VERSION,
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        DELTA_VERSION,
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
    Jar(
        "io.delta",
        "delta-kernel-api",
        DELTA_VERSION,
        "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
    ),
    Jar(
        "io.delta",
        "delta-kernel-defaults",
        DELTA_VERSION,
        "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    ),
    Jar(
        "io.delta",
        "delta-kernel-unitycatalog",
        DELTA_VERSION,
        "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
    ),
    Jar(
        "io.unitycatalog",
        "unitycatalog-client",
        UNITY_VERSION,
        "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19",
    ),
    Jar(
        "io.unitycatalog",
        "unitycatalog-hadoop",
        UNITY_VERSION,
        "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150",
    ),
)


#: Spark's connector for 4.2 asks for a token provider 4.2.0, which is not published; 4.0.0 is the same to it.
KAFKA = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka", "kafka-clients", "3.9.2", "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)


BROKER_VERSION = "4.3.1"


def _listed(file: str) -> tuple[Jar, ...]:
    """The jars of a list beside this file: organisation, name, version and SHA-256 a line."""
    return tuple(Jar(*line.split()) for line in (Path(__file__).parent / file).read_text("utf-8").splitlines())


@dataclass(frozen=True)
class _Bundle:
    """Jars that come together."""

    name: str
    folder: str
    jars: tuple[Jar, ...]

    def place(self) -> Path:
        home = os.environ.get("CEPHEID_HOME") or "~/.cache/cepheid"
        return Path(home).expanduser().absolute() / "jars" / self.folder


_DELTA = _Bundle(f"Delta {DELTA_VERSION}", f"delta-{DELTA_VERSION}-spark-4.2", DELTA)
_KAFKA = _Bundle("Kafka connector", "kafka-spark-4.2", KAFKA)
_BROKER = _Bundle(f"Kafka {BROKER_VERSION}", f"kafka-{BROKER_VERSION}", _listed("broker_jars.txt"))


class JarsUnavailable(RuntimeError):
    """The jars are not cached and could not be fetched. The message says why and what to do."""


def delta_jars() -> list[Path]:
    """The cached jar files, for `spark.jars`; fetches them if one is absent. Raises JarsUnavailable, JavaMissing."""
    return _jars(_DELTA)


def kafka_jars() -> list[Path]:
    """Likewise those by which Spark reads and writes Kafka."""
    return _jars(_KAFKA)


def broker_jars() -> list[Path]:
    """Likewise those of a broker of Kafka."""
    return _jars(_BROKER)


def _jars(bundle: _Bundle) -> list[Path]:
    folder = bundle.place()
    files = [folder / jar.file_name for jar in bundle.jars]
    if not _all_there(files):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _lock(bundle):
                if not _all_there(files):
                    _fetch(bundle)
        except OSError as error:
            raise _unavailable(bundle, f"the cache cannot be written: {error}") from error
    return files


def jars_folder() -> Path:
    """Where the jars of Delta are cached: under $CEPHEID_HOME, or else ~/.cache/cepheid."""
    return _DELTA.place()


def _all_there(files: list[Path]) -> bool:
    return all(file.is_file() for file in files)


def _fetch(bundle: _Bundle) -> None:
    """Downloads into a folder beside the target, checks, then moves each file into place in one step."""
    folder = bundle.place()
    print(f"cepheid: fetching the {bundle.name} jars into {folder}", file=sys.stderr, flush=True)
    for leftover in folder.glob(".fetch-*"):  # of a process that was killed; the lock says that none is at work
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as temporary:
        work = Path(temporary)
        try:
            _run_ivy(work, bundle.jars)
        except subprocess.TimeoutExpired as error:
            raise _unavailable(bundle, f"the download took more than {TIMEOUT_SECONDS:.0f} s") from error
        except subprocess.CalledProcessError as error:
            reason = "\n".join(f"  {line.strip()}" for line in error.stdout.splitlines()[-3:] if line.strip())
            raise _unavailable(bundle, f"the download failed:\n{reason}") from error
        for jar in bundle.jars:
            file = work / "jars" / jar.file_name
            if not file.is_file():
                raise _unavailable(bundle, f"{jar.file_name} was not among the files that came")
            found = hashlib.sha256(file.read_bytes()).hexdigest()
            if found != jar.sha256:
                raise _unavailable(bundle, f"{jar.file_name} has SHA-256 {found}, but {jar.sha256} is pinned")
        for jar in bundle.jars:
            (work / "jars" / jar.file_name).replace(folder / jar.file_name)


def _run_ivy(work: Path, jars: tuple[Jar, ...]) -> None:
    """Ivy knows Maven Central by itself. Everything it writes stays in `work`."""
    # The jars are complete, so Ivy need not look for more: conf master is the jar itself, without its dependencies.
    dependencies = "".join(
        f'<dependency org="{jar.organisation}" name="{jar.name}" rev="{jar.version}" conf="*->master"/>' for jar in jars
    )
    module = work / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="cepheid" module="jars"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>",
        encoding="utf-8",
    )
    command: list[str | Path] = [find_java().path, f"-Divy.default.ivy.user.dir={work}/home", "-jar", _ivy()]
    command += ["-error", "-cache", work / "cache", "-ivy", module, "-types", "jar", "bundle", "-m2compatible"]
    command += ["-retrieve", f"{work}/jars/[artifact]-[revision].[ext]"]
    subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=TIMEOUT_SECONDS
    )


def _ivy() -> Path:
    """The Ivy jar inside pyspark, found without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsUnavailable(
            "the jars are fetched with the Ivy of pyspark, and pyspark is not installed here. Run: pip install cepheid"
        )
    jars = Path(spec.origin).parent / "jars"
    found = sorted(jars.glob("ivy-*.jar"))
    if not found:
        raise JarsUnavailable(f"{jars} has no ivy-*.jar. Mend it: pip install --force-reinstall pyspark==4.2.0")
    return found[-1]


def _unavailable(bundle: _Bundle, reason: str) -> JarsUnavailable:
    names = "\n".join(f"  {jar.organisation}:{jar.name}:{jar.version}" for jar in bundle.jars)
    return JarsUnavailable(
        f"the {bundle.name} jars are not in {bundle.place()}, and {reason}\n"
        "Check the network and try again (behind a proxy: "
        "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'),\n"
        "or copy that folder from a machine that has it, or point CEPHEID_HOME to a cache. It has to hold:\n"
        f"{names}"
    )


@contextmanager
def _lock(bundle: _Bundle) -> Iterator[None]:
    """Holds a lock file, so that of two processes one fetches; the kernel drops the lock of one that dies."""
    path = bundle.place() / ".lock"
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    reason = f"another process has held {path} for {TIMEOUT_SECONDS:.0f} s"
                    raise _unavailable(bundle, reason) from None
                time.sleep(0.1)
        yield


if __name__ == "__main__":
    try:
        delta_jars()
    except RuntimeError as error:
        sys.exit(f"cepheid: {error}")
    print(jars_folder())
