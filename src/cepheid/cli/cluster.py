"""The options of commands that start Spark: on which machines, and with which settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

Result = TypeVar("Result")


def on_cluster(command: Callable[..., Result]) -> Callable[..., Result]:
    """A command with --master and --conf, which it gets as `conf`, settings of a session."""

    @click.option("--master", metavar="URL", help="Run on this Spark: spark://host:7077. Left out, on this machine.")
    @click.option("--conf", "given", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    @wraps(command)
    def with_settings(*arguments: Any, master: str | None, given: tuple[str, ...], **others: Any) -> Result:
        conf: dict[str, str] = {}
        for text in given:
            key, equals, value = text.partition("=")
            if not key.startswith("spark.") or not equals:
                raise click.BadParameter(f"'{text}' is no setting of Spark; write spark.key=value", param_hint="--conf")
            conf[key] = value
        if master is not None:
            conf["spark.master"] = master
        return command(*arguments, conf=conf, **others)

    return with_settings
