"""Queries with something in common: what is shared is done once, and each query finds what it finds alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from cepheid.cli.engines import find_matches
from cepheid.language.checker import Checked, check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.plan.matcher import Budget, Matcher
from cepheid.plan.stages import conditions_of
from cepheid.plan.standing import Standing
from tests.plan.query_strategies import SECOND
from tests.plan.running import EXAMPLES, plain
from tests.plan.test_divisions import splits
from tests.plan.test_standing import STREAMS, checked

NOW = 2 * SECOND

FILTERS = ("?{v}.k = 'x'", "?{v}.v > 1", "?{v}.v > 1 AND ?{v}.k != 'z'", "?{v}.n IN (1, 2)", "?{v}.v + 1 > ?{v}.n")
#: JOINs by the steps that they name.
JOINS = (
    "?{0}.k = ?{1}.k",
    "?{1}.v > ?{0}.v",
    "?{0}.n + ?{1}.n > 3",
    "?{1}.k = ?{2}.k",
    "?{2}.n != ?{0}.n",
    "?{2}.time - ?{1}.time < 4s",
    "?{2}.v >= ?{0}.v AND ?{2}.k = ?{0}.k",
    "?{3}.k = ?{0}.k",
    "?{3}.v > ?{1}.v OR ?{3}.id > ?{2}.id",
)
NAMES = (("a", "b", "c", "d"), ("d", "c", "b", "a"), ("one", "two", "three", "four"))


@dataclass(frozen=True)
class Family:
    """What the queries of a family have in common, step by step."""

    streams: tuple[str, ...]
    filters: tuple[str | None, ...]
    joins: tuple[str, ...]
    window: str
    match: str

    def text(self, steps: int, names: Sequence[str], select: str, last: str | None, turned: bool) -> str:
        """A query of so many steps, whose last one may be of its own kind."""
        names = names[:steps]
        ranges = [f"(?{name}, {stream})" for name, stream in zip(names, self.streams, strict=False)]
        if last is not None and "extra" in last:
            ranges.append("(?extra, s)")
        seq = [f"?{name}" for name in names]
        if last is not None:
            seq[-1] = last.format(seq[-1])
        parts = [f"FROM {', '.join(reversed(ranges) if turned else ranges)}"]
        filters = zip(names, self.filters, strict=False)
        parts += [f"FILTER ({given.format(v=name)})" for name, given in filters if given is not None]
        known = [join for join in self.joins if all(f"{{{i}}}" not in join for i in range(steps, 4))]
        parts += [f"JOIN ({join.format(*names)})" for join in known]
        parts += [f"SEQ ({', '.join(seq)})", *self._windows(names, last), self.match]
        return f"SELECT {select.format(*names)} {' '.join(parts)}"

    def _windows(self, names: Sequence[str], last: str | None) -> Iterator[str]:
        listed = [f"?{name}" for name in names] + (["?extra"] if last is not None and "extra" in last else [])
        if self.window == "whole":
            yield f"WINDOW ({', '.join(listed)}, 6s)"
        elif self.window == "ends":
            yield f"WINDOW ({listed[0]}, {listed[-1]}, 6s)"
            if last is not None and "extra" in last:
                yield f"WINDOW ({listed[0]}, {listed[-2]}, 6s)"
        else:
            for one, other in pairwise(listed):
                yield f"WINDOW ({one}, {other}, 3s)"


SELECTS = ("?{0}.id AS x", "?{1}.v AS y, ?{0}.k AS x", "?{1}.v - ?{0}.v AS rise", "?{0}.time AS t, ?{1}.n AS n")
LASTS = (None, None, None, "ALL({0}, ?extra)", "ANY({0}, ?extra)", "{0}+", "{0}?")
MATCHES = ("MATCH NEXT",) * 5 + ("", "MATCH NEXT AFTER MATCH CONSUME", "AFTER MATCH SKIP TO NEXT", "MATCH STRICT")


@st.composite
def families(draw: st.DrawFn) -> list[Checked]:
    family = Family(
        tuple(draw(st.sampled_from(["s", "s", "t", "s | t"])) for _ in range(4)),
        tuple(draw(st.sampled_from([None, None, None, None, *FILTERS])) for _ in range(4)),
        tuple(draw(st.lists(st.sampled_from(JOINS), max_size=2, unique=True))),
        draw(st.sampled_from(["whole", "ends", "pairs"])),
        draw(st.sampled_from(MATCHES)),
    )
    found = []
    for _ in range(draw(st.integers(3, 6))):
        text = family.text(
            draw(st.integers(2, 4)),
            draw(st.sampled_from(NAMES)),
            draw(st.sampled_from(SELECTS)),
            draw(st.sampled_from(LASTS)),
            draw(st.booleans()),
        )
        query, _ = check(parse(text), Catalogue(STREAMS))
        if query is not None:  # some are refused: AFTER MATCH without a key, a list in SELECT
            found.append(query)
    return found


#: Many of a kind, so that patterns of four steps are found.
EVENTS = st.lists(
    st.tuples(
        st.sampled_from("sst"),
        st.integers(0, 8),
        st.sampled_from(["x", "x", "x", "y", None]),
        st.sampled_from([1, 2, 3]),
        st.sampled_from([1.0, 1.5, 2.0, 3.0, 4.0, None]),
        st.just(True),
    ),
    min_size=6,
    max_size=14,
)


def events_of(rows: list[tuple[object, ...]]) -> list[Event]:
    events = [
        Event(str(stream), i, second * SECOND, {"k": k, "n": n, "v": v, "ok": ok})  # type: ignore[operator,dict-item]
        for i, (stream, second, k, n, v, ok) in enumerate(rows)
    ]
    return sorted(events, key=lambda e: e.time)


def run(queries: dict[str, Checked], arrival: Sequence[Event], sizes: Sequence[int]) -> dict[str, list[Match]]:
    """Feeds events as they arrive, each batch with the highest watermark that makes none of the rest late."""
    standing = Standing(queries, NOW)
    found: dict[str, list[Match]] = {name: [] for name in queries}
    start = batch = 0
    while start < len(arrival):
        size = sizes[batch % len(sizes)]
        standing.push(arrival[start : start + size])
        start, batch = start + size, batch + 1
        if start < len(arrival):
            for name, matches in standing.advance(min(e.time for e in arrival[start:])).items():
                found[name] += matches
    for name, matches in standing.advance(None).items():
        found[name] += matches
    return found


some = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@some
@given(families(), EVENTS, st.data())
def test_each_query_finds_what_it_finds_alone(
    family: list[Checked], rows: list[tuple[object, ...]], data: st.DataObject
) -> None:
    queries = {f"q{i}": query for i, query in enumerate(family)}
    events = events_of(rows)
    alone = {name: Matcher(query, NOW).matches(events) for name, query in queries.items()}
    for name, query in queries.items():
        assert [plain(m) for m in alone[name]] == [plain(m) for m in find_matches("reference", query, events, NOW)]
    patterns = Standing(queries, NOW).patterns
    begun = [name for pattern in patterns if pattern.begun_by is not None for name in pattern.queries]
    event(f"a beginning is shared: {bool(begun)}, with matches: {any(alone[name] for name in begun)}")
    event(f"a pattern is shared: {any(len(pattern.queries) > 1 for pattern in patterns)}")
    assert run(queries, events, [1]) == alone
    arrival = data.draw(st.permutations(events))
    assert run(queries, arrival, data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))) == alone


@settings(some, max_examples=EXAMPLES // 4)
@given(families(), EVENTS.map(lambda rows: rows[:6]))
def test_in_every_division(family: list[Checked], rows: list[tuple[object, ...]]) -> None:
    queries = {f"q{i}": query for i, query in enumerate(family)}
    events = events_of(rows)
    alone = {name: Matcher(query, NOW).matches(events) for name, query in queries.items()}
    for sizes in splits(len(events)):
        assert run(queries, events, sizes) == alone


PAIR = (
    "FROM (?{0}, s), (?{1}, s) FILTER (?{0}.k = 'x') FILTER (?{1}.k = 'y') JOIN (?{1}.v > ?{0}.v)"
    " SEQ (?{0}, ?{1}) WINDOW (?{0}, ?{1}, 9s)"
)
TRIPLE = (
    "FROM (?a, s), (?b, s), (?c, s) FILTER (?a.k = 'x') FILTER (?b.k = 'y') FILTER (?c.k = '{k}') JOIN (?b.v > ?a.v)"
    " SEQ (?a, ?b, ?c) WINDOW (?a, ?b, 9s) WINDOW (?{first}, ?c, {w}s) MATCH NEXT"
)


def stand(texts: dict[str, str], events: Sequence[Event]) -> tuple[Standing, dict[str, list[Match]]]:
    standing = Standing({name: checked(text) for name, text in texts.items()}, NOW)
    standing.push(events)
    return standing, standing.advance(20 * SECOND)


def series(kinds: str) -> list[Event]:
    """An event a second, of these kinds, each warmer than the one before."""
    return [Event("s", i, i * SECOND, {"k": k, "v": float(i)}) for i, k in enumerate(kinds)]


def test_a_condition_is_judged_once_an_event() -> None:
    text = "SELECT ?e.v FROM (?e, s) FILTER (?e.v + 1 > {n}) FILTER (?e.v * 2 < 100)"
    texts = {f"q{i}": text.format(n=-i % 2 - 1) for i in range(50)}
    standing, found = stand(texts, series("xxxx"))
    assert [len(matches) for matches in found.values()] == [4] * 50
    assert standing.counters.conditions == 3
    assert standing.counters.judged == 4 * 3


def test_equal_patterns_keep_an_event_once() -> None:
    texts = {
        "one": f"SELECT ?a.id AS x {PAIR.format('a', 'b')}",
        "other": f"SELECT ?q.v - ?p.v AS rise {PAIR.format('p', 'q')}",
        "turned": f"SELECT ?b.id AS y {PAIR.format('a', 'b')}".replace("(?a, s), (?b, s)", "(?b, s), (?a, s)"),
    }
    standing = Standing({name: checked(text) for name, text in texts.items()}, NOW)
    assert [pattern.queries for pattern in standing.patterns] == [("one", "other", "turned")]
    standing.push(series("xxxzzz"))
    assert standing.kept == 3
    standing.push([Event("s", 9, 6 * SECOND, {"k": "y", "v": 9.0})])
    found = standing.advance(20 * SECOND)
    assert [m.select["x"] for m in found["one"]] == [0, 1, 2]
    assert [m.select["rise"] for m in found["other"]] == [9.0, 8.0, 7.0]
    assert len({match.id for matches in found.values() for match in matches}) == 9
    assert standing.kept == 0


def test_patterns_that_begin_alike_hold_the_beginning_once() -> None:
    texts = {f"to_{k}": "SELECT ?a.id AS x " + TRIPLE.format(k=k, first="b", w=3) for k in "uvw"}
    standing = Standing({name: checked(text) for name, text in texts.items()}, NOW)
    assert [(p.queries, p.steps, p.begun_by) for p in standing.patterns] == [
        ((), 2, None),
        (("to_u",), 3, 0),
        (("to_v",), 3, 0),
        (("to_w",), 3, 0),
    ]
    standing.push(series("xxxxx"))
    standing.advance(5 * SECOND)
    assert standing.kept == 5
    apart = [Standing({name: checked(text)}, NOW) for name, text in texts.items()]
    for one in apart:
        one.push(series("xxxxx"))
        one.advance(5 * SECOND)
    assert sum(one.kept for one in apart) == 15


def test_the_beginning_may_be_a_query_itself_and_have_one() -> None:
    two = f"SELECT ?a.id AS x {PAIR.format('a', 'b')} MATCH NEXT"
    three = "SELECT ?c.id AS x " + TRIPLE.format(k="u", first="b", w=9)
    four = three.replace("(?c, s)", "(?c, s), (?d, s)").replace("?b, ?c)", "?b, ?c, ?d)") + " WINDOW (?c, ?d, 9s)"
    standing, found = stand({"four": four, "two": two, "three": three}, series("xxyuu"))
    assert [(p.queries, p.begun_by) for p in standing.patterns] == [(("two",), None), (("three",), 0), (("four",), 1)]
    assert {name: [m.events for m in matches] for name, matches in found.items()} == {
        "two": [{"a": ("s", i), "b": ("s", 2)} for i in (0, 1)],
        "three": [{"a": ("s", i), "b": ("s", 2), "c": ("s", 3)} for i in (0, 1)],
        "four": [{"a": ("s", i), "b": ("s", 2), "c": ("s", 3), "d": ("s", 4)} for i in (0, 1)],
    }


def test_a_window_from_the_beginning_is_judged_by_its_first_event() -> None:
    texts = {f"w{w}": "SELECT ?a.id AS x " + TRIPLE.format(k="u", first="a", w=w) for w in (3, 4, 5)}
    _, found = stand(texts, series("xxyzu"))  # a at 0 and 1, b at 2, c at 4
    assert {name: [m.select["x"] for m in matches] for name, matches in found.items()} == {
        "w3": [1],
        "w4": [0, 1],
        "w5": [0, 1],
    }


def test_what_was_begun_is_let_go_of() -> None:
    texts = {k: "SELECT ?a.id AS x " + TRIPLE.format(k=k, first="b", w=3) for k in "uv"}
    standing, _ = stand(texts, series("xyxyxy"))
    standing.advance(60 * SECOND)
    assert standing.kept == 0


def test_with_a_budget_no_beginning_is_shared_and_equal_patterns_fail_together() -> None:
    texts = {k: "SELECT ?a.id AS x " + TRIPLE.format(k=k, first="b", w=3) for k in "uv"}
    texts["again"] = texts["u"].replace("AS x", "AS y")
    standing = Standing({name: checked(text) for name, text in texts.items()}, NOW, Budget(2))
    assert [(p.queries, p.begun_by) for p in standing.patterns] == [(("u", "again"), None), (("v",), None)]
    standing.push(series("xxu"))
    assert list(standing.failed) == ["u", "again"]


#: By what they share: aggregates, HAVING and conditions in SELECT differ.
AGGREGATES = (
    (
        "FROM (?e, s) WINDOW (?e, sliding, 3s) GROUP BY ?e.k",
        ("AVG(?e.v) AS x", "COUNT(?e) AS n, AVG(?e.v) AS x", "MAX(?e.n) > 1 AS m", "?e.k, SUM(?e.n) AS s"),
        ("", "HAVING (COUNT(?e) > 1)", "HAVING (SUM(?e.n) > 3)"),
    ),
    (
        "FROM (?e, s) WINDOW (?e, batch, 2s) GROUP BY ?e.k",
        ("AVG(?e.v) AS x", "COUNT(?e) AS n, LAST(?e.v) AS x", "?e.k, SUM(?e.n) AS s"),
        ("", "HAVING (COUNT(?e) > 1)"),
    ),
    (
        "FROM (?a, s), (?e, s), (?b, t) SEQ (?a, ?e+, ?b) WINDOW (?a, ?e, ?b, 6s)",
        ("SUM(?e.v) AS x", "?a.id AS one, COUNT(?e) AS n, SUM(?e.v) AS x", "FIRST(?e.n) AS f"),
        ("", "HAVING (COUNT(?e) > 1)", "AFTER MATCH KEEP"),
    ),
    (
        "FROM (?a, s), (?e, s), (?b, s) JOIN (?a.k = ?e.k) JOIN (?e.k = ?b.k) SEQ (?a, ?e+, ?b) WINDOW (?a, ?e, ?b, 6s)"
        " AFTER MATCH CONSUME",
        ("SUM(?e.v) AS x", "COUNT(?e) AS n"),
        ("", "HAVING (COUNT(?e) > 1)", "HAVING (SUM(?e.v) > 4)"),
    ),
)


@settings(some, max_examples=EXAMPLES // 2)
@given(st.sampled_from(AGGREGATES), EVENTS, st.data())
def test_aggregates_of_one_pattern(
    family: tuple[str, tuple[str, ...], tuple[str, ...]], rows: list[tuple[object, ...]], data: st.DataObject
) -> None:
    body, selects, ends = family
    draw = data.draw(st.lists(st.tuples(st.sampled_from(selects), st.sampled_from(ends)), min_size=2, max_size=5))
    queries = {f"q{i}": checked(f"SELECT {select} {body} {end}") for i, (select, end) in enumerate(draw)}
    assert [pattern.queries for pattern in Standing(queries, NOW).patterns] == [tuple(queries)]
    events = events_of(rows)
    found = run(queries, events, data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    assert found == {name: Matcher(query, NOW).matches(events) for name, query in queries.items()}


@settings(some, max_examples=EXAMPLES // 2)
@given(families())
def test_explain_shows_the_conditions_that_are_judged(family: list[Checked]) -> None:
    queries = {f"q{i}": query for i, query in enumerate(family)}
    shown = {
        (stream, condition)
        for query in family
        for given in query.query.ranges
        for stream in given.streams
        for condition in conditions_of(query, given.variable)
    }
    assert len(shown) == Standing(queries, NOW).counters.conditions
