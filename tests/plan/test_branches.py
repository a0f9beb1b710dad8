"""Queries that begin alike under MATCH ANY hold their events together, and each finds what it finds alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from cepheid.cli.engines import find_matches
from cepheid.language.checker import Checked, check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.plan.matcher import Budget, Matcher
from cepheid.plan.standing import Pattern, Standing
from tests.plan.query_strategies import SECOND
from tests.plan.running import EXAMPLES, plain
from tests.plan.test_divisions import splits
from tests.plan.test_sharing_queries import EVENTS, FILTERS, NOW, events_of, run, series, some
from tests.plan.test_standing import STREAMS, checked

#: Steps that a beginning may have, and those that a query may go on with; `{0}` is a variable's name.
FIRST = ("?{0}", "?{0}", "?{0}", "ALL(?{0}, ?{0}x)", "ANY(?{0}, ?{0}x)")
INSIDE = (*FIRST, "NOT ?{0}", "?{0}+", "?{0}{{0,2}}", "?{0}?")
JOINS = ("?{1}.v > ?{0}.v", "?{0}.n + ?{1}.n > 3", "?{0}.n = ?{1}.n", "?{1}.time - ?{0}.time < 4s", "?{0}.v != ?{1}.v")
AFTER = ("", "", "", "AFTER MATCH CONSUME", "AFTER MATCH SKIP PAST LAST", "AFTER MATCH SKIP TO NEXT")


@dataclass(frozen=True)
class Step:
    """A step, with the streams and conditions of its variables."""

    form: str
    stream: str
    condition: str | None


def steps(forms: Sequence[str]) -> st.SearchStrategy[Step]:
    return st.builds(
        Step,
        st.sampled_from(forms),
        st.sampled_from(["s", "s", "t", "s | t"]),
        st.sampled_from([None, None, None, *FILTERS]),
    )


@st.composite
def texts(draw: st.DrawFn, begun: Sequence[Step], is_keyed: bool) -> str:
    """A query with this beginning, of which it may leave some, and steps, JOINs, WINDOWs and names of its own."""
    own = [*begun[: draw(st.integers(1, len(begun)))]]
    own += draw(st.lists(steps(INSIDE), min_size=2 - min(len(own), 2), max_size=2))
    names = draw(st.sampled_from([("a", "b", "c", "d", "e"), ("e", "d", "c", "b", "a")]))
    ranges, variables, parts = [], [], []
    for name, step in zip(names, own, strict=False):
        for variable in [name, name + "x"] if "x" in step.form else [name]:
            ranges.append(f"(?{variable}, {step.stream})")
            variables.append(variable)
            parts += [] if step.condition is None else [f"FILTER ({step.condition.format(v=variable)})"]
    bound = [name for name, step in zip(names, own, strict=False) if "NOT" not in step.form]
    if draw(st.integers(0, 5)) == 0:
        ranges.append("(?free, t)")
        variables.append("free")
    if is_keyed:
        parts += [f"JOIN (?{variables[0]}.k = ?{other}.k)" for other in variables[1:]]
    pairs = [(one, other) for i, one in enumerate(variables) for other in variables[i + 1 :]]
    for join in draw(st.lists(st.sampled_from(JOINS), max_size=2)):
        parts.append(f"JOIN ({join.format(*draw(st.sampled_from(pairs)))})")
    listed = variables if draw(st.booleans()) else [v for v in variables if v not in names or v in bound]
    parts.append(f"WINDOW ({', '.join(f'?{v}' for v in listed)}, {draw(st.sampled_from([2, 4, 6]))}s)")
    parts.append(f"SEQ ({', '.join(step.form.format(name) for name, step in zip(names, own, strict=False))})")
    parts.append(draw(st.sampled_from(AFTER)))
    order = reversed(ranges) if draw(st.booleans()) else ranges
    return f"SELECT ?{bound[0]}.id AS x FROM {', '.join(order)} {' '.join(parts)}"


@st.composite
def families(draw: st.DrawFn) -> dict[str, Checked]:
    begun = [draw(steps(FIRST)), *draw(st.lists(steps(INSIDE), max_size=2))]
    is_keyed = draw(st.booleans())
    found = []
    for _ in range(draw(st.integers(3, 6))):
        query, _ = check(parse(draw(texts(begun, is_keyed))), Catalogue(STREAMS))
        if query is not None:  # some are refused: lists side by side, AFTER MATCH without a key
            found.append(query)
    return {f"q{i}": query for i, query in enumerate(found)}


def shared(patterns: Sequence[Pattern]) -> list[str]:
    """The queries that hold events together with others."""
    return [
        name for p in patterns if p.begun_by is not None and patterns[p.begun_by].holds_events for name in p.queries
    ]


@some
@given(families(), EVENTS, st.data())
def test_each_query_finds_what_it_finds_alone(
    queries: dict[str, Checked], rows: list[tuple[object, ...]], data: st.DataObject
) -> None:
    events = events_of(rows)
    alone = {name: Matcher(query, NOW).matches(events) for name, query in queries.items()}
    for name, query in queries.items():
        assert [plain(m) for m in alone[name]] == [plain(m) for m in find_matches("reference", query, events, NOW)]
    together = shared(Standing(queries, NOW).patterns)
    event(f"events are shared: {bool(together)}, with matches: {any(alone[name] for name in together)}")
    assert run(queries, events, [1]) == alone
    arrival = data.draw(st.permutations(events))
    assert run(queries, arrival, data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))) == alone


@settings(some, max_examples=EXAMPLES // 4)
@given(families(), EVENTS.map(lambda rows: rows[:6]))
def test_in_every_division(queries: dict[str, Checked], rows: list[tuple[object, ...]]) -> None:
    events = events_of(rows)
    alone = {name: Matcher(query, NOW).matches(events) for name, query in queries.items()}
    for sizes in splits(len(events)):
        assert run(queries, events, sizes) == alone


@settings(some, max_examples=EXAMPLES // 2)
@given(families(), EVENTS)
def test_no_more_is_held_than_apart_and_all_is_let_go_of(
    queries: dict[str, Checked], rows: list[tuple[object, ...]]
) -> None:
    standing = Standing(queries, NOW)
    apart = [Standing({name: query}, NOW) for name, query in queries.items()]
    for one in events_of(rows):
        for held in (standing, *apart):
            held.advance(one.time)
            held.push([one])
        assert standing.kept <= sum(held.kept for held in apart)
    for second in (20, 40, 60):
        standing.advance(second * SECOND)
    assert standing.kept == 0


PAIR = "FILTER (?a.k = 'x') FILTER (?b.k = 'y') SEQ (?a, ?b"


def third(k: str, seconds: int, step: str = "?c", select: str = "?a.id AS x") -> str:
    return (
        f"SELECT {select} FROM (?a, s), (?b, s), (?c, s) FILTER (?c.k = '{k}')"
        f" WINDOW (?a, ?b, ?c, {seconds}s) {PAIR}, {step})"
    )


def test_the_events_of_a_common_beginning_are_held_once() -> None:
    texts = {k: third(k, 9) for k in "uvw"} | {
        "pair": f"SELECT ?a.id FROM (?a, s), (?b, s) WINDOW (?a, ?b, 5s) {PAIR})"
    }
    standing = Standing({name: checked(text) for name, text in texts.items()}, NOW)
    assert standing.patterns == [
        Pattern((), 2, None, holds_events=True),
        *(Pattern((name,), 3, 0) for name in "uvw"),
        Pattern(("pair",), 2, 0),
    ]
    standing.push(series("xxxyyuvz"))
    found = standing.advance(8 * SECOND)
    assert {name: len(matches) for name, matches in found.items()} == {"u": 6, "v": 6, "pair": 6}
    assert standing.kept == 5  # three times x and twice y
    standing.push([Event("s", 9, 9 * SECOND, {"k": "w", "v": 0.0})])
    assert [match.select["x"] for match in standing.advance(20 * SECOND)["w"]] == [0, 0, 1, 1, 2, 2]
    assert standing.kept == 0


def test_parts_of_a_beginning_may_be_shared_by_fewer() -> None:
    fourth = third("u", 9).replace("(?c, s)", "(?c, s), (?d, s)").replace(", ?c)", ", ?c, ?d)") + " WINDOW (?c, ?d, 2s)"
    texts = {"three": third("u", 9), "four": fourth, "other": third("v", 9)}
    standing = Standing({name: checked(text) for name, text in texts.items()}, NOW)
    assert standing.patterns == [
        Pattern((), 2, None, holds_events=True),
        Pattern((), 3, 0, holds_events=True),
        Pattern(("three",), 3, 1),
        Pattern(("four",), 4, 1),
        Pattern(("other",), 3, 0),
    ]


def test_each_has_its_own_windows_and_deadlines() -> None:
    texts = {f"{step} {w}": third("u", w, step) for step in ("?c", "NOT ?c", "?c?") for w in (4, 6)}
    standing = Standing({name: checked(text) for name, text in texts.items()}, NOW)
    assert shared(standing.patterns) == list(texts)
    standing.push(series("xyzzzu"))  # u comes 5 seconds after x
    found = standing.advance(20 * SECOND)
    assert {name: [match.time // SECOND for match in matches] for name, matches in found.items()} == {
        "?c 6": [5],
        "NOT ?c 4": [4],
        "?c? 4": [4],
        "?c? 6": [5],
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (third("u", 9), third("v", 9) + " JOIN (?a.v = ?b.v) JOIN (?b.v = ?c.v)"),
        (third("u", 9), third("v", 9) + " WITHIN [now, )"),
        (third("u", 9), third("v", 9).replace("?a.k = 'x'", "?a.k = 'z'")),
        (third("u", 9), third("v", 9).replace("(?a, s)", "(?a, s | t)")),
    ],
    ids=["key", "WITHIN", "FILTER", "streams"],
)
def test_those_that_divide_or_choose_events_otherwise_hold_their_own(one: str, other: str) -> None:
    assert shared(Standing({"one": checked(one), "other": checked(other)}, NOW).patterns) == []


def test_a_budget_is_for_what_a_query_holds_by_itself() -> None:
    queries = {k: checked(third(k, 9)) for k in "uv"}
    standing = Standing(queries, NOW, Budget(2, "refuse-newest"))
    assert shared(standing.patterns) == []
    standing.push(series("xxyu"))
    matchers = {name: Matcher(query, NOW, Budget(2, "refuse-newest")) for name, query in queries.items()}
    alone: dict[str, list[Match]] = {}
    for name, matcher in matchers.items():
        matcher.push(series("xxyu"))
        alone[name] = matcher.advance(20 * SECOND)
    assert standing.advance(20 * SECOND) == {name: matches for name, matches in alone.items() if matches}


def test_more_than_a_matcher_has_variables_for() -> None:
    texts = {f"q{i}": third("u", 9).replace("?c.k = 'u'", f"?c.v > {i}") for i in range(150)}
    standing = Standing({name: checked(text) for name, text in texts.items()}, NOW)
    assert [len([p for p in standing.patterns if p.begun_by == place]) for place in (0, 63, 126)] == [62, 62, 26]
    standing.push(series("xy" + "z" * 7))
    found = standing.advance(20 * SECOND)
    assert {name: [m.events["c"] for m in matches] for name, matches in found.items()} == {
        f"q{i}": [("s", c) for c in range(max(i + 1, 2), 9)] for i in range(8)
    }
    assert standing.kept == 0
