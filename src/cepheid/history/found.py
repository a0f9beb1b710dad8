"""Events to matches, in the executors: rows of `frames` in, in order of time, or by slices of it; lines of JSON
out, with their order.
"""

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
from cepheid.spark.matching import tables
from cepheid.spark.slices import in_slices

#: A match: bytes to sort it by (rule O2), and its line (rule O1).
FOUND: Final = st.StructType(
    [st.StructField("order", st.BinaryType(), False), st.StructField("line", st.StringType(), False)]
)
_ARROW: Final = pa.schema([pa.field("order", pa.binary(), False), pa.field("line", pa.string(), False)])
#: So many events, or a few more, are matched at once, and so many matches handed on.
_EVENTS: Final = 1 << 18
_ROWS: Final = 10_000


def matching(
    layout: Layout, now: int, *, by_slices: bool = False
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What runs in a task, for `mapInArrow`; with `by_slices` over rows of `sliced`."""
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

    def push(matcher: Matcher, batch: pa.RecordBatch) -> None:
        for place, stream, event_id, attributes in parts:
            own = batch if len(parts) == 1 else batch.filter(pc.equal(batch.column("stream"), place))
            if own.num_rows:
                columns = [own.column(event_id), own.column("time"), *(own.column(c) for c in attributes)]
                named = pa.RecordBatch.from_arrays(columns, ["id", "time", *attributes.values()])
                matcher.push_batch(named, stream)

    def found(events: Iterable[pa.Table]) -> Iterator[list[tuple[bytes, Match]]]:
        """The matches of events in order of time."""
        matcher = Matcher(checked, now)
        for rows in events:
            for batch in rows.to_batches():
                push(matcher, batch)
            if alone:  # in no order: what is in the next rows may be earlier
                yield matcher.advance_ordered(None)
                matcher = Matcher(checked, now)
                continue
            # The rows come in order of time, so none before the last one's is still to come.
            yield matcher.advance_ordered(rows.column("time")[-1].as_py())
        yield matcher.advance_ordered(None)

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        printer = MatchPrinter(checked)
        whole = tables(batches, _EVENTS)
        if not by_slices:
            for matches in found(whole):
                yield from lines(matches, printer)
            return
        for own, rows in in_slices(whole):
            for matches in found(rows):
                yield from lines((pair for pair in matches if own.gives(pair[1].time)), printer)

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
