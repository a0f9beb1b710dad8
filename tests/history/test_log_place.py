"""Where Spark finds a log: in its folder, or where executors elsewhere reach it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cepheid.app import load
from cepheid.history.log_place import LogOutOfReach, LogPlace, place_of

APP = """
name: plant
streams: {{air: {{attributes: {{flow: float}}}}}}
service: {{listen: "{listen}", log: {{path: log}}}}
"""


def place(folder: Path, listen: str, *, master: str = "spark://host:7077", driver: str = "10.0.0.7") -> LogPlace:
    """Where a session finds the log of a service that listens there."""
    (folder / "app.yaml").write_text(APP.format(listen=listen))
    conf = {"spark.driver.host": driver}
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master, getConf=lambda: conf))
    found = place_of(spark, load(folder / "app.yaml"), "secret")
    assert found is not None
    return found


def test_on_this_machine_in_its_folder(tmp_path: Path) -> None:
    found = place(tmp_path, "tcp:10.0.0.1:7000", master="local[2]")
    assert found.options == {"path": str(tmp_path / "log")}
    assert found.dead_letters.options == {"path": str(tmp_path / "log" / "dead")}


@pytest.mark.parametrize(
    ("listen", "driver", "address"),
    [
        ("tcp:10.0.0.1:7000", "10.0.0.7", "tcp:10.0.0.1:7000"),
        ("tcp:hub:7000", "10.0.0.7", "tcp:hub:7000"),
        ("tcp:[fd00::1]:7000", "10.0.0.7", "tcp:[fd00::1]:7000"),
        # All addresses of a machine: that of the driver, beside which the service runs.
        ("tcp:0.0.0.0:7000", "10.0.0.7", "tcp:10.0.0.7:7000"),
        ("tcp:0.0.0.0:7000", "fd00::7", "tcp:[fd00::7]:7000"),
        ("tcp:[::]:7000", "[fd00::7]", "tcp:[fd00::7]:7000"),  # as Spark writes it
    ],
)
def test_executors_elsewhere_read_over_tcp(tmp_path: Path, listen: str, driver: str, address: str) -> None:
    found = place(tmp_path, listen, driver=driver)
    assert found.options == {"address": address, "token": "secret"}
    assert found.dead_letters.options == {"address": f"{address}/dead", "token": "secret"}


def test_a_socket_of_this_machine_is_out_of_their_reach(tmp_path: Path) -> None:
    with pytest.raises(LogOutOfReach) as refused:
        place(tmp_path, "unix:intake.sock")
    assert str(refused.value) == (
        f"the executors of spark://host:7077 can't read the log by unix:{tmp_path / 'intake.sock'}: give the service "
        "`listen: tcp:host:port`, and both CEPHEID_TOKEN; or run on this machine alone, without --master"
    )
