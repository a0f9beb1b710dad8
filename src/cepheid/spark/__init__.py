"""The data pipeline on Spark: sessions, sources, validation, archive. Its parts are imported by name."""
