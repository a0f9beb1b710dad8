"""Event files: which format one has, how its bytes are opened, and what is wrong if they cannot be."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Final, Literal, TypeAlias, cast

Format: TypeAlias = Literal["jsonl", "csv", "parquet"]

#: The format that each extension means; `.gz` may follow those of text.
EXTENSIONS: Final[dict[str, Format]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}
STANDARD_STREAM: Final = "-"
#: Standard input that must be read twice is kept on disk up to this size.
MAX_SPOOL_BYTES: Final = 4 * 1024**3
_CHUNK: Final = 1024 * 1024


class UnreadableFile(ValueError):
    """A file that cannot be read at all, or not to its end; the message names it and says what is wrong."""


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file of events: the name that messages show, where its bytes are ("-": a standard stream), its format."""

    name: str
    path: str
    format: Format
    compressed: bool

    @property
    def is_once_only(self) -> bool:
        """Whether the bytes are gone once read: standard input and pipes."""
        return self.path == STANDARD_STREAM or _is_pipe(Path(self.path))


#: A path, "-" for standard input or output, or a file that is already described.
Source: TypeAlias = str | Path | EventFile


def event_file(source: Source, file_format: Format | None = None) -> EventFile:
    """Describe a file. Without `file_format` the extension tells the format; standard input and pipes are JSONL."""
    if isinstance(source, EventFile):
        return source
    path = str(source)
    if path == STANDARD_STREAM:
        return EventFile("standard input", path, file_format or "jsonl", compressed=False)
    stem = path.removesuffix(".gz")
    found = file_format or EXTENSIONS.get(Path(stem).suffix.lower())
    if found is None and Path(path).is_dir():
        raise UnreadableFile(f"{path}: this is a directory; name the files in it")
    if found is None and _is_pipe(Path(path)):
        found = "jsonl"
    if found is None or (found == "parquet" and stem != path):
        known = ", ".join(extension + ("" if kind == "parquet" else "[.gz]") for extension, kind in EXTENSIONS.items())
        raise UnreadableFile(f"{path}: the format cannot be told from this name; it ends in one of {known}")
    return EventFile(path, path, found, compressed=stem != path)


@contextmanager
def opened(file: EventFile) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed; what goes wrong in opening or reading them is an UnreadableFile."""
    with explained(file), ExitStack() as stack:
        if file.path == STANDARD_STREAM:
            yield sys.stdin.buffer
            return
        raw = stack.enter_context(Path(file.path).open("rb", buffering=_CHUNK))
        if not file.compressed:
            yield raw
            return
        unpacked = stack.enter_context(gzip.GzipFile(fileobj=raw))
        # GzipFile is written in Python: its lines come faster through a buffer written in C.
        yield stack.enter_context(io.BufferedReader(cast(io.RawIOBase, unpacked), _CHUNK))


@contextmanager
def explained(file: EventFile) -> Iterator[None]:
    """Turns the errors of opening and reading a file into UnreadableFile."""
    try:
        yield
    except FileNotFoundError:
        raise UnreadableFile(f"{file.name}: no such file") from None
    except IsADirectoryError:
        raise UnreadableFile(f"{file.name}: this is a directory; name the files in it") from None
    except PermissionError:
        raise UnreadableFile(f"{file.name}: no permission to read it") from None
    except EOFError:
        raise UnreadableFile(f"{file.name}: the gzip data is cut off; the end of the file is missing") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UnreadableFile(f"{file.name}: not sound gzip data: {error}") from None
    except OSError as error:
        raise UnreadableFile(f"{file.name}: cannot be read: {error.strerror or error}") from None


@contextmanager
def rereadable(sources: Iterable[Source], file_format: Format | None = None) -> Iterator[list[EventFile]]:
    """The files, with standard input and pipes copied to temporary files, so that all can be read more than once."""
    with ExitStack() as stack:
        files = []
        for source in sources:
            file = event_file(source, file_format)
            if file.is_once_only:
                copy = stack.enter_context(tempfile.NamedTemporaryFile("wb", 0, prefix="cepheid-input-"))
                _copy(file, copy.file)
                file = EventFile(file.name, copy.name, file.format, compressed=False)
            files.append(file)
        yield files


def _copy(file: EventFile, target: IO[bytes]) -> None:
    size = 0
    with opened(file) as source:
        # What is there, not a whole chunk: an interrupt is heard between two reads.
        while chunk := cast(io.BufferedIOBase, source).read1(_CHUNK):
            size += len(chunk)
            if size > MAX_SPOOL_BYTES:
                raise UnreadableFile(
                    f"{file.name}: longer than {MAX_SPOOL_BYTES:,} bytes; write it to a file and name that"
                )
            try:
                target.write(chunk)
            except OSError as error:
                raise UnreadableFile(
                    f"{file.name}: cannot be copied to {tempfile.gettempdir()}: {error.strerror}"
                ) from None


def _is_pipe(path: Path) -> bool:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
