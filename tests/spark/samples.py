"""Streams, records and the truth about them, for the tests of the pipeline."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cepheid.model.lines import without_end
from cepheid.model.records import RecordDecoder, parse_json_line
from cepheid.model.streams import Stream
from cepheid.model.types import Misfit, Type, Value
from cepheid.spark.validate import declared_for_spark

AIR = Stream("airflowReport", {"sensorID": Type.STRING, "flowrate": Type.FLOAT}, {"flowrate": ("airflow",)})
EVERYTHING = Stream(
    "everything",
    {
        "flag": Type.BOOL,
        "count": Type.INT,
        "level": Type.FLOAT,
        "name": Type.STRING,
        "at": Type.TIMESTAMP,
        "blob": Type.BYTES,
        "samples": Type.UINT8_ARRAY,
        "spectrum": Type.FLOAT_ARRAY,
    },
    id_kind="string",
)
STREAMS = (AIR, EVERYTHING)

#: An event's values: id, time in microseconds, then the attributes in their order.
Row: TypeAlias = tuple[Value, ...]


@dataclass
class Truth:
    """What `RecordDecoder` says about some lines: events by stream, and dead letters as (stream, code, reason, raw)."""

    read: int = 0
    events: dict[str, Counter[Row]] = field(default_factory=dict)
    letters: Counter[tuple[str | None, str, str, bytes]] = field(default_factory=Counter)

    @property
    def archived(self) -> dict[str, int]:
        return {name: rows.total() for name, rows in self.events.items()}

    @property
    def codes(self) -> dict[str, int]:
        codes: Counter[str] = Counter()
        for (_, code, _, _), number in self.letters.items():
            codes[code] += number
        return dict(codes)


def truth(lines: Iterable[bytes], streams: Sequence[Stream] = STREAMS) -> Truth:
    decoder = RecordDecoder([declared_for_spark(stream) for stream in streams], count_ids=False)
    result = Truth(events={stream.name: Counter() for stream in streams})
    for line in lines:
        if not line.strip():
            continue
        result.read += 1
        stream = None
        try:
            record = parse_json_line(line)
            stream = decoder.stream_of(record)
            event = decoder.decode(record)
        except Misfit as misfit:
            result.letters[stream, misfit.code, str(misfit), without_end(line)[: 4 * 1024 * 1024]] += 1
        else:
            result.events[event.stream][event.id, event.time, *event.attributes.values()] += 1
    return result


def events_in(rows: DataFrame, stream: Stream) -> Counter[Row]:
    """The events of a DataFrame in the form of `Truth`: times as exact microseconds."""
    times = {"time", *(name for name, kind in stream.attributes.items() if kind is Type.TIMESTAMP)}
    columns = ["id", "time", *stream.attributes]
    exact = rows.select(*(sf.unix_micros(name).alias(name) if name in times else sf.col(name) for name in columns))
    return Counter(tuple(_hashable(row[name]) for name in columns) for row in exact.toArrow().to_pylist())


def letters_in(rows: DataFrame) -> Counter[tuple[str | None, str, str, bytes]]:
    """The dead letters of a DataFrame in the form of `Truth`."""
    found = rows.select("stream", "code", "reason", "raw").toArrow().to_pylist()
    return Counter((row["stream"], row["code"], row["reason"], row["raw"]) for row in found)


def _hashable(value: Value | list[float]) -> Value:
    return tuple(value) if isinstance(value, list) else value


def airflow(number: int, **other: object) -> bytes:
    """A sound record, unless `other` says otherwise."""
    record = {
        "stream": AIR.name,
        "id": number,
        "time": 1_336_381_200_000_000 + number * 1_000_000,
        "sensorID": f"D{number % 7}",
        "flowrate": number / 8,
    }
    return json.dumps(record | other).encode()


def mixed_lines(count: int, start: int = 0) -> list[bytes]:
    """Mostly sound records; of each ten lines one is a dead letter and one is blank."""
    lines = []
    for number in range(start, start + count):
        match number % 10:
            case 3:
                lines.append(airflow(number, flowrate="high") if number % 20 == 3 else b"\xff rubbish")
            case 7:
                lines.append(b" \t")
            case 8:
                lines.append(json.dumps({"stream": EVERYTHING.name, "id": f"e{number}", "time": number}).encode())
            case _:
                lines.append(airflow(number))
    return lines
