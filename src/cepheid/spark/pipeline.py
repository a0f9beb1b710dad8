"""The pipeline: files -> validate -> archive, with books that balance: read = archived + dead letters.

There is one way through, a Spark stream with a checkpoint; what is archived once is a stream that ends by itself. The
checkpoint lies in the archive, one for each input path, and remembers the files that were read. So the same call again
archives only what is new, and a run that was killed goes on where it stopped; also when archive and files were moved
together. Where the checkpoint is lost, or the same files are given by another path, they are archived again.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, TypeAlias

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from cepheid.model.files import Format
from cepheid.model.streams import Stream
from cepheid.spark.archive import (
    DEAD_LETTERS,
    Archive,
    ArchiveUnwritable,
    Batch,
    Counts,
    append_batch,
    check_writable,
    committed,
)
from cepheid.spark.enrichment import NOTHING, Enrichment
from cepheid.spark.moved import follow_move
from cepheid.spark.places import literal, local, normal
from cepheid.spark.session import require_delta
from cepheid.spark.sources import FILES_PER_BATCH, check_input, read_file_stream
from cepheid.spark.trouble import explained
from cepheid.spark.validate import validate

#: Batches are booked at the latest when there are so many: a table forgets the history of its commits after an hour.
_MOST_UNBOOKED: Final = 100


@dataclass(frozen=True)
class Books:
    """Where every record of a run went. Read is counted at the input, the rest from what the tables committed."""

    read: int = 0
    archived: Mapping[str, int] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)

    @property
    def balanced(self) -> bool:
        return self.read == sum(self.archived.values()) + sum(self.dead_letters.values())


@dataclass(frozen=True)
class Progress:
    """How far a run has come: a batch that is through, and the run's totals after it."""

    batch: int
    read: int
    archived: int
    dead_letters: int


class PipelineFailed(RuntimeError):
    """A run ended before its input did. The message says why; the causes hold Spark's whole story."""


OnProgress: TypeAlias = Callable[[Progress], object]


def archive_files(
    spark: SparkSession,
    streams: Sequence[Stream],
    path: str | Path,
    file_format: Format,
    archive: Archive,
    *,
    files_per_batch: int = FILES_PER_BATCH,
    progress: OnProgress | None = None,
    enrichment: Enrichment = NOTHING,
) -> Books:
    """Archives the files of a path (a file, a folder, a pattern) that are there now and were not archived before."""
    run = ArchiveRun(spark, streams, path, file_format, archive, files_per_batch, progress, enrichment, ends=True)
    return run.wait()


def archive_file_stream(
    spark: SparkSession,
    streams: Sequence[Stream],
    path: str | Path,
    file_format: Format,
    archive: Archive,
    *,
    files_per_batch: int = FILES_PER_BATCH,
    progress: OnProgress | None = None,
) -> ArchiveRun:
    """Starts to archive the files of a path, those that are there and those that come, until the run is stopped."""
    return ArchiveRun(spark, streams, path, file_format, archive, files_per_batch, progress, NOTHING, ends=False)


def check_run(streams: Sequence[Stream], path: str | Path, file_format: Format, archive: Archive) -> None:
    """Raises what can be known to go wrong before there is a Spark session, which takes seconds to start.

    InputMissing and InputUnsupported of the input, ArchiveUnwritable and ColumnClash of the archive.
    """
    check_input(path, file_format)
    folder, inside = normal(path), Path(archive.path)
    if any(str(place) == folder or fnmatchcase(str(place), folder) for place in (inside, *inside.parents)):
        raise ArchiveUnwritable(
            f"the archive '{archive.path}' lies in its own input, '{folder}', and would be read as such. "
            "Choose a place outside for one of them"
        )
    check_writable(archive, streams)


class ArchiveRun:
    """A running pipeline from files into an archive; what can be wrong beforehand is found before it runs."""

    def __init__(
        self,
        spark: SparkSession,
        streams: Sequence[Stream],
        path: str | Path,
        file_format: Format,
        archive: Archive,
        files_per_batch: int,
        progress: OnProgress | None,
        enrichment: Enrichment,
        *,
        ends: bool,
    ) -> None:
        self._spark = spark
        self._streams = streams
        self._archive = archive
        self._format = file_format
        self._validate = validate(streams, file_format)
        self._on_progress = progress
        self._enrichment = enrichment
        self._progress = Progress(-1, 0, 0, 0)
        self._writer: str | None = None
        self._books = Books(archived={stream.name: 0 for stream in streams})
        #: What was read and written by batches that are through and not in the books yet, by their number.
        self._unbooked: dict[int, tuple[int, Counts]] = {}
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        check_run(streams, path, file_format, archive)
        if archive.format == "delta":
            require_delta(spark)
        records = read_file_stream(spark, path, file_format, files_per_batch=files_per_batch)
        follow_move(archive.checkpoint(""))
        self._checkpoint = input_checkpoint(archive, path, file_format)
        query = records.writeStream.foreachBatch(self._archive_batch).option("checkpointLocation", self._checkpoint)
        #: Spark's own view of the run.
        try:
            self.query: StreamingQuery = (query.trigger(availableNow=True) if ends else query).start()
        except (Py4JJavaError, PySparkException) as error:
            raise self._explained(error) from error

    def wait(self) -> Books:
        """Waits until the run ends, or PipelineFailed; a run whose wait is interrupted is over, too."""
        try:
            self.query.awaitTermination()
        except StreamingQueryException as error:
            raise self._explained(error) from (self._failure or error)
        finally:
            self.query.stop()
        return self.books()

    def stop(self) -> Books:
        """Ends the run. A batch that is not through is done again by the next run."""
        self.query.stop()
        return self.books()

    def books(self) -> Books:
        """Where the records went, of all batches that are through."""
        with self._lock:
            self._book()
            return self._books

    def _explained(self, error: Exception) -> PipelineFailed:
        return PipelineFailed(
            f"records could not be archived: {explained(str(self._failure or error), self._checkpoint)}\n"
            "What was archived before stays; run again to go on from there."
        )

    def _archive_batch(self, records: DataFrame, number: int) -> None:
        try:
            self._process(records, number)
        except Exception as error:
            # Spark hands on only its text, inside several others.
            self._failure = error
            raise

    def _process(self, records: DataFrame, number: int) -> None:
        if self._writer is None:
            self._writer = query_id(self._spark, self._checkpoint)
        tally = Observation()
        tallied = sf.count(sf.lit(1)).alias("read")
        is_lines = self._format == "jsonl"
        if is_lines:
            validated = records.observe(tally, tallied).transform(self._validate)
        else:  # what comes in are files; their records are first seen behind `validate`
            validated = records.transform(self._validate).observe(tally, tallied)
        batch = Batch(self._writer, number)
        counts = append_batch(validated, self._streams, self._archive, batch, enriched=self._enrichment())
        archived, letters = sum(counts.archived.values()), sum(counts.dead_letters.values())
        if archived or letters:
            read = int(tally.get["read"])
        else:  # of nothing Spark makes an empty plan, and observes nothing
            read = records.count() if is_lines else 0
        with self._lock:
            self._unbooked[number] = (read, counts)
            if len(self._unbooked) >= _MOST_UNBOOKED:
                self._book()
        last = self._progress
        self._progress = Progress(number, last.read + read, last.archived + archived, last.dead_letters + letters)
        if self._on_progress is not None:
            self._on_progress(self._progress)

    def _book(self) -> None:
        """Enters the batches into the books by what the tables say, not by what they were given."""
        if not self._unbooked or self._writer is None:
            return
        archived, letters = Counter(self._books.archived), Counter(self._books.dead_letters)
        given = {number: counts for number, (_, counts) in self._unbooked.items()}
        for name in (stream.name for stream in self._streams):
            batches = {number: {name: rows} for number, each in given.items() if (rows := each.archived[name])}
            archived.update(committed(self._spark, self._archive, name, self._writer, batches))
        batches = {number: dict(each.dead_letters) for number, each in given.items() if each.dead_letters}
        letters.update(committed(self._spark, self._archive, DEAD_LETTERS, self._writer, batches))
        read = self._books.read + sum(read for read, _ in self._unbooked.values())
        self._books = Books(read, dict(archived), dict(letters))
        self._unbooked.clear()


def input_checkpoint(archive: Archive, path: str | Path, file_format: Format) -> str:
    """The checkpoint of an input, in the archive that it goes to: by where it lies from there, if both can be moved."""
    place, folder = local(path), local(archive.path)
    known_by = normal(path) if place is None or folder is None else os.path.relpath(place, folder)
    name = hashlib.blake2b(known_by.encode(), digest_size=8).hexdigest()
    return archive.checkpoint(f"{file_format}-{name}")


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """The id that Spark gave to the query when it made the checkpoint: the same after a restart, new in a new one."""
    row = spark.read.schema("id STRING").json(literal(f"{checkpoint}/metadata")).first()
    if row is None:
        raise RuntimeError(f"the checkpoint {checkpoint} has no query id; remove the archive with it, and start anew")
    return str(row["id"])
