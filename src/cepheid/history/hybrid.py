"""Strategy: semantic filters, FILTERs and time range by Spark, what survives through the native matcher in parallel.

The paper's hybrid of replay and rewriting (section 5.3): conditions on one event are judged in the database, once for
all events; what relates events to each other in the engine. Events are brought together by the query's key; without one
they are divided into slices of time (spark/slices.py), if that can be done.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from cepheid.history.asked import Asked
from cepheid.history.found import FOUND, matching
from cepheid.history.frames import Layout, filtered, gathered, in_times, selected
from cepheid.history.past import Past


def hybrid(past: Past, asked: Asked, layout: Layout) -> DataFrame:
    """The matches, in no order: rows of FOUND."""
    parts = []
    for name in layout.names:
        events = selected(in_times(past.events(layout.streams[name]), asked.times), layout, name)
        parts.append(filtered(events, asked, layout, name))
    events = gathered(reduce(DataFrame.unionByName, parts), layout)
    return events.mapInArrow(matching(layout, asked.now, by_slices="since" in events.columns), FOUND)
