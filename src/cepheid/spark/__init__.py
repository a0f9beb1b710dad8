"""Cepheid on Spark: pattern matching and knowledge for DataFrames, and the pipeline into the archive.

What is named here is there without importing more than it needs: pyspark is loaded when one of them is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cepheid.spark.clocks import Live
    from cepheid.spark.enrichment import enrich
    from cepheid.spark.knowledge import where
    from cepheid.spark.matching import match
    from cepheid.spark.operators import aes, cat, ekf, fft

__all__ = ["Live", "aes", "cat", "ekf", "enrich", "fft", "match", "where"]

_PLACES: Final = {
    "Live": "clocks",
    "enrich": "enrichment",
    "match": "matching",
    "where": "knowledge",
    **dict.fromkeys(("aes", "cat", "ekf", "fft"), "operators"),
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"cepheid.spark.{_PLACES[name]}"), name)
    if name == "graph":  # made where Spark and the service, whose graphs they are, meet; users look for it here
        return import_module("cepheid.history.graphs").graph
    raise AttributeError(f"module 'cepheid.spark' has no attribute '{name}'")
