"""Events to matches, in the executors: rows of `frames` in, in order of time; lines of JSON out, with their order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import types as st

from cepheid.history.frames import Layout
from cepheid.language.output import MatchPrinter
from cepheid.model.matches import Match
from cepheid.plan.division import is_alone
from cepheid.plan.matcher import Matcher
from cepheid.spark.knowledge import portable

#: A match: bytes to sort it by (rule O2), and its line (rule O1).
FOUND: Final = st.StructType(
    [st.StructField("order", st.BinaryType(), False), st.StructField("line", st.StringType(), False)]
)
_ARROW: Final = pa.schema([pa.field("order", pa.binary(), False), pa.field("line", pa.string(), False)])
#: So many matches are handed on at once.
_ROWS: Final = 10_000


def matching(layout: Layout, now: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What runs in a task, for `mapInArrow`."""
    checked = portable(layout.checked)
    # Only names and places go to the executors.
    parts = [
        (
            place,
            stream,
            "name" if checked.id_kinds[stream] == "string" else "number",
            {layout.column(stream, name): name for name in layout.attributes[stream]},
        )
        for place, stream in enumerate(layout.names)
    ]

    alone = is_alone(checked)

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matcher = Matcher(checked, now)
        printer = MatchPrinter(checked)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            for place, stream, event_id, attributes in parts:
                own = batch if len(parts) == 1 else batch.filter(pc.equal(batch.column("stream"), place))
                if own.num_rows:
                    columns = [own.column(event_id), own.column("time"), *(own.column(c) for c in attributes)]
                    named = pa.RecordBatch.from_arrays(columns, ["id", "time", *attributes.values()])
                    matcher.push_batch(named, stream)
            if alone:  # in no order: what is in the next batch may be earlier
                yield from lines(matcher.advance_ordered(None), printer)
                matcher = Matcher(checked, now)
                continue
            # The rows of a task come in order of time, so none before the last one's is still to come.
            yield from lines(matcher.advance_ordered(batch.column("time")[-1].as_py()), printer)
        yield from lines(matcher.advance_ordered(None), printer)

    return in_executor


def lines(found: Iterable[tuple[bytes, Match]], printer: MatchPrinter) -> Iterator[pa.RecordBatch]:
    """Matches as rows of FOUND."""
    rows = [(order, json.dumps(printer.as_json(match), ensure_ascii=False)) for order, match in found]
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        yield pa.RecordBatch.from_arrays(
            [pa.array([order for order, _ in part], pa.binary()), pa.array([line for _, line in part], pa.string())],
            schema=_ARROW,
        )
