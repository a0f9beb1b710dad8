"""`cepheid service APP`: the intake and the real-time engine of an application, kept alive until it is interrupted.

With `--apply` a service that runs goes on with what is in the file now."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cepheid.app import load
from cepheid.cli.signals import heard
from cepheid.service.client import consumers_address
from cepheid.service.control import ask
from cepheid.service.intake import IntakeError
from cepheid.service.part import ServiceFailed
from cepheid.service.supervisor import Supervisor


@click.command()
@click.argument("app", type=click.Path())
@click.option("--apply", is_flag=True, help="Make the service that runs APP go on with the file as it is now.")
def command(app: str, apply: bool) -> None:
    """Run the intake and the real-time engine of the application file APP, until it is interrupted.

    A token for addresses that others can reach is taken from the environment variable CEPHEID_TOKEN.

    With --apply, or on SIGHUP, a service that runs takes over what has changed in APP: streams, operators, queries and
    consumers come and go, and the others notice nothing. If anything in APP is wrong, nothing changes.

    \b
    Examples:
      cepheid service plant.yaml
      cepheid service --apply plant.yaml    # in another terminal, after an edit
    """
    application = load(app)
    if apply:
        changes = ask(consumers_address(application), app, os.environ.get("CEPHEID_TOKEN"))
        click.echo("\n".join(changes.lines()))
        return
    reading = heard()
    try:
        with Supervisor(application, Path(app), token=os.environ.get("CEPHEID_TOKEN")) as service:
            for notice in service.notices:
                click.echo(f"note: {notice}", err=True)
            click.echo(f"suppliers: {', '.join(service.suppliers)}")
            click.echo(f"consumers: {service.consumers}")
            if service.metrics is not None:
                click.echo(f"metrics: {service.metrics}")
            service.watch(reading.fileno(), lambda text: click.echo(text, err=True))
    except (ServiceFailed, IntakeError) as failed:
        raise click.ClickException(str(failed)) from None
