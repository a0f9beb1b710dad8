"""The real-time service: intake, log, and the clients of both. Nothing here imports Spark, pyarrow or pandas."""
