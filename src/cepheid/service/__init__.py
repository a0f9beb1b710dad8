"""The real-time service: graphs of operators by levels, native threads, bounded latency."""

from cepheid.service.engine import Consumer, Engine
from cepheid.service.received import Received
from cepheid.service.virtual_clock import VirtualClock

__all__ = ["Consumer", "Engine", "Received", "VirtualClock"]
