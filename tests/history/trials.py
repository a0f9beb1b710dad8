"""Trials of the whole: random streams, queries, lags of either side and kills; the result must be the reference's.

A campaign is a stream of events, a schedule of what happens while it comes, and four queries that live through it. Each
query is a trial: what `--follow` says, and what consumers of the service or the sink of Spark get, must be what
tests/reference finds in the whole stream. A trial counts by what was seen while it ran:

- where its query is live, in the service or on Spark, that engine was killed when it had read an event of a match whose
  last event was not even sent. How far it had read, it had written down itself. Other kills do not count: not that of
  the intake, which holds nothing of a query. And `--follow` is never killed, because it keeps nothing: it runs in the
  process of the trials, and its log, archive and Spark's pipeline are what is killed under it;
- `--follow` said, before its first mark, a match whose events were all read from the archive; after it one whose events
  all came later than the question; and after it one with events on both sides of the question.

All is drawn from one seed, and a campaign is drawn again until each of its trials is to count, by what is planned.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
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
#: So many come while the service is away for long.
WHILE_AWAY: Final = 8

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
    "archive unsaid",  # and has not said so yet: both have it
    "move",  # the service is stopped, its files go elsewhere, and it is started there
    "ask",  # the queries are asked, past, present and future
    "catch up",  # who is killed next comes to what the log has
    "kill engine",
    "kill intake",
    "kill both",
    "kill service",  # with who would start them again; they are started a little later
    "kill again",  # the engine, and the next one as soon as it is there
    "kill and forget",  # the service, until the log has forgotten what it needs: that comes back from the archive
    "stop engine",  # it lags: it is stopped, and goes on later
    "go on",
    "kill spark",  # the pipeline's process, which is started again
    "kill all",  # the service and Spark
]
Where: TypeAlias = Literal["service", "spark"]
#: The kills that hit what the queries hold that are live there.
HITS: Final[Mapping[Where, frozenset[Deed]]] = {
    "service": frozenset({"kill engine", "kill both", "kill service", "kill again", "kill and forget", "kill all"}),
    "spark": frozenset({"kill spark", "kill all"}),
}
KILLS: Final[tuple[Deed, ...]] = ("kill engine", "kill both", "kill service", "kill again")

#: What the archive has beyond what it said (negative), or what the log has beyond that (positive).
Lag: TypeAlias = Literal["negative", "zero", "positive"]
LAGS: Final[tuple[Lag, ...]] = ("negative", "zero", "positive")


def lag_of(said: int, archived: int, end: int) -> Lag:
    """How archive and log lie: what the archive has said that it has, what it has, and what the log has."""
    return "negative" if archived > said else "zero" if said == end else "positive"


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
    engine: Where
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
    def lags(self) -> list[tuple[Deed, Lag]]:
        """How archive and log are to lie when the queries are asked, and at each kill."""
        found: list[tuple[Deed, Lag]] = []
        said = archived = 0
        for at, deed in self.deeds:
            if deed == "ask" or deed.startswith("kill"):
                found.append((deed, lag_of(said, archived, at)))
            if deed.startswith("archive") or deed == "kill and forget":
                archived = at + sent_by(deed)
                said = said if deed == "archive unsaid" else archived
        return found

    def lies(self, lag: Lag | None) -> bool:
        """Whether archive and log lie so at the question; None: whether that is another at kills after it."""
        deeds, lags = zip(*self.lags, strict=True)
        then = lags[deeds.index("ask") :]
        return len({*then}) > 1 if lag is None else then[0] == lag


def sent_by(deed: Deed) -> int:
    """How many events are sent while it is done."""
    return (ON_THEIR_WAY if deed.startswith("kill") else 0) + (WHILE_AWAY if deed == "kill and forget" else 0)


@dataclass(frozen=True)
class Kill:
    """A kill: how far who was killed had read, and how far events had been sent."""

    read: int
    sent: int


@dataclass(frozen=True)
class Seen:
    """What was seen of a trial, by offsets; or what is to be, before it runs."""

    #: Up to here the archive was asked, and the log from here on; and from here on it was followed.
    archived: int
    asked: int
    #: The ids of the matches that came before the first mark.
    past: AbstractSet[str]
    #: Of the engine that has the query live.
    kills: Sequence[Kill]


@dataclass
class Counted:
    """What a trial's matches are made of."""

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


def planned(campaign: Campaign, question: Question, engine: Where, matches: Sequence[Match]) -> Seen:
    """What is to be seen of a query that is live there."""
    archived = begun = caught_up = 0
    kills: list[Kill] = []
    for at, deed in campaign.deeds:
        if deed == "archive" and at <= campaign.asked_at:
            archived = at
        elif deed == "catch up":
            caught_up = at
        elif deed == "move" or deed.startswith("kill"):
            if deed in HITS[engine] and at == caught_up > begun:
                kills.append(Kill(at, at + ON_THEIR_WAY))
            begun = at + sent_by(deed)
    came = [one.event for one in campaign.pushed[: campaign.asked_at] if one.counts]
    reached = [max((e.time for e in came if e.stream == name), default=BEGIN) for name in question.checked.streams]
    complete = min(reached) - LATENESS
    return Seen(archived, campaign.asked_at, {match.id for match in matches if match.time < complete}, kills)


def counted(campaign: Campaign, question: Question, matches: Sequence[Match], seen: Seen) -> Counted:
    """Where the events of a trial's matches were."""
    offsets = {(p.event.stream, p.event.id): at for at, p in enumerate(campaign.pushed) if p.counts}
    found = Counted()
    for match in matches:
        own = _offsets(campaign, question, match, offsets)
        if not own:
            continue
        first, last, is_past = min(own), max(own), match.id in seen.past
        found.archive += is_past and last < seen.archived
        found.live += not is_past and first >= seen.asked
        found.boundary += not is_past and first < seen.asked <= last
        found.opened += any(first < kill.read and kill.sent <= last for kill in seen.kills)
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


def lag_at_question(seed: int) -> Lag | None:
    """How archive and log lie when the queries of a seed are asked; None: so, and otherwise at the kills after that."""
    return (*LAGS, None)[seed % 4]


def deeds_of(r: random.Random, length: int, lag: Lag | None, *, with_spark: bool) -> list[tuple[int, Deed]]:
    """Before and after the question come kills, one of which surely hits what is open; with Spark, one for each."""
    archived, asked_at = sorted(r.sample(range(length // 4, length // 2), 2))
    deeds: list[tuple[int, Deed]] = [(asked_at, "ask")]
    if r.random() < 0.3 and not with_spark:
        deeds.append((r.randrange(5, archived), "move"))
    if r.random() < 0.5:
        deeds.append((r.randrange(10, asked_at - ON_THEIR_WAY), r.choice([*KILLS, "kill intake"])))
    sure: list[tuple[int, Deed]] = [(r.randrange(asked_at + 5, length - 35), r.choice(KILLS))]
    if with_spark:
        at, _ = sure[0]
        sure = r.choice([[(at, "kill all")], [(at, "kill spark"), (at + r.randrange(5, 15), sure[0][1])]])
    elif r.random() < 0.15:
        sure = [(sure[0][0], "kill and forget")]
    kills = [*sure]
    if r.random() < 0.5:
        kills.append((r.randrange(asked_at + 3, length - 15), r.choice([*KILLS, "kill intake"])))
    deeds += [*kills, *((at, "catch up") for at, _ in sure)]
    if r.random() < 0.4:
        stopped = r.randrange(asked_at + 1, length - 20)
        deeds += [(stopped, "stop engine"), (stopped + r.randrange(5, 15), "go on")]
    if with_spark:  # which archives by itself
        deeds.append((archived, "archive"))
    else:
        deeds += _archiving(r, lag, archived, asked_at, sorted(at for at, _ in kills))
        deeds.append((length, "archive"))
    return _in_turn(deeds)


def _archiving(
    r: random.Random, lag: Lag | None, archived: int, asked_at: int, killed: Sequence[int]
) -> Iterator[tuple[int, Deed]]:
    """So that archive and log lie as they are to."""
    changing = r.sample(LAGS, len(LAGS))
    at_question = changing[0] if lag is None else lag
    yield asked_at if at_question == "zero" else archived, "archive"
    if at_question == "negative":
        yield r.choice([asked_at, r.randrange(archived + 1, asked_at + 1)]), "archive unsaid"
    if lag is None:
        for at, then in zip(killed, changing[1:], strict=False):
            yield at if then == "zero" else at - 2, "archive"
            if then == "negative":
                yield at, "archive unsaid"
    elif r.random() < 0.5:
        yield r.randrange(asked_at + 1, killed[-1] + 10), r.choice(["archive", "archive unsaid"])


def _in_turn(deeds: list[tuple[int, Deed]]) -> list[tuple[int, Deed]]:
    """In the order in which they are done, where what is sent by one comes before the next."""
    order = {"archive": 0, "archive unsaid": 1, "ask": 2, "go on": 3, "catch up": 4, "stop engine": 6}
    found: list[tuple[int, Deed]] = []
    sent = 0
    for at, deed in sorted(deeds, key=lambda one: (one[0], order.get(one[1], 5))):
        found.append((max(at, sent), deed))
        sent = max(at, sent) + sent_by(deed)
    return found


def campaign_of(seed: int, apply: Callable[[str], Application], *, with_spark: bool = False) -> Campaign:
    """The campaign of a seed, each of whose trials counts. `apply` makes an application of its text.

    With Spark, its pipeline runs in a process of its own, which is killed too, and half of the queries run there.
    """
    lag = lag_at_question(seed)
    for attempt in count():
        r = random.Random(f"{seed}.{attempt}")
        pushed = stream_of(r)
        base = Campaign(seed, pushed, deeds_of(r, len(pushed) - 2, lag, with_spark=with_spark), ())
        if not with_spark and not base.lies(lag):
            continue
        drawn = queries_of(r)
        trials: list[Trial] = []
        app = apply(HEAD + "  none: {engine: service, text: 'SELECT ?e.v FILTER (?e.v > 99)'}\n")
        for _ in range(2 * len(KINDS)):
            text = next(drawn)
            question = asked(app, text, BEGIN).question
            engine: Where = "spark" if with_spark and len(trials) % 2 == 0 else "service"
            matches = wanted(base, question)
            if counted(base, question, matches, planned(base, question, engine, matches)).counts:
                acks = engine == "service" and len(trials) in (0, 3)
                trials.append(Trial(f"q{len(trials)}", text, engine, _boundary(r, question), acks))
            if len(trials) == QUERIES:
                return replace(base, trials=trials)
    raise AssertionError("unreachable")


def _boundary(r: random.Random, question: Question) -> Boundary:
    try:
        check_lazy(question.checked.query)
    except NotLazy:
        return "seeded"
    return r.choice(["seeded", "seeded", "lazy"])
