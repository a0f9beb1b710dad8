"""Cepheid on Spark: pattern matching for DataFrames, and the pipeline into the archive.

`cepheid.spark.match` is there without importing more than it needs: pyspark is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cepheid.spark.matching import match

__all__ = ["match"]


def __getattr__(name: str) -> Any:
    if name == "match":
        from cepheid.spark.matching import match

        return match
    raise AttributeError(f"module 'cepheid.spark' has no attribute '{name}'")
