"""`fmt`: the one form keeps the meaning, the order of clauses and the comments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cepheid.language import syntax
from cepheid.language.errors import Rejected, Source
from cepheid.language.formatter import format_query
from cepheid.language.parser import parse
from cepheid.language.printer import print_query
from tests.cli.test_cli import cepheid
from tests.language.strategies import queries

MESSY = """\
# What the fan does
#   when it is too warm
filter(?e1.flowrate>500)   -- the paper's limit
   SELECT ?e1.sensorID   # whose
WHERE join (?e2.sensorID=?e1.sensorID and -- inside
   ?e2.flowrate-?e1.flowrate>50)
seq(?e1,?e2) window(?e1,?e2,300s)
# the end
"""
NEAT = """\
# What the fan does
#   when it is too warm
FILTER (?e1.flowrate > 500)  -- the paper's limit
SELECT ?e1.sensorID  # whose
WHERE
JOIN (?e2.sensorID = ?e1.sensorID AND ?e2.flowrate - ?e1.flowrate > 50)  -- inside
SEQ (?e1, ?e2)
WINDOW (?e1, ?e2, 5min)
# the end
"""


def form(text: str) -> str:
    return format_query(Source("q.chi", text))


def test_the_form() -> None:
    assert form(MESSY) == NEAT
    assert form(NEAT) == NEAT
    assert parse(MESSY) == parse(NEAT)


@given(queries, st.lists(st.sampled_from(["# one", "-- two", "#"]), max_size=4))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_nothing_is_lost(query: syntax.Query, comments: list[str]) -> None:
    text = print_query(query) + "\n".join(comments)
    once = form(text)
    assert parse(once) == parse(text)
    assert form(once) == once
    if query.path is None:
        assert len(re.findall("# one|-- two", once)) >= sum(len(c) > 1 for c in comments)


def test_a_faulty_query_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(Rejected):
        form("SELECT ?e.x FILTER (")
    file = tmp_path / "q.chi"
    file.write_text("SELECT ?e.x FILTER (")
    done = cepheid("fmt", file)
    assert done.returncode == 2
    assert "FILTER ends too soon" in done.stderr
    assert file.read_text() == "SELECT ?e.x FILTER ("


def test_the_command(tmp_path: Path) -> None:
    file, other = tmp_path / "q.chi", tmp_path / "neat.chi"
    file.write_text(MESSY)
    other.write_text(NEAT)
    done = cepheid("fmt", "--check", file, other)
    assert (done.returncode, done.stdout) == (1, f"would change {file}\n")
    assert file.read_text() == MESSY
    assert cepheid("fmt", file, other).returncode == 0
    assert file.read_text() == NEAT
    assert cepheid("fmt", "--check", file, other).returncode == 0
    assert cepheid("fmt", tmp_path / "absent.chi").returncode == 2
