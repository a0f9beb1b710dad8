"""One suite of queries and streams, for every engine: its queries together, as one DataFrame of names and ids.

test_suite.py says who runs it where; each engine is compared with the native matcher.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame

import cepheid.spark
from cepheid.spark.clocks import Live
from cepheid.spark.matching import NoKey
from tests.spark.test_matching import QUERIES, known
from tests.spark.test_streaming import NOW

#: Those that run as streams on the cluster too: an operator with state each, which take their time to start.
ON_CLUSTER: Final = ("pair", "absent", "many", "session", "no_key", "batch", "any", "path")


def together(events: DataFrame, live: Live | None = None, names: Iterable[str] = QUERIES) -> DataFrame:
    """The matches of all queries: name, id. On a stream it is one query of Spark with an operator for each."""

    def matches(name: str) -> DataFrame:
        found = events.transform(
            cepheid.spark.match(QUERIES[name], knowledge=known(), stream="stream", now=NOW, live=live)
        )
        return found.selectExpr(f"'{name}' AS name", "id")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoKey)
        return reduce(DataFrame.unionByName, map(matches, names))


def by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The ids of each query, in order."""
    found: dict[str, list[str]] = {name: [] for name in QUERIES}
    for name, match_id in pairs:
        found[name].append(match_id)
    return {name: sorted(ids) for name, ids in found.items()}
