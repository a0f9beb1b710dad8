"""An application on Spark: the files and topics that it reads; the files through the pipeline into its archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from cepheid.app import Application
from cepheid.app.schema import FilesSource, KafkaSource
from cepheid.model.files import Format
from cepheid.model.streams import Stream
from cepheid.spark.archive import Archive
from cepheid.spark.enrichment import Enrichment
from cepheid.spark.pipeline import Books, OnProgress, archive_files
from cepheid.spark.session import OF_ANY_LENGTH


class NothingToArchive(ValueError):
    """The application has no archive, or no stream that comes from files."""


@dataclass(frozen=True)
class FileInput:
    """Files, and the streams whose records are in them."""

    path: str
    format: Format
    streams: tuple[Stream, ...]


@dataclass(frozen=True)
class TopicInput:
    """A topic of Kafka, and the streams whose records are in it."""

    brokers: str
    topic: str
    streams: tuple[Stream, ...]
    #: Further settings of Kafka's client.
    options: tuple[tuple[str, str], ...] = ()


def topic_inputs(app: Application) -> list[TopicInput]:
    """The topics that Spark reads itself: with a service a bridge brings them into its log instead."""
    by_place: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Stream]] = {}
    for name, section in app.sections.streams.items():
        if isinstance(section.source, KafkaSource) and name in app.topics:
            source = section.source
            place = source.brokers, source.topic, tuple(sorted(source.options.items()))
            by_place.setdefault(place, []).append(app.graph.streams[name])
    return [TopicInput(place[0], place[1], tuple(streams), place[2]) for place, streams in by_place.items()]


def file_inputs(app: Application) -> list[FileInput]:
    """The application's file sources; streams with the same files share one input, so that these are read once."""
    by_place: dict[tuple[str, Format], list[Stream]] = {}
    for name, section in app.sections.streams.items():
        if isinstance(section.source, FilesSource):
            by_place.setdefault((section.source.path, section.source.format), []).append(app.graph.streams[name])
    return [FileInput(path, form, tuple(streams)) for (path, form), streams in by_place.items()]


def settings(app: Application) -> dict[str, str]:
    """What a session for an application needs besides, where Spark reads records that nobody has judged yet; those of
    the log the intake has."""
    return OF_ANY_LENGTH if file_inputs(app) or topic_inputs(app) else {}


def archive_of(app: Application) -> Archive:
    """The application's archive; NothingToArchive if it has none."""
    section = app.sections.archive
    if section is None:
        raise NothingToArchive(f"application '{app.name}' has no archive; add `archive: {{path: data/archive}}`")
    return Archive(section.path, section.format)


def archive_batch(spark: SparkSession, app: Application, progress: OnProgress | None = None) -> Books:
    """Archives what the application's files hold now and was not archived before."""
    known = app.known() if app.enriched else None
    enrichment = Enrichment(app.enriched, lambda: known)
    return _total(
        archive_files(spark, *_arguments(app, i), progress=progress, enrichment=enrichment) for i in _inputs(app)
    )


def _total(books: Iterable[Books]) -> Books:
    """The books of several runs as one."""
    read, archived, letters = 0, Counter[str](), Counter[str]()
    for book in books:
        read += book.read
        archived.update(book.archived)
        letters.update(book.dead_letters)
    return Books(read, dict(archived), dict(letters))


def _inputs(app: Application) -> list[FileInput]:
    inputs = file_inputs(app)
    if not inputs:
        raise NothingToArchive(f"no stream of '{app.name}' comes from files; add `source: {{kind: files, path: ...}}`")
    return inputs


def _arguments(app: Application, given: FileInput) -> tuple[tuple[Stream, ...], str, Format, Archive]:
    return given.streams, given.path, given.format, archive_of(app)
