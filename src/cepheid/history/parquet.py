"""Matches as a file of Parquet: columns id, time, events, select; of batch and session windows, window and group."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from cepheid.language.checker import Checked
from cepheid.language.functions import ValueType
from cepheid.language.output import is_of_window, named_events
from cepheid.model.time import parse_instant

_ROWS: Final = 50_000
_TIME: Final = pa.timestamp("us", tz="UTC")
#: What knows no type of its own is text.
_TYPES: Final[dict[ValueType, pa.DataType]] = {
    ValueType.NULL: pa.string(),
    ValueType.NODE: pa.string(),
    ValueType.BOOL: pa.bool_(),
    ValueType.INT: pa.int64(),
    ValueType.FLOAT: pa.float64(),
    ValueType.STRING: pa.string(),
    ValueType.TIMESTAMP: _TIME,
    ValueType.DURATION: pa.int64(),
    ValueType.BYTES: pa.binary(),
    ValueType.UINT8_ARRAY: pa.list_(pa.uint8()),
    ValueType.FLOAT_ARRAY: pa.list_(pa.float64()),
}


def write_parquet(lines: Iterable[str], checked: Checked, output: BinaryIO) -> None:
    """Writes matches, given as lines of JSON, a part at a time."""
    schema = match_schema(checked)
    with pq.ParquetWriter(output, schema) as writer:
        for batch in batches(lines, schema):
            writer.write_batch(batch)


def batches(lines: Iterable[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Matches as columns."""
    left = iter(lines)
    while part := list(islice(left, _ROWS)):
        rows = [json.loads(line) for line in part]
        columns = [pa.array([_typed(row.get(f.name), f.type) for row in rows], f.type) for f in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def match_schema(checked: Checked) -> pa.Schema:
    """The columns of a query's matches."""
    bound = []
    for given, is_many in named_events(checked):
        is_text = len(given.streams) > 1 or checked.id_kinds[given.streams[0]] == "string"
        one = pa.string() if is_text else pa.int64()
        bound.append((given.variable, pa.list_(one) if is_many else one))
    fields = [("id", pa.string()), ("time", _TIME)]
    fields += [("events", pa.struct(bound))] if bound else []
    fields.append(("select", pa.struct([(o.name, _TYPES[o.type]) for o in checked.outputs])))
    if is_of_window(checked):
        fields.append(("window", pa.struct([("start", _TIME), ("end", _TIME)])))
        group = [
            (name, _TYPES[checked.attributes[a.variable, a.name].type])
            for name, a in zip(checked.groups, checked.query.group_by, strict=True)
        ]
        fields += [("group", pa.struct(group))] if group else []
    return pa.schema(fields)


def _typed(value: Any, kind: pa.DataType) -> Any:
    """What JSON has for a value of a type, as that type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _typed(value.get(field.name), field.type) for field in kind}
    if pa.types.is_timestamp(kind):
        return parse_instant(value)
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    if pa.types.is_string(kind) and not isinstance(value, str):
        return json.dumps(value)
    return value
