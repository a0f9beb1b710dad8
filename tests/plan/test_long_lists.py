"""Long lists and many runs are looked up by number and by expiry (native/src/sorted.rs, runs.rs): the same matches."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cepheid.language.checker import check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type, Value
from cepheid.plan.matcher import Matcher

SECOND = 1_000_000
STREAM = Stream(
    "s", {"kind": Type.STRING, "v": Type.FLOAT, "n": Type.INT, "k": Type.STRING, "at": Type.TIMESTAMP}, id_kind="int"
)
FROM = "SELECT ?a.id AS one FROM (?a, s), (?b, s) FILTER (?a.kind = 'A') FILTER (?b.kind = 'B') "
Pairs = list[tuple[object, object]]


def matcher(text: str) -> Matcher:
    checked, problems = check(parse(text), Catalogue({"s": STREAM}))
    assert checked is not None, problems
    return Matcher(checked)


def events(seed: int, count: int = 900) -> list[Event]:
    """Many of one partition: ties, nulls, a burst of each kind, numbers that repeat."""
    rng = random.Random(seed)
    time = 0
    found = []
    for i in range(count):
        time += rng.choice((0, 1, 1, 2))
        kind = rng.choice("AAAB" if (i // 200) % 2 == 0 else "ABBB")
        attributes: dict[str, Value] = {
            "kind": kind,
            "v": rng.choice((None, *(x / 2 for x in range(-20, 20)))),
            "n": rng.choice((None, 2**53, 2**53 + 1, *range(40))),
            "k": rng.choice((None, *"abcdefgh")),
            "at": rng.randrange(50),
        }
        found.append(Event("s", i, time * SECOND // 4, attributes))
    return found


def holds(sign: str, one: object, other: object) -> bool:
    if one is None or other is None:
        return False
    compare: dict[str, Callable[..., bool]] = {
        "<": lambda x, y: x < y,
        "<=": lambda x, y: x <= y,
        ">": lambda x, y: x > y,
        ">=": lambda x, y: x >= y,
    }
    return compare[sign](one, other)


def in_batches(text: str, given: list[Event], size: int) -> Pairs:
    running = matcher(text)
    found: Pairs = []
    chunks: dict[str, bytes] = {}
    for start in range(0, len(given), size):
        running.push(given[start : start + size])
        matches = running.advance(given[start + size].time if start + size < len(given) else None)
        found += [(m.events["a"][1], m.events["b"][1]) for m in matches]  # type: ignore[index]
        if start // size % 5 == 4:
            state = running.save(chunks)
            chunks = state.chunks(chunks)
            running = matcher(text)
            running.restore(state.head, chunks)
    return found


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("name", ["v", "n", "k", "at"])
def test_all_pairs(name: str, sign: str) -> None:
    given = events(len(name) + ord(sign[0]))
    text = FROM + f"JOIN (?b.{name} {sign} ?a.{name}) WINDOW (?a, ?b, 40s)"
    wanted = [
        (a.id, b.id)
        for a in given
        for b in given
        if (a.attributes["kind"], b.attributes["kind"]) == ("A", "B")
        and abs(a.time - b.time) <= 40 * SECOND
        and holds(sign, b.attributes[name], a.attributes[name])
    ]
    assert sorted(in_batches(text, given, 37)) == sorted(wanted)
    assert len(wanted) > 1000


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("name", ["v", "n", "k", "at"])
@pytest.mark.parametrize("turned", [False, True])
def test_first_of_each(name: str, sign: str, turned: bool) -> None:
    given = events(len(name) + ord(sign[0]) + 7)
    other = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[sign]
    join = f"?a.{name} {other} ?b.{name}" if turned else f"?b.{name} {sign} ?a.{name}"
    text = FROM + f"JOIN ({join}) SEQ (?a, ?b) WINDOW (?a, ?b, 60s) MATCH NEXT"
    ordered = sorted(given, key=lambda e: e.order)
    wanted = []
    for a in (e for e in given if e.attributes["kind"] == "A"):
        later = (b for b in ordered if b.attributes["kind"] == "B" and a.time < b.time <= a.time + 60 * SECOND)
        first = next((b for b in later if holds(sign, b.attributes[name], a.attributes[name])), None)
        wanted += [] if first is None else [(a.id, first.id)]
    assert sorted(in_batches(text, given, 41)) == sorted(wanted)
    assert len(wanted) > 100


def test_nothing_is_left() -> None:
    for text in (
        FROM + "JOIN (?b.v > ?a.v) WINDOW (?a, ?b, 40s)",
        FROM + "JOIN (?b.v > ?a.v) SEQ (?a, ?b) WINDOW (?a, ?b, 40s) MATCH NEXT",
    ):
        running = matcher(text)
        given = events(3)
        running.push(given)
        running.advance(given[-1].time + 1000 * SECOND)
        counters = running.counters
        assert [counters[name] for name in ("held", "kept", "partitions", "runs", "pending")] == [0, 0, 0, 0, 0]
