"""The query over a real building that docs/paths.md shows, where its file is present."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from cepheid.app import load
from cepheid.app.question import ask
from cepheid.cli.engines import find_matches
from cepheid.language.checker import check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from tests.cli.test_cli import cepheid

ROOT = Path(__file__).parents[2]
MINUTE = 60_000_000


def soda() -> Path | None:
    """The file: where CEPHEID_SODA says, or beside the repository."""
    places = [os.environ.get("CEPHEID_SODA"), *(str(p / "shared/data/soda_brick.ttl") for p in ROOT.parents)]
    return next((Path(p) for p in places if p and Path(p).is_file()), None)


def block(kind: str) -> str:
    found = re.search(rf"^```{kind} soda\n(.*?)^```", (ROOT / "docs/paths.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def write_building(folder: Path) -> None:
    model = soda()
    if model is None:
        pytest.skip("soda_brick.ttl is not here: set CEPHEID_SODA to its path")
    shutil.copy(model, folder / "soda_brick.ttl")
    for name, kind in (("limits.ttl", "turtle"), ("app.yaml", "yaml"), ("warm.chi", "chi"), ("events.jsonl", "jsonl")):
        (folder / name).write_text(block(kind), encoding="utf-8")


def test_what_the_page_shows_is_printed(tmp_path: Path) -> None:
    write_building(tmp_path)
    shown = re.split(r"^\$ (.*)\n", block("output"), flags=re.MULTILINE)[1:]
    for command, output in zip(shown[::2], shown[1::2], strict=True):
        assert cepheid(*command.split()[1:], cwd=tmp_path).stdout == output


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_a_real_building(engine: str, tmp_path: Path) -> None:
    write_building(tmp_path)
    application = load(tmp_path / "app.yaml")
    graph = application.graph
    checked, problems = check(parse(block("chi")), Catalogue(graph.streams, None, graph.prefixes, graph.properties))
    assert checked is not None, problems

    def flow(number: int, minute: int, zone: str, cfm: float) -> Event:
        point = f"flow_sensor_hvac_zone_{zone}"
        return Event("flow", number, minute * MINUTE, {"point": point, "cfm": cfm})

    def warm(number: int, minute: int, zone: str, temperature: float) -> Event:
        point = f"temp_sensor_hvac_zone_{zone}"
        return Event("zone", number, minute * MINUTE, {"point": point, "temperature": temperature, "setpoint": 70.0})

    events = [
        flow(1, 0, "C180", 450.0),  # above its limit of 400
        flow(2, 0, "C300", 450.0),  # not above 900
        warm(1, 2, "C180", 74.0),  # the same room, and warm
        warm(2, 2, "C300", 74.0),
        warm(3, 3, "C180", 69.0),  # not warm
        warm(4, 6, "C180", 75.0),  # too late
    ]
    found = list(find_matches(engine, ask(checked, application.known()), events, 0))
    assert [dict(m.events) for m in found] == [{"f": ("flow", 1), "z": ("zone", 1)}]
    assert found[0].select["room"] == "https://brickschema.org/schema/1.0.2/building_example#room_C180"
