"""What follows from FILTERs and JOINs together. That no match changes by it, tests/plan/test_matcher.py shows."""

from __future__ import annotations

import pytest

from cepheid.language.checker import check
from cepheid.language.parser import parse
from cepheid.language.printer import print_expression
from cepheid.language.scope import Catalogue
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.implied import implied

STREAM = Stream("s", {"k": Type.STRING, "n": Type.INT, "v": Type.FLOAT}, id_kind="int")
TWO = "SELECT ?a.id AS x FROM (?a, s), (?b, s) "
THREE = "SELECT ?a.id AS x FROM (?a, s), (?b, s), (?c, s) "


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (TWO + "FILTER (?a.k = 'x') JOIN (?a.k = ?b.k)", ["?b.k = 'x'"]),
        (TWO + "FILTER ('x' = ?a.k) JOIN (?b.k = ?a.k)", ["?b.k = 'x'"]),
        (TWO + "FILTER (?a.v > 3) JOIN (?b.v > ?a.v)", ["?b.v >= 3"]),
        (TWO + "FILTER (?a.v > 3) JOIN (?a.v < ?b.v)", ["?b.v >= 3"]),
        (TWO + "FILTER (?a.v <= 3) JOIN (?b.v < ?a.v)", ["?b.v <= 3"]),
        (TWO + "FILTER (?a.v = 3) JOIN (?b.v < ?a.v)", ["?b.v <= 3"]),
        # with a difference
        (TWO + "FILTER (?a.v > 500) JOIN (?b.v - ?a.v > 50)", ["?b.v >= 550"]),
        (TWO + "FILTER (?a.v > 500) JOIN (50 < ?b.v - ?a.v)", ["?b.v >= 550"]),
        (TWO + "FILTER (?b.v < 500) JOIN (?b.v - ?a.v > 50)", ["?a.v <= 450"]),
        (TWO + "FILTER (?a.v >= 0.5) JOIN (?b.v > ?a.v + 0.25)", ["?b.v >= 0.75"]),
        (TWO + "FILTER (?b.n < 5) JOIN (?a.n + 2 < ?b.n)", ["?a.n <= 3"]),
        (TWO + "FILTER (?a.n > 1) JOIN (?b.n - ?a.n > 1) JOIN (?a.n - ?b.n > 1)", ["?b.n >= 2"]),
        (THREE + "FILTER (?a.v > 1) JOIN (?b.v - ?a.v > 1) JOIN (?c.v > ?b.v)", ["?b.v >= 2", "?c.v >= 2"]),
        # nothing follows
        (TWO + "FILTER (?a.v > 500) JOIN (?b.v - ?a.v < 50)", []),
        (TWO + "FILTER (?a.v > 500) JOIN (?b.v - ?a.v = 50)", []),
        (TWO + "FILTER (?a.n > 5) JOIN (?b.n - ?a.n > 1.5)", []),
        (TWO + "FILTER (?a.n > 9223372036854775800) JOIN (?b.n - ?a.n > 50)", []),
        (TWO + "FILTER (?a.v > 3) JOIN (?b.v < ?a.v)", []),
        (TWO + "FILTER (?a.k != 'x') JOIN (?a.k = ?b.k)", []),
        (TWO + "FILTER (?a.k = 'x' OR ?a.v > 1) JOIN (?a.k = ?b.k)", []),
        (TWO + "FILTER (?a.n = 3) JOIN (?a.n = ?b.v)", []),  # 2^53 + 1 is equal to a float that is not equal to it
        (TWO + "FILTER (?a.k = 'x') FILTER (?b.k = 'x') JOIN (?a.k = ?b.k)", []),
        # through several JOINs, and parts of an AND
        (
            THREE + "FILTER (?a.n = 1 AND ?a.k = 'x') JOIN (?a.k = ?b.k AND ?b.k = ?c.k)",
            ["?b.k = 'x'", "?c.k = 'x'"],
        ),
        # a variable that may be unbound is no reason, and has reasons
        (TWO + "FILTER (?a.k = 'x') JOIN (?a.k = ?b.k) SEQ (?a, NOT ?b) WINDOW (?a, ?b, 1s)", ["?b.k = 'x'"]),
        (TWO + "FILTER (?b.k = 'x') JOIN (?a.k = ?b.k) SEQ (?a, NOT ?b) WINDOW (?a, ?b, 1s)", []),
        (TWO + "FILTER (?b.k = 'x') JOIN (?a.k = ?b.k) SEQ (?a, ?b+) WINDOW (?a, ?b, 1s)", []),
        # MATCH NEXT judges with what is bound so far
        (TWO + "FILTER (?a.k = 'x') JOIN (?a.k = ?b.k) SEQ (?a, ?b) WINDOW (?a, ?b, 1s) MATCH NEXT", ["?b.k = 'x'"]),
        (TWO + "FILTER (?b.k = 'x') JOIN (?a.k = ?b.k) SEQ (?a, ?b) WINDOW (?a, ?b, 1s) MATCH NEXT", []),
    ],
)
def test_what_follows(query: str, wanted: list[str]) -> None:
    checked, problems = check(parse(query), Catalogue({"s": STREAM}))
    assert checked is not None, problems
    assert [print_expression(found).replace('"', "'") for found in implied(checked)] == wanted
