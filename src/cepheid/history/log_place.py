"""Where Spark finds an application's log: in its folder, or over TCP where executors are on other machines."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from cepheid.app.application import Application
from cepheid.service.intake import suppliers_address
from cepheid.service.log import END, LogReader, commit
from cepheid.service.wire import parse_address


class LogOutOfReach(ValueError):
    """Executors are elsewhere, and the log can't be read from there."""


@dataclass(frozen=True)
class LogPlace:
    """A log: its folder, and its intake's address if it is read from there."""

    folder: Path
    address: str | None = None
    token: str | None = None

    @property
    def source(self) -> str:
        return str(self.folder) if self.address is None else self.address

    @property
    def options(self) -> dict[str, str]:
        """Of the data source."""
        if self.address is None:
            return {"path": str(self.folder)}
        return {"address": self.address} | ({} if self.token is None else {"token": self.token})

    @property
    def dead_letters(self) -> LogPlace:
        address = None if self.address is None else f"{self.address}/dead"
        return replace(self, folder=self.folder / "dead", address=address)

    def end(self) -> int:
        """The offset after the last that is safe."""
        with LogReader(self.source, END, durable_only=True, token=self.token) as reader:
            reader.rows()
            return reader.offset

    def commit(self, consumer: str, offset: int) -> None:
        commit(self.source, consumer, offset, token=self.token)


def place_of(spark: SparkSession, app: Application, token: str | None = None) -> LogPlace | None:
    """Where a session reads an application's log; None if it has none. Raises LogOutOfReach.

    The token is that of the environment, unless another is given.
    """
    service = app.sections.service
    if service is None or service.log is None:
        return None
    folder = app.folder / service.log.path
    if str(spark.sparkContext.master).startswith("local"):
        return LogPlace(folder)
    token = os.environ.get("CEPHEID_TOKEN") if token is None else token
    return LogPlace(folder, _for_executors(spark, suppliers_address(app)), token)


def _for_executors(spark: SparkSession, address: str) -> str:
    target = parse_address(address)
    if isinstance(target, str):
        raise LogOutOfReach(
            f"the executors of {spark.sparkContext.master} can't read the log by {address}: give the service "
            "`listen: tcp:host:port`, and both CEPHEID_TOKEN; or run on this machine alone, without --master"
        )
    host, port = target
    if _is_any(host):  # the service is beside the driver, which executors reach; Spark writes IPv6 in brackets
        host = (spark.sparkContext.getConf().get("spark.driver.host") or host).strip("[]")
    return f"tcp:[{host}]:{port}" if ":" in host else f"tcp:{host}:{port}"


def _is_any(host: str) -> bool:
    """Whether it stands for all addresses of a machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
