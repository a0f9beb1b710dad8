"""How a judged query is kept: what is read is what was written, and nothing else can be made of a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, reject, settings

from cepheid.app.question import ask
from cepheid.history import plain
from cepheid.history.judging import Judged, Judging
from cepheid.language.checker import Checked
from cepheid.language.errors import Rejected
from cepheid.plan.matcher import Matcher
from cepheid.spark.knowledge import portable
from tests.plan.path_strategies import PathCase, cases, cases_together
from tests.plan.running import EXAMPLES


def judged_by_tables(case: PathCase) -> Checked:
    """As a stream on Spark judges it: what is not indexed is refused there."""
    try:
        return ask(case.checked, case.known("index")).checked
    except Rejected:
        reject()


@given(case=cases() | cases_together())
@settings(max_examples=EXAMPLES // 2, suppress_health_check=list(HealthCheck), deadline=None)
def test_what_is_read_is_what_was_written(case: PathCase) -> None:
    judged = portable(judged_by_tables(case))
    found = plain.read(plain.write(judged))
    assert isinstance(found, Checked)
    assert replace(found, lookups=()) == replace(judged, lookups=())
    # Tables don't count where lookups are compared.
    assert repr([vars(lookup) for lookup in found.lookups]) == repr([vars(lookup) for lookup in judged.lookups])
    assert Matcher(found, 0).matches(case.events) == Matcher(judged, 0).matches(case.events)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"Popen": {"args": ["true"]}}',
        '{"Path": ["x"]}',
        '{"Constant": {"wrong": 1}}',
        '{"Kind": "nothing"}',
        '{"dict": [1]}',
        '{"tuple": 1, "list": 2}',
        '{"dict": [["query", 1], ["version", 1]]}',
        "[1]",
    ],
)
def test_what_was_not_written_so_is_not_taken(text: str, tmp_path: Path) -> None:
    file = tmp_path / "judged.json"
    file.write_text(text, encoding="utf-8")
    assert Judging(file, "").kept() is None


@given(case=cases())
@settings(max_examples=5, suppress_health_check=list(HealthCheck), deadline=None)
def test_what_is_kept_is_there_for_the_next(tmp_path_factory: pytest.TempPathFactory, case: PathCase) -> None:
    checked = judged_by_tables(case)
    judging = Judging(tmp_path_factory.mktemp("kept") / "new" / "judged.json", "")
    assert judging.kept() is None
    judging.keep(Judged(checked, 7))
    assert judging.kept() == Judged(portable(checked), 7)
