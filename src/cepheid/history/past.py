"""What there is of the past: the archive's tables, checked before they are read.

A stream without a table had no events yet. A table that is there but can't be read, or is not what the application
declares, is never passed over: the answer would be partial.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cepheid.app.application import Application
from cepheid.model.streams import Stream
from cepheid.spark.application import archive_of
from cepheid.spark.archive import DAY, Archive, read
from cepheid.spark.pipeline import essence
from cepheid.spark.places import exists, local
from cepheid.spark.validate import declared_for_spark, event_schema

#: What a type in a table may be held by in queries: nothing is lost.
_WIDENED: Final = {("bigint", "double"), ("int", "bigint"), ("float", "double"), ("int", "double")}
_FILE: Final = re.compile(r"(?:file:)?/[^\s'\"]*?\.parquet")
_SHOWN: Final = 5


class ArchiveAbsent(FileNotFoundError):
    """There is no archive where it should be."""


class ArchiveDamaged(RuntimeError):
    """Files of the archive can't be read. The message names them."""


class ArchiveDiffers(ValueError):
    """A table of the archive has another schema than the application declares."""


@dataclass(frozen=True)
class Past:
    """The archived events of an application."""

    spark: SparkSession
    archive: Archive

    def events(self, stream: Stream) -> DataFrame:
        """The archived events of a stream: id, time, the attributes, and day. Raises ArchiveDiffers, ArchiveDamaged."""
        with self._explained([stream]):
            frame = read(self.spark, self.archive, stream)
        return self._as_declared(frame, stream)

    def _as_declared(self, frame: DataFrame, stream: Stream) -> DataFrame:
        """The table with the columns that the stream has today; an attribute that is newer than the table is null."""
        found = {field.name: field.dataType for field in frame.schema.fields}
        by_lower = {name.lower(): name for name in found}
        columns = []
        for field in event_schema(declared_for_spark(stream)).fields:
            name = by_lower.get(field.name.lower())
            if name is None and field.name in ("id", "time"):
                raise self._differs(stream, f"it has no column '{field.name}'")
            if name is None:
                columns.append(sf.lit(None).cast(field.dataType).alias(field.name))
                continue
            kinds = found[name].simpleString(), field.dataType.simpleString()
            if kinds[0] != kinds[1] and kinds not in _WIDENED:
                raise self._differs(stream, f"column '{name}' is {kinds[0]} there, and {kinds[1]} in the application")
            columns.append(_column(name).cast(field.dataType).alias(field.name))
        if DAY in found:
            columns.append(sf.col(DAY))
        return frame.select(*columns)

    def _differs(self, stream: Stream, what: str) -> ArchiveDiffers:
        return ArchiveDiffers(
            f"the archive of '{stream.name}', {self.archive.table(stream.name)}, is of another version of the "
            f"application: {what}. Declare the stream as it was archived, or under another name"
        )

    @contextmanager
    def explained(self, streams: Iterable[Stream]) -> Iterator[None]:
        """What fails inside because the tables of these streams are damaged is an ArchiveDamaged."""
        with self._explained(list(streams)):
            yield

    @contextmanager
    def _explained(self, streams: list[Stream]) -> Iterator[None]:
        try:
            yield
        except (PySparkException, Py4JError) as error:
            story = str(error)
            damaged = [line for stream in streams for line in self._damaged(stream)]
            if not damaged:
                own = self.archive.path
                named = {found.removeprefix("file:") for found in _FILE.findall(story)}
                damaged = sorted(name for name in named if name.startswith(own))
            if not damaged and not any(self.archive.table(stream.name) in story for stream in streams):
                raise
            shown = "\n".join(f"  {line}" for line in damaged[:_SHOWN])
            more = f"\n  and {len(damaged) - _SHOWN} more" if len(damaged) > _SHOWN else ""
            raise ArchiveDamaged(
                f"the archive {self.archive.path} can't be read, so there is no answer: {essence(story)}"
                + (f"\nThese files are damaged or missing:\n{shown}{more}" if damaged else "")
                + "\nBring them back from a copy, or archive the events again"
            ) from error

    def _damaged(self, stream: Stream) -> Iterator[str]:
        """The files of a table that can't be opened, each with the reason; of a local archive."""
        folder = local(self.archive.table(stream.name))
        if folder is None or not folder.is_dir():
            return
        for log in sorted(folder.glob("_delta_log/*.json")):
            if not _is_json_lines(log):
                yield f"{log}: not JSON"
        for file in self._files(stream, folder):
            try:
                pq.read_table(file)
            except Exception as error:
                yield f"{file}: {(str(error).splitlines() or ['?'])[0]}"

    def _files(self, stream: Stream, folder: Path) -> list[Path]:
        if self.archive.format == "delta":
            try:
                named = self.spark.read.format("delta").load(str(folder)).inputFiles()
            except (PySparkException, Py4JError):
                named = []
            if named:
                return [path for name in named if (path := local(name)) is not None]
        return sorted(folder.rglob("*.parquet"))


def _is_json_lines(path: Path) -> bool:
    import json

    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            json.loads(line)
    except (OSError, ValueError):
        return False
    return True


def _column(name: str) -> sf.Column:  # type: ignore[name-defined]
    return sf.col("`" + name.replace("`", "``") + "`")


def archive_for(app: Application, streams: Mapping[str, Stream]) -> Archive:
    """The application's archive, if there may be something of these streams in it.

    Raises NothingToArchive if it has none, and ArchiveAbsent: what can be known before Spark runs.
    """
    archive = archive_of(app)
    folder = local(archive.path)
    if folder is None:
        return archive  # Spark alone can tell
    if exists(folder) and not folder.is_dir():
        raise ArchiveAbsent(f"the archive '{folder}' is a file, not a folder; check `archive: {{path: ...}}`")
    if not exists(folder):
        raise ArchiveAbsent(
            f"there is no archive at '{folder}' yet: nothing was archived, or elsewhere; check `archive: {{path: ...}}`"
        )
    return archive
