"""The real-time service: graphs of operators by levels, intake, log, and their clients.

Nothing here imports Spark, pyarrow or pandas; and the intake's process nothing of the engine, so names are imported
when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cepheid.service.engine import Consumer, Engine, Received

__all__ = ["Consumer", "Engine", "Received"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from cepheid.service import engine

        return getattr(engine, name)
    raise AttributeError(f"module 'cepheid.service' has no attribute '{name}'")
