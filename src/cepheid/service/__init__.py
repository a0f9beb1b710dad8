"""The real-time service: graphs of operators by levels, native threads, bounded latency."""

from cepheid.service.engine import Consumer, Engine, Received

__all__ = ["Consumer", "Engine", "Received"]
