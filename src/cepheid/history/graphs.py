"""A graph of CPEP over a DataFrame of events, by key, on the virtual clock of the native core (rule G6).

    spectra = vibrations.transform(graph(app, key="machine"))

Each key has a graph of its own. Its events are pushed one by one in the order in which they came, the clock says when
that was, and what an event makes ready runs before the next. So what comes out is what the virtual clock gives of the
events of each key alone, and the service where timing can't change the outcome. graph_state.py does it for streams.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from cepheid import _native
from cepheid.app.application import Application
from cepheid.model.names import suggestion
from cepheid.model.streams import Stream
from cepheid.model.types import INT64_MIN, Type
from cepheid.plan.planner import Plan
from cepheid.service.job import graph_job
from cepheid.service.running.functions import Functions
from cepheid.spark.clocks import Clocks
from cepheid.spark.columns import UnsuitableColumns
from cepheid.spark.matching import NoKey
from cepheid.spark.validate import Transform, event_schema

#: How each type of an attribute may be held by Spark, in words too.
_HELD: Final[Mapping[Type, tuple[tuple[type[st.DataType], ...], str]]] = {
    Type.BOOL: ((st.BooleanType,), "boolean"),
    Type.INT: ((st.LongType, st.IntegerType, st.ShortType, st.ByteType), "bigint"),
    Type.FLOAT: ((st.DoubleType, st.FloatType), "double"),
    Type.STRING: ((st.StringType,), "string"),
    Type.TIMESTAMP: ((st.TimestampType,), "timestamp"),
    Type.BYTES: ((st.BinaryType,), "binary"),
    Type.UINT8_ARRAY: ((st.BinaryType,), "binary"),
}
_FLOATS: Final = "array<double>"
_INTS: Final = _HELD[Type.INT][0]
#: The columns of what a graph gives besides the key and the consumers' attributes.
GIVEN: Final = ("consumer", "id", "time", "end", "marks")
_ROWS: Final = 4096


class NotInSpark(ValueError):
    """A graph that can't run by key on Spark."""


def graph(
    app: Application | Plan,
    *,
    key: str | Sequence[str] | None = None,
    id: str = "id",
    time: str = "time",
    stream: str | None = "stream",
    arrival: str | None = None,
    functions: Mapping[str, Callable[..., object]] | None = None,
    buckets: int = 16,
) -> Transform:
    """What the consumers of an application's graph receive, as a function of a DataFrame, batch or streaming.

    `id`, `time` and `stream` name the columns that say what an event is called, when it was made and of which stream it
    is (None where the graph reads one); the others are attributes, by their names. `key`: the columns by which events
    are divided; else the keys that the streams have. An event with a null in its key belongs to none.

    `arrival` names the column that says in which order events came: a timestamp, which is also what the clock says
    then, or a number; else the clock says the greatest time so far. Events of the log have their offset. Without it
    events are taken in order of time, stream and id (rule E2), which a stream can't be.

    `functions` are those of Python operators that name none; like all functions here they must not remember anything
    from call to call. `buckets`: into so many parts the keys of a stream are divided.

    The result has the key, consumer, id, time, end (null: valid forever), marks ("stale", "relative"), and for each
    consumer a struct of its name with what it received, null for the others.
    """
    plan = app.plan() if isinstance(app, Application) else app
    spec = _spec(plan)
    keys = _keys(plan, spec, key)

    def transform(frame: DataFrame) -> DataFrame:
        columns = _Columns(frame, spec, keys, id, time, stream, arrival)
        work = Work(
            json.dumps(spec["spec"]),
            spec["functions"],
            dict(functions or {}),
            len(keys),
            {s["name"]: [name for name, _ in s["attributes"]] for s in spec["spec"]["streams"]},
            [c["name"] for c in spec["spec"]["consumers"]],
            columns.schema,
        )
        events = columns.events()
        if frame.isStreaming:
            from cepheid.history.graph_state import run_stream

            columns.require_arrival()
            return run_stream(events, work, buckets)
        order = ["key", *(["arrival"] if columns.arrival is not None else []), "time", "stream", "id"]
        if keys:
            events = events.repartition("key")
        else:
            warnings.warn(
                "the graph has no key, so all events go through it in one task: name one, graph(app, key=...)",
                NoKey,
                stacklevel=4,
            )
            events = events.coalesce(1)
        return events.sortWithinPartitions(*order).mapInArrow(running(work), columns.schema)

    return transform


def _spec(plan: Plan) -> dict[str, Any]:
    """The job of the plan's graph, with the consumers that the application has."""
    if not plan.graph.consumers:
        raise NotInSpark("the application has no consumers, so nobody would see what its graph does; add `consumers:`")
    for operator in plan.graph.operators.values():
        if operator.kind == "aes" and dict(operator.parameters).get("key") is None:
            raise NotInSpark(
                f"operator '{operator.name}' has no key, and each task of Spark would make another one; give it one: "
                '`key: "${NAME}"` takes it from the environment'
            )
    job = graph_job(plan, "application")
    spec = json.loads(job["spec"])
    # What queries read of it goes through consumers of the service's own.
    spec["consumers"] = [c for c in spec["consumers"] if c["name"] in plan.graph.consumers]
    return {"spec": spec, "functions": job["functions"]}


def _keys(plan: Plan, spec: Mapping[str, Any], given: str | Sequence[str] | None) -> list[str]:
    if given is not None:
        return [given] if isinstance(given, str) else list(given)
    own = {
        s["name"]: plan.graph.streams[s["name"]].key for s in spec["spec"]["streams"] if s["name"] in plan.graph.streams
    }
    if len(set(own.values())) > 1:
        said = ", ".join(f"'{name}' {', '.join(key) or 'none'}" for name, key in own.items())
        raise NotInSpark(f"the streams of the graph have different keys: {said}; name the columns: graph(app, key=...)")
    return list(next(iter(own.values()), ()))


class _Columns:
    """Which columns of a DataFrame are what, and what comes of them."""

    def __init__(
        self,
        frame: DataFrame,
        job: Mapping[str, Any],
        keys: Sequence[str],
        id: str,
        time: str,
        stream: str | None,
        arrival: str | None,
    ) -> None:
        self._frame, self._spec, self._keys = frame, job["spec"], keys
        self._fields = {field.name: field.dataType for field in frame.schema.fields}
        self._id, self._time, self._stream = id, time, stream
        clocks = Clocks.of(frame, time)
        self._flagged = clocks is not None and clocks.flagged
        self.arrival = "offset" if arrival is None and self._flagged else arrival
        self._required(id, "the id of events", (*_INTS, st.StringType), "bigint or string", "id")
        self._required(time, "the time of events", (st.TimestampType, st.LongType), "timestamp or bigint", "time")
        names = [s["name"] for s in self._spec["streams"]]
        if stream is not None:
            self._required(stream, "the stream of events", (st.StringType,), "string", "stream")
        elif len(names) > 1:
            raise UnsuitableColumns(
                f"the graph reads {', '.join(names)}; say which column tells them apart: graph(app, stream=...)"
            )
        for name in keys:
            self._required(name, "a key of the graph", None, "", "key")
        if self.arrival is not None:
            self._required(
                self.arrival, "the arrival of events", (st.TimestampType, *_INTS), "timestamp or bigint", "arrival"
            )
        self._attributes = self._found()
        self.schema = self._given()

    def _required(
        self, name: str, what: str, kinds: tuple[type[st.DataType], ...] | None, wanted: str, option: str
    ) -> None:
        if name not in self._fields:
            hint = suggestion(name, self._fields)
            raise UnsuitableColumns(
                f"the DataFrame has no column '{name}' for {what}; name another: graph(app, {option}=...)"
                + (f"; {hint}" if hint else "")
            )
        if kinds is not None and not isinstance(self._fields[name], kinds):
            raise UnsuitableColumns(
                f"column '{name}', {what}: expected {wanted}, found {self._fields[name].simpleString()}"
            )

    def _found(self) -> dict[str, Type]:
        """The attributes of the graph's streams, all of which must be there."""
        found: dict[str, Type] = {}
        for stream in self._spec["streams"]:
            for name, text in stream["attributes"]:
                kind = Type.parse(text)
                held = self._fields.get(name)
                if held is None:
                    hint = suggestion(name, self._fields)
                    raise UnsuitableColumns(
                        f"the DataFrame has no column '{name}', an attribute of stream '{stream['name']}'"
                        + (f"; {hint}" if hint else "")
                    )
                if not _fits(held, kind):
                    wanted = _FLOATS if kind is Type.FLOAT_ARRAY else _HELD[kind][1]
                    raise UnsuitableColumns(
                        f"column '{name}', an attribute of stream '{stream['name']}': expected {wanted}, found "
                        f"{held.simpleString()}"
                    )
                found[name] = kind
        return found

    def _given(self) -> st.StructType:
        """The columns of the result."""
        streams = {s["name"]: s["attributes"] for s in self._spec["streams"]}
        producers = [*self._spec["streams"], *self._spec["operators"]]
        text_ids = isinstance(self._fields[self._id], st.StringType)
        passes = any(producers[c["input"]]["name"] in streams for c in self._spec["consumers"])
        fields = [st.StructField(name, self._fields[name]) for name in self._keys]
        fields += [
            st.StructField("consumer", st.StringType()),
            # What operators produce has numbers; a stream's own events keep their ids.
            st.StructField("id", st.StringType() if text_ids and passes else st.LongType()),
            st.StructField("time", st.TimestampType()),
            st.StructField("end", st.TimestampType()),
            st.StructField("marks", st.ArrayType(st.StringType())),
        ]
        for consumer in self._spec["consumers"]:
            attributes = {name: Type.parse(kind) for name, kind in producers[consumer["input"]]["attributes"]}
            own = event_schema(Stream(consumer["name"], attributes)).fields[2:]
            fields.append(st.StructField(consumer["name"], st.StructType(own)))
        seen: set[str] = set()
        for field in fields:
            if field.name.lower() in seen:
                raise UnsuitableColumns(
                    f"the result would have two columns '{field.name}': it has the key, {', '.join(GIVEN)}, and a "
                    "column for each consumer; rename the consumer, or the key"
                )
            seen.add(field.name.lower())
        return st.StructType(fields)

    def require_arrival(self) -> None:
        """A stream can't be run without it."""
        if self.arrival is None:
            raise UnsuitableColumns(
                "a graph follows the order in which events came, and nothing says it of this stream; name the column "
                'that does, such as the offset or the timestamp of Kafka: graph(app, arrival="timestamp")'
            )

    def events(self) -> DataFrame:
        """Of each event: key (as text), stream, id, time, clock, arrival, key_0 ..., and the attributes."""
        names = [s["name"] for s in self._spec["streams"]]
        frame = self._frame.where("NOT duplicate") if self._flagged else self._frame
        time = self._micros(self._time)
        stream = sf.lit(names[0]) if self._stream is None else _column(self._stream)
        keys = [_column(name) for name in self._keys]
        event_id = _column(self._id)
        is_text = isinstance(self._fields[self._id], st.StringType)
        came = [] if self.arrival is None else [self._micros(self.arrival).alias("arrival")]
        is_moment = self.arrival is not None and isinstance(self._fields[self.arrival], st.TimestampType)
        events = frame.select(
            (sf.to_json(sf.struct(*keys)) if keys else sf.lit("")).alias("key"),
            stream.alias("stream"),
            (event_id if is_text else event_id.cast("long")).alias("id"),
            time.alias("time"),
            (self._micros(self.arrival) if is_moment and self.arrival else time).alias("clock"),
            *came,
            *(column.alias(f"key_{place}") for place, column in enumerate(keys)),
            *(self._attribute(name, kind).alias(f"attribute_{name}") for name, kind in self._attributes.items()),
        )
        events = events.where(sf.col("stream").isin(names))
        for name in ("id", "time", "clock", *(f"key_{place}" for place in range(len(keys)))):
            events = events.where(sf.col(name).isNotNull())
        for name, kind in self._attributes.items():
            if kind in (Type.FLOAT, Type.FLOAT_ARRAY):  # rule E3: no event has NaN or infinity
                value = sf.col(f"attribute_{name}")
                wrong = sf.exists(value, _unfit) if kind is Type.FLOAT_ARRAY else _unfit(value)
                events = events.where(value.isNull() | ~wrong)
        return events

    def _micros(self, name: str) -> Column:
        column = _column(name)
        return sf.unix_micros(column) if isinstance(self._fields[name], st.TimestampType) else column.cast("long")

    def _attribute(self, name: str, kind: Type) -> Column:
        column = _column(name)
        if kind is Type.TIMESTAMP:
            return sf.unix_micros(column)
        cast = {Type.INT: "bigint", Type.FLOAT: "double", Type.FLOAT_ARRAY: _FLOATS}.get(kind)
        return column if cast is None else column.cast(cast)


def _fits(held: st.DataType, kind: Type) -> bool:
    if kind is Type.FLOAT_ARRAY:
        return isinstance(held, st.ArrayType) and isinstance(held.elementType, st.DoubleType | st.FloatType)
    return isinstance(held, _HELD[kind][0])


def _unfit(value: Column) -> Column:
    return value.isNull() | sf.isnan(value) | (sf.abs(value) == sf.lit(float("inf")))


def _column(name: str) -> Column:
    return sf.col("`" + name.replace("`", "``") + "`")


@dataclass(frozen=True)
class Work:
    """What a task has to know of a graph: the native core's spec, and what the result looks like."""

    spec: str
    own: Mapping[str, Any]
    functions: Mapping[str, Callable[..., object]]
    keys: int
    #: The attributes of each stream.
    attributes: Mapping[str, Sequence[str]]
    consumers: Sequence[str]
    schema: st.StructType

    def begin(self) -> Begin:
        """What makes graphs, in the process that runs them."""
        return Begin(self, Functions(self.own, self.functions))


@dataclass(frozen=True)
class Begin:
    """Makes the graphs of keys; libraries are loaded once."""

    work: Work
    functions: Functions

    def __call__(self) -> _native.VirtualClock:
        return _native.VirtualClock(self.work.spec, self.functions.python, self.functions.addresses)


class KeyGraph:
    """The graph of one key, and what its clock says."""

    def __init__(self, begin: Begin, now: int = INT64_MIN, saved: str | None = None) -> None:
        self._work, self._clock, self.now = begin.work, begin(), now
        if saved is not None:
            self._clock.restore(saved)

    def save(self) -> str:
        """What a graph of the same work goes on with; besides `now`."""
        return self._clock.save()

    def take(self, event: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """An event has come: the rows that follow from it."""
        name = event["stream"]
        attributes = {attribute: event[f"attribute_{attribute}"] for attribute in self._work.attributes[name]}
        is_taken = self._clock.push(name, event["id"], event["time"], attributes)
        assert is_taken, "each event is run before the next, so that there is room"
        self.now = max(self.now, event["clock"])
        key = {
            field.name: event[f"key_{place}"] for place, field in enumerate(self._work.schema.fields[: self._work.keys])
        }
        is_text = isinstance(self._work.schema["id"].dataType, st.StringType)
        for consumer, number, time, values, end, marks in self._clock.run(self.now):
            given = {"consumer": consumer, "id": str(number) if is_text else number, "time": time, "end": end}
            yield {**key, **given, "marks": marks, consumer: values}


def running(work: Work) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A graph for each key as a task runs it, over rows in order of key and arrival."""
    target = to_arrow_schema(work.schema, timezone="UTC")

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin = work.begin()
        rows = (row for batch in batches for row in batch.to_pylist())
        held: list[dict[str, Any]] = []
        for _, events in groupby(rows, key=lambda row: row["key"]):
            own = KeyGraph(begin)
            for event in events:
                held += own.take(event)
                if len(held) >= _ROWS:
                    yield pa.RecordBatch.from_pylist(held, schema=target)
                    held = []
        if held:
            yield pa.RecordBatch.from_pylist(held, schema=target)

    return in_executor
