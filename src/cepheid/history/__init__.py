"""Where the log, which is the service's, and Spark meet: past, present and future events as one.

`cepheid.history.query(app, "SELECT ...")` is there without importing more than it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cepheid.history.answer import query

__all__ = ["query"]


def __getattr__(name: str) -> Any:
    if name == "query":
        from cepheid.history.answer import query

        return query
    raise AttributeError(f"module 'cepheid.history' has no attribute '{name}'")
