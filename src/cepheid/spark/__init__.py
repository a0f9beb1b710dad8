"""Cepheid on Spark: pattern matching and knowledge for DataFrames, and the pipeline into the archive.

`cepheid.spark.match`, `where` and `enrich` are there without importing more than they need: pyspark is loaded when one
of them is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cepheid.spark.knowledge import enrich, where
    from cepheid.spark.matching import match

__all__ = ["enrich", "match", "where"]


def __getattr__(name: str) -> Any:
    if name == "match":
        from cepheid.spark.matching import match

        return match
    if name in ("where", "enrich"):
        from cepheid.spark import knowledge

        return getattr(knowledge, name)
    raise AttributeError(f"module 'cepheid.spark' has no attribute '{name}'")
