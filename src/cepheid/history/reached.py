"""Whether an archive is the one that the log's events went into: never a partial answer because it is gone.

The log is told how far the archive has come, and forgets what is there. The archive says it, too, in the checkpoint of
what fills it. If there is no archive, or it has come less far, then events are in neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from cepheid.history.archiving import CONSUMER, offset_of
from cepheid.model.streams import Stream
from cepheid.service.log import extent, log_committed
from cepheid.spark.archive import Archive, has_table
from cepheid.spark.notes import names_in, read_note

#: The name of the checkpoint of what brings the log's events into an archive.
LOG: Final = "log"


class ArchiveAbsent(FileNotFoundError):
    """There is no archive where it should be."""


class ArchiveBehind(RuntimeError):
    """An archive has less than the log was told."""


def check_reached(spark: SparkSession, archive: Archive, log: Path, streams: Iterable[Stream]) -> None:
    """Raises ArchiveAbsent or ArchiveBehind if the archive has not what the log was told; `streams` come through it."""
    told = log_committed(log, CONSUMER)  # before it is looked how far the archive is, which may go on
    _check_present(spark, archive, log, streams)
    reached = _reached(spark, archive)
    if told is not None and reached is not None and reached < told:
        raise ArchiveBehind(
            f"the archive '{archive.path}' has the events up to offset {reached - 1} of the log {log}, which was told "
            f"that it has them up to {told - 1}: it is an older copy, or was begun anew. Bring the newer one back; or "
            "let `cepheid run` archive what the log still has, and ask again"
        )


def check_begun(spark: SparkSession, archive: Archive, log: Path, streams: Iterable[Stream]) -> None:
    """Raises ArchiveAbsent if an archive would be begun anew, and the log has forgotten some of what is to be in it."""
    if log.is_dir() and any(log.iterdir()) and extent(log).first > 0:
        _check_present(spark, archive, log, streams)


def _check_present(spark: SparkSession, archive: Archive, log: Path, streams: Iterable[Stream]) -> None:
    told = log_committed(log, CONSUMER)
    if told and _reached(spark, archive) is None and not any(has_table(spark, archive, s.name) for s in streams):
        raise absent(archive.path, log, told)


def absent(path: str | Path, log: Path, told: int) -> ArchiveAbsent:
    return ArchiveAbsent(
        f"there is no archive at '{path}', and the log {log} was told that the events up to offset {told - 1} are in "
        "it: without them an answer would be partial. Bring it back, or say where it is in `archive: {path: ...}`; if "
        f"they may be forgotten, remove '{log / 'consumers' / CONSUMER}'"
    )


def _reached(spark: SparkSession, archive: Archive) -> int | None:
    """The offset after the last that is archived, as the checkpoint says; None if it says nothing.

    None also of an archive that is filled by a checkpoint elsewhere, or was copied without.
    """
    place = archive.checkpoint(LOG)
    done = max((int(name) for name in names_in(spark, f"{place}/commits") if name.isdigit()), default=None)
    said = None if done is None else read_note(spark, f"{place}/offsets/{done}")
    found = [offset_of(line) for line in (said or "").splitlines()]
    return next((offset for offset in found if offset is not None), None)
