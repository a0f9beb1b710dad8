"""The library brings no rows of the caller's DataFrames to the driver, and works through Spark Connect.

Who collects, or needs the JVM at hand, is listed with the reason.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Final

import cepheid.history
import cepheid.spark

#: The modules of cepheid.spark, and those behind `cepheid.spark.graph`.
FILES: Final = (
    *sorted(Path(cepheid.spark.__file__).parent.glob("*.py")),
    *(Path(cepheid.history.__file__).parent / name for name in ("graphs.py", "graph_state.py")),
)
COLLECTING: Final = ("collect", "toPandas", "toLocalIterator", "toArrow", "first", "head", "take", "tail", "isEmpty")
#: How often a file does, and why it may.
COLLECTS: Final = {
    "archive.py": (8, "counts and greatest times of a batch or table, and what Delta says of its commits"),
    "care.py": (3, "totals of a table, and what Delta's own commands answer"),
    "compaction.py": (2, "how many small files a day has, and what Delta's own command answers"),
    "knowledge.py": (1, "values of a batch that a PATH asks about one by one: the store that answers is the driver's"),
    "local.py": (1, "`cepheid match --engine spark`, which prints the matches"),
    "pipeline.py": (1, "the metadata of a checkpoint"),
}
#: What has such a name and is not a DataFrame's.
OTHERS: Final = {
    "buckets.py": (1, "the head of a matcher's state"),
    "matching.py": (1, "rows of Arrow, in an executor"),
    "validate.py": (2, "rows of Arrow, in an executor"),
    "graphs.py": (1, "what a consumer received, in an executor"),
    "graph_state.py": (1, "what a consumer received, in an executor"),
}
#: What a session through Spark Connect does not have, and who needs it all the same.
NEEDS_THE_JVM: Final = {
    "archive.py": (3, "Delta's log of an archive's tables, whose batches it knows"),
    "care.py": (4, "Delta's log of an archive's tables, which is cut, and where Delta's words go"),
    "compaction.py": (2, "a session of its own, for a thread that looks after an archive"),
    "notes.py": (3, "small files beside an application's archive and checkpoints, which its pipeline alone has"),
}
OF_THE_JVM: Final = ("_jvm", "_jdf", "_jsc", "_jsparkSession", "_sc", "rdd", "sparkContext")


def used(names: Collection[str]) -> Counter[str]:
    """How often each file has an attribute of one of the names."""
    return Counter(
        file.name
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in names
    )


def test_who_collects() -> None:
    assert used(COLLECTING) == {name: count for name, (count, _) in {**COLLECTS, **OTHERS}.items()}


def test_who_needs_the_jvm() -> None:
    assert used(OF_THE_JVM) == {name: count for name, (count, _) in NEEDS_THE_JVM.items()}
