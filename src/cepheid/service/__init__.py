"""The real-time service: graphs of operators by levels, native threads, bounded latency."""
