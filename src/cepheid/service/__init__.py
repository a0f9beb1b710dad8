"""The real-time service: graphs of operators by levels, intake, log, and their clients.

Nothing here imports Spark, pyarrow or pandas.
"""

from cepheid.service.engine import Consumer, Engine, Received

__all__ = ["Consumer", "Engine", "Received"]
