"""A broker of Kafka to try things with: one node in KRaft mode, reachable from this machine only.

`python -m cepheid.spark.kafka data/kafka` runs one until it is interrupted; its topics are kept in the folder.
"""

from __future__ import annotations

import argparse
import base64
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cepheid.spark.jars import broker_jars
from cepheid.spark.java import find_java

_HOST: Final = "127.0.0.1"
#: Seconds that a broker may take to come up.
_PATIENCE: Final = 60.0
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/topics
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
"""


class BrokerNotStarted(RuntimeError):
    """A broker ended before it could be reached. The message has the last that it said."""


@contextmanager
def kafka(folder: Path, port: int | None = None) -> Iterator[str]:
    """A broker that ends with the block; its address. Its topics are in the folder, and there again the next time.

    Raises BrokerNotStarted, JarsUnavailable and JavaMissing.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = port or _free_port(), _free_port()
    config, log = folder / "kraft.properties", folder / "kafka.log"
    config.write_text(_PROPERTIES.format(host=_HOST, port=port, controller=controller, folder=folder))
    jars = ":".join(map(str, broker_jars()))
    java = [str(find_java().path), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars]
    if not (folder / "topics" / "meta.properties").exists():
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # In one word: an identity may begin with a dash.
        _run([*java, "kafka.tools.StorageTool", "format", f"--cluster-id={identity}", "-c", str(config)], log)
    with log.open("ab") as output:
        # In a group of its own: an interrupt from the keyboard comes to this process, which ends the broker.
        command = [*java, "kafka.Kafka", str(config)]
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        _await(port, process, log)
        yield f"{_HOST}:{port}"
    finally:
        process.kill()  # what was acknowledged is in the page cache, and found again
        process.wait()


def _run(command: list[str], log: Path) -> None:
    with log.open("ab") as output:
        if subprocess.run(command, stdout=output, stderr=output, check=False).returncode != 0:
            raise _failed("could not make its folder", log)


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise _failed(f"ended with code {process.returncode}", log)
        with socket.socket() as probe:
            if probe.connect_ex((_HOST, port)) == 0:
                return
        time.sleep(0.05)
    raise _failed(f"does not listen on port {port} after {_PATIENCE:.0f} s", log)


def _failed(what: str, log: Path) -> BrokerNotStarted:
    last = "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-5:])
    return BrokerNotStarted(f"Kafka {what}. Its last words, of {log}:\n{last}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Runs a broker until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m cepheid.spark.kafka", description=__doc__)
    parser.add_argument("folder", type=Path, help="where its topics are kept")
    parser.add_argument("--port", type=int, default=9092, help="of 127.0.0.1; 9092 if left out")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with kafka(given.folder, given.port) as address:
            print(address, flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    except (RuntimeError, OSError) as error:
        sys.exit(f"cepheid: {error}")


if __name__ == "__main__":
    main()
