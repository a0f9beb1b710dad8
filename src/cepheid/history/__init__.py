"""Queries about the past, from the archive and the log, by several strategies that give the same matches."""
