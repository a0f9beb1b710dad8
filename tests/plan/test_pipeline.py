"""The asynchronous stages find what the matcher finds, and a fault in one ends all."""

from __future__ import annotations

import pytest

from cepheid.app.known import Known
from cepheid.knowledge.modes import Evaluation, SemanticFilter
from cepheid.model.events import Event
from cepheid.model.matches import Match
from cepheid.plan.matcher import Matcher
from cepheid.plan.pipeline import Pipeline
from tests.plan.path_strategies import PREFIXES, knowledge
from tests.plan.test_paths import MEANINGS, ROOMS, checked_query, events

QUERY = "SELECT ?e.id, ?r SEQ (?e, ?f) WINDOW (?e, ?f, 3s) PATH {?e :src/:in ?r} PATH {?f :src ?s . ?s :in ?q}"


@pytest.mark.parametrize("mode", ["naive", "buffer", "cache", "buffer+cache"])
def test_stages_find_what_the_matcher_finds(mode: Evaluation) -> None:
    checked, _ = checked_query(QUERY)
    assert checked is not None
    known = Known(knowledge(ROOMS), MEANINGS, mode, PREFIXES)
    semantic = known.lower(checked)
    given = events(*(["s1", "s2", "s9", "s3"] * 5))
    wanted = Matcher(semantic.checked, semantic=SemanticFilter(semantic.lookups, known.knowledge, mode)).matches(given)
    found: list[Match] = []
    judge = SemanticFilter(semantic.lookups, known.knowledge, mode, size=2)
    pipeline = Pipeline(semantic.checked, judge, found.extend, interval=0.01)
    for start in range(0, len(given), 3):
        pipeline.push(given[start : start + 3])
    pipeline.close()
    assert wanted
    assert [m.id for m in found] == [m.id for m in wanted]
    assert {name: work.events for name, work in pipeline.work.items()} == dict.fromkeys(pipeline.work, len(given))


def test_a_fault_of_a_stage_is_told_at_the_end() -> None:
    checked, _ = checked_query(QUERY)
    assert checked is not None
    known = Known(knowledge(ROOMS), MEANINGS, "naive", PREFIXES)
    semantic = known.lower(checked)
    pipeline = Pipeline(semantic.checked, SemanticFilter(semantic.lookups, known.knowledge, "naive"), print)
    for _ in range(100):
        pipeline.push([Event("a", 1, 1, {"sensor": b"no text", "flow": None})])
    with pytest.raises(ValueError, match="bytes"):
        pipeline.close()
