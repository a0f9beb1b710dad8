"""`cepheid top APP`: what a running service does, anew every second."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from cepheid.app import load
from cepheid.service.client import RefusedByService, ask, ask_line, consumers_address, read_stats
from cepheid.service.histograms import Buckets, percentile, since
from cepheid.service.intake import counted, suppliers_address
from cepheid.service.metrics import count_of

_PARTS: Final = ("levels", "consumers", "queries", "operators")
#: Columns that are shown where there is something to show: a terminal is narrow.
_RARE: Final = {"stale", "relative", "expired", "replaced", "sent", "shed", "lost", "failed"}

#: A name has so many places before the numbers beside it.
_NAME: Final = 24


@click.command()
@click.argument("app", type=click.Path())
@click.option("--once", is_flag=True, help="Print it once, as JSON, and end.")
@click.option("--every", type=click.FloatRange(min=0.1), default=1.0, help="Seconds between two looks.")
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what each worker and mover did in the last seconds to a file that Perfetto (ui.perfetto.dev) opens, and"
    " end.",
)
def command(app: str, once: bool, every: float, trace: Path | None) -> None:
    """Show levels, consumers, queries and operators of the running service of the application file APP.

    \b
    Example:
      cepheid top plant.yaml
    """
    application = load(app)
    address = consumers_address(application)
    token = os.environ.get("CEPHEID_TOKEN")

    def look() -> dict[str, Any]:
        found = {**read_stats(address, token), "histograms": ask(address, {"histograms": True}, token)}
        return {**found, "intake": counted(suppliers_address(application), token)}

    try:
        if trace is not None:
            line = ask_line(address, {"trace": True}, token, 60.0)
            if line.startswith(b'{"error"'):
                raise RefusedByService(json.loads(line)["error"])
            trace.write_bytes(line)
            click.echo(f"{trace} shows what each worker and mover did last; open it with https://ui.perfetto.dev")
            return
        stats = look()
        if once:
            click.echo(json.dumps(stats, indent=2))
            return
        _watch(look, every, stats)
    except (OSError, RefusedByService) as failed:
        reason = (failed.strerror if isinstance(failed, OSError) else None) or failed
        raise click.ClickException(
            f"no service answers at {address} ({reason}); start it: cepheid service {app}"
        ) from None


def _watch(look: Callable[[], dict[str, Any]], every: float, before: dict[str, Any]) -> None:
    from rich.console import Group
    from rich.live import Live

    began, shown = time.monotonic(), view(before, before, every)
    with Live(refresh_per_second=4, screen=True) as live:
        while True:
            time.sleep(every)
            try:
                stats = look()
            except OSError as error:  # the engine is being started again, or has ended
                live.update(Group(f"the engine does not answer ({error}); this was so when it last did", shown))
                continue
            now = time.monotonic()
            shown = view(before, stats, now - began)
            live.update(shown)
            before, began = stats, now


def view(before: dict[str, Any], stats: dict[str, Any], seconds: float) -> Any:
    """The tables of a look at the service, with rates since the look before."""
    from rich.console import Group
    from rich.table import Table

    tables = []
    for part in _PARTS:
        if not stats.get(part):
            continue
        # Without lines, which would take three places a column.
        table = Table(
            title=f"\n{part}", title_justify="left", expand=True, box=None, pad_edge=False, padding=(0, 1, 0, 0)
        )
        rows = []
        for name, book in stats[part].items():
            now = _now(_buckets(before, part, name), _buckets(stats, part, name))
            told = stats["delivered"].get(name, {})
            rows.append((name, _row(part, before.get(part, {}).get(name, {}), book, seconds, told, now)))
        table.add_column("", no_wrap=True, min_width=min(_NAME, max(len(name) for name, _ in rows)))
        headings = [each for each in rows[0][1] if each not in _RARE or any(row[each] != "0" for _, row in rows)]
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for name, row in rows:
            table.add_row(name, *(row[heading] for heading in headings))
        tables.append(table)
    log = stats.get("log", {})
    said = f"log: offset {log['offset']:,}, {log['full']:,} without room" if log else "no log"
    said += f"   {log['trouble']}" if log.get("trouble") else ""
    if intake := stats.get("intake"):
        dead = sum(intake["dead_letters"].values())
        counts = f"{intake['late']:,} late, {intake['duplicates']:,} duplicates, {dead:,} dead letters"
        said += f"\nintake: {intake['accepted']:,} accepted, {counts}"
    return Group(f"{stats['application']}   {said}", *tables)


def milliseconds(nanoseconds: int) -> str:
    """With as many digits as matter: 0.042, 12.3, 1,970."""
    value = nanoseconds / 1e6
    return f"{value:,.{3 if value < 10 else 1 if value < 1000 else 0}f}"


def _buckets(stats: dict[str, Any], part: str, name: str) -> Buckets:
    found: Buckets = stats.get("histograms", {}).get(part, {}).get(name, {}).get("buckets", [])
    return found


def _now(before: Buckets, after: Buckets) -> str:
    """The 99th percentile of what came since the look before."""
    found = percentile(since(before, after), 99)
    return "-" if found is None else milliseconds(found)


def _row(
    part: str, before: dict[str, Any], book: dict[str, Any], seconds: float, delivered: dict[str, int], now: str
) -> dict[str, str]:
    def rate(counter: str) -> str:
        # An engine that was started again counts anew.
        return f"{max(0, book[counter] - before.get(counter, 0)) / seconds:,.0f}/s"

    def counts(*names: str) -> dict[str, str]:
        return {name: f"{count_of(book, name):,}" for name in names}

    def times(key: str) -> dict[str, str]:
        found = book[key]
        return {"now ms": now, **{f"{name} ms": milliseconds(found[f"{name}_ns"]) for name in ("p99", "max")}}

    match part:
        case "levels":
            waiting = book["input"] + book["pending"]
            troubles = counts("stale", "relative", "failed")
            return {"runs": rate("fired"), "waiting": str(waiting), **troubles, **times("latency")}
        case "consumers":
            return {
                "events": rate("came"),
                "waiting": str(book["waiting"]),
                **counts("stale", "expired", "lost"),
                "sent": f"{delivered.get('sent', 0):,}",
                **times("latency"),
            }
        case "queries":
            return {
                "matches": f"{book['found']:,}",
                "now": rate("found"),
                **counts("stale", "shed", "lost"),
                **times("latency"),
            }
        case _:
            ended = counts("replaced", "shed", "expired", "failed")
            return {"level": book["level"], "runs": rate("fired"), **ended, **times("run")}
