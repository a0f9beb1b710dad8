"""Records of a Parquet file. pyarrow is imported when the first one is read, so that other formats need it not."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cepheid.model.columns import Columns
from cepheid.model.files import STANDARD_STREAM, EventFile, UnreadableFile, explained
from cepheid.model.records import RawRecord
from cepheid.model.types import Raw, Type
from cepheid.model.wording import quote

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

#: Rows are taken in batches of about this many bytes.
_BATCH_BYTES: Final = 16 * 1024 * 1024
_BATCH_ROWS: Final = 8192
#: Microseconds in a unit, and units in a microsecond.
_UNITS: Final = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}

_ANY: Final = frozenset(Type)
#: What may hold the values of a column, by the type that its own schema means.
_FITS: Final[Mapping[Type | None, frozenset[Type]]] = {
    None: _ANY,
    Type.BOOL: frozenset({Type.BOOL}),
    Type.INT: frozenset({Type.INT, Type.FLOAT, Type.TIMESTAMP}),
    Type.FLOAT: frozenset({Type.FLOAT}),
    Type.STRING: frozenset({Type.STRING, Type.TIMESTAMP, Type.BYTES, Type.UINT8_ARRAY}),
    Type.TIMESTAMP: frozenset({Type.TIMESTAMP}),
    Type.BYTES: frozenset({Type.BYTES, Type.UINT8_ARRAY}),
    Type.UINT8_ARRAY: frozenset({Type.UINT8_ARRAY, Type.FLOAT_ARRAY}),
    Type.FLOAT_ARRAY: frozenset({Type.UINT8_ARRAY, Type.FLOAT_ARRAY}),
}
_IMPLIED: Final[Mapping[str, tuple[frozenset[Type], str]]] = {
    "stream": (frozenset({Type.STRING}), "string"),
    "id": (frozenset({Type.INT, Type.STRING}), "int or string"),
    "time": (frozenset({Type.TIMESTAMP, Type.INT, Type.STRING}), "timestamp, int or string"),
}


def parquet_rows(file: EventFile, columns: Columns) -> Iterator[RawRecord]:
    """The records of a Parquet file by column name, without the nulls; a record's line is its row, from 1."""
    with _opened(file) as parquet:
        kinds = _checked_kinds(file, parquet, columns)
        names = [name for name in kinds if columns.is_used(name)]
        number = 0
        for batch in parquet.iter_batches(_batch_rows(parquet), columns=names, use_threads=False):
            values = [_values(batch.column(name), Type.FLOAT_ARRAY in columns.types(name)) for name in names]
            for row in zip(*values, strict=True):
                number += 1
                yield number, {name: value for name, value in zip(names, row, strict=True) if value is not None}, None


def parquet_kinds(file: EventFile) -> dict[str, Type | None]:
    """The attribute type that each column's schema means; None for a column that has only nulls."""
    with _opened(file) as parquet:
        return _checked_kinds(file, parquet, Columns(None))


def row_text(record: Mapping[str, Raw]) -> bytes:
    """A row as JSON, to be kept in a dead letter: Parquet has no bytes of one row."""
    return json.dumps(record, default=lambda raw: base64.b64encode(raw).decode()).encode()


@contextmanager
def _opened(file: EventFile) -> Iterator[pq.ParquetFile]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UnreadableFile(f"{file.name}: Parquet needs the package pyarrow; pip install pyarrow") from None
    if file.path == STANDARD_STREAM:
        raise UnreadableFile(f"{file.name}: Parquet is read from its end; write it to a file and name that")
    with explained(file), Path(file.path).open("rb") as raw:
        try:
            with pq.ParquetFile(raw, coerce_int96_timestamp_unit="us") as parquet:
                yield parquet
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise UnreadableFile(f"{file.name}: not a sound Parquet file: {_first_sentence(error)}") from None


def _first_sentence(error: Exception) -> str:
    return str(error).splitlines()[0].split(". ")[0].rstrip(".") if str(error) else type(error).__name__


def _checked_kinds(file: EventFile, parquet: pq.ParquetFile, columns: Columns) -> dict[str, Type | None]:
    schema = parquet.schema_arrow
    columns.check(schema.names, file.name)
    kinds: dict[str, Type | None] = {}
    for field in schema:
        if not columns.is_used(field.name):
            continue
        expected, wording = _IMPLIED.get(field.name, (columns.types(field.name) or _ANY, ""))
        wording = wording or " or ".join(sorted(kind.value for kind in expected))
        try:
            kind = kinds[field.name] = _kind(field.type)
        except ValueError:
            raise UnreadableFile(
                f"{file.name}: column {quote(field.name)} is {field.type}, which no attribute has; convert or drop it"
            ) from None
        if not _FITS[kind] & expected:
            raise UnreadableFile(f"{file.name}: column {quote(field.name)} is {field.type}; expected {wording}")
    return kinds


def _kind(arrow: pa.DataType) -> Type | None:
    import pyarrow.types as at  # type: ignore[import-untyped]

    if at.is_dictionary(arrow):
        return _kind(arrow.value_type)
    if at.is_null(arrow):
        return None
    if at.is_boolean(arrow):
        return Type.BOOL
    if at.is_integer(arrow):
        return Type.INT
    if at.is_floating(arrow):
        return Type.FLOAT
    if at.is_string(arrow) or at.is_large_string(arrow) or at.is_string_view(arrow):
        return Type.STRING
    if at.is_timestamp(arrow):
        return Type.TIMESTAMP
    if at.is_binary(arrow) or at.is_large_binary(arrow) or at.is_fixed_size_binary(arrow) or at.is_binary_view(arrow):
        return Type.BYTES
    if at.is_list(arrow) or at.is_large_list(arrow) or at.is_fixed_size_list(arrow):
        if at.is_uint8(arrow.value_type):
            return Type.UINT8_ARRAY
        if at.is_integer(arrow.value_type) or at.is_floating(arrow.value_type):
            return Type.FLOAT_ARRAY
    raise ValueError(f"{arrow} is no attribute type")


def _batch_rows(parquet: pq.ParquetFile) -> int:
    metadata = parquet.metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    row_bytes = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(row_bytes, 1)))


def _values(column: pa.Array[Any], as_lists: bool) -> list[Raw]:
    """The values of a column as the decoder takes them."""
    import pyarrow as pa
    import pyarrow.types as at

    if at.is_dictionary(column.type):
        column = column.dictionary_decode()
    if at.is_timestamp(column.type):
        times, part = _UNITS[column.type.unit]
        counts = column.cast(pa.int64()).to_pylist()
        return [None if count is None else count * times // part for count in counts]
    if _kind(column.type) is Type.UINT8_ARRAY and not as_lists:
        return _byte_arrays(column)
    if _kind(column.type) is Type.STRING:
        return _texts(column)
    values: list[Raw] = column.to_pylist()
    return values


def _byte_arrays(column: pa.Array[Any]) -> list[Raw]:
    """The values of a list<uint8> as bytes. One that holds a null stays a list, for the decoder to refuse."""
    import pyarrow.types as at

    content = column.values
    if at.is_fixed_size_list(column.type) or content.null_count or content.buffers()[1] is None:
        return [None if item is None else item if None in item else bytes(item) for item in column.to_pylist()]
    # Cut from the buffer: to_pylist would make an object of each byte.
    bytes_of_all = memoryview(content.buffers()[1])[content.offset :]
    borders, valid = column.offsets.to_pylist(), column.is_valid().to_pylist()
    spans = zip(borders, borders[1:], valid, strict=False)
    return [bytes_of_all[start:end].tobytes() if is_valid else None for start, end, is_valid in spans]


def _texts(column: pa.Array[Any]) -> list[Raw]:
    import pyarrow as pa

    try:
        values: list[Raw] = column.to_pylist()
        return values
    except UnicodeDecodeError:
        # Bytes that are not UTF-8 become lone surrogates, which the decoder refuses, row by row.
        raw = column.cast(pa.binary()).to_pylist()
        return [None if value is None else value.decode(errors="surrogateescape") for value in raw]
