"""A cluster of a master and two workers: matches are made in the executors, and one that is killed loses nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from cepheid.language.checker import Checked, check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.matcher import Matcher
from cepheid.spark.java import find_java
from tests.spark.killed_stream import QUERY
from tests.spark.test_streaming import delta_ids

pytestmark = pytest.mark.spark

AIR = Stream("air", {"sensor": Type.STRING, "flow": Type.FLOAT}, id_kind="int")


@contextmanager
def part_of_spark(folder: Path, *arguments: str) -> Iterator[None]:
    """A process of Spark's own, with its workers; all of them end with the block."""
    home = Path(pyspark.__file__).parent
    local = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": str(find_java().home)}
    with (folder / f"{arguments[0].rpartition('.')[2]}-{len(list(folder.iterdir()))}.log").open("w") as log:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            env={**os.environ, **local, "SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    port, logs = free_port(), tmp_path / "logs"
    logs.mkdir()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        place = "--host", "127.0.0.1", "--webui-port", "0"
        stack.enter_context(part_of_spark(logs, "org.apache.spark.deploy.master.Master", *place, "--port", str(port)))
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < deadline, "no master"
            time.sleep(0.1)
        for _ in range(2):
            worker = "org.apache.spark.deploy.worker.Worker", *place, "-c", "1", "-m", "1g"
            stack.enter_context(part_of_spark(logs, *worker, "-d", str(tmp_path / "work"), master))
        yield master


def written(folder: Path) -> list[Event]:
    """Events, and the files of them that a stream reads one by one."""
    r = random.Random(3)
    events = [Event("air", i, i * 10, {"sensor": f"D{r.randrange(9)}", "flow": r.uniform(0, 9)}) for i in range(400)]
    folder.mkdir()
    for start in range(0, 400, 100):
        path = folder / f"{start:03}.json"
        rows = ({"id": e.id, "time": e.time, **e.attributes} for e in events[start : start + 100])
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (1e9 + start, 1e9 + start))
    return events


def checked_air(text: str) -> Checked:
    checked, problems = check(parse(text), Catalogue({"air": AIR}, "air"))
    assert checked is not None, problems
    return checked


@pytest.mark.timeout(300)
def test_matches_are_made_in_the_executors(cluster: str, tmp_path: Path) -> None:
    events, checked = written(tmp_path / "in"), checked_air(QUERY)
    program = subprocess.run(
        [sys.executable, "-m", "tests.spark.on_cluster", cluster, str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert program.returncode == 0, program.stdout
    batch, stream = (json.loads(line) for line in program.stdout.splitlines() if line.startswith("{"))
    assert sorted(batch["batch"]) == sorted(m.id for m in Matcher(checked).matches(events))
    assert len(batch["executors"]) == 2
    assert 0 not in batch["executors"], "a match was made elsewhere than in an executor"

    assert stream["killed while it ran"]
    matcher = Matcher(checked)
    matcher.push(events)
    wanted = [match.id for match in matcher.advance(events[-1].time)]
    assert len(wanted) > 50
    assert sorted(delta_ids(tmp_path / "matches")) == sorted(wanted)
