"""Strategy: the archived events of the range, in order, through the whole query in the native engine.

The paper's event replay (section 5.1): Spark only reads and sorts. One task has all events, as a live engine would.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from cepheid.history.asked import Asked
from cepheid.history.found import FOUND, matching
from cepheid.history.frames import Layout, in_times, selected
from cepheid.history.past import Past


def replay(past: Past, asked: Asked, layout: Layout) -> DataFrame:
    """The matches, in no order: rows of FOUND."""
    parts = [selected(in_times(past.events(layout.streams[n]), asked.times), layout, n) for n in layout.names]
    events = reduce(DataFrame.unionByName, parts).repartition(1).sortWithinPartitions("time")
    return events.mapInArrow(matching(layout, asked.now), FOUND)
