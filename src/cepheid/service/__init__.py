"""The real-time service: graphs of operators by levels, intake, log, and their clients.

Nothing here imports Spark, pyarrow or pandas; and the intake's process nothing of the engine, so names are imported
when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from cepheid.service.engine import Consumer, Engine
    from cepheid.service.received import Received
    from cepheid.service.virtual_clock import VirtualClock

__all__ = ["Consumer", "Engine", "Received", "VirtualClock"]

_MODULES = {"Consumer": "engine", "Engine": "engine", "Received": "received", "VirtualClock": "virtual_clock"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"cepheid.service.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'cepheid.service' has no attribute '{name}'")
