"""The native core (native/src/python.rs)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, type_check_only

from cepheid.model.events import Event, EventId
from cepheid.model.matches import Bound as Bound
from cepheid.model.types import Value as Value

class NativeError(RuntimeError):
    """A bug in the native core: the message of its panic, and the place in the Rust source."""

class BudgetExhausted(RuntimeError):
    """A query holds as many events as it may, and is to fail then."""

@type_check_only
class BuildInfo(TypedDict):
    version: str
    rustc: str
    profile: str
    target: str

@type_check_only
class Machine(TypedDict):
    """What this machine lets a real-time program do. None means that the kernel does not say."""

    cores_online: int
    cores_allowed: int
    memory_total_bytes: int
    memory_limit_bytes: int | None  # the cgroup's; None: no limit
    rt_runtime_us: int | None  # of each rt_period_us; -1: no limit
    rt_period_us: int | None
    can_sched_rr: bool
    sched_rr_error: str | None  # why not
    max_rr_priority: int | None
    can_set_timer_slack: bool
    memlock_limit_bytes: int | None  # None: no limit
    kernel_release: str
    preemption: str | None  # none, voluntary, lazy, full, rt, dynamic
    clock_source: str | None

def build_info() -> BuildInfo:
    """What built this module."""

def probe() -> Machine:
    """Asks the kernel. SCHED_RR and timer slack are tried on a thread of their own; the caller's stays as it is."""

def panic_for_test(message: str, callback: Callable[[], object] | None = None) -> None:
    """Panics in Rust, to prove that the caller gets a NativeError; after `callback`, to prove that guards nest."""

@type_check_only
class Counters(TypedDict):
    """What happened to the events given to a matcher, and what it holds now."""

    events: int
    qualified: int  # for some variable
    late: int  # came when their time was past
    refused: int  # left out because of the budget
    shed: int  # let go of because of the budget
    matches: int
    held: int  # events, once for each variable that they are held for
    kept: int  # events in memory
    partitions: int
    runs: int  # of MATCH NEXT
    pending: int  # matches that wait for their deadline

#: id, time, events by variable, selected values, start and end of the window, group values
Row: TypeAlias = tuple[str, int, dict[str, Bound], dict[str, Value], tuple[int, int] | None, dict[str, Value] | None]

class ArrowBatch(Protocol):
    """Whatever speaks Arrow: a pyarrow.RecordBatch, a polars frame of one chunk."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

class MatchBatch:
    """Matches, or what operators made of columns, as columns, to be taken over once: `pyarrow.record_batch(batch)`."""

    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

def ekf_column(
    batch: ArrowBatch, sensors: int, floats: bool, process_noise: float, measurement_noise: float
) -> MatchBatch:
    """Columns "0", "1" ... of samples as one column "value", each row by itself (service/operators/columns.rs)."""

def fft_column(batch: ArrowBatch) -> MatchBatch:
    """The spectra of column "0"."""

def aes_column(batch: ArrowBatch, key: str) -> MatchBatch:
    """Column "0" encrypted, by the columns "time" and "id"."""

class Matcher:
    """A matcher of one query (native/src/matcher.rs)."""

    def __new__(
        cls,
        plan: str,
        outputs: Sequence[str],
        groups: Sequence[str],
        budget: int | None = None,
        overflow: str = "fail",
        eager: bool = False,
    ) -> Matcher:
        """For a plan of src/cepheid/plan/compile.py, with the names of its outputs and group values."""

    def learn(self, table: int, entries: str) -> None:
        """What is known of keys of a table from now on, as JSON: `[[key, rows], ...]`, null rows to forget it."""
    def push(self, events: Iterable[Event]) -> None:
        """Takes events; those of other streams are passed over."""

    def advance(self, watermark: int | None) -> list[Row]:
        """The matches that this watermark completes, in order; None: the input is complete."""

    def advance_ordered(self, watermark: int | None) -> list[tuple[bytes, Row]]:
        """As `advance`, each with bytes that it can be sorted by among the matches of other matchers."""

    def push_batch(self, batch: ArrowBatch, stream: str | None = None) -> None:
        """Takes the rows of a batch of columns."""

    def advance_batches(self, watermark: int | None) -> list[MatchBatch]:
        """As `advance`, the matches as batches of columns."""

    def save(self, known: set[str]) -> tuple[bytes, tuple[str, ...], dict[str, bytes]]:
        """The state: its head, the names of all its chunks, and the bytes of those not known."""

    def restore(self, head: bytes, chunks: dict[str, bytes]) -> None:
        """Takes over a state that `save` gave."""

    def counters(self) -> Counters:
        """What happened so far, and what is held now."""

def equal_patterns(queries: list[tuple[str, int | None]]) -> list[int]:
    """By plan, each with its limit of events, the first one whose pattern is equal: one that runs once for both."""

class Standing:
    """Many queries over the same events (native/src/standing.rs)."""

    def __new__(
        cls,
        queries: Sequence[tuple[str, Sequence[str], Sequence[str]]],
        budget: int | None = None,
        overflow: str = "fail",
    ) -> Standing:
        """For plans of src/cepheid/plan/compile.py, each with the names of its outputs and group values."""

    def push(self, events: Iterable[Event]) -> None:
        """Takes events; those of streams that no query reads are passed over."""

    def push_batch(self, batch: ArrowBatch, stream: str | None = None) -> None:
        """Takes the rows of a batch of columns."""

    def advance(self, watermark: int | None) -> list[tuple[int, list[Row]]]:
        """The matches that this watermark completes: by query its number, and its matches in order."""

    def advance_batches(self, watermark: int | None) -> list[tuple[int, list[MatchBatch]]]:
        """As `advance`, the matches as batches of columns."""

    def failed(self) -> list[tuple[int, str]]:
        """The queries that failed because their budget was used up, and what to say of it."""

    def patterns(self) -> list[tuple[list[int], int, int | None, bool]]:
        """What runs: by whom it is read, its steps, whose the first ones are, and whether it only holds events."""

    def judged(self) -> tuple[int, int]:
        """How many different conditions are asked of events, and how often one was judged."""

    def kept(self) -> int:
        """How many events are in memory, over all queries."""

def run_intake(
    config: str,
    signal_fd: int | None = None,
    ready: Callable[[list[str], bool | None], object] | None = None,
    engine: Engine | None = None,
) -> None:
    """Runs an intake (native/src/intake) until a signal comes by `signal_fd`, whose numbers it reads there.

    `ready` gets its addresses, and whether it has the real-time priority that was asked for. An engine that follows the
    same log from then on is pushed what was written on the intake's own thread.
    """

def log_commit(folder: PathLike[str] | str, consumer: str, offset: int) -> None:
    """Says that a consumer of a log needs nothing before an offset; ValueError if it can't have that name."""

def log_committed(folder: PathLike[str] | str, consumer: str) -> int | None:
    """How far a consumer of a log has come; None: it never said so."""

def log_restore(
    folder: PathLike[str] | str, first: int, next: int, streams: str, records: Iterable[tuple[int, int, bytes]]
) -> int:
    """Brings back what a log has forgotten from `first` on, up to `next`: records with their offsets and arrivals."""

#: offset, flags, number of the stream, id, time, values, arrival, end of validity if it came with one
Logged: TypeAlias = tuple[int, int, int, int | str, int, tuple[Value, ...], int, int | None, int]

class RecordCodec:
    """Makes records (native/src/record.rs) of values and values of records; streams are given as JSON."""

    def __new__(cls, streams: str) -> RecordCodec: ...
    def fingerprints(self) -> list[str]:
        """What tells whether two sides mean the same by a stream, in the streams' order."""

    def encode(
        self,
        stream: int,
        id: int | str,
        time: int,
        values: tuple[Value, ...],
        limits: tuple[int | None, int] = (None, 0),
    ) -> bytes:
        """The record of an event; ValueError if a value does not fit.

        `limits` are the end of its validity and its marks (1 stale, 2 relative), if it comes from another service.
        """

    def decode(self, frames: bytes) -> list[Logged]:
        """The events in frames of the log."""

class LogFollower:
    """Reads a log of this machine (native/src/log/follower.rs); offset None: the first, -1: what comes next."""

    def __new__(
        cls, folder: PathLike[str] | str, offset: int | None = None, durable_only: bool = False
    ) -> LogFollower: ...
    def next(self) -> list[Logged] | None:
        """The events of the next batch; None if there is none yet."""

    def wait(self, seconds: float) -> bool:
        """Waits until there is more; whether there is."""

    def streams(self) -> str:
        """The streams where it stands, as JSON."""

    @property
    def offset(self) -> int: ...
    @property
    def end(self) -> int: ...

class JsonDecoder:
    """Reads JSON records as the intake does; for comparing its verdicts with `RecordDecoder`'s."""

    def __new__(cls, config: str) -> JsonDecoder: ...
    def decode(self, line: bytes) -> tuple[int, int | str, int, tuple[Value, ...]] | tuple[str, str]:
        """Stream, id, time and values of a line; or code and reason."""

#: consumer, id, time, attributes, end of validity (None: never), labels
Delivered: TypeAlias = tuple[str, EventId, int, dict[str, Value], int | None, list[str]]

class VirtualClock:
    """A graph on the virtual clock (native/src/service/virtual_clock.rs)."""

    def __new__(
        cls,
        spec: str,
        functions: Mapping[str, Callable[..., object]] | None = None,
        addresses: Mapping[str, int] | None = None,
    ) -> VirtualClock:
        """For a spec of src/cepheid/service/lowering.py, with the operators that are the program's own."""

    def push(self, stream: str, id: EventId, time: int, attributes: Mapping[str, Value]) -> bool:
        """A supplier's event arrives; it is not taken before `run`. False if it was refused."""

    def run(self, now: int) -> list[Delivered]:
        """The clock says `now`, and everything that can run does: what consumers receive."""

    def stats(self) -> str:
        """The books, as JSON."""

    def save(self) -> str:
        """What waits and what operators remember, for `restore` on a clock of the same spec."""

    def restore(self, saved: str) -> None:
        """Goes on with what `save` gave; ValueError if it is not of this graph."""

class Consumer:
    """The reading end of a consumer (native/src/python_service.rs)."""

    def read(self, timeout: float | None = None) -> Delivered | None:
        """The next event, waited for at most so many seconds (None: until the engine stops or it is removed)."""

    def is_over(self) -> bool:
        """Whether nothing more will come."""

#: Names that a change has added, removed, changed and kept.
ChangedNames: TypeAlias = tuple[list[str], list[str], list[str], list[str]]

class Engine:
    """A graph run by native threads, an EventProcessor a level (native/src/service/engine.rs)."""

    def __new__(
        cls,
        spec: str,
        functions: Mapping[str, Callable[..., object]] | None = None,
        addresses: Mapping[str, int] | None = None,
    ) -> Engine:
        """Starts the threads of a spec, with the operators that are the program's own: in Python, or C by address."""

    def push(
        self, stream: str, id: EventId, time: int, attributes: Mapping[str, object]
    ) -> Literal["accepted", "duplicate", "unread", "full", "closed"]:
        """A supplier's event; what became of it."""

    def push_records(self, records: bytes | bytearray | memoryview) -> list[int]:
        """Records one behind another: how many were accepted, duplicates, unread, found no room, came when closed."""

    def read(self, consumer: str, timeout: float | None = None) -> Delivered | None:
        """A consumer's next event, waited for at most so many seconds (None: until the engine stops)."""

    def consumer(self, name: str) -> Consumer:
        """The reading end of a consumer; KeyError if there is none of that name."""

    def change(
        self,
        spec: str,
        functions: Mapping[str, Callable[..., object]] | None = None,
        addresses: Mapping[str, int] | None = None,
        renewed: list[str] = ...,
    ) -> dict[Literal["streams", "operators", "consumers", "levels"], ChangedNames]:
        """Goes on with another spec; ValueError if it can't, and then nothing has changed.

        Operators in `renewed` are taken for others even if both specs say the same of them.
        """

    def stats(self) -> str:
        """The books and latencies, as JSON."""

    def trace(self) -> str:
        """The flight recorder's last moments, as JSON that Perfetto and Chrome read."""

    def reset_latencies(self) -> None:
        """Begins the latencies and run times anew, as after a warm-up. The books go on."""

    def notices(self) -> list[str]:
        """What the engine has to say of the machine."""

    def settle(self, timeout: float) -> bool:
        """Waits until nothing is left to do; False if that was not within so many seconds."""

    def follow(self, folder: PathLike[str] | str) -> None:
        """Feeds it from the log in a folder, from where it last came to; OSError if that can't be read."""

    def start_lane(
        self, folder: PathLike[str] | str, spec: str, queries: list[tuple[str, int, str, list[str], list[str]]]
    ) -> None:
        """Runs queries together over the log in a folder (src/cepheid/service/running/lanes.py).

        One that runs already goes on in this lane instead.
        """

    def spent(self, name: str) -> tuple[int, int] | None:
        """Up to which offset and watermark a query's matches are acknowledged, if it is to go on from there again."""

    def remove_queries(self, names: list[str]) -> None:
        """Takes queries out of their lanes; a lane that has none left ends."""

    def learn(
        self, version: int, learned: list[tuple[str, str | None, list[tuple[int, str]]]], file: PathLike[str] | str
    ) -> int:
        """Queries go by another version of the knowledge, all from one offset of the log on, which is given.

        Of each its plan, if that is another, and by table what is known of keys, as `Matcher.learn` takes it. The
        offset is appended to a file before any query goes by it.
        """

    def knowledge(self) -> dict[str, tuple[int, int]]:
        """By query with PATHs, the version of the knowledge by which the last event was judged, and how many events had
        a value of which nothing is known."""

    def read_match(
        self, query: str, timeout: float | None = None
    ) -> tuple[Row, int | None, list[str], int | None] | None:
        """The next match of a query, the end of its validity, its labels, and the version of the knowledge."""

    def supply(self, derived: str, intake: str, token: str | None = None) -> None:
        """Brings derived streams (JSON of service/derived.py) into the log; those that are brought already go on."""

    def query_stats(self) -> str:
        """What became of the matches of each query, and their latencies; as JSON."""

    def histograms(self) -> str:
        """Latencies of consumers, levels and queries and run times of operators, as whole histograms; as JSON."""

    def fed(self) -> dict[str, int | str | None] | None:
        """What became of the log's events: counts by outcome, the next offset, what is wrong; None without a log."""

    def stop(self, timeout: float) -> bool:
        """Ends the threads; False if one did not end within so many seconds."""

class Outlet:
    """The consumers' socket of an engine (native/src/service/outlet.rs)."""

    def __new__(cls, engine: Engine, address: str, token: str | None, answer_with: Callable[[str], str]) -> Outlet:
        """Listens; `answer_with` is given first lines that name no consumer, and gives the lines that answer them."""

    @property
    def address(self) -> str:
        """Where it listens; a port that was chosen is in it."""

    def stats(self) -> str:
        """By consumer, its clients, and how many events they were sent and lost; as JSON."""

    def close(self) -> None:
        """Ends all connections; the address is free again."""

class DeliveryReader:
    """Reads the frames that a consumer elsewhere gets (docs/wire.md)."""

    def __new__(cls, names: list[str], types: list[str] | None) -> DeliveryReader:
        """For events with attributes of these names and types; without types, for the matches of a query."""

    def feed(
        self, data: bytes
    ) -> list[tuple[int, int, int, list[str], int | None, EventId, int, dict[str, Value], str | None]]:
        """What is whole with these bytes: number, moment of the push, latency in ns, labels, end of validity, id, time,
        values by name, and of a match what it was found with, as JSON. ValueError if it is no frame."""

def read_json(text: bytes) -> Any:
    """What a text of JSON says, for a process that does without `json`; ValueError if it is none."""

def write_json(value: object) -> str:
    """The text of dictionaries, lists, tuples, text, numbers, truth values and None; TypeError for anything else."""

def queue_costs(operations: int) -> list[tuple[str, float, float, float, float]]:
    """Nanoseconds of the queues' operations: enqueue and dequeue, uncontended, then with two threads at each end."""

class Reasoner:
    """Rules to a fixpoint over N-Triples that come and go: native/src/reasoning."""

    def __init__(self, owl: bool, own: str, limit: int) -> None: ...
    def load(self, base: str) -> None: ...
    def restore(self, base: str, facts: str) -> None: ...
    def apply(self, added: str, removed: str) -> tuple[str, str] | None: ...
    def facts(self) -> str: ...
    def in_base(self, triples: str) -> str: ...
    def base(self) -> str: ...
    @staticmethod
    def owl_rl() -> str: ...
    def __len__(self) -> int: ...

def run_suppliers(given: str, ready: Callable[[], int]) -> str:
    """Supplies load for experiments, as a task in JSON says (native/src/load/suppliers.rs); what it did, as JSON.

    `ready` is called when it is connected, and says when to start, in nanoseconds of the monotonic clock.
    """

def run_consumers(given: str, ready: Callable[[], int]) -> tuple[str, bytes]:
    """Receives it (native/src/load/consumers.rs): what it did, as JSON, and its samples, two words each."""
