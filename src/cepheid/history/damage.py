"""Which files of an archive are damaged, when Spark has failed to read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cepheid.model.streams import Stream
from cepheid.spark.archive import Archive
from cepheid.spark.places import local
from cepheid.spark.trouble import essence

_FILE: Final = re.compile(r"(?:file:)?/[^\s'\"]*?\.(?:parquet|json)")
_SHOWN: Final = 5


class ArchiveDamaged(RuntimeError):
    """Files of the archive can't be read. The message names them."""


@contextmanager
def explaining_damage(spark: SparkSession, archive: Archive, streams: Sequence[Stream]) -> Iterator[None]:
    """What fails inside because tables are damaged is an ArchiveDamaged; other failures stay what they are."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        story = str(error)
        damaged = [line for stream in streams for line in _damaged(spark, archive, stream)]
        if not damaged:
            named = {found.removeprefix("file:") for found in _FILE.findall(story)}
            damaged = sorted(name for name in named if name.startswith(archive.path))
        if not damaged and not any(archive.table(stream.name) in story for stream in streams):
            raise
        shown = "\n".join(f"  {line}" for line in damaged[:_SHOWN])
        more = f"\n  and {len(damaged) - _SHOWN} more" if len(damaged) > _SHOWN else ""
        raise ArchiveDamaged(
            f"the archive {archive.path} can't be read, so there is no answer: {essence(story)}"
            + (f"\nDamaged or missing:\n{shown}{more}" if damaged else "")
            + "\nBring these files back from a copy, or archive the events again"
        ) from error


def _damaged(spark: SparkSession, archive: Archive, stream: Stream) -> Iterator[str]:
    """The files of a table that can't be read, each with the reason; of a local archive."""
    folder = local(archive.table(stream.name))
    if folder is None or not folder.is_dir():
        return
    for entry in sorted(folder.glob("_delta_log/*.json")):
        try:
            for line in entry.read_text(encoding="utf-8").splitlines():
                json.loads(line)
        except (OSError, ValueError) as error:
            yield f"{entry}: {error}"
    for file in _files(spark, archive, folder):
        try:
            for _ in pq.ParquetFile(file).iter_batches():
                pass
        except Exception as error:  # whatever pyarrow makes of garbage
            yield f"{file}: {(str(error).splitlines() or [type(error).__name__])[0]}"


def _files(spark: SparkSession, archive: Archive, folder: Path) -> list[Path]:
    """The files that a table has, or should have."""
    if archive.format == "delta":
        try:
            named = spark.read.format("delta").load(str(folder)).inputFiles()
        except (PySparkException, Py4JError):
            named = []
        if named:
            return [path for name in named if (path := local(name)) is not None]
    return sorted(folder.rglob("*.parquet"))
