"""Cepheid on Spark: pattern matching and knowledge for DataFrames, and the pipeline into the archive.

What is named here is there without importing more than it needs: pyspark is loaded when one of them is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cepheid.spark.clocks import Live
    from cepheid.spark.knowledge import enrich, where
    from cepheid.spark.matching import match

__all__ = ["Live", "enrich", "match", "where"]

_PLACES: Final = {"Live": "clocks", "enrich": "knowledge", "match": "matching", "where": "knowledge"}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"cepheid.spark.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'cepheid.spark' has no attribute '{name}'")
