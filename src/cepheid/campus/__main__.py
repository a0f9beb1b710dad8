"""`python -m cepheid.campus FOLDER`: a campus of any size: its knowledge, its events, and the truth about them."""

from __future__ import annotations

from pathlib import Path

import click

from cepheid.campus.generator import Campus


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--sensors", type=click.IntRange(4, 1_000_000), default=20, show_default=True)
@click.option("--events", type=click.IntRange(0), default=120_000, show_default=True)
@click.option("--seed", type=int, default=2012, show_default=True, help="The same seed, the same campus and events.")
def command(folder: Path, sensors: int, events: int, seed: int) -> None:
    """Write campus.ttl, vocabulary.ttl, events/*.jsonl and truth.json into FOLDER."""
    campus = Campus(seed, sensors)
    campus.model.write(folder)
    if events:
        campus.write(folder / "events", 1, events)
    campus.truth.write(folder / "truth.json")
    click.echo(f"{sensors:,} sensors, {campus.truth.records:,} records, {len(campus.truth.faults)} faults in {folder}")


if __name__ == "__main__":
    command()
