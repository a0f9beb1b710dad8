"""What went wrong with a streaming query of Spark, and what to do: its own words are for those who know its inside."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from cepheid.spark.places import local

#: What is said of a state that can't be read.
_DAMAGED: Final = ("CANNOT_LOAD_STATE_STORE", "CANNOT_READ_STATE", "STATE_STORE_INVALID", "Corruption:")
_NEWER: Final = ("DELTA_INVALID_PROTOCOL_VERSION", "DELTA_UNSUPPORTED_FEATURES_FOR", "InvalidProtocolVersion")
_AWAY: Final = (
    "org.apache.kafka.common.errors.TimeoutException",
    "Timed out waiting for a node assignment",
    "No resolvable bootstrap urls",
)
#: What Kafka's client says that does not even begin.
_UNSET: Final = ("Failed to construct kafka", "Failed to create new KafkaAdminClient")
_CHANGED: Final = ("DELTA_SCHEMA_CHANGED", "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE", "STATE_STORE_VALUE_SCHEMA")
#: What of Spark speaks with the process that plans what a stream reads of a data source in Python.
_PLANNING: Final = "PythonStreamingSourceRunner"
#: How a session gets the store that a query's state needs: Spark's own words name it, and not the setting.
_STORE: Final = (
    'spark.conf.set("spark.sql.streaming.stateStore.providerClass", '
    '"org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")'
)


def failure_of(query: StreamingQuery) -> str:
    """What a stream says of its failure; or what happened, where Spark says no more than that a socket closed."""
    failure: Any = query.exception()
    cause = getattr(failure, "_cause", None)  # which PySpark shows nowhere
    if cause is not None and _PLANNING in cause._stackTrace and cause._desc.startswith(("java.io.", "java.net.")):
        return (
            "the Python process that plans what it reads has ended, as one does that is killed: see whether memory has "
            "run out. It goes on where it was"
        )
    return story_of(failure)


def story_of(failure: Any) -> str:
    """What Spark says of a failure, and the cause at its bottom, which PySpark leaves out."""
    root = cause = getattr(failure, "_cause", None)
    while cause is not None:
        root, cause = cause, getattr(cause, "_cause", None)
    said = str(failure)
    return said if root is None or root._desc in said else f"{said}\nCaused by: {root._desc}"


def is_of_newer_delta(story: str) -> bool:
    """Whether a failure is that of a table with a protocol or features that this Delta does not know."""
    return any(sign in story for sign in _NEWER)


def explained(story: str, checkpoint: str = "") -> str:
    """A failure in a line or two: what happened and, where that is known, what to do."""
    said = re.sub(r"\s*SQLSTATE: \w+", "", essence(story))
    if is_of_newer_delta(story):
        return (
            f"a Delta table was written by a newer Delta than this one: {said} Read and write it with that version, or "
            "give the application another path"
        )
    if any(sign in story for sign in _UNSET) and not any(sign in story for sign in _AWAY):
        cause = story.rpartition("Caused by: ")[2].splitlines()
        return f"Kafka's client can't do with its settings: {cause[0] if cause else said} Mend `options` or `brokers`"
    if any(sign in story for sign in _AWAY):
        return f"the broker of Kafka does not answer: {said} Start it, or mend `brokers`; it goes on where it was"
    if any(sign in story for sign in _CHANGED):
        return f"what it reads has another schema than when it began: {said} Give the query another name"
    if "STORE_BACKEND_NOT_SUPPORTED_FOR_TWS" in story:
        return f"the session keeps the state of streams elsewhere than in RocksDB: {said} Write {_STORE}"
    file = damaged_file(checkpoint)
    if file is not None or any(sign in story for sign in _DAMAGED):
        return (
            f"its checkpoint {checkpoint} is damaged: {file or said} Put back a copy of that folder; or remove it with "
            "the table that it writes to, and all begins anew"
        )
    return said


def damaged_file(checkpoint: str) -> str | None:
    """The first file of a local checkpoint that is not as Spark writes it, and how; Spark's own words name none."""
    folder = local(checkpoint) if checkpoint else None
    if folder is None or not folder.is_dir():
        return None
    metadata = folder / "metadata"
    if metadata.exists() and (reason := _wrong_json(metadata.read_bytes())):
        return f"{metadata}: {reason}."
    for entry in sorted([*folder.glob("offsets/[0-9]*"), *folder.glob("commits/[0-9]*")]):
        version, *lines = entry.read_bytes().split(b"\n")
        if not re.fullmatch(rb"v\d+", version) or not lines:
            return f"{entry}: it does not begin with a version and go on."
        for line in lines:
            if line.strip() not in (b"", b"-") and (reason := _wrong_json(line)):
                return f"{entry}: {reason}."
    return None


def _wrong_json(text: bytes) -> str | None:
    try:
        json.loads(text)
    except ValueError as error:
        return str(error)
    return None


def essence(story: str) -> str:
    """The line of a failure's text that says what happened, of Spark's, Java's and Python's many."""
    lines = [line for line in story.strip().splitlines() if line.strip()] or ["no reason was given"]
    if any(line.startswith("Traceback ") for line in lines):  # of a worker; its last line, which is not indented
        at = next(number for number, line in enumerate(lines) if line.startswith("Traceback "))
        return next((line for line in lines[at + 1 :] if not line[0].isspace()), lines[0])
    if lines[0].startswith("An error occurred while calling") and len(lines) > 1:  # of Java, behind a colon
        return lines[1].removeprefix(": ")
    return lines[0]
