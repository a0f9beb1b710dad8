"""Files that appear whole or not at all."""

from __future__ import annotations

import gzip
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, Literal, cast

from cepheid.model.files import STANDARD_STREAM, EventFile

_BUFFER = 1024 * 1024


class UnwritableFile(ValueError):
    """A file that cannot be written; the message names it and says what is wrong."""


@contextmanager
def replacing(file: EventFile) -> Iterator[BinaryIO]:
    """A file to write to. It takes its name, and the place of an older one, only when the block ends without exception.

    Standard output, devices and pipes are written to as they are.
    """
    if file.path == STANDARD_STREAM:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(file.path).resolve()  # so that a link stays a link
    if target.exists() and not target.is_file():
        with _open(file, target, "wb") as output:
            yield output
        return
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with _open(file, partial, "xb") as raw:
            # Without name and time inside, equal events give equal files.
            packed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if file.compressed else None
            with packed or nullcontext():
                yield cast(BinaryIO, packed or raw)
            with _explained(file):
                raw.flush()
                os.fsync(raw.fileno())
        with _explained(file):
            partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _open(file: EventFile, path: Path, mode: Literal["wb", "xb"]) -> BinaryIO:
    with _explained(file):
        return path.open(mode, buffering=_BUFFER)


@contextmanager
def _explained(file: EventFile) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnwritableFile(f"{file.name}: cannot be written: {error.strerror or error}") from None
