"""Small files beside tables and checkpoints, by Hadoop: they may lie elsewhere than on this machine."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def names_in(spark: SparkSession, folder: str) -> list[str]:
    """What a folder has, by name; nothing if there is no such folder."""
    system, path = _opened(spark, folder)
    if not system.exists(path):
        return []
    return [str(found.getPath().getName()) for found in system.listStatus(path)]


def is_there(spark: SparkSession, place: str) -> bool:
    """Whether there is a file, or a folder with something in it."""
    system, path = _opened(spark, place)
    return bool(system.exists(path) and len(system.listStatus(path)))


def read_note(spark: SparkSession, file: str) -> str | None:
    """The text of a file; None if there is none."""
    system, path = _opened(spark, file)
    if not system.exists(path):
        return None
    stream = system.open(path)
    try:
        return str(_jvm(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def write_note(spark: SparkSession, file: str, text: str) -> None:
    """Makes a file, with the folders that it lies in."""
    system, path = _opened(spark, file)
    stream = system.create(path)
    try:
        stream.write(text.encode())
    finally:
        stream.close()


def _opened(spark: SparkSession, place: str) -> tuple[Any, Any]:
    """The file system of a place, and the place as that knows it."""
    path = _jvm(spark).org.apache.hadoop.fs.Path(place)
    return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), path


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm
