"""`cepheid top APP`: what a running service does, anew every second."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final

import click

from cepheid.app import load
from cepheid.service.client import RefusedByService, ask, consumers_address, read_stats

_PARTS: Final = ("levels", "consumers", "queries", "operators")


@click.command()
@click.argument("app", type=click.Path())
@click.option("--once", is_flag=True, help="Print it once, as JSON, and end.")
@click.option("--every", type=click.FloatRange(min=0.1), default=1.0, help="Seconds between two looks.")
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what each thread did in the last seconds to a file that Perfetto (ui.perfetto.dev) opens, and end.",
)
def command(app: str, once: bool, every: float, trace: Path | None) -> None:
    """Show levels, consumers, queries and operators of the running service of the application file APP."""
    address = consumers_address(load(app))
    token = os.environ.get("CEPHEID_TOKEN")
    try:
        if trace is not None:
            trace.write_text(json.dumps(ask(address, {"trace": True}, token)))
            click.echo(f"{trace} shows what each thread did last; open it with https://ui.perfetto.dev")
            return
        stats = read_stats(address, token)
        if once:
            click.echo(json.dumps(stats, indent=2))
            return
        _watch(address, token, every, stats)
    except (OSError, RefusedByService) as failed:
        raise click.ClickException(
            f"no service answers at {address} ({failed}); start it: cepheid service {app}"
        ) from None


def _watch(address: str, token: str | None, every: float, before: dict[str, Any]) -> None:
    from rich.live import Live

    began = time.monotonic()
    with Live(refresh_per_second=4, screen=True) as live:
        while True:
            time.sleep(every)
            stats = read_stats(address, token)
            now = time.monotonic()
            live.update(view(before, stats, now - began))
            before, began = stats, now


def view(before: dict[str, Any], stats: dict[str, Any], seconds: float) -> Any:
    """The tables of a look at the service, with rates since the look before."""
    from rich.console import Group
    from rich.table import Table

    tables = []
    for part in _PARTS:
        if not stats.get(part):
            continue
        table = Table(title=part, title_justify="left", expand=True)
        rows = [
            (name, _row(part, before.get(part, {}).get(name, {}), book, seconds)) for name, book in stats[part].items()
        ]
        table.add_column("")
        for heading in rows[0][1]:
            table.add_column(heading, justify="right")
        for name, row in rows:
            table.add_row(name, *row.values())
        tables.append(table)
    log = stats.get("log", {})
    said = f"log: offset {log['offset']:,}, {log['full']:,} without room" if log else "no log"
    return Group(f"{stats['application']}   {said}" + (f"   {log['trouble']}" if log.get("trouble") else ""), *tables)


def _row(part: str, before: dict[str, Any], book: dict[str, Any], seconds: float) -> dict[str, str]:
    def rate(counter: str) -> str:
        return f"{(book[counter] - before.get(counter, 0)) / seconds:,.0f}/s"

    def times(key: str) -> dict[str, str]:
        found = book[key]
        return {name: f"{found[f'{name}_ns'] / 1e6:.3f} ms" for name in ("p50", "p99", "max")}

    match part:
        case "levels":
            return {"runs": rate("fired"), "waiting": str(book["input"] + book["pending"]), **times("latency")}
        case "consumers":
            return {
                "events": rate("came"),
                "waiting": str(book["waiting"]),
                "lost": str(book["lost"]),
                **times("latency"),
            }
        case "queries":
            return {
                "matches": rate("found"),
                "shed": str(book["shed"]),
                "lost": str(book["lost"]),
                **times("latency"),
            }
        case _:
            return {"level": book["level"], "runs": rate("fired"), "failed": str(book["failed"]), **times("run")}
