"""The application's files that are not archived yet: what the pipeline would read next is read here instead.

A pipeline from files remembers in its checkpoint which files each batch had, and each table which batches it has. So
it is known exactly which files a table lacks, also while a pipeline runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cepheid.app.application import Application
from cepheid.model.streams import Stream
from cepheid.spark.application import FileInput, file_inputs
from cepheid.spark.archive import Archive, last_batch
from cepheid.spark.pipeline import input_checkpoint, query_id
from cepheid.spark.places import is_pattern, local, normal
from cepheid.spark.sources import read_these
from cepheid.spark.validate import PLACE, event_column, validate


@dataclass(frozen=True)
class NewerFiles:
    """The files of an input, with the number of the batch that archived each, if one did."""

    given: FileInput
    batches: Mapping[str, int | None]
    #: The last batch that all tables have.
    committed: int
    writer: str | None

    def of(self, spark: SparkSession, archive: Archive | None, stream: Stream) -> list[str]:
        """The files that the table of a stream does not have."""
        if archive is None or self.writer is None:
            return list(self.batches)
        newest = max(self.batches.values(), key=lambda number: -1 if number is None else number, default=None)
        last = self.committed
        if newest is not None and newest > last:  # a batch is under way, or was interrupted
            last = max(last, last_batch(spark, archive, stream.name, self.writer))
        return [file for file, number in self.batches.items() if number is None or number > last]

    def bytes_of(self, spark: SparkSession, archive: Archive | None, stream: Stream) -> int:
        """How much is in the files that the table of a stream does not have."""
        return sum(Path(file).stat().st_size for file in self.of(spark, archive, stream))

    def read(self, spark: SparkSession, files: list[str], stream: Stream) -> DataFrame:
        """The events of a stream in some of the files, as `validate` gives them, each with its PLACE."""
        event = event_column(stream)
        records = read_these(spark, files, self.given.format)
        judged = records.transform(validate(self.given.streams, self.given.format))
        return judged.where(sf.col(event).isNotNull()).select(event, PLACE)


def newer_files(spark: SparkSession, app: Application, archive: Archive | None) -> list[NewerFiles]:
    """The application's file inputs. Files elsewhere than on this machine are left to the pipeline."""
    return [_looked_at(spark, given, archive) for given in file_inputs(app) if local(given.path) is not None]


def _looked_at(spark: SparkSession, given: FileInput, archive: Archive | None) -> NewerFiles:
    files = sorted(_files(given.path), key=lambda path: (path.stat().st_mtime_ns, str(path)))
    checkpoint = None if archive is None else local(input_checkpoint(archive, given.path, given.format))
    if archive is None or checkpoint is None or not (checkpoint / "metadata").exists():
        return NewerFiles(given, dict.fromkeys(map(str, files)), -1, None)
    known = dict(_logged(checkpoint))
    committed = max((int(f.name) for f in (checkpoint / "commits").glob("[0-9]*") if f.name.isdigit()), default=-1)
    return NewerFiles(given, {str(f): known.get(str(f)) for f in files}, committed, query_id(spark, str(checkpoint)))


def _logged(checkpoint: Path) -> Iterator[tuple[str, int]]:
    """The files that a checkpoint has, each with its batch: a file of lines for each batch, some put together."""
    for entry in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in entry.read_text(encoding="utf-8").splitlines()[1:]:
            said = json.loads(line)
            path = local(said["path"])
            if path is not None:
                yield str(path), said["batchId"]


def _files(given: str) -> Iterator[Path]:
    """The files of an input, as Spark finds them: in folders too, and without hidden ones."""
    place = normal(given)
    if is_pattern(place):
        root = next(p for p in Path(place).parents if not is_pattern(str(p)))
        depth = len(Path(place).parts)
        roots = [path for path in root.rglob("*") if len(path.parts) == depth and fnmatchcase(str(path), place)]
    else:
        roots = [Path(place)]
    for root in roots:
        if root.is_file():
            yield root
        elif root.is_dir():
            inside = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
            yield from (root / path for path in inside if not any(part[0] in "._" for part in path.parts))


def read_newer(
    spark: SparkSession, inputs: Sequence[NewerFiles], archive: Archive | None, stream: Stream
) -> DataFrame | None:
    """The events of a stream, with their PLACE, in files that its table does not have; None if there are none."""
    parts = []
    for given in inputs:
        if any(own.name == stream.name for own in given.given.streams):
            files = given.of(spark, archive, stream)
            if files:
                parts.append(given.read(spark, files, stream))
    return reduce(DataFrame.unionByName, parts) if parts else None
