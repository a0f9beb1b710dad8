"""A cluster of Spark on this machine: a standalone master and workers of one core each, which end with the block."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from cepheid.spark.java import find_java


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """The address of a master with so many workers; what they say and hold is in the folder."""
    port, logs = free_port(), folder / "logs"
    logs.mkdir()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        place = "--host", "127.0.0.1", "--webui-port", "0"
        stack.enter_context(_part(logs, "org.apache.spark.deploy.master.Master", *place, "--port", str(port)))
        deadline = time.monotonic() + 60
        while not _is_open(port):
            if time.monotonic() > deadline:
                raise RuntimeError(f"no master of Spark came up; what it said is in {logs}")
            time.sleep(0.1)
        for _ in range(workers):
            worker = "org.apache.spark.deploy.worker.Worker", *place, "-c", "1", "-m", "1g"
            stack.enter_context(_part(logs, *worker, "-d", str(folder / "work"), master))
        yield master


@contextmanager
def _part(logs: Path, *arguments: str) -> Iterator[None]:
    """A process of Spark's own, with those that it starts; all of them end with the block."""
    home = Path(pyspark.__file__).parent
    local = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": str(find_java().home)}
    with (logs / f"{arguments[0].rpartition('.')[2]}-{len(list(logs.iterdir()))}.log").open("w") as log:
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


def _is_open(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0
