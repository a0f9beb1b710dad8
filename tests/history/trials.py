"""Trials of the whole: random streams, queries, lags of either side and kills; the result must be the reference's.

A campaign is a stream of events, a schedule of what happens while it comes, and four queries that live through it. Each
query is a trial: what `--follow` says, and what consumers of the service or the sink of Spark get, must be what
tests/reference finds in the whole stream. All is drawn from one seed, and so is known before it runs: a campaign is
drawn again until each of its trials counts. A trial counts if

- an engine is killed while a match of it is open: some of its events are in the log, and some not even sent;
- a match has all its events in the archive when the query is asked, one has them all after that, and one on both sides.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Final, Literal, TypeAlias

from cepheid.app.application import Application
from cepheid.app.question import Question
from cepheid.cli.engines import find_matches
from cepheid.history.asked import asked
from cepheid.history.boundary import Boundary, NotLazy, check_lazy
from cepheid.language import syntax
from cepheid.model.events import Event, EventId
from cepheid.model.matches import Match
from cepheid.model.time import format_instant, parse_instant
from cepheid.model.types import Value

SECOND: Final = 1_000_000
BEGIN: Final = parse_instant("2012-05-07T09:00")
END: Final = parse_instant("2012-05-07T10:00")
LATENESS: Final = 3 * SECOND
#: How many queries a campaign has.
QUERIES: Final = 4
#: So many events are just being sent when something is killed.
ON_THEIR_WAY: Final = 3

KNOWLEDGE: Final = """
@prefix p: <http://p/> .
p:x p:in p:hall . p:y p:in p:hall , p:yard . p:z p:in p:yard .
"""
HEAD: Final = """
name: trial
default_stream: a
prefixes: {p: "http://p/"}
streams:
  a:
    attributes: {k: string, v: int, f: float}
    lateness: 3s
    key: k
    semantics: {k: {property: "p:from", entity: "p:{value}"}}
  b: {attributes: {k: string, v: int}, lateness: 3s, key: k}
knowledge: {sources: [plant.ttl]}
archive: {path: archive}
service: {listen: "unix:in.sock", deliver: "unix:out.sock", log: {path: log, durability: each}}
queries:
"""

Reference: TypeAlias = tuple[str, EventId]

#: What happens between two events of the stream.
Deed: TypeAlias = Literal[
    "archive",  # the archive takes what is in the log
    "move",  # the service is stopped, its files go elsewhere, and it is started there
    "ask",  # the queries are asked, past, present and future
    "kill engine",
    "kill intake",
    "kill both",
    "kill service",  # with who would start them again; they are started a little later
    "kill again",  # the engine, and the next one as soon as it is there
    "stop engine",  # it lags: it is stopped, and goes on later
    "go on",
    "kill spark",  # the pipeline's process, which is started again
    "kill all",  # the service and Spark
]
KILLS: Final[tuple[Deed, ...]] = ("kill engine", "kill intake", "kill both", "kill service", "kill again")


@dataclass(frozen=True)
class Pushed:
    """An event in the order of its arrival, which is its offset; and whether it counts (rule E4)."""

    event: Event
    counts: bool


@dataclass(frozen=True)
class Trial:
    """A query: its name, text, where it is live, how past and live are joined, and whether its reader acknowledges."""

    name: str
    text: str
    engine: Literal["service", "spark"]
    boundary: Boundary
    acks: bool


@dataclass(frozen=True)
class Campaign:
    """A stream, what happens before which of its offsets, and the queries."""

    seed: int
    pushed: Sequence[Pushed]
    deeds: Sequence[tuple[int, Deed]]
    trials: Sequence[Trial]

    @property
    def app_text(self) -> str:
        lines = [f"  {t.name}:\n    engine: {t.engine}\n    text: |\n      {t.text}\n" for t in self.trials]
        return HEAD + "".join(lines)

    @property
    def events(self) -> list[Event]:
        """Those that take part in queries."""
        return [one.event for one in self.pushed if one.counts]

    @cached_property
    def asked_at(self) -> int:
        return next(at for at, deed in self.deeds if deed == "ask")

    @cached_property
    def archived_to(self) -> int:
        """How far the archive was when the queries were asked."""
        return max((at for at, deed in self.deeds if deed == "archive" and at <= self.asked_at), default=0)

    @property
    def killed_at(self) -> list[int]:
        return [at for at, deed in self.deeds if deed.startswith("kill")]


@dataclass
class Counted:
    """What a trial's matches are made of, by offsets."""

    archive: int = 0
    live: int = 0
    boundary: int = 0
    #: Matches that were open at a kill.
    opened: int = 0

    @property
    def counts(self) -> bool:
        return min(self.archive, self.live, self.boundary, self.opened) > 0


def wanted(campaign: Campaign, question: Question) -> list[Match]:
    """What the reference finds in the whole stream."""
    return list(find_matches("reference", question, campaign.events, BEGIN))


def counted(campaign: Campaign, question: Question, matches: Sequence[Match]) -> Counted:
    """Where the events of a trial's matches were."""
    offsets = {(p.event.stream, p.event.id): at for at, p in enumerate(campaign.pushed) if p.counts}
    found = Counted()
    for match in matches:
        own = _offsets(campaign, question, match, offsets)
        if not own:
            continue
        first, last = min(own), max(own)
        found.archive += last < campaign.archived_to
        found.live += first >= campaign.asked_at
        found.boundary += first < campaign.asked_at <= last
        found.opened += any(first < at and at + ON_THEIR_WAY <= last for at in campaign.killed_at)
    return found


def _offsets(
    campaign: Campaign, question: Question, match: Match, offsets: Mapping[tuple[str, EventId], int]
) -> list[int]:
    if match.window is None:
        bound = [b for v in match.events.values() if v is not None for b in (v if isinstance(v, list) else [v])]
        moving = next((w for w in question.checked.query.windows if isinstance(w, syntax.EventWindow)), None)
        if moving is not None:
            bound = _in_window(campaign, moving, *bound[0])
        return [offsets[stream, event_id] for stream, event_id in bound]
    # Of a window, the events that lie in it.
    return [
        at
        for at, p in enumerate(campaign.pushed)
        if p.counts
        and p.event.stream in question.checked.streams
        and match.window.start <= p.event.time < match.window.end
        and all(p.event.attributes.get(name) == value for name, value in (match.group or {}).items())
    ]


def _in_window(campaign: Campaign, moving: syntax.EventWindow, stream: str, event_id: EventId) -> list[Reference]:
    """What the window of an event has: see `_moving`."""
    own = next(e for e in campaign.events if (e.stream, e.id) == (stream, event_id))
    same = [e for e in campaign.events if e.stream == stream and e.attributes["k"] == own.attributes["k"]]
    before = sorted((e for e in same if e.order <= own.order and _number(e) > 0), key=lambda e: e.order)
    if moving.kind == "length":
        before = before[-moving.size :]
    return [(e.stream, e.id) for e in before if moving.kind == "length" or e.time > own.time - moving.size]


def _number(event: Event) -> int:
    value = event.attributes["v"]
    return value if isinstance(value, int) else 0


def stream_of(r: random.Random) -> list[Pushed]:
    """Events of two streams: out of order within their lateness, some too late for it, some there twice."""
    pushed: list[Pushed] = []
    greatest: dict[str, int] = {}
    ids = {"a": count(1), "b": count(1)}
    moment = BEGIN
    known: set[tuple[str, object]] = set()

    def push(event: Event) -> None:
        is_new = (event.stream, event.id) not in known
        known.add((event.stream, event.id))
        before = greatest.get(event.stream)
        is_late = before is not None and event.time < before - LATENESS
        if is_new:
            greatest[event.stream] = event.time if before is None else max(before, event.time)
        pushed.append(Pushed(event, is_new and not is_late))

    silent_from = r.randrange(60, 90)
    while len(pushed) < 150:
        # Once in a while nobody says anything: sessions end, and nothing is alive.
        moment += r.choice([0, 1, 1, 1, 2]) * SECOND + (60 * SECOND if len(pushed) == silent_from else 0)
        stream = "a" if r.random() < 0.7 else "b"
        time = moment - (r.choice([0, 0, 1, 2, 3]) * SECOND if r.random() < 0.3 else 0)
        if r.random() < 0.03:
            time = moment - 30 * SECOND
        attributes: dict[str, Value] = {"k": r.choice(["x", "x", "y", "y", "z", None]), "v": r.randrange(6)}
        if stream == "a":
            attributes["f"] = r.choice([None, 0.5, 1.25, 2.0])
        event = Event(stream, next(ids[stream]), max(time, BEGIN), attributes)
        push(event)
        if r.random() < 0.05:
            push(r.choice(pushed).event)
    for stream in ("a", "b"):  # beyond WITHIN: after these nothing of it can come
        push(Event(stream, 10_000, END + 60 * SECOND, {"k": None, "v": None} | ({"f": None} if stream == "a" else {})))
    return pushed


def queries_of(r: random.Random) -> Iterator[str]:
    """Queries of every kind, over and over, in an order of chance."""
    while True:
        yield from r.sample([make(r) for make in KINDS], len(KINDS))


def _within() -> str:
    return f"WITHIN [{format_instant(BEGIN)}, {format_instant(END)})"


def _width(r: random.Random) -> str:
    return f"{r.randrange(5, 9)}s"


def _pair(r: random.Random) -> str:
    w = _width(r)
    return (
        f"SELECT ?p.k, ?q.v - ?p.v AS rise {_within()} FILTER (?p.v > 1) JOIN (?p.k = ?q.k AND ?q.v > ?p.v)"
        f" SEQ (?p, ?q) WINDOW (?p, ?q, {w})"
    )


def _across_streams(r: random.Random) -> str:
    w = r.randrange(2, 4)
    return (
        f"SELECT ?p.v, ?q.v AS w FROM (?p, a), (?q, b) {_within()} FILTER (?p.v > 2) JOIN (?p.k = ?q.k)"
        f" WINDOW (?p, ?q, {w}s)"
    )


def _many(r: random.Random) -> str:
    w = _width(r)
    return (
        f"SELECT ?p.k, COUNT(?m) AS n, SUM(?m.f) AS s {_within()} FILTER (?p.v = 4) FILTER (?m.v < 4) FILTER (?q.v = 5)"
        f" JOIN (?p.k = ?m.k AND ?p.k = ?q.k) SEQ (?p, ?m+, ?q) WINDOW (?p, ?q, {w})"
    )


def _not_between(r: random.Random) -> str:
    w = _width(r)
    return (
        f"SELECT ?p.v FROM (?p, a), (?n, b), (?q, a) {_within()} FILTER (?p.v > 2) FILTER (?n.v > 3)"
        f" JOIN (?p.k = ?n.k AND ?p.k = ?q.k) SEQ (?p, NOT ?n, ?q) WINDOW (?p, ?q, {w})"
    )


def _not_at_end(r: random.Random) -> str:
    w = _width(r)
    return (
        f"SELECT ?p.v FROM (?p, a), (?q, a), (?n, b) {_within()} FILTER (?p.v > 2) FILTER (?n.v > 2)"
        f" JOIN (?p.k = ?q.k AND ?p.k = ?n.k) SEQ (?p, ?q, NOT ?n) WINDOW (?p, ?q, ?n, {w})"
    )


def _maybe(r: random.Random) -> str:
    w = _width(r)
    return (
        f"SELECT ?p.v, ?m.f {_within()} FILTER (?p.v = 1) FILTER (?m.v = 2) FILTER (?q.v > 2)"
        f" JOIN (?p.k = ?m.k AND ?p.k = ?q.k) SEQ (?p, ?m?, ?q) WINDOW (?p, ?q, {w})"
    )


def _next(r: random.Random) -> str:
    w = _width(r)
    return (
        f"SELECT ?p.v, ?q.f, ?s.v AS last {_within()} FILTER (?p.v > 1) JOIN (?p.k = ?q.k AND ?q.k = ?s.k)"
        f" JOIN (?q.v > ?p.v) SEQ (?p, ?q, ?s) WINDOW (?p, ?s, {w}) MATCH NEXT"
    )


def _strict(r: random.Random) -> str:
    w = r.randrange(8, 13)
    return (
        f"SELECT ?p.v, ?q.v AS w {_within()} JOIN (?p.k = ?q.k AND ?q.v >= ?p.v) SEQ (?p, ?q)"
        f" WINDOW (?p, ?q, {w}s) MATCH STRICT"
    )


def _after(r: random.Random) -> str:
    after = r.choice(["CONSUME", "SKIP PAST LAST", "SKIP TO NEXT"])
    return f"{_pair(r)} AFTER MATCH {after}"


def _any(r: random.Random) -> str:
    w = _width(r)
    return (
        f"SELECT ?p.v FROM (?p, a), (?q, a), (?s, b) {_within()} FILTER (?p.v > 3) FILTER (?q.v = 0)"
        f" JOIN (?p.k = ?q.k) JOIN (?p.k = ?s.k) SEQ (?p, ANY(?q, ?s)) WINDOW (?p, ?q, ?s, {w})"
    )


def _moving(kind: str, sizes: Sequence[str]) -> Callable[[random.Random], str]:
    def make(r: random.Random) -> str:
        group = "?e.k, " if kind in ("batch", "session") else ""
        return (
            f"SELECT {group}SUM(?e.v) AS s, COUNT(?e) AS n {_within()} FILTER (?e.v > 0)"
            f" WINDOW (?e, {kind}, {r.choice(sizes)}) GROUP BY ?e.k"
        )

    return make


def _path(r: random.Random) -> str:
    w = _width(r)
    place = r.choice(["hall", "yard"])
    return (
        f"SELECT ?p.v {_within()} FILTER (?q.v > 1) JOIN (?p.k = ?q.k) SEQ (?p, ?q) WINDOW (?p, ?q, {w})"
        f" PATH {{ ?p p:from ?s . ?s p:in p:{place} }}"
    )


KINDS: Final[tuple[Callable[[random.Random], str], ...]] = (
    _pair,
    _across_streams,
    _many,
    _not_between,
    _not_at_end,
    _maybe,
    _next,
    _strict,
    _after,
    _any,
    _moving("sliding", ["5s", "8s"]),
    _moving("batch", ["10s", "20s"]),
    _moving("session", ["6s", "8s"]),
    _moving("length", ["3", "5"]),
    _path,
)


def _deeds(r: random.Random, length: int, *, with_spark: bool) -> list[tuple[int, Deed]]:
    """The archive lags behind or not when the queries are asked; before and after that come kills."""
    archived, asked_at = sorted(r.sample(range(length // 4, length // 2), 2))
    deeds: list[tuple[int, Deed]] = [(asked_at, "ask")]
    if not with_spark:
        # Not at all in between: a positive gap. At once: none. And what comes later may overtake a slow engine.
        deeds.append((r.choice([archived, asked_at]), "archive"))
        deeds += [(r.randrange(asked_at + 1, length - 10), "archive") for _ in range(r.randrange(2))]
        deeds.append((length, "archive"))
    if r.random() < 0.3 and not with_spark:
        deeds.append((r.randrange(5, archived), "move"))
    if r.random() < 0.5:
        deeds.append((r.randrange(10, asked_at - ON_THEIR_WAY), r.choice(KILLS)))
    for _ in range(r.randrange(1, 3)):
        deeds.append((r.randrange(asked_at + 3, length - 15), r.choice(KILLS)))
    if r.random() < 0.4:
        stopped = r.randrange(asked_at + 1, length - 20)
        deeds += [(stopped, "stop engine"), (stopped + r.randrange(5, 15), "go on")]
    if with_spark:
        deeds.append((archived, "archive"))
        deeds.append((r.randrange(asked_at + 10, length - 20), r.choice(["kill spark", "kill all"])))
    order = {"archive": 0, "ask": 1}
    return sorted(deeds, key=lambda one: (one[0], order.get(one[1], 2)))


def campaign_of(seed: int, apply: Callable[[str], Application], *, with_spark: bool = False) -> Campaign:
    """The campaign of a seed, each of whose trials counts. `apply` makes an application of its text.

    With Spark, its pipeline runs in a process of its own, which is killed too, and half of the queries run there.
    """
    for attempt in count():
        r = random.Random(f"{seed}.{attempt}")
        pushed = stream_of(r)
        deeds = _deeds(r, len(pushed) - 2, with_spark=with_spark)
        drawn = queries_of(r)
        trials: list[Trial] = []
        base = Campaign(seed, pushed, deeds, ())
        app = apply(HEAD + "  none: {engine: service, text: 'SELECT ?e.v FILTER (?e.v > 99)'}\n")
        for _ in range(2 * len(KINDS)):
            text = next(drawn)
            question = asked(app, text, BEGIN).question
            if counted(base, question, wanted(base, question)).counts:
                engine: Literal["service", "spark"] = "spark" if with_spark and len(trials) % 2 == 0 else "service"
                acks = engine == "service" and len(trials) in (0, 3)
                trials.append(Trial(f"q{len(trials)}", text, engine, _boundary(r, question), acks))
            if len(trials) == QUERIES:
                return Campaign(seed, pushed, deeds, trials)
    raise AssertionError("unreachable")


def _boundary(r: random.Random, question: Question) -> Boundary:
    try:
        check_lazy(question.checked.query)
    except NotLazy:
        return "seeded"
    return r.choice(["seeded", "seeded", "lazy"])
