"""What the random cases are like: every production of the grammar, matches, ties, gaps, nulls and many keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from cepheid.cli.engines import Beyond
from cepheid.language import syntax
from cepheid.language.parser import parse
from cepheid.model.types import INT64_MAX
from tests.plan.productions import ALL, productions
from tests.plan.query_strategies import SECOND, Case, cases
from tests.plan.running import expected, matcher

#: Hypothesis varies each case a few times, so there are many fewer that have nothing in common.
SAMPLE: Final = 800


@cache
def sample() -> tuple[Case, ...]:
    """The same cases each time."""
    found: list[Case] = []

    @settings(
        max_examples=SAMPLE,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return tuple(found)


def share(holds: Callable[[Case], bool]) -> float:
    return sum(map(holds, sample())) / len(sample())


def test_every_production_is_in_one_query_of_a_hundred() -> None:
    found = Counter(p for case in sample() for p in productions(parse(case.text)))
    rare = {name: found[name] for name in ALL if found[name] < 0.01 * len(sample())}
    assert not rare
    assert not set(found) - ALL, "a production that is not listed"


def test_the_list_of_productions_is_of_the_grammar() -> None:
    """Each kind of node of the syntax tree gives a production, but for those of PATH and a bare variable."""
    seen = {type(e) for case in sample() for e in expressions(parse(case.text))}
    assert seen == set(syntax.Expression.__args__)
    assert {type(s) for case in sample() for s in case.checked.query.seq} == set(syntax.Step.__args__)


def expressions(query: syntax.Query) -> list[syntax.Expression]:
    whole = [*(s.expression for s in query.select), *query.filters, *query.joins, *query.group_by]
    whole += [] if query.having is None else [query.having]
    return [e for one in whole for e in syntax.walk(one)]


def test_half_of_the_cases_have_matches() -> None:
    assert share(lambda case: bool(matcher(case).matches(case.events))) >= 0.5


@pytest.mark.parametrize("policy", ["ANY", "NEXT", "STRICT"])
@pytest.mark.parametrize("after", ["KEEP", "CONSUME", "SKIP PAST LAST", "SKIP TO NEXT"])
def test_every_policy_has_matches(policy: str, after: str) -> None:
    chosen = [c for c in sample() if (c.checked.query.match, c.checked.query.after) == (policy, after)]
    assert any(matcher(case).matches(case.events) for case in chosen)


def test_the_reference_refuses_next_to_nothing() -> None:
    assert share(is_refused) <= 0.01


def is_refused(case: Case) -> bool:
    try:
        expected(case)
    except Beyond:
        return True
    return False


def times(case: Case) -> list[int]:
    return sorted(event.time for event in case.events)


def key_values(case: Case) -> set[object]:
    return {event.attributes.get("k") for event in case.events}


@pytest.mark.parametrize(
    ("least", "holds"),
    [
        pytest.param(0.5, lambda case: len(set(times(case))) < len(case.events), id="ties"),
        pytest.param(0.1, lambda case: any(b - a > 5 * SECOND for a, b in pairwise(times(case))), id="gaps"),
        pytest.param(0.3, lambda case: None in key_values(case), id="null keys"),
        pytest.param(0.1, lambda case: len(key_values(case) - {None}) > 2, id="many keys"),
        pytest.param(0.1, lambda case: len({e.id for e in case.events}) < len(case.events), id="ids of two streams"),
        pytest.param(0.3, lambda case: len({e.stream for e in case.events}) > 1, id="several streams"),
        pytest.param(
            0.05, lambda case: any(e.attributes.get("v") == INT64_MAX for e in case.events), id="greatest int"
        ),
        pytest.param(0.5, lambda case: len(case.events) > 5, id="many events"),
        pytest.param(0.05, lambda case: len(case.checked.query.seq) > 3, id="four steps"),
        pytest.param(0.2, lambda case: len(matcher(case).matches(case.events)) > 3, id="many matches"),
        pytest.param(0.2, lambda case: not matcher(case).matches(case.events), id="no match"),
        pytest.param(0.2, lambda case: bool(case.checked.partition.classes), id="keys"),
    ],
)
def test_cases_are_not_easy(least: float, holds: Callable[[Case], bool]) -> None:
    assert share(holds) >= least
