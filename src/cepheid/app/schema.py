"""The schema of an application: the one source of the file format, its reference and its JSON Schema.

Each section is a model; its field descriptions are the documentation. Durations are microseconds once read.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, Union

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from cepheid.app.yaml import Text
from cepheid.model.files import EXTENSIONS
from cepheid.model.names import suggestion
from cepheid.model.streams import IMPLIED
from cepheid.model.time import TimeError, format_duration, parse_duration
from cepheid.model.types import Type
from cepheid.plan.operators import KINDS

DEFAULT_LEVELS: Final = ("critical", "high", "normal", "background")


def _duration(raw: object) -> int:
    if not isinstance(raw, str):
        message, hint = "expected a duration with a unit, found {found}", f"such as {raw}ms or {raw}min"
        context = {"found": repr(raw), "hint": hint if isinstance(raw, int | float) else "such as 10ms or 5min"}
        raise PydanticCustomError("duration", message, context)
    text = raw.strip()
    if text.startswith("-"):
        context = {"text": text, "hint": f"write {text[1:].strip()}"}
        raise PydanticCustomError("duration", "duration '{text}' is negative", context)
    try:
        return parse_duration(text)
    except TimeError as error:
        context = {"reason": str(error), "hint": "durations are such as 10ms, 5min or 1h30min"}
        raise PydanticCustomError("duration", "{reason}", context) from None


def _positive(value: int) -> int:
    if value == 0:
        context = {"hint": "write a longer one, such as 10ms"}
        raise PydanticCustomError("duration", "this duration must be longer than zero", context)
    return value


_DURATION_SCHEMA = WithJsonSchema(
    {
        "type": "string",
        "pattern": r"^\s*([0-9]+(\.[0-9]+)?\s*(us|ms|s|min|h|d)\s*)+$",
        "description": "a duration: 10ms, 5min, 1h30min",
        "examples": ["10ms", "5min"],
    }
)
_as_text = PlainSerializer(format_duration, return_type=str)
DurationOrZero: TypeAlias = Annotated[int, BeforeValidator(_duration), _as_text, _DURATION_SCHEMA]
Duration: TypeAlias = Annotated[int, AfterValidator(_positive), BeforeValidator(_duration), _as_text, _DURATION_SCHEMA]


#: Bytes in each unit of a size.
_SIZES: Final = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE_TEXT: Final = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([A-Za-z]+)\s*")


def _size(raw: object) -> int:
    found = _SIZE_TEXT.fullmatch(raw) if isinstance(raw, str) else None
    scale = _SIZES.get(found[2]) if found is not None else None
    if found is None or scale is None:
        raise PydanticCustomError(
            "size",
            "{found} is not a size; write a number and a unit, such as 500MB or 10GB",
            {"found": repr(raw), "hint": f"units are {', '.join(_SIZES)}"},
        )
    return int(Decimal(found[1]) * scale)


Size: TypeAlias = Annotated[
    int,
    BeforeValidator(_size),
    PlainSerializer(lambda size: f"{size}B", return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(B|kB|MB|GB|TB|KiB|MiB|GiB)\s*$",
            "description": "a size: 500MB, 10GB",
            "examples": ["500MB", "10GB"],
        }
    ),
]


def _as_name(raw: str) -> str:
    """The name that is nearest to what was written."""
    name = re.sub(r"\W+", "_", raw).strip("_")
    return name if name.isidentifier() else f"s_{name}" if name else "s1"


def _identifier(raw: str) -> str:
    if not raw.isidentifier():
        raise PydanticCustomError(
            "identifier",
            "'{name}' is not a name: letters, digits and _, not beginning with a digit",
            {"name": raw, "hint": f"such as {_as_name(raw)}"},
        )
    return raw


Identifier: TypeAlias = Annotated[
    str, AfterValidator(_identifier), WithJsonSchema({"type": "string", "pattern": r"^[^\W\d]\w*$"})
]


def _attribute(raw: str) -> str:
    if raw in IMPLIED:
        raise PydanticCustomError(
            "reserved",
            "every event has '{name}' already; name the attribute otherwise",
            {"name": raw, "hint": f"such as {raw}_of_sensor; records may spell it otherwise: see `spellings`"},
        )
    return _identifier(raw)


AttributeName: TypeAlias = Annotated[
    str, AfterValidator(_attribute), WithJsonSchema({"type": "string", "pattern": r"^[^\W\d]\w*$"})
]


def _type(raw: object) -> Type:
    if isinstance(raw, Type):
        return raw
    if not isinstance(raw, str):
        context = {"found": repr(raw), "hint": f"known: {', '.join(t.value for t in Type)}"}
        raise PydanticCustomError("attribute_type", "expected the name of a type, found {found}", context)
    try:
        return Type.parse(raw)
    except ValueError:
        hint = suggestion(raw, (t.value for t in Type)) or f"known: {', '.join(t.value for t in Type)}"
        raise PydanticCustomError("attribute_type", "unknown type '{name}'", {"name": raw, "hint": hint}) from None


AttributeType: TypeAlias = Annotated[
    Type,
    BeforeValidator(_type),
    PlainSerializer(lambda t: t.value, return_type=str),
    WithJsonSchema({"type": "string", "enum": [t.value for t in Type]}),
]


#: What only Spark can open: s3a://bucket/events.
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def _path(raw: object) -> object:
    """A path is relative to the file that it is written in."""
    if isinstance(raw, Text):
        return str(raw) if _URI.match(raw) else str(raw.folder / raw)
    return raw


FilePath: TypeAlias = Annotated[str, BeforeValidator(_path), Field(min_length=1)]


def _one_or_more(raw: object) -> object:
    return [raw] if isinstance(raw, str) else raw


class Section(BaseModel):
    """A mapping of the application file: unknown names are errors, values have the type that is written."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=False)


class SocketSource(Section):
    """Suppliers connect to the service's socket."""

    kind: Literal["socket"]


class MqttSource(Section):
    """A topic of an MQTT broker."""

    kind: Literal["mqtt"]
    broker: str = Field("localhost:1883", description="Host and port of the broker.")
    topic: str = Field(description="The topic to subscribe to; `+` and `#` as in MQTT.")
    version: Literal["3.1.1", 5] = Field(5, description="The version of MQTT that the broker speaks.")
    user: str | None = Field(None, description="As whom to connect, if the broker asks for that.")
    password_file: FilePath | None = Field(None, description="A file whose first line is the user's password.")
    tls: bool = Field(False, description="Encrypt the connection, and ask the broker who it is.")
    ca_file: FilePath | None = Field(
        None, description="With `tls`, the certificates that the broker's is trusted by; left out, the machine's."
    )
    certificate_file: FilePath | None = Field(
        None, description="With `tls`, a certificate of one's own, if the broker asks for one."
    )
    key_file: FilePath | None = Field(None, description="The key of that certificate, if it is in a file of its own.")

    @model_validator(mode="after")
    def _files_are_for_tls(self) -> Self:
        given = [name for name in ("ca_file", "certificate_file", "key_file") if getattr(self, name) is not None]
        if given and not self.tls:
            context = {"name": given[0], "hint": "add `tls: true`"}
            raise PydanticCustomError("tls", "'{name}' is for encrypted connections", context)
        if self.key_file is not None and self.certificate_file is None:
            context = {"hint": "add `certificate_file`"}
            raise PydanticCustomError("tls", "'key_file' is the key of a certificate, and there is none", context)
        return self


_OPTIONS: Final = (
    "Further settings of Kafka's client, such as `security.protocol: SASL_SSL`; by the names of Java's where Spark "
    "reads or writes, of librdkafka's where the service does."
)


class KafkaSource(Section):
    """A topic of Kafka."""

    kind: Literal["kafka"]
    brokers: str = Field("localhost:9092", description="Host and port of the brokers, by commas.")
    topic: str = Field(description="The topic to read.")
    options: dict[str, str] = Field({}, description=_OPTIONS)


class FilesSource(Section):
    """Files that are there, and those that come."""

    kind: Literal["files"]
    path: FilePath = Field(description="A file, a folder or a pattern such as `data/*.jsonl`.")
    format: Literal["jsonl", "csv", "parquet"] = Field(
        "jsonl", description="How the records are written, if the extension in `path` does not tell."
    )

    @model_validator(mode="before")
    @classmethod
    def _told_by_extension(cls, given: object) -> object:
        """A path that ends in .csv, read as lines of JSON, would give nothing but dead letters."""
        if isinstance(given, dict) and "format" not in given and isinstance(given.get("path"), str):
            found = EXTENSIONS.get(Path(given["path"].removesuffix(".gz")).suffix.lower())
            return given if found is None else {**given, "format": found}
        return given


class RateSource(Section):
    """Generated events, for trying things out."""

    kind: Literal["rate"]
    per_second: float = Field(1.0, gt=0, description="Events a second.")


class PythonSource(Section):
    """A Python function that yields records."""

    kind: Literal["python"]
    function: str = Field(pattern=r"^[\w.]+:\w+$", description="`module:function`.")


SourceSection: TypeAlias = Annotated[
    SocketSource | MqttSource | KafkaSource | FilesSource | RateSource | PythonSource, Field(discriminator="kind")
]


class AnnotationSection(Section):
    """What an attribute's values mean: a property, and how a value leads to an entity (one of three ways)."""

    property: str = Field(description="The property, as `prefix:name` or an IRI.")
    entity: str | None = Field(None, description="Template of the entity: `ee:{value}`.")
    lookup: str | None = Field(None, description="The entity that has this value of this property.")
    table: FilePath | None = Field(None, description="CSV of value and entity.")


def _annotation(raw: object) -> object:
    return {"property": str(raw)} if isinstance(raw, str) else raw


Annotation: TypeAlias = Annotated[
    AnnotationSection,
    BeforeValidator(_annotation, json_schema_input_type=str | AnnotationSection),
]


class StreamSection(Section):
    """A stream of events: what they carry and how they behave in time. `id` and `time` are implied."""

    attributes: dict[AttributeName, AttributeType] = Field(description="The attributes of an event and their types.")
    spellings: dict[str, list[str]] = Field({}, description="Other names of an attribute in raw records.")
    key: Annotated[list[str], BeforeValidator(_one_or_more, json_schema_input_type=str | list[str])] = Field(
        [], description="The attributes that say whose event it is, such as the sensor's id."
    )
    id: Literal["int", "string"] | None = Field(
        None, description="The kind of ids. Left out: as the first event shows; in the Spark pipeline int."
    )
    extras: bool = Field(
        False, description="Whether records may carry attributes that are not declared; they are ignored."
    )
    period: Duration | None = Field(None, description="The usual time between two events.")
    valid_for: Duration | None = Field(None, description="How long an event may be used; left out, forever.")
    lateness: DurationOrZero = Field(0, description="How far behind the newest event one may come and still count.")
    idle: Duration | None = Field(None, description="After so long without an event, time goes on by the clock.")
    source: SourceSection | None = Field(None, description="Where events come from.")
    semantics: dict[str, Annotation] = Field(
        {}, description="What attributes mean: a property, or how to find an entity."
    )
    enrich: dict[str, dict[AttributeName, str]] = Field(
        {},
        description="Columns that the archive's table has besides: by attribute, their names, and the path that leads "
        "to each from the attribute's entity, such as `sensorID: {room: bd:hasLocation}`.",
    )


class RelativeSection(Section):
    """Inputs whose events must have begun close together."""

    inputs: list[str] = Field(description="Two or more of the operator's inputs.")
    within: Duration = Field(description="The longest time between the earliest and the latest.")


class OperatorSection(Section):
    """What every operator has."""

    kind: str = Field(description="What it does.")
    inputs: list[str] = Field(description="The streams, operators or queries that it reads, in order.")
    relative: list[RelativeSection] = Field([], description="Inputs that must be close in time.")
    share: bool = Field(True, description="Whether an equal operator elsewhere may be the same one.")
    fire: Literal["all", "any"] = Field("all", description="Fire when all inputs are there, or on each.")


def _operator_models() -> tuple[type[OperatorSection], ...]:
    return tuple(
        create_model(
            f"{kind.name.capitalize()}Operator",
            __base__=(OperatorSection, kind.parameters),  # type: ignore[arg-type]
            __doc__=kind.summary,
            kind=(Literal[kind.name], ...),  # type: ignore[arg-type]
        )
        for kind in KINDS.values()
    )


AnyOperator: TypeAlias = Annotated[Union[_operator_models()], Field(discriminator="kind")]  # type: ignore[valid-type] # noqa: UP007


class ConsumerSection(Section):
    """Who receives events."""

    input: str = Field(description="The stream, operator or query whose events it receives.")
    level: str | None = Field(None, description="How important it is: one of `levels`; left out, the lowest.")
    stale: Literal["mark", "shed"] = Field("mark", description="What to do with events that are no longer valid.")


class DeltaSink(Section):
    """A Delta table: a row a match, each exactly once."""

    kind: Literal["delta"]
    path: FilePath = Field(description="The folder of the table.")


class FilesSink(Section):
    """Files of matches, each match exactly once for readers that heed Spark's own list of them, as Spark does."""

    kind: Literal["files"]
    path: FilePath = Field(description="A folder.")
    format: Literal["jsonl", "parquet"] = Field("jsonl", description="How the matches are written.")


class KafkaSink(Section):
    """A topic of Kafka: the match's id is the key, by which one that comes again after a failure is known."""

    kind: Literal["kafka"]
    brokers: str = Field("localhost:9092", description="Host and port of the brokers, by commas.")
    topic: str = Field(description="The topic to write.")
    options: dict[str, str] = Field({}, description=_OPTIONS)


class ConsoleSink(Section):
    """The terminal that the pipeline runs in: a line of JSON a match."""

    kind: Literal["console"]


SinkSection: TypeAlias = Annotated[DeltaSink | FilesSink | KafkaSink | ConsoleSink, Field(discriminator="kind")]


class QuerySection(Section):
    """A χ-CEP query, in the file or in one of its own."""

    text: str | None = Field(None, description="The query.")
    file: FilePath | None = Field(None, description="A .chi file with the query.")
    level: str | None = Field(None, description="How important it is: one of `levels`; left out, the lowest.")
    engine: Literal["auto", "spark", "service"] = Field(
        "auto", description="Where it runs; auto: Spark, unless it asks for the fast lane."
    )
    limit: int | None = Field(
        None, ge=1, description="The most events that are kept; needed where no WINDOW bounds what a query has to keep."
    )
    sink: SinkSection | None = Field(
        None,
        description="Where Spark puts the matches; left out, a Delta table `_matches/<query>` of the archive, or the "
        "console if there is none.",
    )
    real_time: bool = Field(
        False,
        description="Run in Spark's Real-Time Mode, from a topic of Kafka to a topic of Kafka: milliseconds instead of "
        "batches, for queries about single events. `explain` says whether a query qualifies.",
    )


#: A number of entries, or a part of the keys that there can be.
_CACHE_TEXT: Final = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(%?)\s*")


def _cache(raw: object) -> int | float:
    """Entries as a whole number, percent as a float."""
    text = str(raw) if isinstance(raw, str | int) and not isinstance(raw, bool) else ""
    found = _CACHE_TEXT.fullmatch(text)
    number = Decimal(found[1]) if found is not None else Decimal(0)
    if found is not None and found[2] and 0 < number <= 100:
        return float(number)
    if found is not None and not found[2] and number == int(number) > 0:
        return int(number)
    raise PydanticCustomError(
        "cache_size",
        "{found} is not the size of a cache; write a number of entries, or 5%",
        {"found": repr(raw), "hint": "such as 65536, or 5% of the keys that there can be"},
    )


CacheSize: TypeAlias = Annotated[
    int | float,
    PlainValidator(_cache),
    PlainSerializer(lambda size: f"{size:g}%" if isinstance(size, float) else size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*%?\s*$"},
            ],
            "description": "a number of entries, or percent of the keys: 65536, 5%",
            "examples": [65536, "5%"],
        }
    ),
]


class SemanticsSection(Section):
    """How semantic conditions are evaluated at run time, where an index does not say it all."""

    mode: Literal["naive", "buffer", "cache", "buffer+cache", "index", "auto"] = Field(
        "auto", description="`auto` indexes what can be, and takes `buffer+cache` for the rest."
    )
    size: CacheSize = Field(
        65_536, description="Of a cache: so many answers, or percent of the entities that an event can have."
    )
    interval: DurationOrZero = Field(
        0, description="Of a buffer: events are gathered for so long; 0: those that are there."
    )


def _semantics(raw: object) -> object:
    return {"mode": str(raw)} if isinstance(raw, str) else raw


Semantics: TypeAlias = Annotated[
    SemanticsSection,
    BeforeValidator(
        _semantics,
        json_schema_input_type=Literal["naive", "buffer", "cache", "buffer+cache", "index", "auto"] | SemanticsSection,
    ),
]


class KnowledgeSection(Section):
    """What is known about the plant besides its events."""

    sources: list[Annotated[str, BeforeValidator(lambda raw: raw if str(raw).startswith("brick:") else _path(raw))]] = (
        Field([], description="Ontology files, or `brick:1.4`.")
    )
    rules: list[FilePath] = Field([], description="CONSTRUCT rules (.rq).")
    reasoning: Literal["owl-rl", "none"] = Field("owl-rl", description="Which consequences are drawn.")
    semantics: Semantics = Field(
        SemanticsSection(),
        description="How semantic conditions are evaluated at run time: a mode, or `{mode: cache, size: 5%}`.",
    )


class ArchiveSection(Section):
    """Where all events are kept."""

    path: FilePath = Field(description="A folder.")
    format: Literal["delta", "parquet"] = Field("delta", description="The table format.")
    retain: Duration | None = Field(None, description="How long events are kept; left out, forever.")


def _durability(raw: str) -> str:
    words = raw.split()
    if words in (["each"], ["none"]):
        return words[0]
    if len(words) == 2 and words[0] == "interval":
        return f"interval {format_duration(_positive(_duration(words[1])))}"
    context = {"text": raw, "hint": "each event, those of an interval together, or when the system likes"}
    raise PydanticCustomError("durability", "'{text}' is not a durability: each, interval 10ms, or none", context)


class LogSection(Section):
    """The event log."""

    path: FilePath = Field(description="A folder.")
    durability: Annotated[str, AfterValidator(_durability)] = Field(
        "interval 10ms", description="When events are safe on disk: `each`, `interval 10ms` or `none`."
    )
    retain: Duration | None = Field(None, description="How long the log is kept; never past what is not archived.")
    retain_size: Size | None = Field(None, description="How much of the log is kept; never past what is not archived.")


def _tcp(raw: str) -> str:
    host, _, port = raw.removeprefix("tcp:").rpartition(":")
    if raw.startswith("tcp:") and host and port.isdecimal() and int(port) < 65536:
        return raw
    context = {"text": raw, "hint": "such as tcp:127.0.0.1:7000"}
    raise PydanticCustomError("address", "'{text}' is no address: tcp:host:port", context)


def _address(raw: str) -> str:
    scheme, _, path = raw.partition(":")
    if scheme == "unix" and path:
        return raw
    if scheme == "tcp":
        return _tcp(raw)
    hint = f"write unix:{raw}" if raw and not path else "such as unix:data/cepheid.sock or tcp:127.0.0.1:7000"
    raise PydanticCustomError(
        "address", "'{text}' is no address: unix:path or tcp:host:port", {"text": raw, "hint": hint}
    )


Address: TypeAlias = Annotated[str, AfterValidator(_address)]


def _log(raw: object) -> object:
    return None if raw == "none" else raw


class ServiceSection(Section):
    """The real-time service."""

    listen: Address = Field(
        "unix:data/cepheid.sock", description="Where suppliers connect: `unix:path` or `tcp:host:port`."
    )
    deliver: Address = Field("unix:data/consumers.sock", description="Where consumers connect, likewise.")
    metrics: Annotated[str, AfterValidator(_tcp)] | None = Field(
        None, description="Where Prometheus reads `/metrics`: `tcp:host:port`; left out, nowhere."
    )
    cores: int | None = Field(None, ge=1, description="Cores for processing; left out, all.")
    log: Annotated[LogSection | None, BeforeValidator(_log, json_schema_input_type=LogSection | Literal["none"])] = (
        Field(LogSection(path="data/log"), description="The event log; `none` runs a graph without one.")
    )
    prioritised: bool = Field(True, description="Whether levels preempt each other; false only to compare.")
    replace: bool = Field(
        False, description="Whether a supplier event that waits to be taken gives way to a newer one of its stream."
    )


class ApplicationSection(Section):
    """An application: its streams, what is computed from them, and for whom."""

    name: Annotated[str, Field(pattern=r"^\w[\w.-]*$")] = Field(description="The application's name.")
    include: Annotated[list[str], BeforeValidator(_one_or_more, json_schema_input_type=str | list[str])] = Field(
        [], description="Other files whose sections are added to this one."
    )
    prefixes: dict[str, str] = Field({}, description="Namespaces by prefix.")
    levels: list[Identifier] = Field(
        list(DEFAULT_LEVELS), min_length=1, description="Levels of importance, highest first."
    )
    default_stream: str | None = Field(None, description="The stream of queries without FROM.")
    streams: dict[Identifier, StreamSection] = Field({}, description="The streams, by name.")
    knowledge: KnowledgeSection | None = Field(None, description="Ontologies and how they are used.")
    graph: dict[Identifier, AnyOperator] = Field({}, description="The operators, by name.")
    consumers: dict[Identifier, ConsumerSection] = Field({}, description="Who receives events, by name.")
    queries: dict[Identifier, QuerySection] = Field({}, description="The queries, by name.")
    archive: ArchiveSection | None = Field(None, description="Where all events are kept.")
    service: ServiceSection | None = Field(None, description="The real-time service.")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of an application file, for editors."""
    schema = ApplicationSection.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Cepheid application"}
