"""The physical lines of a file, none of them held beyond the length that a record may have."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias

from cepheid.model.files import EventFile, opened
from cepheid.model.records import MAX_RECORD_BYTES

#: Number from 1, bytes with the line's end, and 0; or, of a line that is too long, its head and its true length.
Line: TypeAlias = tuple[int, bytes, int]

_LIMIT = MAX_RECORD_BYTES + len(b"\r\n")
_SKIP = 1024 * 1024


def lines(file: EventFile) -> Iterator[Line]:
    """The lines of a file, ended by LF or CRLF; a byte order mark at its start is left out."""
    with opened(file) as source:
        readline = source.readline
        number = 0
        while line := readline(_LIMIT):
            number += 1
            if number == 1 and line.startswith(codecs.BOM_UTF8):
                line = line.removeprefix(codecs.BOM_UTF8)
                if not line.endswith(b"\n"):
                    line += readline(len(codecs.BOM_UTF8))
            if len(line) > MAX_RECORD_BYTES and len(without_end(line)) > MAX_RECORD_BYTES:
                yield number, line[:MAX_RECORD_BYTES], _skip_rest(source, line)
            else:
                yield number, line, 0


def without_end(line: bytes) -> bytes:
    """A line without the LF or CRLF that ends it."""
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _skip_rest(source: BinaryIO, head: bytes) -> int:
    """Skip to the end of a line of which the head was read; the length of it all, without the line's end."""
    length, tail = len(head), head[-2:]
    while not tail.endswith(b"\n") and (piece := source.readline(_SKIP)):
        length += len(piece)
        tail = (tail + piece)[-2:]
    return length - len(tail) + len(without_end(tail))
